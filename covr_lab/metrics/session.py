"""Live per-turn metrics: the functions of :mod:`covr_lab.functional.metrics` with a state that processes can add up.

The state counts sessions per turn and rank. Adding integers is exact, so a value depends on neither batches nor
processes. Two metrics have equal states only if they may share one (``k`` is no part of it), which a
``MetricCollection`` relies on when it groups them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from covr_lab.functional import metrics as F
from covr_lab.functional.metrics import Floats, Ranks


class TurnMetric(Metric, ABC):
    """A metric whose value at each turn depends on how often each rank occurred.

    Args:
        turns: feedback turns after turn 0 (``T``).
        n_gallery: size of the gallery; a miss has the rank ``n_gallery + 1``.
        kwargs: passed to :class:`torchmetrics.Metric`.
    """

    full_state_update = False
    state_name = "ranks"

    def __init__(self, turns: int, n_gallery: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n_gallery = n_gallery
        self.add_state(self.state_name, torch.zeros(turns + 1, n_gallery + 1, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, ranks: Tensor) -> None:
        """Add sessions.

        Args:
            ranks: int64 ``(B, T+1)``, 1-based, sessions that stopped early carried forward.
        """
        counts: Tensor = getattr(self, self.state_name)
        turns, bins = counts.shape
        if ranks.ndim != 2 or ranks.shape[1] != turns or ((ranks < 1) | (ranks > bins)).any():
            raise ValueError(f"ranks must be (B, {turns}) with values from 1 to {bins}, not {tuple(ranks.shape)}")
        cells = (ranks - 1 + bins * torch.arange(turns, device=ranks.device)).flatten()
        counts += torch.bincount(cells, minlength=turns * bins).view(turns, bins)

    def compute(self) -> Tensor:
        """Value per turn, float64 ``(T+1,)``."""
        counts: Tensor = getattr(self, self.state_name)
        values = np.arange(1, counts.shape[1] + 1)
        ranks = np.stack([np.repeat(values, turn) for turn in counts.cpu().numpy()], axis=1)
        return torch.from_numpy(self.value(ranks)).to(counts.device)

    @abstractmethod
    def value(self, ranks: Ranks) -> Floats:
        """Value per turn of ``ranks`` ``(S, T+1)``, each turn sorted on its own."""


class TurnRecall(TurnMetric):
    """R@K in percent.

    Args:
        turns: as :class:`TurnMetric`.
        n_gallery: as :class:`TurnMetric`.
        k: last rank that counts as found.
        kwargs: as :class:`TurnMetric`.

    >>> metric = TurnRecall(turns=1, n_gallery=10, k=5)
    >>> metric.update(torch.tensor([[8, 2], [1, 1]]))
    >>> metric.compute()
    tensor([ 50., 100.], dtype=torch.float64)
    """

    higher_is_better = True

    def __init__(self, turns: int, n_gallery: int, k: int = 1, **kwargs: Any) -> None:
        super().__init__(turns, n_gallery, **kwargs)
        self.k = k

    def value(self, ranks: Ranks) -> Floats:
        """Per-turn :func:`~covr_lab.functional.metrics.recall_at`."""
        return F.recall_at(ranks, min(self.k, self.n_gallery))  # a miss has the rank n_gallery + 1


class TurnMedianRank(TurnMetric):
    """Median rank."""

    higher_is_better = False

    def value(self, ranks: Ranks) -> Floats:
        """Per-turn :func:`~covr_lab.functional.metrics.median_rank`."""
        return F.median_rank(ranks)


class TurnMRR(TurnMetric):
    """Mean reciprocal rank in [0, 1]."""

    higher_is_better = True

    def value(self, ranks: Ranks) -> Floats:
        """Per-turn :func:`~covr_lab.functional.metrics.mean_reciprocal_rank`."""
        return F.mean_reciprocal_rank(ranks, self.n_gallery)


class BestSoFarMetric(TurnMetric, ABC):
    """A metric of the best rank so far.

    Sorting each turn on its own keeps the best ranks non-increasing over turns, so functions of the best rank so far
    may take them as if they were sessions.
    """

    state_name = "best_ranks"

    def update(self, ranks: Tensor) -> None:
        """As :meth:`TurnMetric.update`."""
        super().update(ranks.cummin(dim=1).values)


class TurnHits(BestSoFarMetric, TurnRecall):
    """Hits@K in percent: R@K of the best rank so far."""


class TurnBRI(BestSoFarMetric):
    """Best log Rank Integral, the horizon growing with the turn; NaN at turn 0."""

    higher_is_better = False

    def value(self, ranks: Ranks) -> Floats:
        """Per-turn :func:`~covr_lab.functional.metrics.bri_per_turn`."""
        return F.bri_per_turn(ranks)
