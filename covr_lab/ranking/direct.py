"""Direct ranking: the head of an order put into order by one answer (X-CoT's ablation; dossier, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Request
from covr_lab.ranking.memory import complete
from covr_lab.ranking.stages import Refined, Stage, Work, isolated, reason
from covr_lab.reasoning.base import Reasoner, Thought, think
from covr_lab.reasoning.listwise import MOST, ListRanker, Order
from covr_lab.types import Context, Event, RankedList


class DirectRank(Stage):
    """Puts the head of each order into the order that one answer about all of its candidates gives.

    An answer that cannot be read leaves the order as it is, and so does a ranker that fails; both are on record.

    Args:
        ranker: orders candidates.
        pool: candidates.
    """

    name = "direct"

    def __init__(self, *, ranker: ListRanker, pool: int = 20) -> None:
        super().__init__()
        if not 2 <= pool <= MOST:
            raise ValueError(f"direct.pool must be from 2 to {MOST}, not {pool}")
        self.ranker, self.pool = ranker, pool

    def reasoners(self) -> Mapping[str, Reasoner[Any]]:
        """The ranker."""
        return {"ranker": self.ranker}

    def rehearse(self, work: Work) -> tuple[Request, ...]:
        """The one request."""
        return (self.ranker.rehearse(self._context(work)),) if self.ranker.engine else ()

    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        """All answers as one list; see the base class."""
        asked = [work for work in works if not work.failed and len(work.ranking.rows) > 1]
        jobs = [(self.ranker, self._context(work)) for work in asked]
        answers = iter(isolated(partial(think, engines=engines), jobs))
        going = [not work.failed and len(work.ranking.rows) > 1 for work in works]
        return [
            self._refined(work, next(answers)) if goes else Refined(work.ranking, work.scored)
            for work, goes in zip(works, going, strict=True)
        ]

    def _context(self, work: Work) -> Context:
        rows = work.ranking.rows[: self.pool]
        captions = tuple(self.gallery.caption(self.gallery.ids[row]) for row in rows)
        return replace(self.context(work), candidates=captions)

    def _refined(self, work: Work, found: Thought[Order | None] | Exception) -> Refined:
        if isinstance(found, Exception):
            event = Event("stage_failed", f"{self.name}: {reason(found)}")
            return Refined(work.ranking, work.scored, (event,), routing={"failed": 1.0})
        if found.answer is None:
            event = Event("direct_unparseable", "the order stands")
            return Refined(work.ranking, work.scored, (event,), found.calls, {"direct_unparseable": 1.0})
        head = work.ranking.rows[: self.pool][np.array(found.answer)]
        ranking = RankedList(complete(head, work.ranking.rows))
        return Refined(ranking, None, (), found.calls, {"direct_unparseable": 0.0})
