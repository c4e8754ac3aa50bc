"""Scores on disk: a pair that was scored before is not scored again."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from covr_lab.gallery.cache import VectorCache, cache_dir
from covr_lab.gallery.gallery import Gallery
from covr_lab.scorers.base import Pair, PairScorer
from covr_lab.types import SessionError

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


class CachedScorer(PairScorer):
    """A scorer whose scores are kept, in ``scores/<scorer>-<fingerprint>.sqlite`` of the cache.

    A score is addressed by everything that can change it: weights and settings, what is read of source and candidate,
    and the text. Equal pairs of a list are scored once. What is no number from 0 to 1 is neither kept nor believed. All
    scores are rounded to fp32, so that a kept one is the same as a fresh one.

    Args:
        scorer: who scores what is not kept yet.
        enabled: ``false`` hands everything on, for runs that measure time.
    """

    def __init__(self, *, scorer: PairScorer, enabled: bool = True) -> None:
        super().__init__()
        self.scorer, self.enabled = scorer, enabled
        self.proxy, self.by_session, self.busy = scorer.proxy, scorer.by_session, scorer.busy
        self._store: VectorCache | None = None
        self._read = dict[str, str]()

    @property
    def fingerprint(self) -> str:
        """That of the scorer: a kept score is its score."""
        return self.scorer.fingerprint

    def load(self) -> None:
        """Load the scorer."""
        self.scorer.load()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Bind the scorer."""
        super().bind(gallery, videos)
        self.scorer.bind(gallery, videos)
        self._read.clear()

    def reads(self, video: str) -> str:
        """What the scorer reads; asked once for each video."""
        if video not in self._read:
            self._read[video] = self.scorer.reads(video)
        return self._read[video]

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Look every pair up; hand those on that are not kept, each once."""
        if not self.enabled:
            return self._asked(pairs)
        store, keys = self._open(), [self._address(pair) for pair in pairs]
        kept = {key: float(row[0]) for key, row in store.get([key for key in keys if key]).items()}
        kept = {key: score for key, score in kept.items() if _sound(score)}
        first = dict[str, int]()
        places = [at if key is None else first.setdefault(key, at) for at, key in enumerate(keys)]
        asked = [at for at, key in enumerate(keys) if places[at] == at and key not in kept]
        scores = self._asked([pairs[at] for at in asked]) if asked else []
        fresh = {at: float(np.float32(score)) for at, score in zip(asked, scores, strict=True)}
        sound = {key: score for at, score in fresh.items() if (key := keys[at]) and _sound(score)}
        store.put({key: np.array([score], np.float32) for key, score in sound.items()})
        return [fresh[place] if place in fresh else kept[str(keys[place])] for place in places]

    def _asked(self, pairs: Sequence[Pair]) -> list[float]:
        scores = self.scorer.score(pairs)
        self.busy = self.scorer.busy
        return scores

    def _address(self, pair: Pair) -> str | None:
        """sha256 of all that a score depends on but for the scorer; ``None`` if a video has no place."""
        try:
            source = None if pair.source is None else [pair.source, self.reads(pair.source)]
            parts = [source, pair.candidate, self.reads(pair.candidate), pair.text]
        except SessionError:
            return None
        asker = [pair.session, pair.turn] if self.by_session else None
        return hashlib.sha256(json.dumps([*parts, asker]).encode()).hexdigest()

    def _open(self) -> VectorCache:
        name = f"{type(self.scorer).__name__}-{self.fingerprint[:16]}.sqlite"
        path = cache_dir() / "scores" / name
        if self._store is None or self._store.path != path:
            self._store = VectorCache(path, self.fingerprint, 1)
        return self._store


def _sound(score: float) -> bool:
    return math.isfinite(score) and 0 <= score <= 1
