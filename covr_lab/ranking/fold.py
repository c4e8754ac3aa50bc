"""Folds: the query vectors of a dialogue's turns become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce

import torch
from torch import Tensor

from covr_lab.frozen import Frozen
from covr_lab.functional.slerp import slerp


class QueryFold(Frozen, ABC):
    """Makes the query vector of a turn from all that the dialogue asked so far."""

    @abstractmethod
    def forward(self, vectors: Tensor) -> Tensor:
        """Fold one session's queries.

        Args:
            vectors: unit vectors float32 ``(T, D)``, the composed query of turn 0 first, the newest last.

        Returns:
            float32 ``(D,)``.
        """


class SlerpFold(QueryFold):
    """Left fold by spherical interpolation (MERLIN; dossier, section 6): each turn moves the query to its own text.

    Args:
        alpha: weight of the newer vector, 0 to 1.
    """

    def __init__(self, *, alpha: float = 0.8) -> None:
        super().__init__()
        if not 0 <= alpha <= 1:
            raise ValueError(f"fold.alpha must be from 0 to 1, not {alpha}")
        self.alpha = alpha

    def forward(self, vectors: Tensor) -> Tensor:
        """Fold; see the base class."""
        # In double on the CPU and one session at a time: the same bits on every device and in every batch.
        steps = vectors.double().cpu().unbind()
        folded = reduce(lambda query, newer: slerp(query, newer, self.alpha), steps)
        return folded.to(vectors.device, torch.float32)


class MeanFold(QueryFold):
    """The mean of all vectors: a video's similarity to it is the mean of its similarities to them (IVR's SA).

    It is no unit vector, so that the similarities are those means and not multiples of them.
    """

    def forward(self, vectors: Tensor) -> Tensor:
        """Fold; see the base class."""
        return vectors.double().cpu().mean(0).to(vectors.device, torch.float32)
