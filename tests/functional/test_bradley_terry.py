"""Strengths against scipy's optimum of the written objective, against choix, and by their symmetries."""

from __future__ import annotations

from itertools import combinations

import choix
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from covr_lab.functional.bradley_terry import bradley_terry, by_strength, rank_prior


def games(count: int, size: int, seed: int, *, soft: bool = False) -> Tensor:
    """Random wins, many pairs without any."""
    rng = np.random.default_rng(seed)
    wins = rng.poisson(0.7, (count, size, size)) + (rng.random((count, size, size)) if soft else 0)
    wins[:, np.arange(size), np.arange(size)] = 0
    return torch.from_numpy(wins.astype(np.float64))


def negative(theta: np.ndarray, wins: np.ndarray, ridge: float, prior: np.ndarray) -> tuple[float, np.ndarray]:
    """The objective of the docstring and its slope, term by term."""
    value, slope = ridge / 2 * float(((theta - prior) ** 2).sum()), ridge * (theta - prior)
    for i, j in np.argwhere(wins > 0):
        value -= wins[i, j] * (theta[i] - np.logaddexp(theta[i], theta[j]))
        lost = wins[i, j] / (1 + np.exp(theta[i] - theta[j]))
        slope[i] -= lost
        slope[j] += lost
    return value, slope


@pytest.mark.parametrize("ridge", [1e-3, 0.1, 3.0])
@pytest.mark.parametrize("soft", [False, True])
def test_it_is_the_optimum_that_scipy_finds(ridge: float, soft: bool) -> None:
    wins, prior = games(4, 7, 3, soft=soft), torch.randn(4, 7, generator=torch.Generator().manual_seed(0)).double()
    for means in (None, prior):
        ours = bradley_terry(wins, ridge=ridge, prior=means).numpy()
        for at in range(len(wins)):
            start = np.zeros(7) if means is None else means[at].numpy()
            best = minimize(
                negative,
                start,
                (wins[at].numpy(), ridge, start),
                "BFGS",
                jac=True,
                options={"gtol": 1e-9, "maxiter": 999},
            )
            np.testing.assert_allclose(ours[at], best.x, atol=1e-6)


def test_it_agrees_with_choix_whose_alpha_is_half_the_ridge() -> None:
    for at, wins in enumerate(games(3, 9, 8)):
        data = [(i, j) for i in range(9) for j in range(9) for _ in range(int(wins[i, j]))]
        theirs = choix.opt_pairwise(9, data, alpha=5e-4, method="Newton-CG", tol=1e-12)
        np.testing.assert_allclose(bradley_terry(wins[None])[0].numpy(), theirs, atol=1e-6, err_msg=str(at))


def test_two_items_by_hand() -> None:
    """Without a penalty worth the name, the odds are those of the wins."""
    wins = torch.tensor([[[0.0, 8.0], [2.0, 0.0]]])
    assert bradley_terry(wins, ridge=1e-6)[0].diff().item() == pytest.approx(-np.log(4), abs=1e-5)
    halves = torch.tensor([[[0.0, 0.5], [0.5, 0.0]]])
    assert bradley_terry(halves)[0].tolist() == [0.0, 0.0]


def test_an_acyclic_tournament_gives_its_order_and_finite_strengths() -> None:
    for size in (2, 5, 20):
        wins = torch.ones(1, size, size).triu(1)
        for ridge in (1e-6, 1e-3, 1.0):
            strengths = bradley_terry(wins, ridge=ridge)[0]
            assert bool(torch.isfinite(strengths).all())
            assert by_strength(strengths.tolist()) == list(range(size))


def test_without_comparisons_the_prior_is_the_answer() -> None:
    nothing, prior = torch.zeros(2, 4, 4), torch.stack([rank_prior(4), torch.zeros(4).double()])
    assert torch.equal(bradley_terry(nothing), torch.zeros(2, 4).double())
    assert torch.equal(bradley_terry(nothing, prior=prior), prior)
    assert bradley_terry(torch.zeros(0, 4, 4)).shape == (0, 4)


def test_strengths_keep_the_mean_of_the_prior() -> None:
    prior = 3 * rank_prior(6).expand(5, -1) + 2
    assert bradley_terry(games(5, 6, 1), prior=prior).mean(-1).numpy() == pytest.approx(2.0, abs=1e-9)


def test_a_query_does_not_depend_on_its_batch() -> None:
    wins = games(40, 12, 5)
    whole = bradley_terry(wins)
    for at in range(40):
        assert torch.equal(bradley_terry(wins[at : at + 1])[0], whole[at])
    assert torch.equal(bradley_terry(wins.flip(0)), whole.flip(0))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=25),
    st.permutations(range(8)),
)
def test_relabelling_the_items_relabels_the_order(size: int, pairs: list[tuple[int, int]], names: list[int]) -> None:
    """Equal strengths stay in the order they came in, so only what is not equal is compared."""
    wins = torch.zeros(1, size, size)
    for winner, loser in pairs:
        if winner % size != loser % size:
            wins[0, winner % size, loser % size] += 1
    to = [name for name in names if name < size]
    renamed = torch.empty_like(wins)
    renamed[:, torch.tensor(to)[:, None], torch.tensor(to)] = wins
    before, after = bradley_terry(wins)[0], bradley_terry(renamed)[0]
    torch.testing.assert_close(after[to], before, atol=1e-9, rtol=0)
    places = {item: place for place, item in enumerate(by_strength(after.tolist()))}
    for one, two in combinations(range(size), 2):
        if abs(before[one] - before[two]) > 1e-6:
            assert (before[one] > before[two]) == (places[to[one]] < places[to[two]])


def test_who_is_equal_stays_in_place() -> None:
    """A cycle of three: rounding must not decide."""
    wins = torch.zeros(1, 4, 4)
    wins[0, 0, 1] = wins[0, 1, 2] = wins[0, 2, 0] = wins[0, 0, 3] = wins[0, 1, 3] = wins[0, 2, 3] = 1
    assert by_strength(bradley_terry(wins)[0].tolist()) == [0, 1, 2, 3]
    shifted = wins[:, [3, 1, 2, 0]][:, :, [3, 1, 2, 0]]
    assert by_strength(bradley_terry(shifted)[0].tolist()) == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("wins", "ridge"),
    [
        (torch.tensor([[[0.0, -1.0], [0.0, 0.0]]]), 1e-3),
        (torch.tensor([[[0.0, float("nan")], [0.0, 0.0]]]), 1e-3),
        (torch.zeros(1, 2, 2), 0.0),
        (torch.zeros(1, 2, 2), float("nan")),
    ],
)
def test_what_has_no_optimum_is_refused(wins: Tensor, ridge: float) -> None:
    with pytest.raises(ValueError, match="finite wins of 0 or more and a ridge above 0"):
        bradley_terry(wins, ridge=ridge)


def test_a_ridge_below_rounding_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(ArithmeticError, match="raise the ridge of 1e-15"):
        bradley_terry(torch.ones(1, 20, 20).triu(1) * 1e6, ridge=1e-15)
