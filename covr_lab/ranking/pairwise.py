"""Ranking by comparisons: the head of an order from judgements between two candidates (X-CoT; dossier, section 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Call, Request
from covr_lab.functional.bradley_terry import bradley_terry, by_strength, rank_prior
from covr_lab.functional.pairwise import Pair, Phase, Schedule, ScheduleName, most, schedule, win_matrix
from covr_lab.ranking.memory import complete
from covr_lab.ranking.stages import Refined, Stage, Work, isolated, reason
from covr_lab.reasoning.base import Reasoner, Thought, think
from covr_lab.reasoning.judging import PairJudge, Verdict
from covr_lab.types import Comparison, Context, Event, RankedList


@dataclass(slots=True)
class Contest:
    """How far the comparisons of one query have come; items are places of its pool.

    Attributes:
        work: the query.
        context: what a judge sees of it, without the pair.
        rows: gallery rows of the pool, in the order before the stage.
        schedule: who meets whom.
        phase: the comparisons that wait for a judgement, ``None`` when the schedule is over.
        order: items as the schedule left them.
        verdicts: every judgement with its pair and encounter, in order.
        known: newest judgement of an ordered pair.
        asked: judgements that were not remembered.
        swaps: how often the second one won.
        failure: why the order stands, "" as long as nothing is wrong.
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


class PairwiseRank(Stage):
    """Puts the head of each order into the order of judgements between two candidates at a time.

    The comparisons of one phase of all queries go to the judge as one list. The judge sees the raw text: at turn 0 the
    query, later what the turn asked. A query whose judge fails keeps its order. The released code skips queries whose
    target is not in the pool, which no ranking needs: who is outside of the pool stays where it is.

    Args:
        judge: which of two candidates fits better.
        pool: candidates, K in the paper.
        passes: of a schedule that has passes, P in the paper.
        schedule: ``odd_even`` transposition (the paper's), one ``sliding`` pass after another (its explanations), or
            ``merge`` sort, which needs fewer comparisons and knows no passes.
        aggregate: the order of Bradley-Terry strengths over all judgements, or the one that the schedule left.
        counts: every meeting of two candidates counts as a win, or their first one alone.
        ridge: weight of the penalty, see :func:`~covr_lab.functional.bradley_terry.bradley_terry`.
        prior: strength of a prior that falls with the logarithm of the rank before the stage; 0 for none.
        ties: a tie counts nothing, or half a win for each; the higher one stays higher.
        unparseable: an answer that cannot be read counts for the ``first``, the one that stands higher (released), is
            dropped, or counts half a win for each; the higher one stays higher.
        repeat: a pair that meets again in the same places is asked again, or its judgement is remembered and counts
            once more (the released cache). An engine that does not sample answers alike anyway.

    Raises:
        ValueError: a number is out of its range.
    """

    name = "pairwise"

    def __init__(
        self,
        *,
        judge: PairJudge,
        pool: int = 20,
        passes: int = 10,
        schedule: ScheduleName = "odd_even",
        aggregate: Literal["bradley_terry", "order"] = "bradley_terry",
        counts: Literal["all", "unique"] = "all",
        ridge: float = 1e-3,
        prior: float = 0.0,
        ties: Literal["keep", "half"] = "keep",
        unparseable: Literal["first", "drop", "half"] = "first",
        repeat: Literal["ask", "remember"] = "ask",
    ) -> None:
        super().__init__()
        if pool < 2 or passes < 0 or not ridge > 0 or prior < 0:
            raise ValueError(
                f"pairwise needs pool >= 2, passes >= 0, ridge > 0 and prior >= 0, not {pool}, {passes}, {ridge:g} and "
                f"{prior:g}"
            )
        self.judge = judge
        self.pool, self.passes, self.schedule, self.aggregate = pool, passes, schedule, aggregate
        self.counts, self.ridge, self.prior = counts, ridge, prior
        self.ties, self.unparseable, self.repeat = ties, unparseable, repeat

    def reasoners(self) -> Mapping[str, Reasoner[Any]]:
        """The judge."""
        return {"judge": self.judge}

    def rehearse(self, work: Work) -> tuple[Request, ...]:
        """One request a comparison of a full pool."""
        if not self.judge.engine:
            return ()
        seen, size = self.gallery.ids[work.ranking.rows[0]], min(self.pool, len(self.gallery))
        context = self._meeting(self.context(work), seen, seen)
        return (self.judge.rehearse(context),) * most(self.schedule, size, self.passes)

    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        """One phase of everybody after another, then one fit for all; see the base class."""
        contests = [self._contest(work) for work in works]
        meeting = [contest for contest in contests if contest.phase]
        while meeting:
            self._judge(meeting, engines)
            going = [contest for contest in meeting if not contest.failure]
            for contest in going:
                contest.settle()
            meeting = [contest for contest in going if contest.phase]
        if self.aggregate == "bradley_terry":
            self._aggregate([contest for contest in contests if contest.done])
        return [self._refined(contest) for contest in contests]

    def _contest(self, work: Work) -> Contest:
        rows = [] if work.failed else work.ranking.rows[: self.pool].tolist()
        contest = Contest(work, self.context(work), rows, schedule(self.schedule, len(rows), self.passes))
        contest.advance(None)
        return contest

    def _judge(self, contests: Sequence[Contest], engines: Mapping[str, Engine]) -> None:
        """Ask for what the phases of ``contests`` do not remember, all as one list."""
        remember = self.repeat == "remember"
        asked = [(contest, pair) for contest in contests for pair in contest.unknown(remember=remember)]
        jobs = [(self.judge, self._pair(contest, pair)) for contest, pair in asked]
        for (contest, pair), found in zip(asked, isolated(partial(think, engines=engines), jobs), strict=True):
            contest.take(pair, found)

    def _pair(self, contest: Contest, pair: Pair) -> Context:
        assert contest.phase is not None
        candidate, rival = (self.gallery.ids[contest.rows[item]] for item in pair)
        return self._meeting(contest.context, candidate, rival, contest.phase.encounter)

    def _meeting(self, context: Context, candidate: str, rival: str, encounter: int = 0) -> Context:
        """``context`` with the pair in it."""
        return replace(
            context,
            candidate=candidate,
            candidate_caption=self.gallery.caption(candidate),
            rival=rival,
            rival_caption=self.gallery.caption(rival),
            encounter=encounter,
        )

    def _aggregate(self, contests: Sequence[Contest]) -> None:
        """Put the items of each contest into the order of their strengths; those of one size are fitted together."""
        sizes = dict[int, list[Contest]]()
        for contest in contests:
            sizes.setdefault(len(contest.rows), []).append(contest)
        for size, some in sizes.items():
            wins = [win_matrix(size, self._results(contest), self.counts) for contest in some]
            for contest, strengths in zip(some, isolated(self._fit, wins), strict=True):
                if isinstance(strengths, Exception):
                    contest.failure = reason(strengths)
                else:
                    contest.order = by_strength(strengths)

    def _results(self, contest: Contest) -> Iterator[tuple[int, int, float]]:
        """Both items of each judgement that counts, and the share of the win that the first one gets."""
        rules = {"tie": self.ties, "unparseable": self.unparseable}
        shares = {"first": 1.0, "half": 0.5}
        for (first, second), _, said in contest.verdicts:
            rule = rules.get(said.outcome)
            share = said.probability if rule is None else shares.get(rule)
            if share is not None:
                yield first, second, share

    def _fit(self, wins: Sequence[Tensor]) -> list[list[float]]:
        prior = self.prior * rank_prior(len(wins[0])).expand(len(wins), -1)
        found: list[list[float]] = bradley_terry(torch.stack(list(wins)), ridge=self.ridge, prior=prior).tolist()
        return found

    def _refined(self, contest: Contest) -> Refined:
        """The pool in its new order, then the rest; all of the old order where nothing was compared or it failed."""
        work, events = contest.work, tuple[Event, ...]()
        ranking, scored = work.ranking, work.scored
        if contest.failure:
            events = (Event("stage_failed", f"{self.name}: {contest.failure}"),)
        if contest.done:
            head = np.array([contest.rows[item] for item in contest.order], np.int32)
            ranking, scored = RankedList(complete(head, work.ranking.rows)), None
        calls, records = tuple(contest.calls), contest.comparisons
        return Refined(ranking, scored, events, calls, contest.routing, comparisons=records)
