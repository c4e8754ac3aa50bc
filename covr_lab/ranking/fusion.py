"""Fusion rules: many short lists of one session become one order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from covr_lab.frozen import Frozen
from covr_lab.functional.fusion import Recency, recency_weights, reciprocal_rank_fusion

Lists = npt.NDArray[np.int32]


class Fusion(Frozen, ABC):
    """Fuses the remembered lists of a batch of sessions.

    Attributes:
        window: turns that are remembered, the current one included.
        pool: entries kept of a list.
    """

    window: int
    pool: int

    @abstractmethod
    def forward(self, memory: Lists) -> npt.NDArray[np.int64]:
        """Order every row that occurs in a list.

        Args:
            memory: int32 ``(B, window, C, pool)``, oldest turn first, the current one last; -1 where a list is absent
                or shorter.

        Returns:
            int64 ``(B, M)``, best first, padded with -1.
        """


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
        for key, value in (("window", window), ("k", k), ("pool", pool)):
            if value < 1:
                raise ValueError(f"fusion.{key} must be 1 or more, not {value}")
        if not 0 < gamma <= 1:
            raise ValueError(f"fusion.gamma must be above 0 and at most 1, not {gamma}")
        if min(channel_weights, default=0) < 0:
            raise ValueError(f"fusion.channel_weights must not be negative: {list(channel_weights)}")
        self.window, self.k, self.pool = window, k, pool
        self.ages = recency_weights(window, recency, gamma)
        self.channel_weights = tuple(channel_weights)

    def forward(self, memory: Lists) -> npt.NDArray[np.int64]:
        """Fuse; see the base class."""
        batch, window, channels, pool = memory.shape
        shares = self.channel_weights or (1.0,) * channels
        if len(shares) != channels:
            raise ValueError(f"fusion.channel_weights has {len(shares)} weights for {channels} channels")
        weights = [age * share for age in reversed(self.ages) for share in shares]
        lists = memory.reshape(batch, window * channels, pool)
        return reciprocal_rank_fusion(lists, weights, k=self.k, current=channels)[0]


class StaticRRF(TimeWeightedRRF):
    """Reciprocal ranks of the current turn only (ReCoVR, appendix A.1)."""

    def __init__(self, *, k: int = 60, pool: int = 100, channel_weights: Sequence[float] = ()) -> None:
        super().__init__(window=1, k=k, pool=pool, channel_weights=channel_weights)
