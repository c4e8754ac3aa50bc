"""Comparisons of one query in progress: who is judged next, and what was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from covr_lab.engines.request import Call
from covr_lab.functional.pairwise import Pair, Phase, Schedule
from covr_lab.ranking.stages import Work, reason
from covr_lab.reasoning.base import Thought
from covr_lab.reasoning.judging import Verdict
from covr_lab.types import Comparison, Context, Event


@dataclass(slots=True)
class Contest:
    """How far the comparisons of one query have come; items are places of its pool.

    Attributes:
        work: the query.
        context: what a judge sees of it, without the pair.
        rows: gallery rows of the pool, in the order before the stage.
        schedule: who meets whom.
        phase: the comparisons that wait for a judgement, ``None`` when the schedule is over.
        order: items as the schedule left them, later in the order of their strengths.
        verdicts: every judgement with its pair and encounter, in order.
        known: newest judgement of an ordered pair.
        asked: judgements that were not remembered.
        swaps: how often the second one won.
        failure: why the order stands, "" as long as nothing is wrong.
        events: what else is worth a line in the record.
    """

    work: Work
    context: Context
    rows: list[int]
    schedule: Schedule
    phase: Phase | None = None
    order: list[int] = field(default_factory=list)
    verdicts: list[tuple[Pair, int, Verdict]] = field(default_factory=list)
    known: dict[Pair, Verdict] = field(default_factory=dict)
    asked: int = 0
    swaps: int = 0
    failure: str = ""
    events: list[Event] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def advance(self, lost: Sequence[bool] | None) -> None:
        """Go on to the next phase; ``lost`` says for each pair of this one whether the second won."""
        self.swaps += sum(lost or ())
        try:
            self.phase = next(self.schedule) if lost is None else self.schedule.send(lost)
        except StopIteration as end:
            self.phase, self.order = None, end.value

    def unknown(self, *, remember: bool) -> list[Pair]:
        """Pairs of the phase that are judged now: all of them, or those without a judgement so far."""
        pairs = self.phase.pairs if self.phase else []
        return [pair for pair in pairs if not remember or pair not in self.known]

    def take(self, pair: Pair, found: Thought[Verdict] | Exception) -> None:
        """Note the judgement of one pair; the first error ends the contest."""
        if isinstance(found, Exception):
            self.failure = self.failure or reason(found)
            return
        self.known[pair] = found.answer
        self.asked += 1
        self.calls += found.calls

    def settle(self) -> None:
        """Put the judgements of the phase on record, and go on."""
        assert self.phase is not None
        found = [(pair, self.phase.encounter, self.known[pair]) for pair in self.phase.pairs]
        self.verdicts += found
        self.advance([verdict.outcome == "second" for _, _, verdict in found])

    @property
    def done(self) -> bool:
        """Whether there is an order to take over."""
        return bool(self.verdicts) and not self.failure

    @property
    def best(self) -> int:
        """Gallery row of the item that comes first."""
        return self.rows[self.order[0]]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the best item won, each reason once, in the order of the judgements."""
        best, won = self.order[0], {"first": 0, "second": 1}
        said = (v.reason for pair, _, v in self.verdicts if v.outcome in won and pair[won[v.outcome]] == best)
        return tuple(dict.fromkeys(filter(None, said)))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The record: gallery rows in place of items."""
        return tuple(
            Comparison(self.rows[first], self.rows[second], said.outcome, said.probability, said.reason, encounter)
            for (first, second), encounter, said in self.verdicts
        )

    @property
    def routing(self) -> dict[str, float]:
        """Numbers of the record."""
        outcomes = [verdict.outcome for _, _, verdict in self.verdicts]
        numbers = {
            "comparisons": len(outcomes),
            "compared_anew": self.asked,
            "swaps": self.swaps,
            "ties": outcomes.count("tie"),
            "unparseable": outcomes.count("unparseable"),
            "passes": 1 + max((encounter for _, encounter, _ in self.verdicts), default=-1),
            "failed": bool(self.failure),
        }
        return {key: float(value) for key, value in numbers.items()}
