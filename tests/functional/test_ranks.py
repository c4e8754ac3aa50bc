from __future__ import annotations

import numpy as np
import pytest
import torch

from covr_lab.functional import ranks as module
from covr_lab.functional.ranks import position_rank, target_rank
from covr_lab.protocol import Ties

RULES: tuple[Ties, ...] = ("optimistic", "stable", "pessimistic")


def brute_force(scores: torch.Tensor, target: torch.Tensor, ties: Ties) -> tuple[list[int], list[int]]:
    """Sort one row at a time with the tie rule written into the sort key."""
    ranks, tied = [], []
    for row, wanted in zip(scores.tolist(), target.tolist(), strict=True):
        if wanted < 0:
            ranks.append(len(row) + 1)
            tied.append(0)
            continue
        second = {
            "optimistic": [i != wanted for i in range(len(row))],
            "stable": list(range(len(row))),
            "pessimistic": [i == wanted for i in range(len(row))],
        }[ties]
        order = sorted((i for i in range(len(row)) if row[i] > -torch.inf), key=lambda i: (-row[i], second[i]))
        ranks.append(order.index(wanted) + 1)
        tied.append(row.count(row[wanted]) - 1)
    return ranks, tied


@pytest.mark.parametrize("ties", RULES)
def test_equals_sorting_whatever_the_chunk_and_the_batch(ties: Ties, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 12, (60, 37), generator=generator).float()  # about 3 candidates share a score
    target = torch.randint(-1, 37, (60,), generator=generator)
    scores[torch.rand(scores.shape, generator=generator) < 0.2] = -torch.inf
    scores[torch.arange(60), target.clamp(min=0)] = scores[torch.arange(60), target.clamp(min=0)].clamp(min=3)
    expected = brute_force(scores, target, ties)
    assert min(expected[1]) == 0 < max(expected[1])
    assert (target == -1).any()
    for chunk in (1, 37 * 7, 2**18):
        monkeypatch.setattr(module, "CHUNK", chunk)
        rank, tied = target_rank(scores, target, ties)
        assert rank.dtype == tied.dtype == torch.int64
        assert (rank.tolist(), tied.tolist()) == expected
    alone = [target_rank(scores[i : i + 1], target[i : i + 1], ties)[0].item() for i in range(60)]
    assert alone == expected[0]


def test_equals_argsort_without_ties() -> None:
    scores = torch.randn(50, 400, generator=torch.Generator().manual_seed(1))
    target = torch.arange(50) * 8
    expected = (scores.argsort(dim=1, descending=True) == target[:, None]).int().argmax(1) + 1
    for ties in RULES:
        rank, tied = target_rank(scores, target, ties)
        assert torch.equal(rank, expected)
        assert not tied.any()


def test_equal_scores_everywhere() -> None:
    scores, target = torch.full((10, 10), 0.3), torch.arange(10)
    rank = {ties: target_rank(scores, target, ties)[0].tolist() for ties in RULES}
    assert rank == {"optimistic": [1] * 10, "stable": list(range(1, 11)), "pessimistic": [10] * 10}
    assert target_rank(scores, target)[1].tolist() == [9] * 10


def test_bf16_scores_show_up_as_ties() -> None:
    """Rounding is monotone: the full-precision rank lies between the optimistic and the pessimistic rounded one."""
    generator = torch.Generator().manual_seed(2)
    scores = 0.86 + 0.006 * torch.randn(200, 1000, generator=generator)
    target = torch.arange(200)
    scores[target, target] += 0.018
    exact = target_rank(scores, target)[0]
    rounded = scores.bfloat16().float()
    low, tied = target_rank(rounded, target, "optimistic")
    high = target_rank(rounded, target, "pessimistic")[0]
    assert ((low <= exact) & (exact <= high)).all()
    assert torch.equal(low + tied, high)
    assert (tied > 0).float().mean() > 0.5
    assert (low == 1).float().mean() > (exact == 1).float().mean() + 0.1  # the headline number that ties would decide
    with pytest.raises(ValueError, match="float32"):
        target_rank(scores.bfloat16(), target)


def test_bad_rows_are_named() -> None:
    scores, target = torch.zeros(3, 4), torch.tensor([0, 1, -1])
    scores[2, 3] = torch.nan
    with pytest.raises(ValueError, match="row 2: a score is NaN"):
        target_rank(scores, target)
    scores[2, 3], scores[1, 1] = 0.0, -torch.inf
    with pytest.raises(ValueError, match="row 1: the target is excluded"):
        target_rank(scores, target)
    with pytest.raises(ValueError, match="row 1: target is outside the gallery of 4"):
        target_rank(scores, torch.tensor([0, 4, -2]))
    with pytest.raises(ValueError, match="ties must be one of"):
        target_rank(scores, target, "mean")  # type: ignore[arg-type]


def test_position_rank() -> None:
    rows = np.array([7, 0, 3], dtype=np.int32)
    assert [position_rank(rows, target, n=9) for target in (7, 0, 3, 5, -1)] == [1, 2, 3, 10, 10]
    assert position_rank(rows[:0], target=0, n=9) == 10
