"""Paired bootstrap over whole sessions (ReCoVR App. A.3).

A resample is a weight per session (how often it was drawn). The weights depend on the number of sessions and the seed
alone, so the same ones serve every turn, metric and system: put them side by side as columns of ``outcomes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from covr_lab.functional.metrics import Floats

CHUNK = 2**17  # weights held at once; larger blocks fall out of the cache


class Interval(NamedTuple):
    """Bounds of an interval, float64, one entry per column of what was resampled."""

    low: Floats
    high: Floats


class Difference(NamedTuple):
    """Mean of ``a - b`` and its interval, float64, one entry per column (turn)."""

    mean: Floats
    low: Floats
    high: Floats


def resample_weights(n_sessions: int, resamples: int = 10_000, seed: int = 0, held: int = CHUNK) -> Iterator[Floats]:
    """How often each session was drawn, in blocks of resamples.

    Args:
        n_sessions: S.
        resamples: number of bootstrap resamples.
        seed: of the draws.
        held: weights of a block; the draws do not depend on it.

    Yields:
        float64 ``(R, n_sessions)`` counts; each row sums to ``n_sessions``, the blocks add up to ``resamples`` rows.

    >>> [block.sum(axis=1) for block in resample_weights(4, resamples=3)]
    [array([4., 4., 4.])]
    """
    rng = np.random.default_rng(seed)
    step = max(1, held // n_sessions)
    for start in range(0, resamples, step):
        drawn = rng.integers(0, n_sessions, (min(step, resamples - start), n_sessions), dtype=np.int32)
        weights = np.empty(drawn.shape)
        for row, sessions in enumerate(drawn):  # a bincount per row is faster than one of the whole block
            weights[row] = np.bincount(sessions, minlength=n_sessions)
        yield weights


def bootstrap_sums(outcomes: Floats, resamples: int = 10_000, seed: int = 0) -> Floats:
    """Sum of the outcomes of each resample, float64 ``(resamples, M)``; exact when the outcomes are whole numbers.

    Args:
        outcomes: float64 ``(S, M)``, one row per session; the columns are turns, metrics, systems.
        resamples: number of bootstrap resamples.
        seed: of the draws.

    Raises:
        ValueError: there is no session.
    """
    if outcomes.ndim != 2 or not len(outcomes):
        raise ValueError(f"outcomes must be (sessions, columns) with sessions, not {outcomes.shape}")
    sums, done = np.empty((resamples, outcomes.shape[1])), 0
    held = min(max(CHUNK, outcomes.size), 8 * CHUNK)  # small blocks would read the outcomes of a large study too often
    for weights in resample_weights(len(outcomes), resamples, seed, held):
        np.matmul(weights, outcomes, out=sums[done : done + len(weights)])
        done += len(weights)
    return sums


def bootstrap_means(outcomes: Floats, resamples: int = 10_000, seed: int = 0) -> Floats:
    """Mean outcome of each resample: :func:`bootstrap_sums` over the number of sessions.

    >>> bootstrap_means(np.array([[0.0, 5.0], [0.0, 5.0]]), resamples=2)
    array([[0., 5.],
           [0., 5.]])
    """
    sums = bootstrap_sums(outcomes, resamples, seed)
    sums /= len(outcomes)
    return sums


def bootstrap_rates(events: Floats, among: Floats, resamples: int = 10_000, seed: int = 0) -> Floats:
    """Rate of each resample in percent, float64 ``(resamples, M)``: a ratio of sums, since its denominator varies too.

    Args:
        events: float64 ``(S, M)``, how often the event happened in each session.
        among: float64 ``(S, M)``, how often it could have.
        resamples: number of bootstrap resamples.
        seed: of the draws.

    Returns:
        NaN where a resample has no session in which the event could have happened.

    >>> bootstrap_rates(np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]]), resamples=2)
    array([[50.],
           [50.]])
    """
    top, bottom = np.hsplit(bootstrap_sums(np.hstack([events, among]), resamples, seed), 2)
    rates: Floats = np.divide(100 * top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
    return rates


def interval(samples: Floats, level: float = 95) -> Interval:
    """Percentile interval of ``samples`` ``(resamples, M)`` with linear interpolation, per column.

    >>> interval(np.arange(101.0)[:, None])
    Interval(low=array([2.5]), high=array([97.5]))
    """
    tail = (100 - level) / 2
    low, high = np.percentile(samples, [tail, 100 - tail], axis=0)
    return Interval(low, high)


def bca_interval(samples: Floats, estimate: Floats, outcomes: Floats, level: float = 95) -> Interval:
    """Bias-corrected and accelerated interval of a mean, per column (Efron 1987).

    The bias correction counts half of the resamples that equal the estimate, which matters for hits: their means are
    few. The acceleration is that of the jackknife, which for a mean is a third of its skewness over two roots of S.

    Args:
        samples: float64 ``(resamples, M)`` means, or sums, of the resamples.
        estimate: float64 ``(M,)``, the same of the sessions themselves.
        outcomes: float64 ``(S, M)``, what was resampled.
        level: percent of the interval.

    Returns:
        The estimate twice where all sessions have one outcome; NaN where an outcome is NaN.

    >>> bca_interval(np.full((4, 1), 2.0), np.array([2.0]), np.full((3, 1), 2.0))
    Interval(low=array([2.]), high=array([2.]))
    """
    resamples, normal = len(samples), NormalDist()
    below = (samples < estimate).mean(axis=0) + (samples == estimate).mean(axis=0) / 2
    spread = outcomes - outcomes.mean(axis=0)
    squares = (spread**2).sum(axis=0) ** 1.5
    acceleration = np.divide((spread**3).sum(axis=0), 6 * squares, out=np.zeros_like(squares), where=squares > 0)
    bounds = np.vstack([estimate, estimate])
    tails = [normal.inv_cdf((100 - level) / 200), normal.inv_cdf((100 + level) / 200)]
    for column in np.flatnonzero(np.ptp(outcomes, axis=0) > 0):
        bias = normal.inv_cdf(float(np.clip(below[column], 0.5 / resamples, 1 - 0.5 / resamples)))
        shifted = [bias + (bias + z) / (1 - acceleration[column] * (bias + z)) for z in tails]
        bounds[:, column] = np.quantile(samples[:, column], [normal.cdf(z) for z in shifted])
    return Interval(*bounds)


def paired_difference(a: Floats, b: Floats, resamples: int = 10_000, seed: int = 0, level: float = 95) -> Difference:
    """``a - b`` per column, with the interval of the paired bootstrap.

    Args:
        a: float64 ``(S, T+1)`` outcomes of one system, for R@K 100 or 0.
        b: the same of the other system: the same sessions in the same order (the caller joins them by id).
        resamples: number of bootstrap resamples.
        seed: of the draws.
        level: percent of the interval.

    Raises:
        ValueError: ``a`` and ``b`` differ in shape, or have no session.

    >>> paired_difference(np.array([[100.0], [100.0]]), np.array([[0.0], [0.0]]))
    Difference(mean=array([100.]), low=array([100.]), high=array([100.]))
    """
    if a.shape != b.shape:
        raise ValueError(f"paired outcomes must have one shape, not {a.shape} and {b.shape}; join the sessions first")
    return Difference((a - b).mean(axis=0), *interval(bootstrap_means(a - b, resamples, seed), level))
