from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.functional.fusion import similarity_fusion

Rule = Literal["max", "sum"]
ROWS = 9


def draw(seed: int, sessions: int, count: int, length: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Lists of any length, some empty; similarities in steps of 1/8, so that ties are common and sums are exact."""
    rng = np.random.default_rng(seed)
    lists = np.full((sessions, count, length), -1, dtype=np.int32)
    scores = np.full(lists.shape, np.nan, dtype=np.float32)
    for place in np.ndindex(sessions, count):
        size = int(rng.integers(0, length + 1)) if rng.random() < 0.8 else 0
        lists[place][:size] = rng.permutation(ROWS)[:size]
        scores[place][:size] = np.sort(rng.integers(-8, 9, size))[::-1] / 8
    return lists, scores


def brute_force(
    lists: list[list[int]], scores: list[list[float]], rule: Rule, current: int
) -> tuple[list[int], list[float]]:
    values, ties = defaultdict[int, list[float]](list), defaultdict[int, list[tuple[int, int]]](list)
    for number, (rows, similarities) in enumerate(zip(lists, scores, strict=True)):
        for rank, (row, similarity) in enumerate(zip(rows, similarities, strict=True)):
            if row >= 0:
                values[row].append(similarity)
                ties[row] += [(rank, number)] if number >= len(lists) - current else []
    totals = {row: max(found) if rule == "max" else sum(found) for row, found in values.items()}
    order = sorted(totals, key=lambda row: (-totals[row], min(ties[row], default=(999, 0)), row))
    return order, [totals[row] for row in order]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6), st.sampled_from(["max", "sum"]), st.data())
def test_equals_the_definition(seed: int, count: int, length: int, rule: Rule, data: st.DataObject) -> None:
    current = data.draw(st.integers(0, count))
    lists, scores = draw(seed, 3, count, length)
    rows, fused = similarity_fusion(lists, scores, rule, current=current)
    assert rows.shape == fused.shape == (3, count * length)
    assert (rows.dtype, fused.dtype) == (np.int64, np.float32)
    for session in range(3):
        order, totals = brute_force(lists[session].tolist(), scores[session].tolist(), rule, current)
        padding = count * length - len(order)
        assert rows[session].tolist() == order + [-1] * padding
        assert fused[session].tolist() == totals + [0.0] * padding


@pytest.mark.parametrize(
    ("rule", "expected", "totals"),
    [("max", [4, 7, 2, 9], [0.75, 0.5, 0.25, -0.5]), ("sum", [2, 4, 7, 9], [1.0, 0.75, 0.5, -0.5])],
)
def test_by_hand(rule: Rule, expected: list[int], totals: list[float]) -> None:
    """2 is in four lists with a quarter each; 9 is below zero, and what is absent everywhere does not overtake it."""
    lists = np.array([[[4, 2], [7, 2], [2, 9], [2, -1]]])
    scores = np.array([[[0.75, 0.25], [0.5, 0.25], [0.25, -0.5], [0.25, np.nan]]])
    rows, fused = similarity_fusion(lists, scores, rule)
    assert rows[0].tolist() == [*expected, -1, -1, -1, -1]
    assert fused[0, :4].tolist() == totals


@pytest.mark.parametrize(
    ("lists", "current", "expected"),
    [
        ([[3, 5], [9, 3], [5, -1]], 2, [9, 5, 3]),  # first in a list of this turn, the earlier list before the later
        ([[5], [3]], 2, [5, 3]),
        ([[3], [5]], 1, [5, 3]),  # in a list of this turn at all
        ([[5], [3], [7]], 1, [7, 3, 5]),  # the smaller row
        ([[5], [3]], 0, [3, 5]),
    ],
)
def test_ties_go_as_in_reciprocal_rank_fusion(lists: list[list[int]], current: int, expected: list[int]) -> None:
    rows, _ = similarity_fusion(np.array([lists]), np.full((1, *np.shape(lists)), 0.5), "max", current=current)
    assert rows[0, : len(expected)].tolist() == expected


@pytest.mark.parametrize("rule", ["max", "sum"])
def test_sessions_do_not_meet(rule: Rule) -> None:
    """Full-precision similarities: any split and any order of the sessions give the same bits."""
    lists, scores = draw(1, 60, 6, 8)
    scores *= np.random.default_rng(2).random(scores.shape, dtype=np.float32)
    together = similarity_fusion(lists, scores, rule, current=2)
    for order in (np.arange(60), np.random.default_rng(3).permutation(60)):
        for size in (1, 7, 60):
            parts = [order[start : start + size] for start in range(0, 60, size)]
            split = [similarity_fusion(lists[part], scores[part], rule, current=2) for part in parts]
            for whole, column in zip(together, zip(*split, strict=True), strict=True):
                np.testing.assert_array_equal(np.concatenate(column), whole[order])


@pytest.mark.parametrize("lists", [np.full((2, 3, 4), -1), np.empty((0, 3, 4), dtype=np.int32)])
def test_nothing_to_fuse(lists: npt.NDArray[Any]) -> None:
    rows, scores = similarity_fusion(lists, np.full(lists.shape, np.nan), "sum", current=1)
    assert rows.shape == (len(lists), 12)
    assert (rows == -1).all()
    assert (scores == 0).all()


def test_an_entry_without_similarity_is_refused() -> None:
    with pytest.raises(ValueError, match="no similarity: fuse lists without scores by rank"):
        similarity_fusion(np.array([[[1, 2]]]), np.array([[[0.5, np.nan]]]), "sum")
