from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from covr_lab.functional.bootstrap import bootstrap_means, interval, paired_difference, resample_weights


def test_weights_are_those_of_drawing_session_rows() -> None:
    """One draw of the whole index matrix from the same seed, counted by hand: blocks do not change the draws."""
    n, resamples = 300, 500
    drawn = np.random.default_rng(7).integers(0, n, (resamples, n))
    blocks = list(resample_weights(n, resamples, seed=7))
    assert len(blocks) > 1
    assert (np.concatenate(blocks) == (drawn[:, :, None] == np.arange(n)).sum(axis=1)).all()
    outcomes = np.random.default_rng(0).normal(size=(n, 3))
    np.testing.assert_allclose(bootstrap_means(outcomes, resamples, seed=7), outcomes[drawn].mean(axis=1), atol=1e-12)


def test_columns_share_their_draws() -> None:
    hits = np.where(np.random.default_rng(1).random((400, 4)) < 0.7, 100.0, 0.0)
    together = bootstrap_means(hits, resamples=200)
    for column in range(4):
        assert (together[:, column] == bootstrap_means(hits[:, [column]], resamples=200)[:, 0]).all()
    assert not paired_difference(hits, hits, resamples=200).high.any()


def test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(2)
    b = rng.exponential(size=(500, 3))  # no 0/100 hits: their intervals move in steps of 100 / S, hiding the error
    a = np.asarray(0.9 * b + 0.1 * rng.exponential(size=(500, 3)), dtype=np.float64)
    ours = paired_difference(a, b)
    np.testing.assert_allclose(ours.mean, a.mean(axis=0) - b.mean(axis=0))
    for turn in range(3):
        theirs = stats.bootstrap(
            (a[:, turn], b[:, turn]),
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            paired=True,
            method="percentile",
            n_resamples=10_000,
            rng=np.random.default_rng(3),
        )
        # Monte-Carlo error of a 2.5 % quantile of a normal sample of 10,000: 0.027 standard errors, twice independent
        tolerance = 4 * np.sqrt(2) * 0.027 * theirs.standard_error
        assert ours.low[turn] == pytest.approx(theirs.confidence_interval.low, abs=tolerance)
        assert ours.high[turn] == pytest.approx(theirs.confidence_interval.high, abs=tolerance)


def test_interval_interpolates_linearly() -> None:
    samples = np.array([[30.0, 0.0], [10.0, 0.0], [20.0, 1.0], [40.0, 0.0]])  # sorted positions 0, 1, 2, 3
    low, high = interval(samples, level=80)
    np.testing.assert_allclose(low, [13.0, 0.0])  # position 0.3
    np.testing.assert_allclose(high, [37.0, 0.7])  # position 2.7


def test_memory_is_bounded() -> None:
    outcomes = np.ones((2556, 12))
    tracemalloc.start()
    bootstrap_means(outcomes, resamples=2_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6  # the whole weight matrix would be 41 MB


def test_sessions_must_match() -> None:
    with pytest.raises(ValueError, match="join the sessions"):
        paired_difference(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(ValueError, match="with sessions"):
        bootstrap_means(np.ones((0, 2)))
