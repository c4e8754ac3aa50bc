"""Qwen3-VL-Reranker on this machine: how sure the model is that its answer would be "yes"."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from typing import Final, Literal

import torch

from covr_lab.engines.chat import MediaKind, Prompt
from covr_lab.engines.hf import HFEngine, buckets, windows
from covr_lab.engines.request import Request
from covr_lab.scorers.base import Pair
from covr_lab.scorers.seeing import SeeingScorer
from covr_lab.types import Refused, SessionError
from covr_lab.views.base import FrameView

# The frame that the released weights were trained in: with other words they are another model.
SYSTEM: Final = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
INSTRUCTION: Final = "Given a search query, retrieve relevant candidates that answer the query."
ANSWERS: Final = ("yes", "no")
_log = logging.getLogger(__name__)


class QwenReranker(SeeingScorer):
    """Relevance by Qwen3-VL-Reranker: the sigmoid of the logit of "yes" over that of "no" as the next token.

    Query (source, then text) and document (candidate) stand in the prompt of the released weights (Qwen3-VL-Embedding
    repository, reranker script). Logits are taken in fp32 from the state of the last token after the final norm, for in
    half precision close scores would tie. In fp32 a score does not depend on its batch (but for the last digits of the
    arithmetic); in half precision it may, slightly.

    Args:
        model: folder with a saved model and its processor, or OWNER/NAME on the Hub together with ``revision``.
        revision: commit on the Hub (40 digits).
        dtype: of weights and activations, see :class:`~covr_lab.engines.HFEngine`.
        attention: implementation of attention.
        media: how clips go to the model, see :class:`~covr_lab.engines.HFEngine`.
        frame_pixels: larger frames are scaled down to this many pixels.
        batch_tokens: pairs of a batch times tokens of the longest; a batch that runs out of memory is halved.
        instruction: what a match is, ``None`` for the sentence of the released weights (as CoVRAGE leaves it).
        view: which frames of source and candidate are shown, ``None`` for their captions alone.

    Raises:
        ValueError: a setting is out of its range.
    """

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa",
        media: MediaKind = "video",
        frame_pixels: int = 448 * 448,
        batch_tokens: int = 65536,
        instruction: str | None = None,
        view: FrameView | None = None,
    ) -> None:
        super().__init__(view=view)
        self.instruction = INSTRUCTION if instruction is None else instruction
        self.vlm = HFEngine(
            model=model,
            revision=revision,
            dtype=dtype,
            attention=attention,
            media=media,
            frame_pixels=frame_pixels,
            batch_tokens=batch_tokens,
            constrained=False,
        )

    @property
    def fingerprint(self) -> str:
        """sha256 of weights, settings and prompt; which frames are shown is told by :meth:`reads`."""
        parts = [1, self.vlm.fingerprint, SYSTEM, self.instruction]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def load(self) -> None:
        """Read weights and processor.

        Raises:
            Refused: they cannot be read, or "yes" and "no" are not one token each.
        """
        super().load()
        self.vlm.load()
        vocabulary = self.vlm.chat.tokenizer.get_vocab()
        if missing := [answer for answer in ANSWERS if answer not in vocabulary]:
            raise Refused(f"model '{self.vlm.source.model}' has no token for {missing}: name a reranker of Qwen3-VL")
        self.tokens = [vocabulary[answer] for answer in ANSWERS]
        self.freeze()

    def request(self, pair: Pair) -> Request:
        """The prompt of one pair.

        Raises:
            SessionError: nothing is known of one of its videos.
        """
        query, document = self.query(pair), self.shown(pair.candidate)
        content = (f"<Instruct>: {self.instruction}", "<Query>:", *query, "\n<Document>:", *document)
        return Request("rerank", content, pair.session, pair.turn, SYSTEM)

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Relevances; NaN, with a warning, where a video cannot be read or a prompt is too long for model or memory."""
        self.vlm.generate([])  # goes over to fp32 on a CPU
        scores, asked = [float("nan")] * len(pairs), dict[int, Request]()
        for place, pair in enumerate(pairs):
            try:
                asked[place] = self.request(pair)
            except SessionError as error:
                _unscored(pair, error)
        places = list(asked)
        for window in windows(list(asked.values())):
            prompts = dict[int, Prompt]()
            for place in (places[index] for index in window):
                try:
                    prompts[place] = self.vlm.chat.prompt(asked[place])
                except SessionError as error:
                    _unscored(pairs[place], error)
            ready = list(prompts)
            for batch in buckets([(prompts[place].tokens, 1) for place in ready], self.vlm.batch_tokens):
                members = [ready[index] for index in batch]
                found = self._halving([prompts[place] for place in members])
                for place, value in zip(members, found, strict=True):
                    scores[place] = value
        return scores

    def _halving(self, prompts: list[Prompt]) -> list[float]:
        """Scores of one batch; one that does not fit into memory is scored in halves, NaN where one prompt is left."""
        try:
            return self._scored(prompts)
        except torch.cuda.OutOfMemoryError as error:
            reason = str(error).split(". ")[0]
        torch.cuda.empty_cache()  # outside of the handler: the error holds on to what the batch had allocated
        if len(prompts) == 1:
            _log.warning("out of memory with one pair alone (%s): show fewer frames, or lower frame_pixels", reason)
            return [float("nan")]
        middle = len(prompts) // 2
        return self._halving(prompts[:middle]) + self._halving(prompts[middle:])

    @torch.inference_mode()
    def _scored(self, prompts: list[Prompt]) -> list[float]:
        logits = self.vlm.logits(prompts, self.tokens)
        found: list[float] = torch.sigmoid(logits[:, 0] - logits[:, 1]).tolist()
        return found


def _unscored(pair: Pair, error: SessionError) -> None:
    _log.warning("session %s, candidate '%s' was not scored: %s", pair.session, pair.candidate, error)
