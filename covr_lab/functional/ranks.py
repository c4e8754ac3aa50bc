"""Rank of the target: counted where there are scores, looked up where there is only an order."""

from __future__ import annotations

from typing import get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from covr_lab.protocol import Ties

CHUNK = 2**18  # scores compared at once: the comparison stays in a core's cache, and memory stays bounded


def target_rank(scores: Tensor, target: Tensor, ties: Ties = "optimistic") -> tuple[Tensor, Tensor]:
    """1-based rank of each target, by counting what scores higher (optimistic: CoVRAGE Eq. 1).

    Args:
        scores: float32 ``(B, N)``; ``-inf`` marks an excluded candidate.
        target: int64 ``(B,)`` gallery rows, -1 where the gallery lacks the target.
        ties: where candidates with exactly the target's score go: behind it, in row order, or in front of it.

    Returns:
        ``rank`` and ``tied``, int64 ``(B,)``: the rank (``N + 1`` for a missing target) and the number of *other*
        candidates with exactly the target's score (0 for a missing target).

    Raises:
        ValueError: shapes, dtype or ``ties`` differ from the above, a score is NaN, a target is outside the gallery
            or excluded.

    >>> scores = torch.tensor([[0.2, 0.9, 0.2], [0.5, 0.1, 0.3]])
    >>> target_rank(scores, torch.tensor([2, -1]))
    (tensor([2, 4]), tensor([1, 0]))
    >>> target_rank(scores, torch.tensor([2, -1]), ties="pessimistic")[0]
    tensor([3, 4])
    """
    if scores.dtype != torch.float32 or scores.ndim != 2 or not scores.shape[1] or target.shape != scores.shape[:1]:
        raise ValueError(
            f"scores must be float32 (B, N) with N > 0 and target (B,), not {scores.dtype} {tuple(scores.shape)} "
            f"and {tuple(target.shape)}"
        )
    if ties not in get_args(Ties):
        raise ValueError(f"ties must be one of {', '.join(get_args(Ties))}, not {ties}")
    batch, n = scores.shape
    _refuse((target < -1) | (target >= n), f"target is outside the gallery of {n} rows")
    known, columns = target >= 0, torch.arange(n, device=scores.device)
    own = scores.gather(1, target.clamp(min=0)[:, None])
    ahead, tied, highest = torch.empty_like(target), torch.empty_like(target), torch.empty_like(own[:, 0])
    for start in range(0, batch, max(1, CHUNK // n)):
        part = slice(start, start + max(1, CHUNK // n))
        block, equal = scores[part], scores[part] == own[part]
        highest[part] = block.amax(1)  # NaN wins every maximum
        tied[part] = equal.sum(1, dtype=torch.int32) - 1  # int32 sums are faster than int64 ones
        ahead[part] = (block > own[part]).sum(1, dtype=torch.int32)
        if ties == "stable":
            ahead[part] += (equal & (columns < target[part, None])).sum(1)
        elif ties == "pessimistic":
            ahead[part] += tied[part]
    _refuse(highest.isnan(), "a score is NaN")
    _refuse(known & (own[:, 0] == -torch.inf), "the target is excluded from its own ranking (score -inf)")
    return torch.where(known, ahead + 1, n + 1), tied * known


def position_rank(rows: npt.NDArray[np.integer], target: int, n: int) -> int:
    """1-based position of ``target`` in an order that no score explains; ``n + 1`` when it is not there.

    Args:
        rows: int ``(K,)`` gallery rows, best first, each at most once.
        target: gallery row, -1 when the gallery lacks the target.
        n: size of the gallery.

    >>> position_rank(np.array([4, 2, 7]), target=2, n=10), position_rank(np.array([4, 2, 7]), target=-1, n=10)
    (2, 11)
    """
    found = np.flatnonzero(rows == target)
    return int(found[0]) + 1 if target >= 0 and len(found) else n + 1


def _refuse(bad: Tensor, reason: str) -> None:
    """Raise for the first batch row that is ``bad``."""
    if bad.any():
        raise ValueError(f"batch row {int(bad.nonzero()[0, 0])}: {reason}")
