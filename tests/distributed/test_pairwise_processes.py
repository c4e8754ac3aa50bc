"""Rankings by comparisons are the same from one process and from two, comparisons and reasons included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from covr_lab.evaluate import evaluate
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "recovr_words.yaml"


@pytest.mark.timeout(600)
def test_two_processes_compare_as_one(tiny_encoder: Path, tmp_path: Path) -> None:
    truth = {"class_path": "covr_lab.demo.judges.OrderJudge"}
    truth |= {"init_args": {"order": [f"words/{number:04}" for number in range(40)]}}  # type: ignore[dict-item]
    judge = {"class_path": "covr_lab.demo.judges.NoisyJudge", "init_args": {"judge": truth, "error": 0.3}}
    stage = {"class_path": "covr_lab.ranking.PairwiseRank", "init_args": {"judge": judge, "pool": 8, "passes": 2}}
    overlay = tmp_path / "pairwise.yaml"
    overlay.write_text(yaml.safe_dump({"system": {"init_args": {"stages": {"pairwise": stage}}}}), encoding="utf-8")
    small = ["--data.videos", "40", "--data.queries", "20", "--data.limit", "7", "--data.batch_size", "3"]
    options = ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu", *small]
    options += ["--protocol.turns", "2"]
    evaluate([RECIPE, overlay], options, run_dir=tmp_path / "one")
    command = [sys.executable, ROOT / "tools" / "eval.py", RECIPE, overlay, "--run_dir", tmp_path / "two", *options]
    command += ["--trainer.devices", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    one, two = (read_rows(tmp_path / name).drop_columns(list(TIMING)) for name in ("one", "two"))
    assert one.equals(two)
    kept = [row for row in one["comparisons"].to_pylist() if row]
    assert len(kept) >= 7
    assert {len(row) for row in kept} == {14}
