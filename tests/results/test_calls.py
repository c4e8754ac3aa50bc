"""What turns cost, from calls to columns to numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from covr_lab.engines.request import Call, Request, Response
from covr_lab.results.calls import by_module, call_columns, cost_per_turn, module_seconds, module_summary
from covr_lab.results.schema import SCHEMA


def call(role: str, *, attempt: int = 1, valid: bool = True, **response: Any) -> Call:
    answer = Response("answer", **({"tokens_in": 10, "tokens_out": 2, "seconds": 0.5} | response))
    return Call(Request(role, ("hello",), "s", 1, attempt=attempt), answer, valid)


CALLS = (
    call("question"),
    call("user_caption", cached=True),
    call("user"),
    call("intent", valid=False),
    call("intent", attempt=2, retries=3),
    call("reflection", valid=False),
    call("reflection", attempt=2, valid=False, error="time-out"),
)


def table_of(*turns: tuple[Call, ...]) -> pa.Table:
    rows = [{"session_id": "s", "turn": turn, **call_columns(calls)} for turn, calls in enumerate(turns)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_a_repair_belongs_to_the_call_before_it() -> None:
    assert [(role, len(calls)) for role, calls in by_module(CALLS)] == [
        ("question", 1),
        ("user_caption", 1),
        ("user", 1),
        ("intent", 2),
        ("reflection", 2),
    ]
    twice = [call("user_caption"), call("user_caption")]  # two questions of one module, no repair
    assert [entry["outcome"] for entry in call_columns(twice)["modules"]] == ["valid", "valid"]


def test_the_users_calls_are_no_cost_of_the_system() -> None:
    columns = call_columns(CALLS)
    assert (columns["calls"], columns["tokens_in"], columns["tokens_out"]) == (5, 50, 10)
    assert [(entry["module"], entry["outcome"]) for entry in columns["modules"]] == [
        ("question", "valid"),
        ("user_caption", "valid"),
        ("user", "valid"),
        ("intent", "repaired"),
        ("reflection", "fallback"),
    ]
    assert [prompt["error"] for prompt in columns["prompts"]] == [None] * 6 + ["time-out"]
    assert call_columns(()) == {
        "calls": 0,
        "tokens_in": 0,
        "tokens_out": 0,
        "modules": [],
        "module_timing": [],
        "prompts": [],
    }


def test_numbers_of_a_run() -> None:
    table = table_of((), CALLS, (call("intent"),))
    found = module_summary(table)
    assert list(found) == ["intent", "question", "reflection", "user", "user_caption"]
    intent = {"asked": 2, "valid": 1, "repaired": 1, "fallback": 0, "calls": 3, "tokens_in": 30, "tokens_out": 6}
    assert found["intent"] == intent
    assert found["reflection"]["fallback"] == 1
    assert cost_per_turn(table, 3) == {"calls": [0, 5, 1, 0], "tokens_in": [0, 50, 10, 0], "tokens_out": [0, 10, 2, 0]}
    spent = module_seconds(table)
    assert spent["intent"] == pytest.approx({"seconds": 1.5, "retries": 3, "cached": 0})
    assert spent["user_caption"]["cached"] == 1
