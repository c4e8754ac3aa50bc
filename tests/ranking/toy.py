"""Scripted parts of a cascade: what they say is a function of what they see, and they write down what that was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from covr_lab.engines.base import Engine
from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request, Response
from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.stages import Work
from covr_lab.reasoning.cascade import Describer, Verifier
from covr_lab.reasoning.judging import PairJudge, Verdict
from covr_lab.scorers.base import Pair, PairScorer
from covr_lab.types import Context, Query, RankedList, Reflection, Session


def dice(*parts: object) -> np.random.Generator:
    """A generator that depends on ``parts`` alone."""
    return np.random.default_rng(list(hashlib.sha256(repr(parts).encode()).digest()))


class TableScorer(PairScorer):
    """Scores by a function of the pair; ``calls`` are the lists that it was given."""

    def __init__(self, table: Callable[[Pair], float]) -> None:
        super().__init__()
        self.table, self.calls = table, list[list[Pair]]()

    @property
    def fingerprint(self) -> str:
        return "table"

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        self.calls.append(list(pairs))
        return [self.table(pair) for pair in pairs]


class HashScorer(TableScorer):
    """Random relevance of a pair, below 0.95, whoever asks; needs no argument, so that a recipe can name it."""

    def __init__(self) -> None:
        super().__init__(lambda pair: 0.95 * float(dice(pair.source, pair.text, pair.candidate).random()))


class Says(Describer):
    """Takes the engine's answer as it is; "garbled" cannot be read, and it stumbles over the edit "stumble"."""

    engine = "model"

    def render(self, context: Context) -> Request:
        if context.text == "stumble":
            raise RuntimeError("stumbled")
        session = context.session
        return Request("describe", (context.text,), session.query.session_id, len(session.turns))

    def parse(self, text: str, context: Context) -> str:
        if text == "garbled":
            raise ParseError(text)
        return text

    def fallback(self, context: Context) -> str:
        return "what no model said"


class Judge(Verifier):
    """Reads yes and no, and stumbles over the candidate "stumble"."""

    engine = "model"

    def render(self, context: Context) -> Request:
        if context.candidate == "stumble":
            raise RuntimeError("stumbled")
        session, seen = context.session, f"{context.source}|{context.text}|{context.candidate}"
        return Request("verify", (seen,), session.query.session_id, len(session.turns))

    def parse(self, text: str, context: Context) -> bool:
        if text not in ("yes", "no"):
            raise ParseError(text)
        return text == "yes"


class DiceJudge(PairJudge):
    """Random verdicts by session, turn, pair and encounter alone, ties and unreadable ones among them."""

    def render(self, context: Context) -> Verdict:
        session = context.session
        seen = (session.query.session_id, len(session.turns), context.candidate, context.rival, context.encounter)
        share = round(float(dice(*seen, context.text).random()), 3)
        if share > 0.9:
            raise ParseError("unreadable")
        return Verdict("tie", 0.5) if share > 0.8 else Verdict("first" if share > 0.4 else "second", share / 0.8)


class Model(Engine):
    """Answers by a function of the request; ``lists`` are what it was asked together."""

    def __init__(self, answer: Callable[[Request], str | Response]) -> None:
        super().__init__()
        self.answer, self.lists = answer, list[list[Request]]()

    @property
    def fingerprint(self) -> str:
        return "model"

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.lists.append(list(requests))
        answers = [self.answer(request) for request in requests]
        return [answer if isinstance(answer, Response) else Response(answer) for answer in answers]


def gallery_of(size: int) -> Gallery:
    """Videos ``v000``, ``v001``, ... in row order."""
    return Gallery.of([f"v{row:03}" for row in range(size)], {})


def work_of(
    name: str, text: str, rows: Sequence[int], scores: Sequence[float] | None = None, source: str | None = "source"
) -> Work:
    """A query at turn 0."""
    context = Context(Session(Query(name, source, text)), Reflection(query=text))
    found = None if scores is None else np.array(scores, np.float32)
    return Work(context, source, text, RankedList(np.array(rows, np.int32), found))
