"""Ranking by comparisons: the head of an order from judgements between two candidates (X-CoT; dossier, section 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Request
from covr_lab.functional.bradley_terry import bradley_terry, by_strength, rank_prior
from covr_lab.functional.pairwise import Pair, ScheduleName, most, schedule, win_matrix
from covr_lab.ranking.contest import Contest
from covr_lab.ranking.memory import complete
from covr_lab.ranking.stages import Refined, Stage, Work, isolated, reason
from covr_lab.reasoning.base import Reasoner, think
from covr_lab.reasoning.judging import Explainer, PairJudge
from covr_lab.types import Context, Event, RankedList


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
        prior: strength of a prior that falls with the logarithm of the rank before the stage; 0 for none. It weighs as
            much as the ridge: at 1e-3 it is forgotten after two passes, with a judge that errs 1 helps.
        ties: a tie counts as a win for the ``first``, the one that stands higher (a released judge knows no tie: what
            is no win for the second is one for the first), half a win for each, or is not kept on the books
            (``keep``: places are kept, nothing counts). In the schedule the higher one stays higher in any case; but
            where ties are many, only ``first`` also lets it stay higher in the strengths.
        unparseable: an answer that cannot be read counts for the ``first``, the one that stands higher (released), is
            dropped, or counts half a win for each; in the schedule the higher one stays higher.
        repeat: a pair that meets again in the same places is asked again, or its judgement is remembered and counts
            once more (the released cache). An engine that does not sample answers alike anyway.
        explainer: says in the end why the best candidate is the best, in the event ``explained``; ``null`` for silence.

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
        ties: Literal["first", "half", "keep"] = "first",
        unparseable: Literal["first", "drop", "half"] = "first",
        repeat: Literal["ask", "remember"] = "ask",
        explainer: Explainer | None = None,
    ) -> None:
        super().__init__()
        if pool < 2 or passes < 0 or not ridge > 0 or prior < 0:
            raise ValueError(
                f"pairwise needs pool >= 2, passes >= 0, ridge > 0 and prior >= 0, not {pool}, {passes}, {ridge:g} and "
                f"{prior:g}"
            )
        self.judge, self.explainer = judge, explainer
        self.pool, self.passes, self.schedule, self.aggregate = pool, passes, schedule, aggregate
        self.counts, self.ridge, self.prior = counts, ridge, prior
        self.ties, self.unparseable, self.repeat = ties, unparseable, repeat

    def reasoners(self) -> Mapping[str, Reasoner[Any]]:
        """The judge, and who explains."""
        return {"judge": self.judge, **({"explainer": self.explainer} if self.explainer else {})}

    def rehearse(self, work: Work) -> tuple[Request, ...]:
        """One request a comparison of a full pool, and the explanation."""
        seen, size = self.gallery.ids[work.ranking.rows[0]], min(self.pool, len(self.gallery))
        context, count = self._meeting(self.context(work), seen, seen), most(self.schedule, size, self.passes)
        judged = (self.judge.rehearse(context),) * count if self.judge.engine else ()
        explained = (self.explainer.rehearse(context),) if self.explainer and self.explainer.engine else ()
        return judged + explained

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
        if self.explainer is not None:
            self._explain([contest for contest in contests if contest.done], self.explainer, engines)
        return [self._refined(contest) for contest in contests]

    def _explain(self, contests: Sequence[Contest], explainer: Explainer, engines: Mapping[str, Engine]) -> None:
        """One explanation a query, all asked for together; none costs nobody the new order."""
        best = [self.context(contest.work, self.gallery.ids[contest.best]) for contest in contests]
        reasons = [contest.reasons for contest in contests]
        jobs = [(explainer, replace(context, reasons=why)) for context, why in zip(best, reasons, strict=True)]
        for contest, found in zip(contests, isolated(partial(think, engines=engines), jobs), strict=True):
            if isinstance(found, Exception):
                contest.events.append(Event("explanation_failed", reason(found)))
                continue
            contest.calls += found.calls
            contest.events.append(Event("explanation_failed" if found.fell_back else "explained", found.answer))

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
                if isinstance(strengths, Exception):  # as released: the order that the schedule left
                    contest.events.append(Event("strengths_failed", reason(strengths)))
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
        work, events = contest.work, contest.events
        ranking, scored = work.ranking, work.scored
        if contest.failure:
            events = [*events, Event("stage_failed", f"{self.name}: {contest.failure}")]
        if contest.done:
            head = np.array([contest.rows[item] for item in contest.order], np.int32)
            ranking, scored = RankedList(complete(head, work.ranking.rows)), None
        calls, records = tuple(contest.calls), contest.comparisons
        return Refined(ranking, scored, tuple(events), calls, contest.routing, comparisons=records)
