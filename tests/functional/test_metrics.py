from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from covr_lab.functional.metrics import (
    Ranks,
    best_so_far,
    bri_per_session,
    bri_per_turn,
    hits_at,
    mean_rank,
    mean_recall,
    mean_reciprocal_rank,
    median_rank,
    recall_at,
)

matrices = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=7), elements=st.integers(1, 50)
)


def test_a_rank_that_gets_worse_lowers_recall_but_not_hits() -> None:
    ranks = np.array([[3, 1, 4], [1, 1, 1], [9, 11, 2], [2, 1, 11]])  # gallery of 10: 11 is a miss
    assert recall_at(ranks, 1).tolist() == [25, 75, 25]
    assert hits_at(ranks, 1).tolist() == [25, 75, 75]
    assert best_so_far(ranks).tolist() == [[3, 1, 1], [1, 1, 1], [9, 9, 2], [2, 1, 1]]
    assert median_rank(ranks).tolist() == [2.5, 1, 3]
    assert mean_rank(ranks).tolist() == [3.75, 3.5, 4.5]
    expected = [(1 / 3 + 1 + 1 / 9 + 1 / 2) / 4, 3 / 4, (1 / 4 + 1 + 1 / 2) / 4]  # a miss adds 0, not 1 / 11
    np.testing.assert_allclose(mean_reciprocal_rank(ranks, n_gallery=10), expected, rtol=1e-15)
    for function in (mean_rank, median_rank):
        assert function(ranks[:, 2]) == function(ranks)[2]


def test_three_of_ten_missing_stay_in_the_denominator() -> None:
    assert recall_at(np.array([1] * 7 + [101] * 3), 1) == 70


def test_mean_recall_is_taken_before_rounding() -> None:
    ranks = np.array([1, 4, 8, 30, 60, 60, 60])
    assert mean_recall(ranks) == pytest.approx(100 * (1 + 2 + 3) / 7 / 3)
    assert mean_recall(ranks, (1, 5, 10, 50)) == pytest.approx(100 * (1 + 2 + 3 + 4) / 7 / 4)


def test_bri_vectors() -> None:
    assert bri_per_turn(np.array([[8, 2, 4, 1]]))[3] == pytest.approx((log(8) + log(1)) / 6 + (log(2) + log(2)) / 3)
    assert bri_per_turn(np.array([[8, 2, 4, 1]]))[3].round(4) == 0.8087
    np.testing.assert_allclose(bri_per_turn(np.full((3, 6), 7))[1:], log(7))
    for a, b in ((9, 4), (4, 9)):
        assert bri_per_turn(np.array([[a, b]]))[1] == pytest.approx((log(a) + log(min(a, b))) / 2)
    assert np.isnan(bri_per_session(np.array([[3], [5]]))).tolist() == [[True], [True]]


def test_bri_equals_the_loop_of_plugir() -> None:
    """PlugIR eval.py: 0-based best ranks, the mean trapezoid of each round, divided by the number of intervals."""
    ranks = np.random.default_rng(0).integers(1, 2000, (40, 9))
    for horizon in range(1, 9):
        best, total = ranks[:, 0] - 1, 0.0
        for turn in range(horizon):
            newer = np.minimum(best, ranks[:, turn + 1] - 1)
            total += ((np.log(best + 1.0) + np.log(newer + 1.0)) / 2).mean()
            best = newer
        assert bri_per_turn(ranks)[horizon] == pytest.approx(total / horizon, rel=1e-12)


@given(matrices, st.data())
def test_bri_never_increases_when_a_rank_improves(ranks: Ranks, data: st.DataObject) -> None:
    cell = tuple(data.draw(st.integers(0, size - 1)) for size in ranks.shape)
    better = ranks.copy()
    better[cell] = data.draw(st.integers(1, int(ranks[cell])))
    assert (bri_per_turn(better)[1:] <= bri_per_turn(ranks)[1:] + 1e-12).all()


@pytest.mark.parametrize(
    "ranks", [np.array([[1, 0]]), np.empty((0, 3), np.int64), np.array([1.0]), np.ones((1, 1, 1), int)]
)
def test_what_cannot_be_a_rank_is_refused(ranks: Ranks) -> None:
    with pytest.raises(ValueError, match="ranks must be integers from 1"):
        recall_at(ranks, 1)
