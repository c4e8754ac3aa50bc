"""A reranker behind a server: ``/rerank`` as vLLM, Jina and Cohere offer it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from covr_lab.engines.images import ENCODING
from covr_lab.engines.openai import OpenAIEngine, content
from covr_lab.engines.request import Request, Response
from covr_lab.scorers.base import Pair
from covr_lab.scorers.seeing import Parts, SeeingScorer
from covr_lab.types import SessionError
from covr_lab.views.base import FrameView

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Comparison(Request):
    """One query (its content) against some documents."""

    documents: tuple[Parts, ...] = ()


def read_scores(answer: object, count: int) -> list[float]:
    """Relevance of each document; NaN for one that is missing, named twice, or scored out of [0, 1].

    Args:
        answer: what the server sent.
        count: documents that it was sent.

    Raises:
        ValueError: there are no results in it.

    >>> one, two = {"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}
    >>> read_scores({"results": [one, two]}, 2), read_scores({"results": [one, one]}, 2)
    ([0.2, 0.9], [nan, nan])
    """
    results = answer.get("results") if isinstance(answer, Mapping) else None
    if not isinstance(results, list):
        raise ValueError("an answer without results")
    told: list[list[object]] = [[] for _ in range(count)]
    for result in results:
        index = result.get("index") if isinstance(result, Mapping) else None
        if type(index) is int and 0 <= index < count:  # a bool is no index
            told[index].append(result.get("relevance_score"))
    return [_relevance(scores[0]) if len(scores) == 1 else float("nan") for scores in told]


def _relevance(score: object) -> float:
    if isinstance(score, (int, float)) and not isinstance(score, bool) and 0 <= score <= 1:
        return float(score)
    return float("nan")


class RerankClient(OpenAIEngine):
    """The engine for servers, asking for relevances: its limits, time-outs, retries and refusals are the same.

    An answer is a JSON object: place of a document of the :class:`Comparison` -> relevance, NaN where there is none.

    Args:
        instruction: sent along, ``None`` leaves it to the server.
        settings: see :class:`~covr_lab.engines.OpenAIEngine`.
    """

    def __init__(self, *, instruction: str | None, settings: Mapping[str, Any]) -> None:
        super().__init__(**settings)
        self.instruction = instruction

    def body(self, request: Request) -> dict[str, Any]:
        """What is sent; a document whose video cannot be read is left out, ``places`` says which were not.

        Raises:
            SessionError: the source cannot be read, or no document can.
        """
        assert isinstance(request, Comparison)
        documents, reason = dict[int, Any](), "no documents"
        for place, parts in enumerate(request.documents):
            try:
                documents[place] = self._told(request, parts)
            except SessionError as error:
                reason = str(error)
                _log.warning("session %s: a candidate was not scored: %s", request.session_id, error)
        if not documents:
            raise SessionError(reason)
        told = {} if self.instruction is None else {"instruction": self.instruction}
        query = self._told(request, request.content)
        sent = {"query": query, "documents": list(documents.values()), "top_n": len(documents), **told}
        return {"model": self.model, **sent, "places": list(documents)}

    def _told(self, request: Request, parts: Parts) -> Any:
        told = content(Request(request.role, parts, request.session_id, request.turn), self.max_side)
        return told if isinstance(told, str) else {"content": told}

    async def _respond(self, client: AsyncOpenAI, body: dict[str, Any], key: str | None) -> Response:
        return await super()._respond(cast("AsyncOpenAI", _Reranks(client)), body, key)


class _Reranks:
    """A client whose completions are relevances."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self.models, self.chat, self._client = client.models, SimpleNamespace(completions=self), client

    async def create(self, *, places: list[int], **body: Any) -> Any:
        answer = await self._client.post("/rerank", body=body, cast_to=object)
        told = dict(zip(places, read_scores(answer, len(places)), strict=True))
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=json.dumps(told)))])


class RerankEndpoint(SeeingScorer):
    """Relevance by a model behind ``/rerank`` (vLLM serving Qwen3-VL-Reranker; Jina, Cohere for captions).

    Pairs of one query go as one request. Frames go as images in ``data:`` URLs behind their times, source before text;
    a pair of captions goes as plain strings. A query that the server refuses, or that keeps failing while the server
    lives, has no scores; a server that is gone ends the run with one line.

    Args:
        model: what the server calls it.
        base_url: address of the server, mostly ending in ``/v1``; ``/rerank`` is added.
        api_key_env: environment variable that holds the key; a server with an address of its own may need none.
        instruction: what a match is, ``None`` leaves it to the server (as CoVRAGE does); vLLM reads this field.
        view: which frames of source and candidate are shown, ``None`` for their captions alone.
        documents: most candidates of a request.
        concurrency: most requests in flight from each process.
        timeout: seconds that a request may take each time it is sent.
        retries: times that a request is sent again after 429, 5xx, a time-out, or an answer that did not arrive whole.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key_env: str = "OPENAI_API_KEY",
        instruction: str | None = None,
        view: FrameView | None = None,
        documents: int = 16,
        concurrency: int = 16,
        timeout: float = 300.0,
        retries: int = 5,
    ) -> None:
        super().__init__(view=view)
        if documents < 1:
            raise ValueError(f"documents must be 1 or more, not {documents}")
        self.documents, self.busy = documents, 0.0
        settings = {"model": model, "base_url": base_url, "api_key_env": api_key_env, "concurrency": concurrency}
        settings |= {"timeout": timeout, "retries": retries, "max_side": None}
        self.client = RerankClient(instruction=instruction, settings=settings)

    @property
    def fingerprint(self) -> str:
        """sha256 of model, instruction and encoding of frames; not of the address."""
        parts = ["rerank-1", self.client.model, self.client.instruction, ENCODING]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def load(self) -> None:
        """See that client and key are there; nothing is sent."""
        super().load()
        self.client.load()

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Relevances; NaN, with a warning, where a video cannot be read or the server gives none.

        Raises:
            EngineError: the server is gone, or refuses the key or the model.
        """
        scores, known = [float("nan")] * len(pairs), dict[int, tuple[Parts, Parts]]()
        for place, pair in enumerate(pairs):
            try:
                known[place] = self.query(pair), self.shown(pair.candidate)
            except SessionError as error:
                _log.warning("session %s, candidate '%s' was not scored: %s", pair.session, pair.candidate, error)
        queries = dict[tuple[str | None, str], list[int]]()
        for place in known:
            queries.setdefault((pairs[place].source, pairs[place].text), []).append(place)
        groups = [
            places[start : start + self.documents]
            for places in queries.values()
            for start in range(0, len(places), self.documents)
        ]
        requests = [self._comparison(pairs[places[0]], [known[place] for place in places]) for places in groups]
        for places, response in zip(groups, self.client.generate(requests), strict=True):
            self.busy = (self.busy or 0.0) + response.seconds
            if response.error:
                _log.warning("session %s: %d pairs were not scored: %s", *_of(pairs, places), response.error)
                continue
            for place, value in json.loads(response.text).items():
                scores[places[int(place)]] = value
        return scores

    def _comparison(self, pair: Pair, parts: Sequence[tuple[Parts, Parts]]) -> Comparison:
        documents = tuple(document for _, document in parts)
        return Comparison("rerank", parts[0][0], pair.session, pair.turn, documents=documents)


def _of(pairs: Sequence[Pair], places: Sequence[int]) -> tuple[str, int]:
    return pairs[places[0]].session, len(places)
