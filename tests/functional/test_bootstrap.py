from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from covr_lab.functional.bootstrap import (
    bca_interval,
    bootstrap_means,
    bootstrap_rates,
    bootstrap_sums,
    interval,
    paired_difference,
    resample_weights,
)
from covr_lab.functional.metrics import Floats


def test_weights_are_those_of_drawing_session_rows() -> None:
    """One draw of the whole index matrix from the same seed, counted by hand: blocks do not change the draws."""
    n, resamples = 300, 1000
    drawn = np.random.default_rng(7).integers(0, n, (resamples, n))
    blocks = list(resample_weights(n, resamples, seed=7))
    assert len(blocks) > 1
    counted = np.array([np.bincount(row, minlength=n) for row in drawn])
    assert (np.concatenate(blocks) == counted).all()
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


def scipy_bca(samples: Floats, outcomes: Floats) -> tuple[float, float]:
    """Scipy's interval of a sum from resamples that are given."""
    given = SimpleNamespace(bootstrap_distribution=samples)
    found = stats.bootstrap((outcomes,), np.sum, n_resamples=0, bootstrap_result=given, method="BCa", vectorized=True)
    return found.confidence_interval.low, found.confidence_interval.high


def test_bca_of_given_resamples_is_that_of_scipy() -> None:
    """Few skewed hits: many resamples equal the estimate, so the half of the ties and the acceleration both count."""
    outcomes = np.column_stack([np.repeat([1.0, 0.0], [3, 37]), np.repeat([-1.0, 0.0, 1.0], [2, 28, 10])])
    sums = bootstrap_sums(outcomes, 4_000)
    low, high = bca_interval(sums, outcomes.sum(axis=0), outcomes)
    for column in range(2):
        expected = scipy_bca(sums[:, column], outcomes[:, column])
        assert (low[column], high[column]) == pytest.approx(expected)
    plain = interval(sums)
    assert (low != plain.low).any() or (high != plain.high).any()


def test_paired_bca_agrees_with_scipy() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.exponential(size=(50, 1)) ** 3, rng.exponential(size=(50, 1))
    difference = a - b
    means = bootstrap_means(difference, 40_000)
    low, high = bca_interval(means, difference.mean(axis=0), difference)
    theirs = stats.bootstrap(
        (a[:, 0], b[:, 0]),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        paired=True,
        method="BCa",
        n_resamples=40_000,
        rng=np.random.default_rng(6),
    )
    # Monte-Carlo error of a 99 % quantile of 40,000 and of the bias correction: 0.023 standard errors
    tolerance = 4 * np.sqrt(2) * 0.023 * theirs.standard_error
    assert low[0] == pytest.approx(theirs.confidence_interval.low, abs=tolerance)
    assert high[0] == pytest.approx(theirs.confidence_interval.high, abs=tolerance)
    assert interval(means).high[0] < theirs.confidence_interval.high - tolerance


def test_bca_of_a_constant_is_the_constant() -> None:
    outcomes = np.column_stack([np.zeros(30), np.full(30, 100.0), np.full(30, np.nan)])
    low, high = bca_interval(bootstrap_sums(outcomes, 200) / 30, outcomes.mean(axis=0), outcomes)
    assert low[:2].tolist() == high[:2].tolist() == [0, 100]
    assert np.isnan([low[2], high[2]]).all()


def test_rates_are_ratios_of_sums() -> None:
    rng = np.random.default_rng(8)
    among = rng.integers(0, 3, (6, 2)).astype(float)
    among[1:, 1] = 0  # only one session has a denominator, and many resamples lack it
    events = np.floor(among * rng.random((6, 2)))
    drawn = np.random.default_rng(0).integers(0, 6, (300, 6))
    got = bootstrap_rates(events, among, resamples=300)
    for row, sessions in enumerate(drawn):
        for column in range(2):
            total = among[sessions, column].sum()
            expected = 100 * events[sessions, column].sum() / total if total else np.nan
            assert got[row, column] == pytest.approx(expected, nan_ok=True)
    assert np.isnan(got[:, 1]).any()


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
