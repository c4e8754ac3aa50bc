from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from covr_lab.ranking.policies import RankCap, Tops
from covr_lab.types import Cap, Query, RankedList, Session, Turn

REJECTED, STAGNANT = Cap(5, 11, "rejected"), Cap(5, 4, "stagnant")
OLD = (Cap(1, 11, "rejected"), Cap(2, 11, "rejected"))
ALL = {"memory": "all_rejected"}


def session(*displays: int | None, rejected: tuple[int, ...] = ()) -> Session:
    """Turns that showed ``displays`` (``None``: no ranking); the first turns after 0 rejected what is named."""
    dialogue = Session(Query("q", None, ""))
    for index, row in enumerate(displays):
        caps: tuple[Cap, ...] = (Cap(rejected[index - 1], 11, "rejected"),) if 0 < index <= len(rejected) else ()
        # A stagnant video is no rejected one.
        caps += (Cap(8, 4, "stagnant"),) if index else ()
        rows = np.array([] if row is None else [row, 7], dtype=np.int32)
        dialogue = dialogue.then(Turn(index, RankedList(rows), caps=caps))
    return dialogue


@pytest.mark.parametrize(
    ("settings", "displays", "signal", "tops", "plan"),
    [
        ({}, (5,), "negative", Tops(6), (REJECTED,)),
        ({}, (5,), "negative", Tops(5, (5, 5)), (REJECTED,)),
        ({}, (5,), "neutral", Tops(5), (STAGNANT,)),
        ({}, (5, 5), "neutral", Tops(6, (5,)), ()),
        ({}, (5,), "neutral", Tops(None), ()),
        ({}, (5,), "positive", Tops(5), (STAGNANT,)),
        ({}, (5,), "positive", Tops(6), ()),
        ({"spare_positive": True}, (5,), "positive", Tops(5), ()),
        ({"spare_positive": True}, (5,), "neutral", Tops(5), (STAGNANT,)),
        ({"stagnation": "history"}, (6, 5, 5), "neutral", Tops(6), (STAGNANT,)),
        ({"stagnation": "history"}, (5, 6, 5), "neutral", Tops(5, (5,)), ()),
        ({"stagnation": "history"}, (5,), "neutral", Tops(5, (5,)), ()),  # cannot fire at turn 1
        ({"stagnation": "history"}, (None, 5), "neutral", Tops(5), ()),
        ({"stagnation": "channel"}, (5,), "neutral", Tops(6, (7, 5)), (STAGNANT,)),
        ({"stagnation": "channel"}, (5, 5), "neutral", Tops(5, (6, 7)), ()),
        ({"negative": 21, "neutral": 6}, (5,), "negative", Tops(5), (Cap(5, 21, "rejected"),)),
        ({"negative": 21, "neutral": 6}, (5,), "neutral", Tops(5), (Cap(5, 6, "stagnant"),)),
        ({"fused_guard": False}, (5,), "negative", Tops(5), (Cap(5, 11, "rejected", guard=False),)),
        ({"scope": "current"}, (5,), "neutral", Tops(5), (Cap(5, 4, "stagnant", "current", guard=False),)),
        ({"scope": "current"}, (5,), "negative", Tops(6), (Cap(5, 11, "rejected", "current", guard=False),)),
        ({}, (None,), "negative", Tops(6), ()),
        ({}, (None,), "neutral", Tops(None), ()),
    ],
)
def test_plan(settings: dict[str, Any], displays: tuple[int, ...], signal: Any, tops: Tops, plan: Any) -> None:
    assert RankCap(**settings).plan(session(*displays), signal, tops) == plan


@pytest.mark.parametrize(
    ("settings", "displays", "signal", "tops", "plan"),
    [
        ({}, (1, 2, 5), "negative", Tops(5), (REJECTED,)),
        ({}, (1, 2, 5), "neutral", Tops(1), ()),
        (ALL, (1, 2, 5), "negative", Tops(5), (*OLD, REJECTED)),
        (ALL, (1, 2, 5), "neutral", Tops(6), OLD),
        (ALL, (1, 2, 5), "neutral", Tops(5), (*OLD, STAGNANT)),
        (ALL, (1, 2, 2), "neutral", Tops(2), OLD),  # a rejected video that came back keeps the lower place
        (ALL, (1, 2, 2), "positive", Tops(2), OLD),
        ({**ALL, "spare_positive": True}, (1, 2, 2), "positive", Tops(2), OLD[:1]),
        (
            {**ALL, "scope": "current"},
            (1, 2, 5),
            "neutral",
            Tops(6),
            tuple(Cap(row, 11, "rejected", "current", guard=False) for row in (1, 2)),
        ),
    ],
)
def test_plan_after_earlier_rejections(
    settings: dict[str, Any], displays: tuple[int, ...], signal: Any, tops: Tops, plan: Any
) -> None:
    assert RankCap(**settings).plan(session(*displays, rejected=(1, 2)), signal, tops) == plan


@pytest.mark.parametrize(
    ("settings", "signal", "tops", "rejected", "plan"),
    [
        ({}, None, Tops(5), (), ()),  # nothing was said of the video on display
        ({}, None, Tops(5), (3, 9), (Cap(3, 11, "rejected"), Cap(9, 11, "rejected"))),
        ({}, "neutral", Tops(5), (3,), (STAGNANT, Cap(3, 11, "rejected"))),
        ({}, "neutral", Tops(5), (5,), (REJECTED,)),  # by name: further down than for staying
        ({"spare_positive": True}, "positive", Tops(5), (5,), (REJECTED,)),
        ({"scope": "current"}, None, Tops(5), (3,), (Cap(3, 11, "rejected", "current", guard=False),)),
    ],
)
def test_plan_of_what_was_rejected_by_name(
    settings: dict[str, Any], signal: Any, tops: Tops, rejected: tuple[int, ...], plan: Any
) -> None:
    assert RankCap(**settings).plan(session(5), signal, replace(tops, rejected=rejected)) == plan


@pytest.mark.parametrize("settings", [{"negative": 1}, {"neutral": 1}, {"neutral": -3}])
def test_a_position_that_demotes_nothing_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rank-cap positions must be 2 or more"):
        RankCap(**settings)
