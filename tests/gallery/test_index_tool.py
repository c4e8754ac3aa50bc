"""``tools/index.py``: from a recipe to artifacts, and what ``tools/eval.py`` makes of them."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gallery.toy import known, world

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = {
    "class_path": "covr_lab.modular.ModularSystem",
    "init_args": {
        "retrievers": {"colour": {"class_path": "tests.gallery.toy.MeanColour"}},
        "opening": "colour",
        "channels": {"covr": {"retriever": "colour", "query": "edit", "anchor": "shown"}},
        "intent": {"class_path": "covr_lab.reasoning.DualChannelIntent"},
        "fusion": {"class_path": "covr_lab.ranking.TimeWeightedRRF"},
    },
}


def tool(name: str) -> Any:
    return runpy.run_path(str(ROOT / "tools" / f"{name}.py"))["main"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def recipe(tmp_path: Path) -> list[str]:
    """Three composed queries over eight small clips."""
    media = tmp_path / "media"
    world(media)
    gallery, references = known(media)
    rows = [
        {"ref": reference, "target": target, "edit": "make it brighter"}
        for reference, target in zip(references, gallery, strict=False)
    ]
    annotations, ids = tmp_path / "triplets.jsonl", tmp_path / "gallery.txt"
    annotations.write_text("\n".join(map(json.dumps, rows)))
    ids.write_text("\n".join(gallery))
    columns = {"reference": "ref", "target": "target", "edit": "edit"}
    files = {"annotations": str(annotations), "gallery_file": str(ids), "videos_dir": str(media), "columns": columns}
    data = {"class_path": "covr_lab.data.TripletFile", "init_args": files}
    data["init_args"]["reader"] = {"class_path": "covr_lab.video.PyAVReader"}
    document = {"data": data, "system": SYSTEM, "simulator": {"class_path": "covr_lab.simulators.RuleUser"}}
    path = tmp_path / "colour.yaml"
    path.write_text(json.dumps({**document, "protocol": {"turns": 0}}))
    return [str(path), "--trainer.accelerator", "cpu"]


def test_index_then_eval(recipe: list[str], tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["--run_dir", str(tmp_path / "run")]
    assert tool("eval")([*recipe, *run]) == 1
    assert "no index for this recipe (run tools/index.py RECIPE, or add --build)" in capsys.readouterr().err
    assert tool("index")([*recipe, "--workers", "1", "--batch", "3"]) == 0
    said = capsys.readouterr().out
    assert "retrievers.colour.gallery: 8 clips, 8 encoded now" in said
    assert "retrievers.colour.anchors: 11 clips, 11 encoded now" in said
    assert "of the work)" in said
    assert str(cache / "galleries") in said
    assert tool("index")(recipe) == 0
    said = capsys.readouterr().out
    assert said.count(" 0 encoded now") == 2
    assert "everything was encoded before: nothing to do" in said
    assert tool("eval")([*recipe, *run]) == 0
    assert "3 sessions, 8 videos in the gallery" in capsys.readouterr().out
    assert tool("eval")([*recipe, "--build", "--run_dir", str(tmp_path / "again")]) == 0
    rows = [sorted((tmp_path / name / "turns").iterdir()) for name in ("run", "again")]
    assert [path.name for path in rows[0]] == [path.name for path in rows[1]]


def test_broken_videos_are_counted(recipe: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One gallery video and one reference; no session leaves the denominator."""
    gallery, references = known(tmp_path / "media")
    for video in (gallery[-1], references[0]):
        (tmp_path / "media" / f"{video}.mp4").write_text("<html>")
    assert tool("index")(recipe) == 3
    said = capsys.readouterr().out
    assert f"1 failed, see failed.tsv there: {gallery[-1]}: video" in said
    assert f"2 failed, see failed.tsv there: {references[0]}: video" in said
    assert "2 videos could not be read or described (failed.tsv says why)" in said
    assert tool("index")([*recipe, "--retry"]) == 3
    said = capsys.readouterr().out
    assert "8 clips, 1 encoded now" in said
    assert "11 clips, 2 encoded now" in said
    assert tool("eval")([*recipe, "--run_dir", str(tmp_path / "run")]) == 3
    said = capsys.readouterr().out
    assert f"1 of 3 sessions failed and count as misses: 0: video '{references[0]}' could not be read" in said
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["n"], metrics["n_gallery"]) == (3, 8)


def test_what_cannot_be_indexed_is_one_line(recipe: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, why in (
        ([str(ROOT / "recipes" / "recovr_words.yaml")], "error: no retriever of this recipe sees videos"),
        ([*recipe, "--data.videos_dir", "null"], "error: this recipe names no videos: set data.videos_dir"),
        ([*recipe, "--data.windw", "3"], "windw"),
        (["nowhere.yaml"], "error: nowhere.yaml: cannot be read"),
    ):
        assert tool("index")(arguments) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert why in line


def test_ctrl_c_is_no_failure(recipe: list[str], cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The terminal sends it to all processes; only the first one speaks."""
    command = [sys.executable, str(ROOT / "tools" / "index.py"), *recipe, "--workers", "2", "--batch", "1"]
    command += ["--system.retrievers.colour.pause", "0.2"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        end = time.monotonic() + 240
        while len(list(cache.rglob("part-*.safetensors"))) < 2:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end, "no shard in four minutes"
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        printed, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert printed == ""
    assert "the same command goes on from there" in said
    assert "Traceback" not in said
    assert tool("index")(recipe) == 0
    assert "11 clips, 11 encoded now" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", str(ROOT / "tools" / "index.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "120"})
    assert "--workers" in done.stdout
    for name in ("torch", "lightning", "safetensors", "av", "decord", "jsonargparse"):
        assert f" {name}\n" not in done.stderr, f"--help imports {name}"
