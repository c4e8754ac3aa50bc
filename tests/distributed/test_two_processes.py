"""Two processes write what one writes: the processes share nothing but the run folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from covr_lab.evaluate import evaluate
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "recovr_words.yaml"
USERS = [
    ROOT / "recipes" / "users" / f"{name}.yaml" for name in ("inconsistent", "drop_constraints", "character_noise")
]
SESSIONS = 13  # odd: one process has a session and a batch more than the other


@pytest.fixture(scope="module")
def options(tiny_encoder: Path) -> list[str]:
    small = ["--data.videos", "40", "--data.queries", "20", "--data.limit", str(SESSIONS), "--data.batch_size", "3"]
    return ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu", *small]


@pytest.mark.timeout(600)
def test_two_processes_equal_one(options: list[str], tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    evaluate([RECIPE, *USERS], options, run_dir=one)
    command = [
        sys.executable,
        str(ROOT / "tools" / "eval.py"),
        *map(str, (RECIPE, *USERS)),
        "--run_dir",
        "two",
        *options,
    ]
    command += ["--trainer.devices", "2", "--wandb.mode", "offline"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    tables = [read_rows(folder).drop_columns(list(TIMING)) for folder in (one, two)]
    assert tables[0].equals(tables[1])
    assert (one / "metrics.json").read_bytes() == (two / "metrics.json").read_bytes()
    assert len(list(two.glob("turns/*.parquet"))) == 3 + 2  # seven and six sessions, three a part
    assert json.loads((two / "run.json").read_text())["world_size"] == 2
    assert done.stdout.count("sessions, ") == 1  # one process reports
    assert len(list(two.glob("wandb/offline-run-*"))) == 1  # and one logs
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_more_processes_than_sessions(options: list[str], tmp_path: Path) -> None:
    outcome = evaluate([RECIPE], [*options, "--data.limit", "1", "--trainer.devices", "2"], run_dir=tmp_path / "run")
    assert outcome is not None
    assert set(read_rows(outcome.folder)["session_id"].to_pylist()) == {"0"}
    assert json.loads((outcome.folder / "metrics.json").read_text())["n"] == 1
