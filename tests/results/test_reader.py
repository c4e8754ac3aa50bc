from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from covr_lab.results.calls import cost_per_turn, module_summary
from covr_lab.results.reader import Unfinished, check_complete, densify, ordered, read_rows, read_run
from covr_lab.results.routing import routing_summary, stage_seconds, stage_summary
from covr_lab.results.schema import SCHEMA, VERSION


def table_of(*rows: dict[str, Any]) -> pa.Table:
    defaults = {"n_gallery": 10, "target_rank": 1}
    return pa.Table.from_pylist([defaults | row for row in rows], schema=SCHEMA)


def test_rows_of_all_parts_come_sorted(make_run: Any) -> None:
    table = read_rows(make_run("a=b"))  # a folder name that looks like a partition column
    keys = list(zip(table["session_id"].to_pylist(), table["turn"].to_pylist(), strict=True))
    assert len(keys) == 21
    assert keys == sorted(keys)
    assert table.schema.equals(SCHEMA)


def test_densify_carries_what_is_shown_and_nothing_else(make_run: Any) -> None:
    outcomes = densify(read_rows(make_run()), turns=3)
    assert outcomes.session_ids == ("s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8")
    assert outcomes.n_gallery == 100
    assert outcomes.ranks.dtype == np.int64
    assert outcomes.ranks[:3].tolist() == [[1, 1, 1, 1], [4, 1, 1, 1], [8, 2, 1, 1]]
    assert outcomes.ranks[6:].tolist() == [[101] * 4, [20, 20, 6, 6]]
    assert outcomes.executed[:3].tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [True] * 3 + [False],
    ]
    assert outcomes.executed[7].tolist() == [True, True, True, False]  # the failed turn was played
    assert outcomes.shown[1].tolist() == ["s2-0", "s2-1", "s2-1", "s2-1"]
    assert outcomes.ties[0].tolist() == [1, 1, 1, 1]
    assert outcomes.ties[1].tolist() == [2, 0, 0, 0]
    assert np.argwhere(outcomes.fired).tolist() == [[2, 1], [3, 1], [5, 2]]


def test_a_stored_stop_is_not_an_executed_turn() -> None:
    rows = {"session_id": "a", "turn": 0}, {"session_id": "a", "turn": 1, "action": "stop"}
    assert densify(ordered(table_of(*rows)), turns=2).executed.tolist() == [[True, False, False]]


@pytest.mark.parametrize(
    ("turns", "message"),
    [([0, 1, 1, 2], "session b: turn 1 is stored twice"), ([0, 2], "session b: turn 1 is missing"), ([1], "turn 0 is")],
)
def test_a_wrong_sequence_of_turns_is_named(turns: list[int], message: str) -> None:
    rows = [{"session_id": "a", "turn": 0}, *({"session_id": "b", "turn": turn} for turn in turns)]
    with pytest.raises(ValueError, match=message):
        ordered(table_of(*rows))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"target_rank": None}, "session b: no target rank"),
        ({"n_gallery": 11}, "n_gallery is not one number"),
        ({"session_id": "a", "turn": 1}, "session a: a turn beyond protocol.turns=0"),
    ],
)
def test_rows_that_cannot_be_scored(row: dict[str, Any], message: str) -> None:
    table = ordered(table_of({"session_id": "a", "turn": 0}, {"session_id": "b", "turn": 0} | row))
    with pytest.raises(ValueError, match=message):
        densify(table, turns=0)


def test_foreign_columns_and_versions_are_refused(make_run: Any, tmp_path: Path) -> None:
    folder = make_run()
    pq.write_table(read_rows(folder).drop_columns(["edit"]), folder / "turns" / "part-r01-b00000.parquet")
    with pytest.raises(ValueError, match=r"part-r01-b00000.parquet: columns differ from schema 4 \(edit\)"):
        read_rows(folder)
    (folder / "run.json").write_text('{"schema": 5}', encoding="utf-8")
    with pytest.raises(ValueError, match="schema 5 is not one of 1 to 4"):
        read_run(folder)
    with pytest.raises(FileNotFoundError, match=r"run\.json is missing"):
        read_run(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no \*\.parquet"):
        read_rows(tmp_path)


def older(version: int, folder: Path) -> pa.Table:
    """Rows of ``schema_<version>.parquet``, which that version of the package wrote."""
    (folder / "turns").mkdir()
    shutil.copy(Path(__file__).with_name(f"schema_{version}.parquet"), folder / "turns" / "part.parquet")
    return read_rows(folder)


def test_every_older_version_has_a_file() -> None:
    files = {path.name for path in Path(__file__).parent.glob("schema_*.parquet")}
    assert files == {f"schema_{version}.parquet" for version in range(1, VERSION)}


def test_rows_from_before_there_were_engines_are_read(tmp_path: Path) -> None:
    table = older(1, tmp_path)
    assert table.schema.equals(SCHEMA)
    assert table["modules"].to_pylist() == [None, None]
    assert densify(table, turns=2).ranks.tolist() == [[3, 1, 1]]
    assert (module_summary(table), cost_per_turn(table, 1)["tokens_in"]) == ({}, [0, 7])


def test_rows_from_before_there_were_stages_are_read(tmp_path: Path) -> None:
    table = older(2, tmp_path)
    assert table.schema.equals(SCHEMA)
    assert table["stage_target_rank"].to_pylist() == table["routing"].to_pylist() == [None, None]
    outcomes = densify(table, turns=1)
    assert (outcomes.ranks.tolist(), outcomes.fired.tolist()) == ([[3, 1]], [[False, True]])
    assert module_summary(table)["intent"]["tokens_in"] == 7
    (call,) = table["prompts"].to_pylist()[1]
    assert (call["answer"], call["content"][0]["text"]) == ("a blue boat", "make it blue")
    assert call["content"][0]["places"] is None
    assert (routing_summary(table), stage_summary(table, outcomes, (1,)), stage_seconds(table)) == ({}, {}, {})


def test_rows_from_before_there_were_comparisons_are_read(tmp_path: Path) -> None:
    table = older(3, tmp_path)
    assert table.schema.equals(SCHEMA)
    for name in ("other_targets", "subset_rank", "exchanges", "comparisons", "rejected", "memory", "instance"):
        assert table[name].to_pylist() == [None, None]
    assert dict(table["stage_target_rank"].to_pylist()[0]) == {"retrieval": 4, "reranking": 3}
    assert densify(table, turns=1).ranks.tolist() == [[3, 1]]


def test_the_denominator_is_the_data() -> None:
    run = {"name": "toy", "n_sessions": 5}
    check_complete(5, run)
    check_complete(3, run, allow_partial=True)
    with pytest.raises(Unfinished, match="run toy: 2 of 5 sessions missing: run eval again"):
        check_complete(3, run)
    with pytest.raises(ValueError, match=r"6 sessions, run\.json says 5"):
        check_complete(6, run, allow_partial=True)
