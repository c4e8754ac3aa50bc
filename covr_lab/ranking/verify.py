"""Gated verification: one look at each of the leading candidates, until one is accepted (CoVRAGE; dossier, 2.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Call, Request
from covr_lab.functional import gates
from covr_lab.ranking.memory import complete
from covr_lab.ranking.stages import Refined, Stage, Work, isolated, reason
from covr_lab.reasoning.base import Reasoner, Thought, think
from covr_lab.reasoning.cascade import Verifier
from covr_lab.types import Event, RankedList


@dataclass(slots=True)
class Scan:
    """How far the look at one query's candidates has come.

    Attributes:
        work: the query.
        rows: gallery rows to look at, in order.
        asked: how many have been looked at.
        accepted: the row that fits, ``None`` as long as none does.
    """

    work: Work
    rows: list[int]
    asked: int = 0
    accepted: int | None = None
    events: list[Event] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether one more candidate is looked at."""
        return self.accepted is None and self.asked < len(self.rows)


class VerifyCluster(Stage):
    """Looks at the leading candidates whose relevance is close, one after another, and moves the first fitting one up.

    One candidate of every query that still looks goes to the engine at once. The verifier sees the raw text. A query
    whose reranking failed is left alone, and so is a bypassed one where the gate is on: it has no relevance.

    Args:
        verifier: whether a candidate is what the text makes of the source video; an unclear verdict accepts nothing.
        head: candidates at most.
        gated: only where the best has relevance ``floor`` and at least one other is close to it; otherwise all of
            ``head`` are candidates.
        floor: see ``gated``.
        gap: relative distance to the best at which the cluster ends.
    """

    name = "verification"

    def __init__(
        self,
        *,
        verifier: Verifier,
        head: int = 10,
        gated: bool = True,
        floor: float = 0.15,
        gap: float = 0.25,
    ) -> None:
        super().__init__()
        if head < 2:
            raise ValueError(f"verification.head must be 2 or more, not {head}")
        self.verifier = verifier
        self.head, self.gated, self.floor, self.gap = head, gated, floor, gap

    def reasoners(self) -> Mapping[str, Reasoner[Any]]:
        """The verifier."""
        return {"verifier": self.verifier}

    def rehearse(self, work: Work) -> tuple[Request, ...]:
        """One request a candidate."""
        seen = self.gallery.ids[work.ranking.rows[0]]
        return (self.verifier.rehearse(self.context(work, seen)),) * self.head if self.verifier.engine else ()

    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        """Look until everybody has accepted or seen all; see the base class."""
        scans = [Scan(work, self._candidates(work)) for work in works]
        looking = [scan for scan in scans if scan.open]
        while looking:
            jobs = [(self.verifier, self.context(scan.work, self._next(scan))) for scan in looking]
            for scan, found in zip(looking, isolated(partial(think, engines=engines), jobs), strict=True):
                self._hear(scan, found)
            looking = [scan for scan in looking if scan.open]
        return [self._refined(scan) for scan in scans]

    def _candidates(self, work: Work) -> list[int]:
        if work.failed:
            return []
        if not self.gated:
            rows = work.ranking.rows[: self.head].tolist()
            return rows if len(rows) > 1 else []
        if work.scored is None or work.scored.scores is None:
            return []
        scores = work.scored.scores[: self.head].tolist()
        size = gates.cluster(scores, self.floor, self.gap, self.head)
        return [int(row) for row in work.scored.rows[:size]]

    def _next(self, scan: Scan) -> str:
        return self.gallery.ids[scan.rows[scan.asked]]

    def _hear(self, scan: Scan, found: Thought[bool | None] | Exception) -> None:
        """Take one answer; who is not clear accepts nothing, and is on record."""
        video, row = self._next(scan), scan.rows[scan.asked]
        scan.asked += 1
        if isinstance(found, Exception):
            scan.events.append(Event("verification_failed", f"{video}: {reason(found)}"))
            return
        scan.calls += found.calls
        if found.answer is None:
            scan.events.append(Event("verification_unclear", video))
        elif found.answer:
            scan.accepted = row

    def _refined(self, scan: Scan) -> Refined:
        ranking, place = scan.work.ranking, 0
        if scan.accepted is not None:
            place = ranking.rank(scan.accepted) or 0
            if place > 1:
                ranking = RankedList(complete(np.array([scan.accepted]), ranking.rows))
        routing = {
            "verify_entered": float(bool(scan.rows)),
            "cluster": float(len(scan.rows)),
            "verify_calls": float(scan.asked),
            "promoted": float(place),
        }
        return Refined(ranking, scan.work.scored, tuple(scan.events), tuple(scan.calls), routing)
