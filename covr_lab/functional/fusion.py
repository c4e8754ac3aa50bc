"""Reciprocal-rank fusion of short ranked lists, exact and independent of the gallery size.

Contributions are fixed-point integers, so sums do not depend on the order of addition or on the batch, and ties are
true ties. Lists live on the CPU, where sessions store them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

ABSENT = -1
CHUNK = 64  # sessions fused at a time: bounds the extra memory
Recency = Literal["linear", "exponential", "harmonic", "uniform"]
Ints = npt.NDArray[np.int64]


def recency_weights(window: int, law: Recency = "linear", gamma: float = 0.7) -> list[float]:
    """Weight of a list by its age in turns, newest first (dossier, section 1.6; the paper does not state the law).

    >>> recency_weights(5)
    [1.0, 0.8, 0.6, 0.4, 0.2]
    """
    ages = range(window)
    if law == "linear":
        return [(window - age) / window for age in ages]
    if law == "exponential":
        return [gamma**age for age in ages]
    if law == "harmonic":
        return [1 / (1 + age) for age in ages]
    return [1.0] * window


def reciprocal_rank_fusion(
    lists: npt.NDArray[np.integer[Any]], weights: Sequence[float], *, k: int = 60, current: int = 0
) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Fuse the lists of each session: ``F(v) = sum over lists of weight / (k + rank of v)``, absent adds nothing.

    Ties in ``F`` go to the better of the best ranks in the current lists, then to the earlier of these lists, then to
    the smaller row.

    Args:
        lists: integers ``(S, L, K)``, best first, no repeats inside a list, padded with -1; oldest list first.
        weights: one non-negative weight a list.
        k: smoothing constant, 60 in ReCoVR and in Cormack et al. (2009).
        current: how many lists, counted from the last, are of the current turn and break ties.

    Returns:
        ``rows`` int64 ``(S, L*K)``, every row that occurs in a list, best first, padded with -1, and ``scores``
        float32 of the same shape, padded with 0.

    Raises:
        ValueError: the lists are so long that the exact sums would not fit an integer.

    >>> rows, scores = reciprocal_rank_fusion(np.array([[[1, 2, 3], [4, 5, 3]]]), [1.0, 1.0])
    >>> rows[0].tolist(), bool(np.isclose(scores[0, 0], 2 / 63))
    ([3, 1, 4, 2, 5, -1], True)
    """
    sessions, count, length = lists.shape
    tie_bits, entry_bits = (current * length).bit_length(), (count * length).bit_length()
    sum_bits = 62 - tie_bits - entry_bits
    if sum_bits < 28:
        raise ValueError(f"{count} lists of {length} rows are too long to fuse exactly: lower `pool`")
    scale = 2.0 ** (sum_bits - 1) * (k + 1) / max(sum(weights), 1e-9)
    ranks = np.arange(1, length + 1)
    shares = np.rint(np.asarray(weights)[:, None] * scale / (k + ranks)).astype(np.int64)
    ties = np.full((count, length), current * length)
    ties[count - current :] = (ranks - 1) * current + np.arange(current)[:, None]
    rows = np.full((sessions, count * length), ABSENT, dtype=np.int64)
    scores = np.zeros(rows.shape, dtype=np.float32)
    for start in range(0, sessions, CHUNK):
        part = lists[start : start + CHUNK].reshape(-1, count * length)
        sums = _fuse(part, shares.ravel(), ties.ravel(), (tie_bits, entry_bits), rows[start : start + CHUNK])
        scores[start : start + CHUNK] = sums / scale
    return rows, scores


def _fuse(lists: npt.NDArray[np.integer[Any]], shares: Ints, ties: Ints, bits: tuple[int, int], ranked: Ints) -> Ints:
    """Fuse one chunk ``(S, M)`` of entries into ``ranked``; returns the integer sums in the same order.

    A sort of packed keys brings the entries of a row together, a second one brings the rows into their order.
    """
    tie_bits, entry_bits = bits
    width = lists.shape[1]
    keys = lists.astype(np.int64) << entry_bits
    keys |= np.arange(width)  # padding stays negative and sorts first
    keys.sort(axis=1)
    flat = keys.ravel()
    rows = flat >> entry_bits
    starts_row = np.empty(len(rows), dtype=bool)
    np.not_equal(rows[1:], rows[:-1], out=starts_row[1:])
    starts_row[::width] = True
    starts = np.flatnonzero(starts_row)
    entry = flat & ((1 << entry_bits) - 1)
    sums = np.add.reduceat(shares[entry], starts)
    best = np.minimum.reduceat(ties[entry], starts)
    order = -(((sums << tie_bits) | ((1 << tie_bits) - 1 - best)) << entry_bits) | (starts % width)
    order[rows[starts] < 0] = 0
    keys.fill(0)
    keys.ravel()[starts] = order
    keys.sort(axis=1)
    place = keys & ((1 << entry_bits) - 1)
    np.copyto(ranked, np.take_along_axis(rows.reshape(ranked.shape), place, 1), where=keys < 0)
    return -(keys >> entry_bits) >> tie_bits
