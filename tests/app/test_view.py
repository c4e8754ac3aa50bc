"""What people see of a search: shares of channels against a count by hand, and no target."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from covr_lab.app.desk import Searches
from covr_lab.app.view import Names, channel_shares, session_view
from covr_lab.chat import Desk
from covr_lab.ranking import Fusion, SimMax, SimSum, TimeWeightedRRF
from covr_lab.ranking.memory import Memory
from covr_lab.types import Cap, Comparison, Query, RankedList, Session, Turn


def ranked(*rows: int, scores: tuple[float, ...] | None = None) -> RankedList:
    values = None if scores is None else np.array(scores, np.float32)
    return RankedList(np.array(rows, np.int32), values)


def test_shares_are_weights_over_ranks_of_all_remembered_lists() -> None:
    opening = Turn(0, ranked(1, 2, 3), channels={"a": ranked(1, 2, 3)})
    first = Turn(1, ranked(2, 1, 3), channels={"a": ranked(2, 1), "b": ranked(3, 2)})
    cap = Cap(2, 2, "rejected", fired=True)
    second = Turn(2, ranked(3, 2, 1), channels={"a": ranked(3, 2), "b": ranked(1, 3)}, caps=(cap,))
    session = Session(Query("q", None, "x"), (opening, first, second))
    fusion = TimeWeightedRRF(window=2, k=10, pool=3)
    new, old = fusion.ages[0], fusion.ages[1]
    found = channel_shares(session, [1, 2, 3, 9], fusion=fusion, channels=["a", "b"], opening=True)
    # Turn 1 as the cap of turn 2 left it: a is 1, 2 and b is 3, 2.
    parts = [
        {"a": old / 11, "b": new / 11},
        {"a": old / 12 + new / 12, "b": old / 12},
        {"a": new / 11, "b": old / 11 + new / 12},
    ]
    for mine, part in zip(found, parts, strict=False):
        assert mine == pytest.approx({name: value / sum(part.values()) for name, value in part.items()})
    assert found[3] == {}
    start = Session(session.query, (opening,))
    assert channel_shares(start, [2], fusion=fusion, channels=["a", "b"], opening=False) == [{"a": 1.0}]


def test_shares_of_similarities() -> None:
    rows = np.array([[[[1, 2, -1], [2, 1, -1]]]], np.int32)
    scores = np.array([[[[0.5, 0.25, np.nan], [0.75, -0.5, np.nan]]]], np.float32)
    memory = Memory(rows, scores)
    assert SimSum(window=1, pool=3).shares(memory)[0, 0].tolist() == [[0.5, 0.25, 0], [0.75, 0, 0]]
    assert SimMax(window=1, pool=3).shares(memory)[0, 0].tolist() == [[0.5, 0, 0], [0.75, 0, 0]]


def test_a_view_is_json_and_knows_no_target(words: Desk, searches: Searches) -> None:
    names = Names(words.gallery, {words.gallery.ids[0]: "<b>holiday</b>.mp4"}, media=False)
    search = searches.start("me", words.references[0], "make it red")
    search = searches.say("me", search.name, "no, not this: in snow")
    view = session_view(search, names, top=5)
    assert json.loads(json.dumps(view, allow_nan=False)) == view
    assert [one["rank"] for one in view["results"]] == [1, 2, 3, 4, 5]
    assert all(one["new"] == (one["before"] > 5) for one in view["results"])
    assert {one["poster"] for one in view["results"]} == {None}
    assert names.of(words.gallery.ids[0]) == "<b>holiday</b>.mp4"
    assert [words.gallery.ids[one.row] in view["notes"][0] for one in search.talk.session.turns[-1].caps] == [True]
    assert "target" not in json.dumps(view)
    turn = search.talk.session.turns[-1]
    first, second, third = (int(row) for row in turn.result.rows[:3])
    snow = (Comparison(first, second, "second", 0.0, "cold"), Comparison(second, first, "first", 1.0, "it snows", 1))
    judged = (Comparison(third, first, "tie", 0.5), *snow)
    session = Session(search.talk.session.query, (*search.talk.session.turns[:-1], replace(turn, comparisons=judged)))
    results = session_view(replace(search, talk=replace(search.talk, session=session)), names, top=3)["results"]
    assert [[(one["outcome"], one["reason"]) for one in result["reasons"]] for result in results] == [
        [("lost", "it snows"), ("tie", "")],
        [("won", "it snows")],
        [("tie", "")],
    ]
    (won,) = results[1]["reasons"]
    assert (won["against"], won["times"], won["as"]) == (results[0]["name"], 2, "first")
    assert (view["history"][1]["feedback"], view["turn"]) == ("no, not this: in snow", 1)


def test_a_fusion_rule_that_tells_no_shares_has_all_lists_share_alike() -> None:
    class Mine(TimeWeightedRRF):
        shares = Fusion.shares

    rows = np.array([[[[1, 2, -1], [2, 1, -1]]]], np.int32)
    memory = Memory(rows, np.zeros(rows.shape, np.float32))
    assert Mine(window=1, pool=3).shares(memory)[0, 0].tolist() == [[1, 1, 0], [1, 1, 0]]
