"""Every gate at its boundary, in doubles and in fp32, and over grids that exact fractions decide."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from covr_lab.functional import gates

GRID = [Fraction(step, 40) for step in range(41)]  # holds every constant of the paper, and quarters of its points
CASTS = [float, lambda value: float(np.float32(float(value)))]
Cast = Callable[[Fraction], float]
cast = pytest.mark.parametrize("cast", CASTS, ids=["double", "fp32"])


@cast
def test_only_a_gap_above_a_quarter_bypasses(cast: Cast) -> None:
    for e1, e2 in product(GRID, GRID):
        assert gates.bypass(cast(e1), cast(e2)) == (e1 - e2 > Fraction(1, 4)), (e1, e2)
        assert gates.bypass(cast(e1), cast(e2), 0.1) == (e1 - e2 > Fraction(1, 10)), (e1, e2)


@pytest.mark.parametrize(("e1", "e2"), [(0.9, None), (None, None), (float("nan"), 0.1), (0.9, float("-inf"))])
def test_a_gap_that_is_not_known_is_none(e1: float | None, e2: float | None) -> None:
    assert not gates.bypass(e1, e2)


@cast
def test_pages_go_on_below_the_threshold_alone(cast: Cast) -> None:
    for best in GRID:
        assert gates.more_pages(cast(best), 0, 1) == (best < Fraction(7, 10)), best
        assert gates.more_pages(cast(best), 8, 1, 0.4) == (best < Fraction(2, 5)), best


@pytest.mark.parametrize(
    ("pages", "left", "expected"), [(0, 1, True), (8, 1, True), (9, 1, False), (10, 1, False), (8, 0, False)]
)
def test_nine_pages_or_the_whole_gallery_are_the_end(pages: int, left: int, expected: bool) -> None:
    assert gates.more_pages(0.69, pages, left) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("  ... !?", 0),
        ("make it night", 3),
        ("the dog's red-and-white ball", 6),
        ("2nd  take,at 10:30", 5),
        ("'tis the dogs'", 3),
        ("caf\u00e9 \u65e5\u672c", 1),  # letters outside ASCII end a word
        ("don\u2019t", 2),  # so does a curly apostrophe
        ("snake_case", 2),
    ],
)
def test_words_are_runs_of_ascii_letters_digits_and_apostrophes(text: str, count: int) -> None:
    assert gates.word_count(text) == count


def test_ten_words_stay_raw() -> None:
    assert gates.concise("one two three four five six seven eight nine")
    assert not gates.concise("one two three four five six seven eight nine ten")
    assert gates.concise("")
    assert gates.concise("a b", 3)
    assert not gates.concise("a b c", 3)


def test_the_word_counter_finds_the_published_share_of_concise_edits() -> None:
    """99.22 % of WebVid-CoVR-Test (CoVRAGE, routing rates)."""
    if "COVR_DATA" not in os.environ:
        pytest.skip("COVR_DATA is not set (folder of the public annotation files)")
    path = Path(os.environ["COVR_DATA"]) / "webvid-covr" / "webvid8m-covr_test.csv"
    with path.open(encoding="utf-8", newline="") as file:
        edits = [row["edit"] for row in csv.DictReader(file)]
    assert len(edits) == 2556
    assert round(100 * sum(map(gates.concise, edits)) / len(edits), 2) == 99.22


@cast
def test_ambiguous_is_plausible_and_less_than_half_apart(cast: Cast) -> None:
    for r1, r2 in product(GRID, GRID):
        if r2 <= r1:
            expected = r1 >= Fraction(1, 4) and (r1 - r2) / r1 < Fraction(1, 2)
            assert gates.ambiguous(cast(r1), cast(r2)) == expected, (r1, r2)


@pytest.mark.parametrize(
    ("r1", "r2", "floor"), [(None, None, 0.25), (0.9, None, 0.25), (0.0, 0.0, 0.0), (-1.0, -1.0, -2)]
)
def test_without_a_best_or_a_second_nothing_is_ambiguous(r1: float | None, r2: float | None, floor: float) -> None:
    assert not gates.ambiguous(r1, r2, floor)


def test_a_missing_second_counts_as_zero() -> None:
    """Which is as far apart as can be: ambiguous only where the gap allows all."""
    assert gates.ambiguous(0.9, None, gap=1.01)
    assert not gates.ambiguous(0.9, None, gap=1.0)


def prefix(scores: list[Fraction], limit: int = 10) -> int:
    """Longest prefix within a quarter of the best, as a count of its complement."""
    if scores[0] < Fraction(3, 20):
        return 0
    far = [index for index, score in enumerate(scores) if 4 * (scores[0] - score) >= scores[0]]
    size = min([limit, len(scores), *far])
    return size if size >= 2 else 0


@cast
def test_the_cluster_is_the_prefix_within_a_quarter_of_the_best(cast: Cast) -> None:
    for scores in product([Fraction(step, 20) for step in range(1, 17)], repeat=3):
        if list(scores) == sorted(scores, reverse=True):
            assert gates.cluster([cast(score) for score in scores]) == prefix(list(scores)), scores


@pytest.mark.parametrize(
    ("scores", "size"),
    [
        ([], 0),
        ([0.9], 0),
        ([0.15, 0.15], 2),  # the floor is within
        ([0.149, 0.149], 0),
        ([0.8, 0.6], 0),  # a quarter ends it
        ([0.8, 0.7, 0.6, 0.6], 2),
        ([0.8, 0.7, 0.5, 0.79], 2),  # who comes after the end is out
        ([0.9] * 12, 10),
    ],
)
def test_cluster_sizes(scores: list[float], size: int) -> None:
    assert gates.cluster(scores) == size


def test_a_best_of_zero_has_no_cluster_at_any_floor() -> None:
    assert gates.cluster([0.0, 0.0], floor=0.0) == 0
    assert gates.cluster([0.9] * 5, limit=3) == 3
