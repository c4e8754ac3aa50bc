"""Novelty selection against a slow reading of the equations, in exact fractions, and by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from covr_lab.functional.novelty import RATES, allocate, mixed, novelty, probe_count, probe_positions, select


def slow_allocate(weights: list[float], budget: int) -> list[int]:
    """The definition, word for word: scan for each quantile, then scan for each probe to fill up with."""
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    if len(weights) <= budget:
        return list(range(len(weights)))
    chosen: list[int] = []
    for k in range(budget):
        for place in range(len(weights)):
            if sum(exact[: place + 1]) / total >= (k + Fraction(1, 2)) / budget:
                if place not in chosen:
                    chosen.append(place)
                break
    while len(chosen) < budget:
        best = None
        for place in range(len(weights)):
            if place not in chosen and (best is None or weights[place] > weights[best]):
                best = place
        assert best is not None
        chosen.append(best)
    return sorted(chosen)


def slow_novelty(vectors: np.ndarray) -> list[float]:
    steps = []
    for before, after in pairwise(vectors.tolist()):
        dot = sum(a * b for a, b in zip(before, after, strict=True))
        lengths = (sum(a * a for a in before) * sum(b * b for b in after)) ** 0.5
        steps.append(max(0.0, 1 - dot / lengths))
    return [steps[0], *steps] if steps else [0.0]


def sequences() -> list[tuple[np.ndarray, int]]:
    """300 clips of probe vectors: random walks, cuts, still clips, repeated frames, few distinct directions."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(300):
        count, width = int(rng.integers(1, 90)), int(rng.integers(2, 24))
        kind = number % 6
        walk = rng.normal(size=(count, width)).cumsum(0) + 0.01
        if kind == 1:  # ties: few directions, in any order
            walk = np.eye(width)[rng.integers(0, width, count)]
        elif kind == 2:  # nothing ever changes
            walk = np.repeat(walk[:1], count, 0)
        elif kind == 3:  # one cut
            walk = np.where(np.arange(count)[:, None] < rng.integers(0, count + 1), walk[:1], walk[-1:])
        elif kind == 4:  # runs of the same frame
            walk = walk[np.sort(rng.integers(0, count, count))]
        elif kind == 5:  # fewer probes than frames to show, or one
            walk = walk[: int(rng.integers(1, 16))]
        found.append((walk.astype(np.float32), int(rng.integers(1, 21)) if number % 2 else 15))
    return found


@pytest.mark.parametrize("mixing", [1.0, 0.8, 0.0])
def test_selections_are_those_of_the_definition(mixing: float) -> None:
    for vectors, budget in sequences():
        new = novelty(vectors)
        assert new.dtype == np.float32
        np.testing.assert_allclose(new, slow_novelty(vectors), rtol=1e-6, atol=1e-12)
        weights = mixed(new, mixing)
        assert weights.sum() == pytest.approx(1)
        assert (weights >= 0).all()
        assert allocate(weights, budget).tolist() == slow_allocate(weights.tolist(), budget)


def test_no_selection_repeats_or_leaves_the_clip_or_is_out_of_order() -> None:
    rng = np.random.default_rng(1)
    for vectors, budget in sequences():
        total = len(vectors) + int(rng.integers(0, 300))
        positions = probe_positions(total, len(vectors) / 4, ((0, 4),))
        assert len(positions) == len(vectors)
        chosen = select(novelty(vectors), positions, budget)
        assert chosen.dtype == np.int64
        assert len(chosen) == min(len(vectors), budget)
        assert (np.diff(chosen) > 0).all()
        assert chosen[0] >= 0
        assert chosen[-1] < total
        assert set(chosen.tolist()) <= set(positions.tolist())


def test_a_selection_by_hand() -> None:
    """Cosines 1, 0.6, 0, 1 give steps 0, 0.4, 1, 0: weights 0, 0, 2/7, 5/7, 0 with the first as the second."""
    vectors = np.array([[1, 0], [1, 0], [3, 4], [4, -3], [8, -6]])
    np.testing.assert_allclose(novelty(vectors), [0, 0, 0.4, 1, 0], rtol=1e-7, atol=1e-15)
    weights = mixed(novelty(vectors))
    # Quantiles 1/4 and 3/4 of the sums 0, 0, 2/7, 1, 1.
    assert allocate(weights, 2).tolist() == [2, 3]
    # Quantiles 1/8, 3/8, 5/8, 7/8 fall on two probes; of the others, all of weight 0, the earliest fill up.
    assert allocate(weights, 4).tolist() == [0, 1, 2, 3]
    assert select(novelty(vectors), np.array([5, 15, 25, 35, 45]), 3).tolist() == [5, 25, 35]


def test_a_still_clip_is_shown_evenly() -> None:
    """30 equal weights, 15 quantiles that each lie on a step: rounding would move them one way or the other."""
    for value in (0.0, 0.1, 1 / 3, 1e-16):
        assert allocate(mixed(np.full(30, value)), 15).tolist() == list(range(0, 30, 2))
    still = np.repeat(np.random.default_rng(2).normal(size=(1, 64)).astype(np.float32), 45, 0)
    assert select(novelty(still), np.arange(45), 15).tolist() == list(range(1, 45, 3))


def test_lengths_of_vectors_do_not_matter() -> None:
    for vectors, budget in sequences()[:60]:
        scale = 2.0 ** np.random.default_rng(3).integers(-9, 9, (len(vectors), 1))
        assert (allocate(mixed(novelty(vectors)), budget) == allocate(mixed(novelty(vectors * scale)), budget)).all()


@pytest.mark.parametrize(
    ("frames", "seconds", "count"),
    [
        (300, 9.96, 80),  # 79.68
        (300, 9.999999999999998, 40),  # ten seconds, as a container's ticks add up
        (300, 10.0, 40),
        (900, 29.99, 120),  # 119.96
        (900, 30.0, 60),
        (100, 30.25, 61),  # 60.5: halves up, not to even
        (101, 30.75, 62),
        (1000, 0.0, 1),
        (1, 100.0, 1),
        (5, 2.0, 5),
        (10**6, 3600.0, 7200),
    ],
)
def test_probes_are_as_many_as_length_and_rate_say(frames: int, seconds: float, count: int) -> None:
    assert probe_count(frames, seconds) == count
    positions = probe_positions(frames, seconds)
    assert positions.tolist() == [(2 * j + 1) * frames // (2 * count) for j in range(count)]
    assert len(set(positions.tolist())) == count


def test_a_clip_without_a_clock_is_probed_at_every_frame() -> None:
    assert probe_positions(7, None).tolist() == list(range(7))


@pytest.mark.parametrize("rates", [(), ((1.0, 8.0),), ((0.0, 8.0), (10.0, 0.0)), ((0.0, 8.0), (0.0, 4.0)), RATES[::-1]])
def test_rates_that_leave_a_clip_out_are_refused(rates: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="ascending from 0"):
        probe_count(10, 1.0, rates)


def test_what_is_no_clip_or_no_vector_is_refused() -> None:
    for frames, seconds in ((0, 1.0), (5, -1.0), (5, float("nan")), (5, float("inf"))):
        with pytest.raises(ValueError, match="at least one frame and a duration"):
            probe_count(frames, seconds)
    for bad in (np.zeros((2, 3)), np.array([[1.0, np.nan]]), np.array([[np.inf, 1.0]]), np.zeros((0, 3))):
        with pytest.raises(ValueError, match="finite and not zero"):
            novelty(bad)
    for weights, budget in (([], 3), ([0.0, 0.0], 1), ([1.0, -1.0], 1), ([float("nan")], 1), ([1.0], 0)):
        with pytest.raises(ValueError, match="needs weights"):
            allocate(weights, budget)
