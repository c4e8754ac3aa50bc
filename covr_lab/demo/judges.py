"""Judges of the demo world: by the attributes that captions name, and oracles that err at a known rate, for studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from covr_lab.engines.consult import ParseError
from covr_lab.reasoning.judging import PairJudge, Verdict
from covr_lab.scorers.attributes import Attributes, agreement, attributes, named
from covr_lab.scorers.oracle import draws
from covr_lab.types import Context


class DemoJudge(PairJudge):
    """Whose caption names more of the attributes that are wanted: those of the source, overridden by those of the text.

    The reason names the first attribute that the winner has and the other one lacks.
    """

    def render(self, context: Context) -> Verdict:
        """The verdict; equal ones tie."""
        wanted = {**attributes(context.source_caption), **named(context.text)}
        if not wanted:
            raise ParseError(f"no attribute in {context.text!r}")
        have = attributes(context.candidate_caption), attributes(context.rival_caption)
        first, second = (agreement(wanted, found, {}) for found in have)
        if first == second:
            return Verdict("tie", 0.5, "both have equally much of what is asked")
        if first > second:
            return Verdict("first", 1.0, _difference(wanted, *have, ("first", "second")))
        return Verdict("second", 0.0, _difference(wanted, *have[::-1], ("second", "first")))


def _difference(wanted: Attributes, winner: Attributes, loser: Attributes, names: tuple[str, str]) -> str:
    """The attribute that decided, in words.

    >>> _difference({"colour": "red"}, {"colour": "red"}, {"colour": "blue"}, ("first", "second"))
    'colour: the first is red as asked, the second is blue'
    """
    kind = next(kind for kind, value in wanted.items() if winner.get(kind) == value != loser.get(kind))
    return f"{kind}: the {names[0]} is {wanted[kind]} as asked, the {names[1]} is {loser.get(kind, 'unknown')}"


class OrderJudge(PairJudge):
    """Knows one true order of videos, whatever is asked; for studies only.

    Args:
        order: ids, best first.
    """

    def __init__(self, *, order: Sequence[str]) -> None:
        super().__init__()
        self.places = {video: place for place, video in enumerate(order)}

    def render(self, context: Context) -> Verdict:
        """Who comes first in the order."""
        first = self.places[str(context.candidate)] < self.places[str(context.rival)]
        return Verdict("first" if first else "second", float(first))


class NoisyJudge(PairJudge):
    """Turns a share of the verdicts of another judge around; for studies only.

    Args:
        judge: by rule; who is right.
        error: share of judgements that are turned around.
        seed: of the errors.
        noise: ``fresh``: every encounter of two videos errs by itself. ``fixed``: a pair that is misjudged stays so.
            Which of the two is shown first does not matter.

    Raises:
        ValueError: the error is no share, or the judge asks an engine.
    """

    def __init__(
        self, *, judge: PairJudge, error: float = 0.2, seed: int = 0, noise: Literal["fresh", "fixed"] = "fresh"
    ) -> None:
        super().__init__()
        if not 0 <= error <= 1 or judge.engine is not None:
            raise ValueError(f"NoisyJudge needs an error from 0 to 1, not {error}, and a judge that asks no engine")
        self.judge, self.error, self.seed, self.noise = judge, error, seed, noise

    def render(self, context: Context) -> Verdict:
        """The verdict, or its opposite."""
        said = self.judge.render(context)
        assert isinstance(said, Verdict)
        session, videos = context.session, sorted((str(context.candidate), str(context.rival)))
        met = context.encounter if self.noise == "fresh" else None
        wrong, _ = draws(self.seed, session.query.session_id, len(session.turns), *videos, met)
        if wrong >= self.error or said.outcome not in ("first", "second"):
            return said
        return Verdict("second" if said.outcome == "first" else "first", 1 - said.probability)
