"""Gated adaptive reranking: how deep a query is read, and under which text (CoVRAGE; dossier, sections 2.3 and 2.4)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Call
from covr_lab.functional import gates
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.ranking.memory import complete
from covr_lab.ranking.stages import Refined, Stage, Work, isolated, reason
from covr_lab.reasoning.base import Reasoner, think
from covr_lab.reasoning.cascade import Describer
from covr_lab.scorers.base import Pair, PairScorer
from covr_lab.types import Event, RankedList


@dataclass(slots=True)
class Route:
    """Where one query stands; lives as long as one call of the stage.

    Attributes:
        work: the query.
        text: what candidates are scored against: the raw text, or its description.
        scores: (text, gallery row) -> relevance: a pair is scored once.
        pool: candidates read in the newest pass, the head of the order of retrieval.
        pages: pages that the newest pass added to its seed.
        described: which gate had the text described.
        failure: why the order of retrieval stands, "" as long as nothing is wrong.
    """

    work: Work
    text: str
    scores: dict[tuple[str, int], float] = field(default_factory=dict)
    pool: int = 0
    pages: int = 0
    described: Literal["early", "late"] | None = None
    failure: str = ""
    events: list[Event] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    busy: float = 0.0

    @property
    def rows(self) -> list[int]:
        """Gallery rows of the pool, in the order of retrieval."""
        return [int(row) for row in self.work.ranking.rows[: self.pool]]

    @property
    def missing(self) -> list[int]:
        """Rows of the pool that have no score for the text."""
        return [row for row in self.rows if (self.text, row) not in self.scores]

    def ranked(self) -> list[tuple[int, float]]:
        """Row and relevance of the pool, best first; equal ones in the order of retrieval."""
        scored = [(row, self.scores[self.text, row]) for row in self.rows]
        return sorted(scored, key=lambda pair: -pair[1])


class GatedRerank(Stage):
    """Scores the head of each order against its query, deeper as long as nothing fits, and sorts it by relevance.

    Pages of one query come one after another; all queries that still read send their next page as one list, and so do
    the describer's requests. A query that retrieval decides clearly is left alone: it is not described either.

    Args:
        scorer: relevance of a candidate.
        describer: describes the target from the source video and a short or ambiguous text; never where it is ``null``.
        bypass: leave a query alone when its best two similarities are more than ``gap`` apart; an order without
            similarities (a fused one) and one of a single video count as gap 0.
        gap: see ``bypass``.
        seed: candidates that are always scored.
        page: candidates added as long as no relevance reaches ``threshold``.
        limit: candidates at most.
        threshold: relevance that is good enough to stop.
        early: describe a text of fewer than ``words`` words before anything is scored.
        words: see ``early``.
        late: describe a text, not described so far, whose best two candidates are close; then score once more.
        ambiguity_floor: relevance that the best candidate needs for that.
        ambiguity_gap: relative distance of the best two below which they are close.
        rescore: the last pass starts from the seed and may ``expand`` again, or scores the same ``pool``. The paper
            leaves it open.
    """

    name = "reranking"

    def __init__(
        self,
        *,
        scorer: PairScorer,
        describer: Describer | None = None,
        bypass: bool = True,
        gap: float = 0.25,
        seed: int = 5,
        page: int = 5,
        limit: int = 50,
        threshold: float = 0.70,
        early: bool = True,
        words: int = 10,
        late: bool = True,
        ambiguity_floor: float = 0.25,
        ambiguity_gap: float = 0.50,
        rescore: Literal["expand", "pool"] = "expand",
    ) -> None:
        super().__init__()
        if min(seed, page) < 1 or limit < seed:
            raise ValueError(f"reranking needs seed >= 1, page >= 1 and limit >= seed, not {seed}, {page} and {limit}")
        self.scorer, self.describer = scorer, describer
        self.bypass, self.gap, self.seed, self.page, self.limit = bypass, gap, seed, page, limit
        self.threshold, self.early, self.words, self.late = threshold, early, words, late
        self.ambiguity_floor, self.ambiguity_gap, self.rescore = ambiguity_floor, ambiguity_gap, rescore

    def reasoners(self) -> Mapping[str, Reasoner[Any]]:
        """The describer."""
        return {} if self.describer is None else {"describer": self.describer}

    @property
    def proxy(self) -> str | None:
        """That of the scorer."""
        return self.scorer.proxy

    @property
    def fingerprints(self) -> dict[str, str]:
        """That of the scorer."""
        return {"scorer": self.scorer.fingerprint}

    def load(self) -> None:
        """Load scorer and views."""
        super().load()
        self.scorer.load()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Bind scorer and views."""
        super().bind(gallery, videos)
        self.scorer.bind(gallery, videos)

    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        """Bypass, describe, read, describe what is ambiguous, read again; see the base class."""
        skipped = [self.bypass and gates.bypass(*_best_two(work.ranking), self.gap) for work in works]
        routes = [Route(work, work.text) for work in works]
        reading = [route for route, skip in zip(routes, skipped, strict=True) if not skip]
        if self.early:
            self._describe([r for r in reading if gates.concise(r.work.text, self.words)], "early", engines)
        self._read(reading)
        if self.late:
            unclear = [route for route in reading if not route.described and not route.failure and self._unclear(route)]
            self._describe(unclear, "late", engines)
            described = [route for route in unclear if route.described]
            if self.rescore == "expand":
                self._read(described)
            else:
                self._score(described)
        return [self._refined(route, skip) for route, skip in zip(routes, skipped, strict=True)]

    def _describe(self, routes: Sequence[Route], when: Literal["early", "late"], engines: Mapping[str, Engine]) -> None:
        """One description a query, all asked for together; without one the raw text stays."""
        if self.describer is None:
            return
        jobs = [(self.describer, self.context(route.work)) for route in routes]
        for route, found in zip(routes, isolated(partial(think, engines=engines), jobs), strict=True):
            if isinstance(found, Exception):
                route.events.append(Event("description_failed", f"{when}: {reason(found)}"))
                continue
            route.calls += found.calls
            text = "" if found.fell_back else str(found.answer or "").strip()
            if text:
                route.text, route.described = text, when
            else:
                route.events.append(Event("description_failed", f"{when}: nothing usable was answered"))

    def _read(self, routes: Sequence[Route]) -> None:
        """One pass: the seed, then page after page for those in whose pool nothing fits."""
        for route in routes:
            route.pool, route.pages = min(self.seed, len(route.work.ranking.rows)), 0
        while routes:
            self._score(routes)
            routes = [route for route in routes if not route.failure and self._turned(route)]

    def _turned(self, route: Route) -> bool:
        """Whether the pool of ``route`` has grown by one more page."""
        left = min(self.limit, len(route.work.ranking.rows)) - route.pool
        most = -(-(self.limit - self.seed) // self.page)
        if not gates.more_pages(route.ranked()[0][1], route.pages, left, self.threshold, most):
            return False
        route.pool, route.pages = route.pool + min(self.page, left), route.pages + 1
        return True

    def _score(self, routes: Sequence[Route]) -> None:
        """Score what the pools lack, in one call; a query that misses a score fails, the others do not."""
        lacking = [(route, route.missing) for route in routes if route.missing]
        found = isolated(self._ask, [[self._pair(route, row) for row in rows] for route, rows in lacking])
        for (route, rows), answer in zip(lacking, found, strict=True):
            if isinstance(answer, Exception):
                route.failure = reason(answer)
                continue
            scores, seconds = answer
            route.busy += seconds
            route.scores |= {(route.text, row): score for row, score in zip(rows, scores, strict=True)}
            broken = [self.gallery.ids[row] for row, s in zip(rows, scores, strict=True) if not math.isfinite(s)]
            if broken:
                route.failure = f"no score for '{broken[0]}' ({len(broken)} of {len(rows)} pairs)"

    def _ask(self, asked: Sequence[list[Pair]]) -> list[tuple[list[float], float]]:
        """Scores of each query's pairs, and its share of the seconds that they took."""
        pairs = [pair for each in asked for pair in each]
        start, before = time.perf_counter(), self.scorer.busy
        scores = self.scorer.score(pairs)
        spent = time.perf_counter() - start if before is None else (self.scorer.busy or 0.0) - before
        if len(scores) != len(pairs):
            raise ValueError(f"{type(self.scorer).__name__} gave {len(scores)} scores for {len(pairs)} pairs")
        left = iter(scores)
        return [([float(next(left)) for _ in each], spent * len(each) / len(pairs)) for each in asked]

    def _pair(self, route: Route, row: int) -> Pair:
        work, session = route.work, route.work.context.session
        return Pair(work.source, route.text, self.gallery.ids[row], session.query.session_id, len(session.turns))

    def _unclear(self, route: Route) -> bool:
        (_, r1), (_, r2) = (*route.ranked(), (-1, 0.0))[:2]
        return gates.ambiguous(r1, r2, self.ambiguity_floor, self.ambiguity_gap)

    def _refined(self, route: Route, skipped: bool) -> Refined:
        """The pool by relevance, then the order of retrieval; all of that order after a bypass or a failure."""
        done = not skipped and not route.failure
        routing = {
            "gap_skip": skipped,
            "seed": min(self.seed, len(route.work.ranking.rows)),
            "pages": route.pages,
            "pool": route.pool,
            "expanded": route.pages > 0,
            "early_description": route.described == "early",
            "late_description": route.described == "late",
            "reranked": done,
            "pairs_scored": len(route.scores),
            "failed": bool(route.failure),
        }
        failed = [Event("stage_failed", f"{self.name}: {route.failure}")] if route.failure else []
        ranking, scored = route.work.ranking, None
        if done:
            rows, scores = zip(*route.ranked(), strict=True)
            scored = RankedList(np.array(rows, np.int32), np.array(scores, np.float32))
            ranking = RankedList(complete(scored.rows, ranking.rows))
        numbers = {key: float(value) for key, value in routing.items()}
        return Refined(ranking, scored, (*route.events, *failed), tuple(route.calls), numbers, route.busy)


def _best_two(ranking: RankedList) -> tuple[float | None, float | None]:
    """The similarities of the first two videos, ``None`` where there is none."""
    known = [] if ranking.scores is None else [float(score) for score in ranking.scores[:2]]
    first, second = [*known, None, None][:2]
    return first, second
