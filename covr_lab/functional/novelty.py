"""Which frames of a clip show something new: probes at a fixed rate, and the quantiles of their novelty.

CoVRAGE, equation 6 and appendix A.2; dossier, section 2.6. A selection depends on one clip alone, never on a query.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from covr_lab.functional.sampling import Indices, every, uniform

Steps = npt.NDArray[np.float32]
Weights = npt.NDArray[np.float64]
Rates = tuple[tuple[float, float], ...]
RATES: Final[Rates] = ((0.0, 8.0), (10.0, 4.0), (30.0, 2.0))  # from this many seconds on, probes a second
SELECTOR: Final = 1  # another number: other frames of the same vectors


def probe_count(frames: int, seconds: float, rates: Rates = RATES) -> int:
    """Probes of a clip: seconds times the rate of its length, halves rounded up, between 1 and ``frames``.

    Args:
        frames: frames of the clip.
        seconds: its duration.
        rates: pairs (from this many seconds on, probes a second), ascending, the first from 0.

    Raises:
        ValueError: there are no frames, the duration is no number of 0 or more, or the rates are not in order.

    >>> probe_count(240, 9.99), probe_count(240, 10.0), probe_count(900, 30.0), probe_count(5, 2.0)
    (80, 40, 60, 5)
    """
    check_rates(rates)
    if frames < 1 or not 0 <= seconds < math.inf:
        raise ValueError(f"a clip has at least one frame and a duration, not {frames} frames in {seconds} s")
    seconds = round(seconds, 6)  # containers count in ticks: 10 s may come out as 9.999999999999998
    rate = [rate for start, rate in rates if seconds >= start][-1]
    return max(1, min(frames, math.floor(seconds * rate + 0.5)))


def check_rates(rates: Rates) -> None:
    """Refuse rates that do not say what to do with every clip.

    Raises:
        ValueError: see above; names the mend.
    """
    starts = [start for start, _ in rates]
    if not rates or starts[0] != 0 or starts != sorted(set(starts)) or min(rate for _, rate in rates) <= 0:
        raise ValueError(f"rates are pairs (from seconds, probes a second), ascending from 0, not {rates}")


def probe_positions(frames: int, seconds: float | None, rates: Rates = RATES) -> Indices:
    """Frames to probe, equidistant: ``floor((j + 0.5) * frames / M)``; all frames of a clip without a clock.

    Returns:
        int64 ``(M,)``, strictly ascending.

    >>> probe_positions(10, 0.5).tolist(), probe_positions(3, None).tolist()
    ([1, 3, 6, 8], [0, 1, 2])
    """
    return every(frames) if seconds is None else uniform(frames, probe_count(frames, seconds, rates))


def novelty(vectors: npt.NDArray[np.floating]) -> Steps:
    """How little each probe is like the one before it, ``max(0, 1 - cosine)``; the first is as new as the second.

    Args:
        vectors: ``(M, D)`` of the probes in time order, of any length above 0.

    Returns:
        float32 ``(M,)``; a single probe has novelty 0.

    Raises:
        ValueError: a vector is zero or not finite.

    >>> novelty(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])).tolist()
    [0.0, 0.0, 1.0]
    """
    exact = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt((exact * exact).sum(1, keepdims=True))
    if not len(exact) or not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError(f"probe vectors must be finite and not zero: {exact.shape}")
    units = exact / lengths
    steps = np.maximum(0.0, 1.0 - (units[1:] * units[:-1]).sum(1)).astype(np.float32)
    return np.concatenate([steps[:1], steps]) if len(steps) else np.zeros(1, np.float32)


def mixed(new: Steps | Weights, mixing: float = 1.0) -> Weights:
    """Weights of probes that sum to 1: ``mixing`` of them by novelty, the rest in equal parts.

    Args:
        new: ``(M,)`` of :func:`novelty`; all zero is taken as all equal.
        mixing: lambda, in [0, 1].

    >>> mixed(np.array([0.0, 3.0, 1.0, 0.0]), 0.5).tolist(), mixed(np.zeros(2)).tolist()
    ([0.125, 0.5, 0.25, 0.125], [0.5, 0.5])
    """
    exact, equal = new.astype(np.float64), np.full(len(new), 1 / len(new))
    total = exact.sum()
    return equal if total == 0 else mixing * (exact / total) + (1 - mixing) * equal


def allocate(weights: Sequence[float] | Weights, budget: int) -> Indices:
    """Probes at the ``(k + 0.5) / budget`` quantiles of the weights; what falls together is filled up by weight.

    The sums are exact: the same weights choose the same probes on every machine, also where a quantile lies on a step.

    Args:
        weights: ``(M,)``, finite, none negative, not all zero.
        budget: probes to choose.

    Returns:
        int64 ``(min(M, budget),)``, strictly ascending. Among equal weights the earlier probe fills up.

    Raises:
        ValueError: weights or budget are not as above.

    >>> allocate([0.0, 0.0, 1.0, 0.0, 0.0], 3).tolist(), allocate([1, 1, 1, 1], 2).tolist()
    ([0, 1, 2], [0, 2])
    """
    found = [float(weight) for weight in weights]
    if budget < 1 or not found or not all(0 <= weight < math.inf for weight in found) or not any(found):
        raise ValueError(f"a budget of {budget} needs weights of 0 or more, not all zero: {found}")
    if len(found) <= budget:
        return np.arange(len(found), dtype=np.int64)
    sums = list(accumulate(map(Fraction, found)))
    chosen = {bisect_left(sums, sums[-1] * (2 * k + 1) / (2 * budget)) for k in range(budget)}
    left = sorted(set(range(len(found))) - chosen, key=lambda place: (-found[place], place))
    return np.array(sorted([*chosen, *left[: budget - len(chosen)]]), dtype=np.int64)


def select(new: Steps, positions: Indices, budget: int, mixing: float = 1.0) -> Indices:
    """Frames to show of a clip.

    Args:
        new: float32 ``(M,)`` of :func:`novelty`.
        positions: int64 ``(M,)``, native indices of the probes, strictly ascending.
        budget: frames to show.
        mixing: see :func:`mixed`.

    Returns:
        int64 ``(min(M, budget),)`` of ``positions``, strictly ascending.
    """
    return positions[allocate(mixed(new, mixing), budget)]
