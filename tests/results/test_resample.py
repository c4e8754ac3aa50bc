from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covr_lab.functional.metrics import bri_per_session
from covr_lab.results.compare import Run, load_runs
from covr_lab.results.resample import METRICS, Resamples, rate_samples, session_values, shared_resamples


@pytest.fixture
def runs(make_run: Any, hand: list[Any]) -> list[Run]:
    """The hand-scored run, and one in which s4 is solved at turn 1 and s8 one rank worse at the end."""
    other = [
        row | ({"target_rank": {1: 1, 2: 7}[row["turn"]]} if key in {("s4", 1), ("s8", 2)} else {})
        for row in hand
        for key in [(row["session_id"], row["turn"])]
        if key != ("s4", 2)
    ]
    return load_runs([make_run("a", name="old"), make_run("b", name="new", rows=other)])


def test_intervals_are_those_of_drawing_session_rows(runs: list[Run]) -> None:
    draws, (old, new) = Resamples(runs), runs
    drawn = np.random.default_rng(0).integers(0, 8, (10_000, 8))
    for metric in METRICS:
        a, b = (session_values(run.outcomes)[metric] for run in (new, old))
        difference = draws.difference(new, old, metric)
        means = a[drawn].mean(axis=1) - b[drawn].mean(axis=1)
        np.testing.assert_allclose(difference.mean, (a - b).mean(axis=0), atol=1e-8)
        np.testing.assert_allclose(difference.low, np.percentile(means, 2.5, axis=0), atol=1e-8)
        np.testing.assert_allclose(difference.high, np.percentile(means, 97.5, axis=0), atol=1e-8)
        band = draws.band(new, metric)
        np.testing.assert_allclose(band.high, np.percentile(a[drawn].mean(axis=1), 97.5, axis=0), atol=1e-8)
    assert draws.difference(new, old, "BRI").high[1] < 0 or draws.difference(new, old, "BRI").low[1] < 0


def test_other_runs_and_metrics_do_not_change_an_interval(runs: list[Run]) -> None:
    together, alone = Resamples(runs), Resamples(runs[:1], metrics=["BRI"])
    for method in ("percentile", "bca"):
        for first, second in zip(
            together.band(runs[0], "BRI", method), alone.band(runs[0], "BRI", method), strict=True
        ):
            assert np.array_equal(first, second, equal_nan=True)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_where_no_session_differs_the_interval_is_exactly_zero(runs: list[Run], method: Any) -> None:
    """Turn 0 is one for both runs; sums of BRI that differ in their last bits would call it a difference."""
    draws = Resamples(runs)
    assert [part[0] for part in draws.difference(*runs, "R@1", method)] == [0, 0, 0]
    for metric in METRICS:
        assert all(
            np.nan_to_num(part, nan=0).tolist() == [0, 0, 0]
            for part in draws.difference(runs[0], runs[0], metric, method)
        )


def test_sums_are_exact_whatever_stands_beside_them() -> None:
    """Matrix products add in an order that depends on the place of a column: session values leave no rounding."""
    ranks = np.random.default_rng(0).integers(1, 5000, (3000, 6))
    values = np.round(bri_per_session(ranks)[:, 1:] * 2**30) / 2**30
    assert np.abs(values - bri_per_session(ranks)[:, 1:]).max() < 1e-9
    shuffled = values[np.random.default_rng(1).permutation(3000)]
    assert (shuffled.sum(axis=0) == values.sum(axis=0)).all()
    assert (np.ones((7, 3000)) @ values == values.sum(axis=0)).all()


def test_bca_moves_a_skewed_interval(runs: list[Run]) -> None:
    percentile, bca = (Resamples(runs).band(runs[0], "BRI", method) for method in ("percentile", "bca"))
    assert (percentile.high[1:] < bca.high[1:]).all()  # towards the few bad sessions
    with pytest.raises(ValueError, match="'normal' is neither percentile nor bca"):
        Resamples(runs).band(runs[0], "R@10", "normal")  # type: ignore[arg-type]


def test_runs_over_other_sessions_share_nothing(runs: list[Run], make_run: Any, hand: list[Any]) -> None:
    rows = [row | {"session_id": row["session_id"].replace("s8", "s9")} for row in hand]
    (other,) = load_runs([make_run("c", name="other", rows=rows)])
    with pytest.raises(ValueError, match="run other has other sessions than run old"):
        Resamples([*runs, other])
    shared = shared_resamples([runs[0], other, runs[1]])
    assert shared[runs[0]] is shared[runs[1]]
    assert shared[runs[0]] is not shared[other]
    with pytest.raises(ValueError, match=r"metrics of R@1.*not R@3"):
        Resamples(runs, metrics=["R@3"])


def test_the_difference_has_the_turns_that_both_have(runs: list[Run], make_run: Any, hand: list[Any]) -> None:
    (short,) = load_runs([make_run("short", name="short", rows=[row for row in hand if row["turn"] < 2], turns=1)])
    assert len(Resamples([*runs, short]).difference(runs[1], short, "R@1").mean) == 2


def test_rates_of_many_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    among = [rng.integers(1, 4, (size, width)).astype(float) for size, width in ((30, 2), (20, 1), (30, 3))]
    pairs = [(np.floor(one * rng.random(one.shape)), one) for one in among]
    together = rate_samples(pairs)
    for pair, samples in zip(pairs, together, strict=True):
        assert (rate_samples([pair])[0] == samples).all()
