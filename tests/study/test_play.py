"""Playing a study: processes, failures, and a kill in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING
from covr_lab.study.make import play_all
from covr_lab.study.play import play, play_one
from covr_lab.study.spec import Played, read_study

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
SESSIONS = 30


@pytest.fixture
def study(tmp_path: Path, tiny_encoder: Path) -> Path:
    """A study of two systems in short sessions, and one whose recipe fits nothing."""
    path = tmp_path / "tiny.yaml"
    path.write_text(
        f"""
title: Tiny
data: words
baseline: ReCoVR
overrides:
  data.limit: {SESSIONS}
  data.batch_size: 2
  system.retrievers.captions.model: {tiny_encoder}
  trainer.accelerator: cpu
systems:
  ReCoVR: ["{RECIPES}/recovr_{{data}}.yaml"]
  IVR: ["{RECIPES}/ivr_{{data}}.yaml"]
conditions:
  default: []
tables:
  main: {{title: Main, kind: turns}}
"""
    )
    return path


def rows(folder: Path) -> list[dict[str, Any]]:
    return read_rows(folder).drop_columns(list(TIMING)).to_pylist()


def parts(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/turns/*.parquet")}


def test_a_killed_study_goes_on_and_is_the_one_that_was_not_killed(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "tools" / "study.py"), str(study), "--out", str(out), "--protocol.turns", "2"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(parts(out)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    time.sleep(2)  # the worker sees it and ends
    stored = parts(out)
    assert 3 <= len(stored) < SESSIONS // 2, "the kill came too late to interrupt anything"
    time.sleep(1)
    assert parts(out) == stored, "a worker outlived the study"

    second = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, check=True)
    assert {path: stamp for path, stamp in parts(out).items() if path in stored} == stored
    assert "Warning" not in second.stderr
    lines = second.stdout.splitlines()
    assert lines[-1] == str((out / "report.html").resolve())
    assert all(f"{SESSIONS} sessions" in line for line in lines[:-1])
    assert len(lines) == 3

    for run in read_study([study]).plan(["--protocol.turns", "2"]):
        assert play_one(run, tmp_path / "alone").error is None
        assert rows(out / run.folder) == rows(tmp_path / "alone" / run.folder)
    numbers = json.loads((out / "study.json").read_text())
    assert [run["system"] for run in numbers["runs"]] == ["ReCoVR", "IVR"]


def test_a_finished_run_is_checked_and_not_played(study: Path, tmp_path: Path) -> None:
    run = read_study([study]).plan(["--data.limit", "4", "--protocol.turns", "1"])[1]
    assert not play_one(run, tmp_path).was_finished
    before = parts(tmp_path)
    again = play_one(run, tmp_path)
    assert (again.was_finished, again.sessions, parts(tmp_path)) == (True, 4, before)


def test_a_folder_of_another_recipe_is_named(study: Path, tmp_path: Path) -> None:
    plan = read_study([study]).plan
    options = ["--data.limit", "4", "--protocol.turns", "1"]
    play_one(plan(options)[1], tmp_path)
    refused = play_one(plan([*options, "--simulator.words_per_turn", "1"])[1], tmp_path)
    assert refused.error is not None
    assert str(tmp_path / "runs/ivr/default") in refused.error
    assert "another recipe" in refused.error


def test_a_run_that_fails_or_takes_its_process_with_it_does_not_stop_the_rest(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = read_study([study]).plan(["--data.limit", "2", "--protocol.turns", "1"])[1]
    (tmp_path / "deadly_module.py").write_text("import os\nos._exit(9)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    deadly, wrong = tmp_path / "deadly.yaml", tmp_path / "wrong.yaml"
    deadly.write_text("data: {class_path: deadly_module.Data}\n")
    wrong.write_text("sytem: {a: 1}\n")
    plan = [
        Played("deadly", "default", "runs/deadly/default", (*good.recipes, deadly), good.overrides),
        Played("wrong", "default", "runs/wrong/default", (*good.recipes, wrong), good.overrides),
        good,
    ]
    said: list[str] = []
    failed = play_all(plan, tmp_path / "out", 1, said.append)
    assert {run.system: reason for run, reason in failed.items()}.keys() == {"deadly", "wrong"}
    assert "status 9" in failed[plan[0]]
    assert "sytem" in failed[plan[1]]
    assert len(rows(tmp_path / "out" / good.folder)) >= 2
    assert [line.split("]")[0] for line in said] == ["[1/3", "[2/3", "[3/3"]
    assert "FAILED" in said[0]


def test_nothing_to_play_is_nothing_to_start(tmp_path: Path) -> None:
    assert list(play([], tmp_path)) == []
