from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.functional.caps import rank_cap
from covr_lab.ranking.memory import Memory, collate_memory, complete, fires
from covr_lab.types import Cap, Query, RankedList, Session, Turn

CHANNELS, POOL, ROWS = ("text", "composed"), 6, 9
Demotion = tuple[int, int] | None
Step = tuple[dict[str, list[int]], Demotion, Demotion]

rankings = st.lists(st.integers(0, ROWS - 1), unique=True, max_size=POOL)
a_demotion = st.none() | st.tuples(st.integers(0, ROWS - 1), st.integers(2, POOL + 2))
steps = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(CHANNELS), rankings), a_demotion, a_demotion), min_size=1, max_size=6
)


def array(rows: Sequence[int]) -> RankedList:
    """A list whose similarities are a function of the row, so that one can tell whose they are."""
    return RankedList(np.array(rows, dtype=np.int32), similarity(rows))


def similarity(rows: Sequence[int]) -> npt.NDArray[np.float32]:
    return np.array([0.1 * (row + 1) if row >= 0 else np.nan for row in rows], dtype=np.float32)


def demote(rows: list[int], demotion: Demotion) -> None:
    if demotion and demotion[0] in rows and rows.index(demotion[0]) + 1 < demotion[1]:
        rows.remove(demotion[0])
        rows.insert(demotion[1] - 1, demotion[0])


def play(script: Sequence[Step], window: int) -> tuple[Session, list[dict[str, list[int]]]]:
    """A session of turns, and the result memory that a program with mutable lists would hold at its end."""
    session, memory = Session(Query("q", None, "")), []
    for index, (lists, in_window, in_turn) in enumerate(script):
        memory.append({name: list(rows) for name, rows in lists.items()})
        caps = []
        if index:
            for stored in memory[-window:]:
                for rows in stored.values():
                    demote(rows, in_window)
            for rows in memory[-1].values():
                demote(rows, in_turn)
            caps += [Cap(*in_window, "rejected")] if in_window else []
            caps += [Cap(*in_turn, "rejected", scope="current")] if in_turn else []
        kept = {name: array(rows) for name, rows in memory[-1].items()}
        session = session.then(Turn(index, array([0]), channels=kept, caps=tuple(caps)))
    return session, memory


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, min_size=1, max_size=4), st.integers(1, 5), st.booleans())
def test_later_caps_reach_back_as_in_a_mutable_memory(scripts: list[list[Step]], window: int, opening: bool) -> None:
    played = [play(script, window) for script in scripts]
    memory = collate_memory([session for session, _ in played], CHANNELS, window=window, pool=POOL, opening=opening)
    assert (memory.rows.dtype, memory.scores.dtype) == (np.int32, np.float32)
    assert memory.rows.shape == memory.scores.shape == (len(scripts), window, len(CHANNELS), POOL)
    np.testing.assert_array_equal(memory.scores.ravel(), similarity(memory.rows.ravel().tolist()))
    for result, (_, turns) in zip(memory.rows.tolist(), played, strict=True):
        wanted = turns if opening else [{}, *turns[1:]]
        for slot, row in enumerate(result):
            turn = len(turns) - (window - 1) + slot
            lists = wanted[turn] if 0 <= turn < len(turns) else {}
            padded = [[*lists.get(name, []), *[-1] * POOL][:POOL] for name in CHANNELS]
            assert row == padded


def test_a_rejection_of_this_turn_leaves_older_lists_alone_only_with_scope_current() -> None:
    older, newer = {"text": [1, 2, 3, 4, 5]}, {"text": [2, 3, 1]}
    for demotions, expected in (((None, (1, 4)), [1, 2, 3, 4, 5]), (((1, 4), None), [2, 3, 4, 1, 5])):
        session, _ = play([({}, None, None), (older, None, None), (newer, *demotions)], 4)
        memory = collate_memory([session], ["text"], window=4, pool=5, opening=False).rows[0, :, 0].tolist()
        assert memory == [[-1] * 5, expected, [2, 3, 1, -1, -1], [-1] * 5]


def test_the_opening_is_remembered_on_request_and_caps_outlive_nothing_but_the_window() -> None:
    session, _ = play([({"text": [7, 8]}, None, None), ({"text": [8, 7]}, (7, 4), None)], 3)
    for opening, first in ((True, [8, 7]), (False, [-1, -1])):
        memory = collate_memory([session], ["text"], window=3, pool=2, opening=opening).rows[0, :, 0].tolist()
        assert memory == [first, [8, 7], [-1, -1]]
    assert collate_memory([session], ["text"], window=1, pool=2, opening=True).rows.tolist() == [[[[-1, -1]]]]


@pytest.mark.parametrize(
    ("row", "position", "expected"),
    [(5, 11, True), (8, 3, True), (7, 11, False), (6, 2, False), (6, 3, True), (9, 11, False)],
)
def test_fires(row: int, position: int, expected: bool) -> None:
    lists = np.array([[[5, 6, 7, -1], [8, 7, -1, -1]], [[-1, -1, -1, -1], [-1, -1, -1, -1]]], dtype=np.int32)
    assert fires(Cap(row, position, "rejected"), lists) is expected


@settings(max_examples=200, deadline=None)
@given(st.lists(rankings, min_size=1, max_size=4), st.integers(0, ROWS - 1), st.integers(2, POOL + 2))
def test_fires_says_whether_a_list_changes(lists: list[list[int]], row: int, position: int) -> None:
    padded = np.array([[*rows, *[-1] * (POOL - len(rows))] for rows in lists], dtype=np.int32)
    ones = np.ones((len(lists), 1), dtype=np.int64)
    changed = not np.array_equal(rank_cap(padded, row * ones, position * ones), padded)
    assert fires(Cap(row, position, "rejected"), padded) is changed


@settings(max_examples=200, deadline=None)
@given(rankings, st.lists(st.integers(0, ROWS - 1), unique=True, max_size=ROWS), st.integers(0, 3))
def test_complete_is_head_then_tail_without_masked_rows(head: list[int], tail: list[int], padding: int) -> None:
    order = complete(np.array([*head, *[-1] * padding], dtype=np.int64), np.array(tail, dtype=np.int32))
    assert order.dtype == np.int32
    assert order.tolist() == [row for row in head if row in tail] + [row for row in tail if row not in head]


def test_a_list_without_similarities_is_remembered_without() -> None:
    memory = Memory.empty(1, 1, 2, 3)
    memory.write((0, 0, 0), RankedList(np.array([4, 2, 7, 1], dtype=np.int32)))
    memory.write((0, 0, 1), array([4, 2]))
    assert memory.rows.tolist() == [[[[4, 2, 7], [4, 2, -1]]]]
    bare, scored = memory.read((0, 0, 0)), memory.read((0, 0, 1))
    assert (bare.rows.tolist(), bare.scores) == ([4, 2, 7], None)
    assert scored.scores is not None
    np.testing.assert_array_equal(scored.scores, similarity([4, 2]))
