"""Fusion rules: many short lists of one session become one order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from covr_lab.frozen import Frozen
from covr_lab.functional.caps import ABSENT
from covr_lab.functional.fusion import Recency, recency_weights, reciprocal_rank_fusion, similarity_fusion
from covr_lab.ranking.memory import Memory


class Fusion(Frozen, ABC):
    """Fuses the remembered lists of a batch of sessions.

    Attributes:
        window: turns that are remembered, the current one included.
        pool: entries kept of a list.
        caps: where rank-caps act: on the ``lists``, or on the fused ``order`` alone, for rules that read similarities
            and are blind to positions.
    """

    window: int
    pool: int
    caps: ClassVar[Literal["lists", "order"]] = "lists"

    @abstractmethod
    def forward(self, memory: Memory) -> npt.NDArray[np.int64]:
        """Order every row that occurs in a list.

        Args:
            memory: lists ``(B, window, C, pool)``, oldest turn first, the current one last.

        Returns:
            int64 ``(B, M)``, best first, padded with -1.
        """

    def shares(self, memory: Memory) -> npt.NDArray[np.float64]:
        """What each entry of the lists adds for its row, for people who ask why: of their shape, 0 where it is none.

        A rule that does not say so has all lists that hold a row share alike.
        """
        return np.where(memory.rows == ABSENT, 0.0, 1.0)


class TimeWeightedRRF(Fusion):
    """TW-RRF (ReCoVR, section 3.2): reciprocal ranks over a window of turns and all channels, newer turns count more.

    Args:
        window: W, turns fused.
        k: smoothing constant.
        pool: K, entries kept of a list.
        recency: weight by age; the paper does not state the law, linear adds no constant.
        gamma: base of the exponential law.
        channel_weights: one weight a channel, in the order of the system's channels; equal when empty.
    """

    def __init__(
        self,
        *,
        window: int = 5,
        k: int = 60,
        pool: int = 100,
        recency: Recency = "linear",
        gamma: float = 0.7,
        channel_weights: Sequence[float] = (),
    ) -> None:
        super().__init__()
        _check(window=window, k=k, pool=pool)
        if not 0 < gamma <= 1:
            raise ValueError(f"fusion.gamma must be above 0 and at most 1, not {gamma}")
        if min(channel_weights, default=0) < 0:
            raise ValueError(f"fusion.channel_weights must not be negative: {list(channel_weights)}")
        self.window, self.k, self.pool = window, k, pool
        self.ages = recency_weights(window, recency, gamma)
        self.channel_weights = tuple(channel_weights)

    @property
    def penalty(self) -> int | None:
        """Rank whose share a row loses where a list lacks it; ``None`` for no loss."""
        return None

    def forward(self, memory: Memory) -> npt.NDArray[np.int64]:
        """Fuse; see the base class."""
        batch, window, channels, pool = memory.rows.shape
        lists = memory.rows.reshape(batch, window * channels, pool)
        weights = self._weights(channels)
        return reciprocal_rank_fusion(lists, weights, k=self.k, current=channels, penalty=self.penalty)[0]

    def shares(self, memory: Memory) -> npt.NDArray[np.float64]:
        """The weight of the list over ``k + rank``; a penalty is no share."""
        _, window, channels, pool = memory.rows.shape
        weights = np.array(self._weights(channels)).reshape(window, channels, 1)
        return np.where(memory.rows == ABSENT, 0.0, weights / (self.k + np.arange(1, pool + 1)))

    def _weights(self, channels: int) -> list[float]:
        """One a list, oldest turn first."""
        shares = self.channel_weights or (1.0,) * channels
        if len(shares) != channels:
            raise ValueError(f"fusion.channel_weights has {len(shares)} weights for {channels} channels")
        return [age * share for age in reversed(self.ages) for share in shares]


class StaticRRF(TimeWeightedRRF):
    """Reciprocal ranks of the current turn only (ReCoVR, appendix A.1)."""

    def __init__(self, *, k: int = 60, pool: int = 100, channel_weights: Sequence[float] = ()) -> None:
        super().__init__(window=1, k=k, pool=pool, channel_weights=channel_weights)


class UniformRRF(TimeWeightedRRF):
    """Reciprocal ranks over a window of turns that all count the same (ReCoVR, appendix A.1)."""

    def __init__(self, *, window: int = 5, k: int = 60, pool: int = 100, channel_weights: Sequence[float] = ()) -> None:
        super().__init__(window=window, k=k, pool=pool, recency="uniform", channel_weights=channel_weights)


class PenaltyRRF(TimeWeightedRRF):
    """TW-RRF where a list that lacks a candidate takes something off it (ReCoVR, appendix A.1; dossier, section 1.9).

    That is the weight of the list times ``1 / (k + pool + 1)``, the share of the first rank that it has no room for. A
    channel that did not run at a turn takes nothing off.
    """

    @property
    def penalty(self) -> int:
        """The rank behind the last one that a list has room for."""
        return self.pool + 1


class SimilarityFusion(Fusion):
    """Raw similarities over a window of turns and all channels; no age, no weight, no rank counts.

    Args:
        window: W, turns fused.
        pool: K, entries kept of a list.
    """

    caps = "order"
    rule: ClassVar[Literal["max", "sum"]]

    def __init__(self, *, window: int = 5, pool: int = 100) -> None:
        super().__init__()
        _check(window=window, pool=pool)
        self.window, self.pool = window, pool

    def forward(self, memory: Memory) -> npt.NDArray[np.int64]:
        """Fuse; see the base class.

        Raises:
            ValueError: a list has no similarities.
        """
        batch, window, channels, pool = memory.rows.shape
        shape = batch, window * channels, pool
        lists, scores = memory.rows.reshape(shape), memory.scores.reshape(shape)
        return similarity_fusion(lists, scores, self.rule, current=channels)[0]

    def shares(self, memory: Memory) -> npt.NDArray[np.float64]:
        """The similarity, where it is positive and, for the rule "max", the greatest that the row has."""
        found = np.where(memory.rows == ABSENT, 0.0, np.nan_to_num(memory.scores).clip(min=0)).astype(np.float64)
        if self.rule == "max":
            for rows, values in zip(memory.rows, found, strict=True):
                best = np.zeros(int(rows.max(initial=0)) + 1)
                np.maximum.at(best, rows.clip(min=0), values)
                values[values < best[rows.clip(min=0)]] = 0.0
        return found


class SimMax(SimilarityFusion):
    """The greatest similarity that a list of the window has for a video (ReCoVR, appendix A.1)."""

    rule = "max"


class SimSum(SimilarityFusion):
    """The sum of a video's similarities over the lists of the window, absent adds nothing (ReCoVR, appendix A.1)."""

    rule = "sum"


def _check(**settings: int) -> None:
    for key, value in settings.items():
        if value < 1:
            raise ValueError(f"fusion.{key} must be 1 or more, not {value}")
