"""Stages in their order over a batch: snapshots, times, and the preceding order wherever one fails."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Call
from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.correct import displayed
from covr_lab.ranking.memory import Lists
from covr_lab.ranking.policies import RankPolicy, Tops
from covr_lab.ranking.stages import Refined, Stage, Work, isolated, reason
from covr_lab.types import RETRIEVAL, SCORING, Cap, Comparison, Event, RankedList, Turn


@dataclass(slots=True)
class Staged:
    """What all stages made of one query.

    Attributes:
        work: as the last stage left it.
        stages: order before the first stage and after each.
        routing: numbers of all stages.
        seconds: stage -> its share of the batch's wall time.
        events: in the order of the stages.
        calls: likewise.
        comparisons: likewise.
    """

    work: Work
    stages: dict[str, RankedList] = field(default_factory=dict)
    routing: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    calls: tuple[Call, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    def add(self, stage: Stage, found: Refined, seconds: float) -> None:
        """Take over what one more stage brought."""
        failed = self.work.failed or bool(found.routing.get("failed"))
        self.work = replace(self.work, ranking=found.ranking, scored=found.scored, failed=failed)
        self.stages[stage.name], self.seconds[stage.name] = found.ranking, seconds
        if found.busy:
            self.seconds[SCORING] = self.seconds.get(SCORING, 0.0) + found.busy
        self.routing |= {**found.routing, "failed": float(failed)}
        self.events, self.calls = (*self.events, *found.events), (*self.calls, *found.calls)
        self.comparisons = (*self.comparisons, *found.comparisons)


def refine(stages: Sequence[Stage], works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Staged]:
    """Run every stage over the whole batch, each on the orders that the one before it left.

    A stage that raises is tried again query by query; where it fails, or gives back anything but a permutation, the
    preceding order stands and the event ``stage_failed`` says why.

    Args:
        stages: in their order.
        works: one a query.
        engines: name -> engine, for the reasoners of stages.
    """
    staged = [Staged(work, {RETRIEVAL: work.ranking}) for work in works]
    for stage in stages:
        start = time.perf_counter()

        def run(some: Sequence[Work], stage: Stage = stage) -> list[Refined]:
            return [_checked(work, found) for work, found in zip(some, stage(some, engines), strict=True)]

        results = isolated(run, [one.work for one in staged])
        share = (time.perf_counter() - start) / max(len(works), 1)
        for one, result in zip(staged, results, strict=True):
            one.add(stage, _kept(stage, one.work, result) if isinstance(result, Exception) else result, share)
    return staged


def record(turn: Turn, staged: Staged, gallery: Gallery, retrieval: float, policies: Sequence[RankPolicy] = ()) -> Turn:
    """``turn`` with what the stages made of it.

    A stage may bring back to the top what the user rejected or went on from: the turn's caps, and what the policies
    plan for the order that the stages left, act on it as they do on a fused one (see
    :func:`covr_lab.ranking.correct.displayed`), and the event ``stage_guarded`` names that video.

    Args:
        turn: as retrieval left it.
        staged: of its query.
        gallery: what rows stand for.
        retrieval: its share of the seconds before the stages.
        policies: rank policies of the system.
    """
    ranking, events = staged.work.ranking, staged.events
    caps = (*turn.caps, *_replanned(turn, staged, policies))
    guarded = displayed(ranking.rows, caps)
    if not np.array_equal(guarded, ranking.rows):
        events = (*events, Event("stage_guarded", gallery.ids[ranking.rows[0]]))
        ranking = RankedList(guarded)
    last = list(staged.stages)[-1]
    return replace(
        turn,
        result=ranking,
        caps=caps,
        events=(*turn.events, *events),
        calls=(*turn.calls, *staged.calls),
        stages={**staged.stages, last: ranking},
        routing=staged.routing,
        stage_seconds={RETRIEVAL: retrieval, **staged.seconds},
        comparisons=staged.comparisons,
    )


def _replanned(turn: Turn, staged: Staged, policies: Sequence[RankPolicy]) -> list[Cap]:
    """Caps that only the order of the stages calls for; they act on that order alone."""
    session, rows = staged.work.context.session, staged.work.ranking.rows
    if turn.state is None or not session.turns or not len(rows) or int(rows[0]) != session.shown:
        return []
    known = {cap.row for cap in turn.caps}
    plans = (policy.plan(session, turn.state.satisfaction, Tops(int(rows[0]))) for policy in policies)
    fresh = {cap.row: cap for plan in plans for cap in plan if cap.row not in known}
    return [replace(cap, scope="order", guard=False, fired=True) for cap in fresh.values()]


def _kept(stage: Stage, work: Work, error: Exception) -> Refined:
    event = Event("stage_failed", f"{stage.name}: {reason(error)}")
    return Refined(work.ranking, events=(event,), routing={"failed": 1.0})


def _checked(work: Work, found: Refined) -> Refined:
    if found.ranking is not work.ranking and not _is_permutation(work.ranking.rows, found.ranking.rows):
        raise ValueError("the order that it gave back is no permutation of the one that it got")
    return found


def _is_permutation(before: Lists, after: Lists) -> bool:
    size = int(before.max(initial=-1)) + 1
    if len(before) != len(after) or after.min(initial=0) < 0 or after.max(initial=-1) >= size:
        return False
    left = np.zeros(size, dtype=bool)
    left[before] = True
    left[after] = False
    return not left.any()
