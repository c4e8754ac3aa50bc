"""Strengths from comparisons: the penalised Bradley-Terry model for a batch (X-CoT; dossier, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

TOLERANCE: Final = 1e-10  # widest spread of the last step; the error behind it is of the order of its square
STEPS: Final = 200
EQUAL: Final = 1e-8  # strengths that are closer are equal: nothing but rounding told them apart


def bradley_terry(wins: Tensor, *, ridge: float = 1e-3, prior: Tensor | None = None) -> Tensor:
    r"""The strengths that maximise a penalised likelihood, for every query of a batch by itself.

    With ``w`` the wins and ``m`` the prior means (0 without any), it is the one maximum of

    .. math:: \sum_{ij} w_{ij} [\theta_i - \log(e^{\theta_i} + e^{\theta_j})] - (r / 2) \sum_i (\theta_i - m_i)^2

    whose strengths have the mean of the prior. Items that never lost stay finite, and without a comparison the prior
    is the answer. ``choix.opt_pairwise`` maximises the same with ``alpha = ridge / 2`` and no means. A Newton step
    whose entries spread over ``d`` is taken for a share log(1 + d) / d, which cannot overshoot: along it the curvature
    of this likelihood grows by less than the exponential of the spread (Sun and Tran-Dinh, 2019).

    Args:
        wins: ``(B, n, n)``, how often the item of the row won against that of the column; fractions are soft outcomes.
        ridge: weight of the penalty, above 0.
        prior: means ``(B, n)``.

    Returns:
        float64 ``(B, n)``.

    Raises:
        ValueError: a win is negative or not finite, or the ridge not above 0.
        ArithmeticError: no maximum within 200 steps: rounding drowns the ridge.

    >>> bradley_terry(torch.tensor([[[0.0, 3.0], [1.0, 0.0]]]), ridge=1e-9).diff().abs().round(decimals=4)
    tensor([[1.0986]], dtype=torch.float64)
    """
    wins = wins.double()
    if not ridge > 0 or not bool((torch.isfinite(wins) & (wins >= 0)).all()):
        raise ValueError(f"bradley_terry needs finite wins of 0 or more and a ridge above 0, not ridge {ridge}")
    means = wins.new_zeros(wins.shape[:2]) if prior is None else prior.double()
    strengths, open_ = means.clone(), torch.arange(len(wins))
    for _ in range(STEPS):
        if not len(open_):
            return strengths
        step = _newton(wins[open_], strengths[open_], means[open_], ridge)
        if not bool(torch.isfinite(step).all()):
            break
        spread = step.amax(-1, keepdim=True) - step.amin(-1, keepdim=True)
        strengths[open_] += step * torch.where(spread > TOLERANCE, torch.log1p(spread) / spread, 1.0)
        open_ = open_[spread[:, 0] > TOLERANCE]
    raise ArithmeticError(f"bradley_terry did not settle in {STEPS} steps: raise the ridge of {ridge:g}")


def _newton(wins: Tensor, strengths: Tensor, means: Tensor, ridge: float) -> Tensor:
    """Newton's step ``(B, n)`` of the penalised likelihood."""
    chance = torch.sigmoid(strengths.unsqueeze(-1) - strengths.unsqueeze(-2))
    played = wins + wins.mT
    slope = (wins - played * chance).sum(-1) - ridge * (strengths - means)
    curvature = played * chance * chance.mT
    system = torch.diag_embed(curvature.sum(-1) + ridge) - curvature
    step: Tensor = torch.linalg.solve_ex(system, slope)[0]
    return step


def rank_prior(size: int) -> Tensor:
    """Prior means that fall with the logarithm of the 1-based rank, float64 ``(size,)`` with mean 0.

    >>> rank_prior(2).round(decimals=4)
    tensor([ 0.3466, -0.3466], dtype=torch.float64)
    """
    falling = -torch.arange(1, size + 1, dtype=torch.float64).log()
    return falling - falling.mean()


def by_strength(strengths: Sequence[float]) -> list[int]:
    """Places of the items, strongest first; neighbours that are equal (:data:`EQUAL`) stay in the order they came in.

    >>> by_strength([0.0, 2.0, 2.0 + 1e-12, -1.0])
    [1, 2, 0, 3]
    """
    order, runs = sorted(range(len(strengths)), key=lambda item: -strengths[item]), list[list[int]]()
    for item in order:
        if runs and strengths[runs[-1][-1]] - strengths[item] <= EQUAL:
            runs[-1].append(item)
        else:
            runs.append([item])
    return [item for run in runs for item in sorted(run)]
