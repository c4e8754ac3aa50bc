"""Retrieval metrics of 1-based ranks: per-turn values, best-so-far values and BRI.

``ranks`` is int64 ``(S, T+1)``, one row per session and one column per turn, a session that stopped early carried
forward; ``(S,)`` is one turn. A missing target has the rank gallery size + 1: it is a miss, and never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def recall_at(ranks: Ranks, k: int) -> Floats:
    """R@K: percent of sessions whose target is within the first ``k``, per turn ``(T+1,)``.

    >>> recall_at(np.array([[8, 2], [1, 1]]), k=5)
    array([ 50., 100.])
    """
    return np.asarray(100.0 * (_checked(ranks) <= k).mean(axis=0))


def mean_recall(ranks: Ranks, ks: Sequence[int] = (1, 5, 10)) -> Floats:
    """Mean of the unrounded R@K over ``ks``, in percent per turn: MeanR3, with ``ks=(1, 5, 10, 50)`` MeanR4.

    >>> mean_recall(np.array([1, 7, 30, 90]))
    array(33.33333333)
    """
    return np.asarray(np.mean([recall_at(ranks, k) for k in ks], axis=0))


def hits_at(ranks: Ranks, k: int) -> Floats:
    """Hits@K (PlugIR): percent of sessions that had the target within the first ``k`` at this turn or any earlier one.

    >>> hits_at(np.array([[8, 2, 4], [1, 3, 9]]), k=2)
    array([ 50., 100., 100.])
    """
    return recall_at(best_so_far(ranks), k)


def median_rank(ranks: Ranks) -> Floats:
    """MedR: median rank per turn.

    >>> median_rank(np.array([[8, 2], [1, 1]]))
    array([4.5, 1.5])
    """
    return np.asarray(np.median(_checked(ranks), axis=0))


def mean_rank(ranks: Ranks) -> Floats:
    """MeanR: mean rank per turn.

    >>> mean_rank(np.array([[8, 2], [1, 1]]))
    array([4.5, 1.5])
    """
    return np.asarray(_checked(ranks).mean(axis=0))


def mean_reciprocal_rank(ranks: Ranks, n_gallery: int) -> Floats:
    """MRR in [0, 1] per turn; a miss (rank above ``n_gallery``) counts as 0.

    >>> mean_reciprocal_rank(np.array([[4, 2], [1, 11]]), n_gallery=10)
    array([0.625, 0.25 ])
    """
    return np.asarray(np.where(_checked(ranks) <= n_gallery, 1.0 / ranks, 0.0).mean(axis=0))


def best_so_far(ranks: Ranks) -> Ranks:
    """Smallest rank up to and including each turn, ``(S, T+1)``.

    >>> best_so_far(np.array([[8, 2, 4, 1]]))
    array([[8, 2, 2, 1]])
    """
    if ranks.ndim != 2:
        raise ValueError(f"ranks must be (sessions, turns + 1), not {ranks.shape}")
    return np.asarray(np.minimum.accumulate(_checked(ranks), axis=1))


def bri_per_session(ranks: Ranks) -> Floats:
    """Best log Rank Integral of each session, ``(S, T+1)``: column ``t`` has the horizon ``t`` (PlugIR, Def. 1-2).

    The trapezoid area under the natural logarithm of the best rank so far, divided by ``t``. Turn 0 has no interval
    and is NaN. Lower is better, 0 is the best.

    >>> bri_per_session(np.array([[8, 2, 4, 1]])).round(4)
    array([[   nan, 1.3863, 1.0397, 0.8087]])
    """
    log = np.log(best_so_far(ranks))
    area = np.cumsum((log[:, :-1] + log[:, 1:]) / 2, axis=1)
    return np.column_stack([np.full(len(log), np.nan), area / np.arange(1, log.shape[1])])


def bri_per_turn(ranks: Ranks) -> Floats:
    """BRI with horizon ``t`` at column ``t``, ``(T+1,)``, the mean over sessions; NaN at turn 0.

    >>> bri_per_turn(np.array([[4, 4], [1, 1]])).round(4)
    array([   nan, 0.6931])
    """
    return np.asarray(bri_per_session(ranks).mean(axis=0))


def _checked(ranks: Ranks) -> Ranks:
    """``ranks``, refused when they cannot be 1-based ranks of at least one session."""
    if ranks.ndim not in (1, 2) or not ranks.size or ranks.dtype.kind != "i" or ranks.min() < 1:
        raise ValueError(
            f"ranks must be integers from 1 of shape (S,) or (S, T+1), S > 0, not {ranks.dtype} {ranks.shape}"
        )
    return ranks
