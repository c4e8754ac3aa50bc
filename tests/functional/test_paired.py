from __future__ import annotations

from itertools import pairwise
from math import isinf, isnan, pi, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from covr_lab.functional.paired import (
    cohens_h,
    cohens_kappa,
    discordant,
    holm,
    mcnemar,
    odds_ratio,
    spearman,
    standardised_difference,
)


def test_mcnemar_by_hand() -> None:
    assert mcnemar(1, 4) == 2 * (1 + 5) / 32  # 0 or 1 of 5 heads, and the other tail
    assert mcnemar(10, 2) == mcnemar(2, 10) == 2 * (1 + 12 + 66) / 2**12
    assert mcnemar(4, 4) == 1  # the two tails overlap: no more than 1
    with pytest.raises(ValueError, match="negative"):
        mcnemar(-1, 3)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_a_two_sided_binomial_test(wins: int, losses: int) -> None:
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar(wins, losses) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_of_thousands_of_pairs() -> None:
    assert mcnemar(5200, 4800) == pytest.approx(stats.binomtest(5200, 10_000).pvalue, rel=1e-8)
    assert mcnemar(10_000, 0) == 0  # 2 ** -9999 is below the smallest number


def test_holm_by_hand() -> None:
    # sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2 (raised to the one before it), 0.5
    np.testing.assert_allclose(holm(np.array([0.03, 0.5, 0.01, 0.02])), [0.06, 0.5, 0.04, 0.06])
    assert holm(np.array([0.7, 0.8])).tolist() == [1, 1]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float]) -> None:
    adjusted = holm(np.array(p_values))
    for level in (0.01, 0.05, 0.2):
        order, rejected = sorted(range(len(p_values)), key=p_values.__getitem__), set()
        for step, place in enumerate(order):
            if p_values[place] * (len(p_values) - step) > level:
                break
            rejected.add(place)
        assert {place for place, p in enumerate(adjusted) if p <= level} == rejected
    assert all(a <= b for a, b in pairwise(adjusted[np.argsort(p_values)]))


def test_discordant_sessions() -> None:
    a, b = np.array([1, 1, 1, 0, 0], bool), np.array([0, 0, 1, 1, 0], bool)
    assert discordant(a, b) == (2, 1)
    with pytest.raises(ValueError, match="one shape"):
        discordant(a, b[:3])


def test_effect_sizes_by_hand() -> None:
    assert odds_ratio(3, 6) == 0.5
    assert isinf(odds_ratio(2, 0))
    assert isnan(odds_ratio(0, 0))
    assert cohens_h(1, 0) == pytest.approx(pi)
    assert cohens_h(0.75, 0.25) == pytest.approx(pi / 3)  # 2 asin sqrt: 120 and 60 degrees
    assert cohens_h(0.25, 0.75) == -cohens_h(0.75, 0.25)


def test_standardised_difference_is_the_paired_t_over_root_n() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=50), rng.normal(0.3, size=50)
    assert standardised_difference(a - b) == pytest.approx(stats.ttest_rel(a, b).statistic / sqrt(50))
    assert standardised_difference(np.zeros(5)) == 0
    assert isnan(standardised_difference(np.full(5, 0.5)))  # no spread to measure it in


def test_kappa_by_hand() -> None:
    a = np.repeat([True, True, False, False], [20, 5, 10, 15])
    b = np.repeat([True, False, True, False], [20, 5, 10, 15])
    assert cohens_kappa(a, b) == pytest.approx(0.4)  # 0.7 agree, 0.5 by chance
    assert cohens_kappa(a, a) == pytest.approx(1)
    assert isnan(cohens_kappa(np.ones(4, bool), np.ones(4, bool)))


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=3, max_size=30))
def test_spearman_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs).T
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert isnan(spearman(a, b))
    else:
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
