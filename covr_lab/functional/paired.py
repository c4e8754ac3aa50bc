"""Two systems, or two users, over the same sessions: exact tests, effect sizes and agreement. No scipy at run time."""

from __future__ import annotations

from math import asin, inf, nan, sqrt

import numpy as np
import numpy.typing as npt

from covr_lab.functional.metrics import Floats

Flags = npt.NDArray[np.bool_]


def discordant(a: Flags, b: Flags) -> tuple[int, int]:
    """Sessions that only ``a`` solves and those that only ``b`` solves, of bool ``(S,)`` in the same order.

    >>> discordant(np.array([True, True, False]), np.array([True, False, False]))
    (1, 0)
    """
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"paired outcomes must have one shape (S,), not {a.shape} and {b.shape}")
    return int((a & ~b).sum()), int((~a & b).sum())


def mcnemar(wins: int, losses: int) -> float:
    """Two-sided p of the exact McNemar test: how likely so uneven a split of the discordant pairs is by a fair coin.

    Summed in whole numbers, so it has no rounding error until the last division.

    >>> mcnemar(5, 0), mcnemar(3, 3), mcnemar(0, 0)
    (0.0625, 1.0, 1.0)
    """
    if min(wins, losses) < 0:
        raise ValueError(f"counts of pairs cannot be negative: {wins}, {losses}")
    pairs, term, total = wins + losses, 1, 0
    for k in range(min(wins, losses) + 1):
        total += term
        term = term * (pairs - k) // (k + 1)
    return float(min(1.0, 2 * total / 2**pairs))


def holm(p_values: Floats) -> Floats:
    """Holm's step-down adjustment of p values ``(M,)``: reject those below the level, with all M taken into account.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(scaled)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return adjusted


def odds_ratio(wins: int, losses: int) -> float:
    """Odds of a discordant pair to be a win: infinite without a loss, NaN without a discordant pair.

    >>> odds_ratio(6, 4), odds_ratio(1, 0), odds_ratio(0, 0)
    (1.5, inf, nan)
    """
    if losses:
        return wins / losses
    return inf if wins else nan


def cohens_h(a: float, b: float) -> float:
    """Cohen's h of two rates in [0, 1]: their difference after the arcsine transform, in [-pi, pi].

    >>> round(cohens_h(0.5, 0.25), 4)
    0.5236
    """
    return 2 * asin(sqrt(a)) - 2 * asin(sqrt(b))


def standardised_difference(differences: Floats) -> float:
    """d_z: mean of paired differences ``(S,)`` over their standard deviation (S - 1); 0 where none differs.

    >>> standardised_difference(np.array([1.0, 2.0, 3.0])), standardised_difference(np.zeros(3))
    (2.0, 0.0)
    """
    if not differences.any():
        return 0.0
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return float(differences.mean()) / spread if spread else nan


def cohens_kappa(a: Flags, b: Flags) -> float:
    """Agreement of two bool ``(S,)`` beyond chance: 1 is perfect, 0 is chance, NaN where chance already agrees fully.

    >>> cohens_kappa(np.array([True, True, False, False]), np.array([True, False, False, False]))
    0.5
    """
    first, second = float(a.mean()), float(b.mean())
    expected = first * second + (1 - first) * (1 - second)
    return (float((a == b).mean()) - expected) / (1 - expected) if expected < 1 else nan


def spearman(a: npt.NDArray[np.int64] | Floats, b: npt.NDArray[np.int64] | Floats) -> float:
    """Spearman's rank correlation of ``(S,)`` values, ties at their middle place; NaN where one side is constant.

    >>> round(spearman(np.array([1, 2, 3]), np.array([10, 30, 20])), 9)
    0.5
    """
    first, second = (_places(values) - (len(values) - 1) / 2 for values in (a, b))
    scale = sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / scale if scale else nan


def _places(values: npt.NDArray[np.int64] | Floats) -> Floats:
    """0-based place of each value in sorted order, equal values at the mean of theirs."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(middle[at], dtype=np.float64)
