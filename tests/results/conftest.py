"""A run of eight sessions and turns 0 to 2, small enough to score by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from covr_lab.results.schema import SCHEMA, VERSION

RANKS = {
    "s1": [1],  # stops at once
    "s2": [4, 1],
    "s3": [8, 2, 1],
    "s4": [3, 3, 5],
    "s5": [60, 9, 12],
    "s6": [7, 9, 2],
    "s7": [101, 101, 101],  # target not in the gallery
    "s8": [20, 20, 6],  # turn 1 failed
}
SHOWN = {"s4": "aab", "s6": "aba", "s8": "aac"}
TIES = {("s1", 0): 1, ("s2", 0): 2, ("s3", 2): 1, ("s4", 2): 3, ("s5", 1): 1}
FIRED = {("s3", 1): True, ("s4", 1): True, ("s6", 2): True, ("s7", 2): False}
EVIL = '<script>alert("x")</script> & co'

RunMaker = Callable[..., Path]


def hand_rows() -> list[dict[str, Any]]:
    """One dictionary a row; columns that are not given are null."""
    rows = []
    for session, ranks in RANKS.items():
        for turn, rank in enumerate(ranks):
            key, later = (session, turn), turn > 0
            row = {
                "session_id": session,
                "turn": turn,
                "reference": f"ref-{session}",
                "edit": EVIL,
                "target": f"target-{session}",
                "target_rank": rank,
                "target_ties": TIES.get(key, 0),
                "n_gallery": 100,
                "action": "modify" if later else None,
                "feedback": f"no, {EVIL}" if later else None,
                "source": "simulated" if later else None,
                "shown": SHOWN[session][turn] if session in SHOWN else f"{session}-{turn}",
                "intent_ok": key not in {("s5", 1), ("s6", 1)} if later else None,
                "reflection_ok": key != ("s7", 2) if later else None,
                "calls": 2 * later,
                "tokens_in": 100 * later,
                "tokens_out": 10 * later,
                "seconds": 0.5,
                "error": "engine: no answer" if key == ("s8", 1) else None,
            }
            if key in FIRED:
                cap = {"video": "a", "position": 5, "reason": "rejected", "scope": "window", "fired": FIRED[key]}
                row["caps"] = [cap]
            rows.append(row)
    return rows


@pytest.fixture
def make_run(tmp_path: Path) -> RunMaker:
    """Write a run folder: rows split over two parts, in an order that nobody should rely on."""

    def make(
        folder: str = "run",
        rows: list[dict[str, Any]] | None = None,
        proxy: str | None = None,
        name: str = "toy",
        n_sessions: int = 8,
        **protocol: Any,
    ) -> Path:
        rows = hand_rows() if rows is None else rows
        path = tmp_path / folder
        (path / "turns").mkdir(parents=True)
        for part, some in enumerate((rows[::-2], rows[-2::-2])):
            table = pa.Table.from_pylist(some, schema=SCHEMA)
            pq.write_table(table, path / "turns" / f"part-r00-b{part:05}.parquet")
        run = {
            "schema": VERSION,
            "name": name,
            "command": ["tools/eval.py", "recipes/toy.yaml"],
            "protocol": {"turns": 2, "ties": "optimistic", "n_gallery": 100, "gallery_sha256": "0" * 64} | protocol,
            "proxy": proxy,
            "n_sessions": n_sessions,
        }
        (path / "run.json").write_text(json.dumps(run), encoding="utf-8")
        (path / "captions.json").write_text(json.dumps({"target-s3": f"a dog {EVIL}"}), encoding="utf-8")
        return path

    return make


@pytest.fixture
def hand() -> list[dict[str, Any]]:
    """The rows of the hand-scored run."""
    return hand_rows()
