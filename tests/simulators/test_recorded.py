from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from covr_lab.results.schema import SCHEMA
from covr_lab.simulators import RecordedUser
from covr_lab.types import Feedback, Query, RankedList, Reflection, Session, SessionError, Target, Turn


def folder(tmp_path: Path, *rows: dict[str, Any]) -> str:
    (tmp_path / "turns").mkdir()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), tmp_path / "turns" / "part.parquet")
    return str(tmp_path)


def session(name: str, turns: int) -> Session:
    played = tuple(Turn(index, RankedList(np.array([0], np.int32))) for index in range(turns))
    return Session(Query(name, None, "x"), played)


def test_words_buttons_and_the_end_are_said_again(tmp_path: Path) -> None:
    memory = {"keep": [], "require": ["red"], "avoid": ["snow"], "query": "a red ball"}
    said: dict[str, Any] = {"session_id": "a@p", "instance": "a", "source": "human", "action": "free"}
    rows = [
        {"session_id": "a@p", "instance": "a", "turn": 0},
        {**said, "turn": 1, "feedback": "make it red", "rejected": ["v1"]},
        {**said, "turn": 2, "feedback": "", "memory": memory},
        {**said, "turn": 3, "feedback": "v7", "action": "stop"},
    ]
    user, target = RecordedUser(folder(tmp_path, *rows)), Target("a", "v7")
    first, second, third, later = (user.respond([session("a", turns)], [target], [None])[0] for turns in (1, 2, 3, 9))
    assert first == Feedback("free", "make it red", "scripted", rejected=("v1",))
    edited = Reflection("neutral", (), ("red",), ("snow",), "a red ball")
    assert second == Feedback("free", "", "scripted", memory=edited)
    assert third == later == Feedback("stop", "", "scripted")
    with pytest.raises(SessionError, match=r"session b: .* has no rows of it"):
        user.respond([session("b", 1)], [target], [None])
    with pytest.raises(ValueError, match="cannot be kept to modify"):
        user.restrict(frozenset({"modify"}))


def test_two_people_on_one_instance_are_refused(tmp_path: Path) -> None:
    rows = [{"session_id": f"a@{person}", "instance": "a", "turn": 0} for person in ("p", "q")]
    with pytest.raises(ValueError, match="2 participants had instance 'a'"):
        RecordedUser(folder(tmp_path, *rows))
