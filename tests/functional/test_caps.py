from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.functional.caps import rank_cap

LONGEST, ROWS = 12, 16


def pad(lists: Sequence[Sequence[int]], length: int) -> npt.NDArray[np.int32]:
    return np.array([[*rows, *[-1] * (length - len(rows))] for rows in lists], dtype=np.int32).reshape(
        len(lists), length
    )


def cap(rows: Sequence[int], caps: dict[int, int]) -> list[int]:
    videos, positions = pad([[*caps]], len(caps)), pad([[*caps.values()]], len(caps))
    return [int(row) for row in rank_cap(pad([rows], len(rows)), videos, positions)[0]]


ranked = st.lists(st.integers(0, ROWS - 1), unique=True, max_size=LONGEST)
demotions = st.dictionaries(st.integers(0, ROWS - 1), st.integers(2, LONGEST + 2), max_size=4)


@settings(max_examples=300, deadline=None)
@given(ranked, st.integers(0, ROWS - 1), st.integers(1, LONGEST + 2))
def test_one_video_equals_the_definition(rows: list[int], video: int, kappa: int) -> None:
    """Dossier, section 1.5: moved to min(kappa, length), those between up by one, all others where they were."""
    expected = list(rows)
    if video in rows and rows.index(video) + 1 < kappa:
        expected.remove(video)
        expected.insert(min(kappa, len(rows)) - 1, video)
    assert cap(rows, {video: kappa}) == expected


@pytest.mark.parametrize(
    ("at", "kappa", "expected"),
    [
        (1, 11, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 12, 13]),  # rejected: out of the top ten
        (1, 4, [2, 3, 4, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13]),  # stagnant: out of the top three
        (3, 4, [1, 2, 4, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
        (4, 4, None),
        (11, 11, None),
        (12, 11, None),
        (99, 11, None),
    ],
)
def test_positions_of_the_paper(at: int, kappa: int, expected: list[int] | None) -> None:
    rows = list(range(1, 14))
    assert cap(rows, {at: kappa}) == (expected or rows)


def test_a_short_list_sends_the_video_to_its_end() -> None:
    assert cap([5, 6, 7], {5: 11}) == [6, 7, 5]
    assert cap([5, 6, 7], {7: 11}) == [5, 6, 7]
    assert cap([5], {5: 11}) == [5]
    assert rank_cap(pad([[5, 6, 7]], 6), pad([[5]], 1), pad([[5]], 1)).tolist() == [[6, 7, 5, -1, -1, -1]]


def test_several_rejected_videos_leave_the_top_ten_together() -> None:
    rows = list(range(1, 16))
    assert cap(rows, {2: 11, 1: 11, 12: 11}) == [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 1, 2, 12, 14, 15]
    assert cap(rows, {1: 4, 2: 11}) == [3, 4, 5, 1, 6, 7, 8, 9, 10, 11, 12, 2, 13, 14, 15]


@settings(max_examples=400, deadline=None)
@given(ranked, demotions)
def test_several_videos(rows: list[int], caps: dict[int, int]) -> None:
    result = cap(rows, caps)
    free = [row for row in rows if row not in caps]
    assert sorted(result) == sorted(rows)
    assert [row for row in result if row not in caps] == free
    for video in set(rows) & set(caps):
        below_all_free = not set(result[result.index(video) :]) & set(free)
        assert result.index(video) + 1 >= caps[video] or below_all_free
        # As many others pass as its position asks for, and no more: a video that stands low enough stays among them.
        passed, before = (len(set(order[: order.index(video)]) & set(free)) for order in (result, rows))
        assert passed == max(before, min(caps[video] - 1, len(free)))
    assert cap(result, caps) == result


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(ranked, demotions), min_size=1, max_size=6))
def test_each_list_of_a_batch_is_capped_alone(batch: list[tuple[list[int], dict[int, int]]]) -> None:
    lists = pad([rows for rows, _ in batch], LONGEST)
    kept = lists.copy()
    positions = pad([list(caps.values()) for _, caps in batch], 4)
    positions[positions < 0] = 99  # the position of no video says nothing
    result = rank_cap(lists, pad([list(caps) for _, caps in batch], 4), positions)
    np.testing.assert_array_equal(lists, kept)
    assert result.dtype == lists.dtype
    np.testing.assert_array_equal(result, pad([cap(rows, caps) for rows, caps in batch], LONGEST))


def test_nothing_to_demote() -> None:
    lists = pad([[3, 1, 2]], 5)
    for videos in (np.empty((1, 0), dtype=np.int64), np.array([[-1, -1]])):
        np.testing.assert_array_equal(rank_cap(lists, videos, np.full(videos.shape, 4)), lists)
    assert rank_cap(lists[:0], lists[:0, :2], lists[:0, :2]).shape == (0, 5)
