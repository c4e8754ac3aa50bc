"""Reranking by image-text matching (BLIP, and IVR after it; dossier, section 3.2)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from covr_lab.engines.base import Engine
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.ranking.memory import complete
from covr_lab.ranking.stages import Refined, Stage, Work
from covr_lab.scorers.base import Pair
from covr_lab.scorers.itm import ITMScorer
from covr_lab.types import RankedList


def by_score(ranking: RankedList, scores: Sequence[float]) -> tuple[RankedList, RankedList]:
    """The head of ``ranking`` by descending score, equal ones as they were; and the full order that follows from it.

    Args:
        ranking: full order.
        scores: of its first rows.

    >>> rows = np.array([7, 3, 5, 1], np.int32)
    >>> head, order = by_score(RankedList(rows), [0.5, 2.0, 0.5])
    >>> head.rows.tolist(), order.rows.tolist()
    ([3, 7, 5], [3, 7, 5, 1])
    """
    values = np.array(scores, np.float32)
    order = np.argsort(-values, kind="stable")
    head = RankedList(ranking.rows[: len(values)][order], values[order])
    return head, RankedList(complete(head.rows, ranking.rows))


class MatchRerank(Stage):
    """Sorts the head of an order by the logit of BLIP's matching head plus the similarity of text and video.

    The text is what the turn asked. The similarity is taken anew from the visual tokens, of the same images: an order
    that a fusion made has none. With the retriever's model and as many images it is the one that retrieval sorted by.
    Whatever is behind the head stays in its order. The released code gives it one constant score, -100, and so leaves
    it to the sort in which order it comes; and it averages a video's frames before it normalises them, where this
    library's retrievers average unit vectors.

    Args:
        scorer: the model and the images of a video (IVR: 8 frames, of which the head reads all tokens).
        pool: videos that are read.
    """

    name = "matching"

    def __init__(self, *, scorer: ITMScorer, pool: int = 128) -> None:
        super().__init__()
        if pool < 1:
            raise ValueError(f"matching.pool must be 1 or more, not {pool}")
        self.scorer, self.pool = scorer, pool

    @property
    def fingerprints(self) -> dict[str, str]:
        """That of the scorer."""
        return {"scorer": self.scorer.fingerprint}

    def load(self) -> None:
        """Load the scorer.

        Raises:
            Refused: its checkpoint has no matching head.
        """
        super().load()
        self.scorer.load()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Bind the scorer."""
        super().bind(gallery, videos)
        self.scorer.bind(gallery, videos)

    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        """Read the heads of all orders as one list; see the base class.

        Raises:
            ValueError: a video of a head has no score.
        """
        del engines
        heads = [work.ranking.head(self.pool).rows for work in works]
        pairs = [self._pair(work, int(row)) for work, rows in zip(works, heads, strict=True) for row in rows]
        start = time.perf_counter()
        found = self.scorer.logits_and_similarities(pairs)
        each = (time.perf_counter() - start) / max(len(pairs), 1)
        lacking = [pair.candidate for pair, (logit, _) in zip(pairs, found, strict=True) if not math.isfinite(logit)]
        if lacking:
            raise ValueError(f"no score for '{lacking[0]}' ({len(lacking)} of {len(pairs)} pairs)")
        sums = iter([logit + similarity for logit, similarity in found])
        refined = []
        for work, rows in zip(works, heads, strict=True):
            scored, ranking = by_score(work.ranking, [next(sums) for _ in rows])
            routing = {"pool": float(len(rows)), "reranked": 1.0, "pairs_scored": float(len(rows)), "failed": 0.0}
            refined.append(Refined(ranking, scored, routing=routing, busy=each * len(rows)))
        return refined

    def _pair(self, work: Work, row: int) -> Pair:
        session = work.context.session
        return Pair(work.source, work.text, self.gallery.ids[row], session.query.session_id, len(session.turns))
