"""Fusion of short ranked lists by ranks or by similarities, exact and independent of the gallery size.

Contributions of ranks are fixed-point integers, so sums do not depend on the order of addition or on the batch;
similarities are added in double precision in one order. Lists live on the CPU, where sessions store them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

ABSENT = -1
CHUNK = 32  # sessions fused at a time: bounds the extra memory, and the arrays stay in a core's cache
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
    lists: npt.NDArray[np.integer[Any]],
    weights: Sequence[float],
    *,
    k: int = 60,
    current: int = 0,
    penalty: int | None = None,
) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Fuse the lists of each session: ``F(v) = sum over lists of weight / (k + rank of v)``, absent adds nothing.

    With a penalty, a row that is absent from a list that ran (one with entries) gets ``-weight / (k + penalty)`` there.

    Ties in ``F`` go to the better of the best ranks in the current lists, then to the earlier of these lists, then to
    the smaller row.

    Args:
        lists: integers ``(S, L, K)``, best first, no repeats inside a list, padded with -1; oldest list first.
        weights: one non-negative weight a list.
        k: smoothing constant, 60 in ReCoVR and in Cormack et al. (2009).
        current: how many lists, counted from the last, are of the current turn and break ties.
        penalty: rank whose share an absent row loses, 1 or more.

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
    size, no_tie = count * length, current * length
    entry_bits, tie_bits = size.bit_length(), no_tie.bit_length()
    sum_bits = 62 - tie_bits - entry_bits
    numbers = _entry_numbers(count, length, current)
    shares = np.zeros(1 << entry_bits, dtype=np.int64)  # by number; the last one is the padding's
    # A penalty adds to what is present what it takes off all rows of a session: their order is that of the definition.
    shares[numbers], scale = fixed_point_shares(weights, k, length, sum_bits, penalty)
    rows = np.empty((sessions, size), dtype=np.int64)
    scores = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, sessions, CHUNK):
        part = slice(start, start + CHUNK)
        sums = _fuse(lists[part].reshape(-1, size), numbers.ravel(), shares, no_tie, rows[part])
        scores[part] = sums / scale
    if penalty is not None:
        off = (lists != ABSENT).any(-1) @ np.asarray(weights, dtype=np.float64) / (k + penalty)
        scores -= np.where(rows == ABSENT, 0, off[:, None]).astype(np.float32)
    return rows, scores


def similarity_fusion(
    lists: npt.NDArray[np.integer[Any]],
    scores: npt.NDArray[np.floating[Any]],
    rule: Literal["max", "sum"],
    *,
    current: int = 0,
) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Fuse the lists of each session by raw similarity: the greatest of a row, or the sum; absent adds nothing.

    Args:
        lists: integers ``(S, L, K)``, as for :func:`reciprocal_rank_fusion`, which breaks ties in the same way.
        scores: similarities of the entries, of the same shape.
        rule: what a row's similarities become.
        current: how many lists, counted from the last, are of the current turn and break ties.

    Returns:
        ``rows`` and ``scores`` as :func:`reciprocal_rank_fusion` returns them.

    Raises:
        ValueError: an entry has no score.

    >>> lists, scores = np.array([[[1, 2], [2, 3]]]), np.array([[[0.75, 0.5], [0.5, 0.25]]])
    >>> [similarity_fusion(lists, scores, rule)[0][0].tolist() for rule in ("max", "sum")]
    [[1, 2, 3, -1], [2, 1, 3, -1]]
    """
    sessions, count, length = lists.shape
    size, no_tie = count * length, current * length
    if (np.isnan(scores) & (lists != ABSENT)).any():
        raise ValueError("an entry of a list has no similarity: fuse lists without scores by rank")
    numbers = _entry_numbers(count, length, current).ravel()
    entry_bits = size.bit_length()
    owners, entries, first = _grouped(lists.reshape(sessions, size), numbers, entry_bits)
    nothing, combine = (-np.inf, np.maximum) if rule == "max" else (0.0, np.add)
    values = np.full((sessions, 1 << entry_bits), nothing)  # by number, as above
    values[:, numbers] = np.where(lists == ABSENT, nothing, scores).reshape(sessions, size)
    starts = np.flatnonzero(first)
    totals = combine.reduceat(np.take_along_axis(values, entries, 1).ravel(), starts)
    session, found = np.nonzero(first)[0], owners.ravel()[starts]
    order = np.lexsort((found, np.minimum(entries.ravel()[starts], no_tie), -totals, session))
    place = np.arange(len(order)) - np.searchsorted(session, session)  # sorted by session, before and after
    rows, fused = np.full((sessions, size), ABSENT, dtype=np.int64), np.zeros((sessions, size), dtype=np.float32)
    rows[session, place], fused[session, place] = found[order], totals[order]
    return rows, fused


def fixed_point_shares(
    weights: Sequence[float], k: int, length: int, bits: int, penalty: int | None = None
) -> tuple[Ints, float]:
    """Integers ``(L, K)`` proportional to ``weight / (k + rank)``, whose sums over all lists fit ``bits``.

    With a penalty they are proportional to ``weight * (1 / (k + rank) + 1 / (k + penalty))``.

    Weights that are multiples of one small fraction (the linear and harmonic laws) stay exact multiples, so that at
    one rank 1/5 and 2/5 weigh what 3/5 does.

    Returns:
        The shares, and the factor they are multiplied with.

    Raises:
        ValueError: neighbouring ranks would get equal shares.

    >>> shares, _ = fixed_point_shares([0.2, 0.4, 0.6], 60, 3, 40)
    >>> bool((shares[0] + shares[1] == shares[2]).all())
    True
    """
    common = lcm(*(Fraction(weight).limit_denominator(60).denominator for weight in weights))
    units = np.rint(np.asarray(weights, dtype=np.float64) * common)
    whole = np.allclose(units, np.asarray(weights) * common, rtol=0, atol=1e-9) and units.sum() <= 2**12
    factors, unit = (units, 1 / common) if whole else (np.asarray(weights, dtype=np.float64), 1.0)
    more = 0.0 if penalty is None else (k + 1) / (k + penalty)  # in shares of rank 1
    scale = 2.0 ** (bits - 1) * (k + 1) / max(float(factors.sum()), 1e-9) / (1 + more)
    parts = scale / (k + np.arange(1, length + 1)) + more * scale / (k + 1)
    shares = (factors[:, None] * np.rint(parts) if whole else np.rint(factors[:, None] * parts)).astype(np.int64)
    if (np.diff(shares[factors > 0]) >= 0).any():
        raise ValueError(f"{len(factors)} lists of {length} rows are too long to fuse exactly: lower `pool`")
    return shares, scale / unit


def _entry_numbers(count: int, length: int, current: int) -> Ints:
    """Numbers ``(count, length)`` of entries: of two entries of a row the one that wins ties has the smaller one.

    Those of the current lists come first, by rank and then by list; numbers from ``current * length`` on win no tie.
    """
    no_tie = current * length
    numbers = np.arange(no_tie, no_tie + count * length).reshape(count, length)
    numbers[count - current :] = np.arange(no_tie).reshape(length, current).T
    return numbers


def _grouped(
    lists: npt.NDArray[np.integer[Any]], numbers: Ints, entry_bits: int
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Entries ``(S, M)`` sorted by (row, number), the padding last.

    Returns:
        Their rows, their numbers, and which are the first ones of a row.
    """
    padding = (1 << entry_bits) - 1
    keys = lists.astype(np.int64)
    keys <<= entry_bits
    keys |= numbers
    np.copyto(keys, np.iinfo(np.int64).max, where=lists < 0)
    keys.sort(axis=1)
    rows = keys >> entry_bits
    keys &= padding
    first = keys != padding
    first[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    return rows, keys, first


def _fuse(lists: npt.NDArray[np.integer[Any]], numbers: Ints, shares: Ints, no_tie: int, ranked: Ints) -> Ints:
    """Fuse one chunk ``(S, M)`` of entries into ``ranked``; returns the integer sums in the same order.

    A sort of packed keys (row, number) brings the entries of a row together, a second one (minus sum, tie, column of
    the first entry) brings the rows into their order. Work is in place: allocations would cost as much as the sorts.
    """
    tie_bits, entry_bits, padding = no_tie.bit_length(), len(shares).bit_length() - 1, len(shares) - 1
    rows, keys, first = _grouped(lists, numbers, entry_bits)
    starts, origins = np.flatnonzero(first), np.arange(0, keys.size, keys.shape[1])
    order = np.negative(np.add.reduceat(shares[keys].ravel(), starts))
    order <<= tie_bits
    order |= np.minimum(keys.ravel()[starts], no_tie)
    order <<= entry_bits
    order |= starts - np.repeat(origins, first.sum(1))
    keys.fill(no_tie << entry_bits | padding)  # sum 0, no tie, no entry: behind every row
    keys.ravel()[starts] = order
    keys.sort(axis=1)
    place = keys & padding
    empty = place == padding
    place += origins[:, None]
    rows.take(place, out=ranked, mode="clip")
    np.copyto(ranked, ABSENT, where=empty)
    keys >>= tie_bits + entry_bits
    return np.negative(keys, out=keys)
