"""Paired bootstrap over whole sessions (ReCoVR App. A.3).

A resample is a weight per session (how often it was drawn). The weights depend on the number of sessions and the seed
alone, so the same ones serve every turn, metric and system: put them side by side as columns of ``outcomes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from covr_lab.functional.metrics import Floats

CHUNK = 2**17  # weights held at once; larger blocks fall out of the cache


class Interval(NamedTuple):
    """Bounds of a percentile interval, float64, one entry per column of what was resampled."""

    low: Floats
    high: Floats


class Difference(NamedTuple):
    """Mean of ``a - b`` and its percentile interval, float64, one entry per column (turn)."""

    mean: Floats
    low: Floats
    high: Floats


def resample_weights(n_sessions: int, resamples: int = 10_000, seed: int = 0) -> Iterator[Floats]:
    """How often each session was drawn, in blocks of resamples.

    Yields:
        float64 ``(R, n_sessions)`` counts; each row sums to ``n_sessions``, the blocks add up to ``resamples`` rows.

    >>> [block.sum(axis=1) for block in resample_weights(4, resamples=3)]
    [array([4., 4., 4.])]
    """
    rng = np.random.default_rng(seed)
    step = max(1, CHUNK // n_sessions)
    for start in range(0, resamples, step):
        drawn = rng.integers(0, n_sessions, (min(step, resamples - start), n_sessions), dtype=np.int32)
        weights = np.empty(drawn.shape)
        for row, sessions in enumerate(drawn):  # a bincount per row is faster than one of the whole block
            weights[row] = np.bincount(sessions, minlength=n_sessions)
        yield weights


def bootstrap_means(outcomes: Floats, resamples: int = 10_000, seed: int = 0) -> Floats:
    """Mean outcome of each resample, float64 ``(resamples, M)``.

    Args:
        outcomes: float64 ``(S, M)``, one row per session; the columns are turns, metrics, systems.
        resamples: number of bootstrap resamples.
        seed: of the draws.

    >>> bootstrap_means(np.array([[0.0, 5.0], [0.0, 5.0]]), resamples=2)
    array([[0., 5.],
           [0., 5.]])
    """
    if outcomes.ndim != 2 or not len(outcomes):
        raise ValueError(f"outcomes must be (sessions, columns) with sessions, not {outcomes.shape}")
    blocks = resample_weights(len(outcomes), resamples, seed)
    return np.concatenate([weights @ outcomes for weights in blocks]) / len(outcomes)


def interval(samples: Floats, level: float = 95) -> Interval:
    """Percentile interval of ``samples`` ``(resamples, M)`` with linear interpolation, per column.

    >>> interval(np.arange(101.0)[:, None])
    Interval(low=array([2.5]), high=array([97.5]))
    """
    tail = (100 - level) / 2
    low, high = np.percentile(samples, [tail, 100 - tail], axis=0)
    return Interval(low, high)


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
