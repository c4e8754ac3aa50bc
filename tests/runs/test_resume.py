"""A run folder belongs to one run: killed, interrupted, repeated, contested or tampered with."""

from __future__ import annotations

import gc
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from covr_lab.data.words import world
from covr_lab.evaluate import evaluate
from covr_lab.results.folder import RunRefused
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "recovr_words.yaml"
SESSIONS = 48


@pytest.fixture(scope="module")
def small(tiny_encoder: Path) -> list[str]:
    """Options that make any recipe quick."""
    encoder = ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu"]
    return [*encoder, "--data.batch_size", "4", "--protocol.turns", "2"]


@pytest.fixture(scope="module")
def options(small: list[str]) -> list[str]:
    """Options of a run in twelve parts."""
    return [*small, "--data.videos", str(2 * SESSIONS), "--data.queries", str(SESSIONS)]


@pytest.fixture(scope="module")
def whole(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    outcome = evaluate([RECIPE], options, run_dir=folder)
    assert outcome is not None
    assert not outcome.was_finished
    return folder


@pytest.fixture
def half(whole: Path, tmp_path: Path) -> Path:
    """A copy of the run as an interruption leaves it: a third of the parts, no metrics."""
    folder = shutil.copytree(whole, tmp_path / "half")
    for number, part in enumerate(sorted(folder.glob("turns/*.parquet"))):
        if number % 3:
            part.unlink()
    (folder / "metrics.json").unlink()
    change(folder, finished=None)
    return folder


def change(folder: Path, **fields: Any) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def rows(folder: Path) -> pa.Table:
    return read_rows(folder).drop_columns(list(TIMING))


def assert_same(folder: Path, whole: Path) -> None:
    assert (folder / "metrics.json").read_bytes() == (whole / "metrics.json").read_bytes()
    assert rows(folder).equals(rows(whole))
    assert json.loads((folder / "run.json").read_text())["finished"] is not None
    assert not list(folder.rglob("*.tmp"))


@contextmanager
def running(folder: Path, options: list[str], parts: int) -> Iterator[subprocess.Popen[str]]:
    """The command line in a process of its own, one session a part, once it has written ``parts`` parts."""
    command = [sys.executable, str(ROOT / "tools" / "eval.py"), str(RECIPE), "--run_dir", str(folder), *options]
    command += ["--data.batch_size", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            end = time.monotonic() + 120
            while len(list(folder.glob("turns/*.parquet"))) < parts:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < end, "the run wrote no part in two minutes"
                time.sleep(0.002)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("parts", [1, 3, 6])
def test_a_killed_run_goes_on_where_it_stopped(parts: int, options: list[str], whole: Path, tmp_path: Path) -> None:
    """And nobody else may touch it while it lives."""
    folder = tmp_path / "run"
    with running(folder, options, parts) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        before = sorted(folder.rglob("*"))
        with pytest.raises(RunRefused, match="another process"):
            evaluate([RECIPE], options, run_dir=folder)
        assert sorted(folder.rglob("*")) == before
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    written = {part: part.stat().st_mtime_ns for part in folder.glob("turns/*.parquet")}
    assert parts <= len(written) < SESSIONS
    for leftover in ("turns/part-0123.4567.tmp", "metrics.4567.tmp"):
        (folder / leftover).write_bytes(b"half a file")
    outcome = evaluate([RECIPE], options, run_dir=folder)
    assert outcome is not None
    assert (outcome.sessions, outcome.was_finished) == (SESSIONS, False)
    assert_same(folder, whole)
    assert {part: part.stat().st_mtime_ns for part in written} == written


def test_ctrl_c_is_no_failure(options: list[str], whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(folder, options, 2) as process:
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=120)
        assert process.returncode == 130
        assert printed == ""
    assert "the same command goes on" in said
    assert "Traceback" not in said
    assert 2 <= len(list(folder.glob("turns/*.parquet"))) < SESSIONS
    assert not (folder / "metrics.json").exists()
    evaluate([RECIPE], options, run_dir=folder)
    assert_same(folder, whole)


def test_a_run_killed_while_it_claimed_its_folder_goes_on(options: list[str], whole: Path, tmp_path: Path) -> None:
    """run.json is written last: a kill before that leaves the lock and the captions."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lock").touch()
    shutil.copy(whole / "captions.json", folder)
    evaluate([RECIPE], options, run_dir=folder)
    assert_same(folder, whole)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A lock must be let go of, not left to the garbage collector."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_finished_run_is_only_read(
    options: list[str], half: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(ROOT / "tools" / "eval.py"))["main"]
    command = [str(RECIPE), "--run_dir", str(half), *options]
    assert main(command) == 0
    first = capsys.readouterr().out
    ours = [path for path in half.rglob("*") if path.is_file() and path.name != ".lock"]
    kept = [path for path in ours if path.suffix != ".log"]  # W&B's service ends its log when it likes
    files = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in kept}
    assert main(command) == 0
    second = capsys.readouterr().out
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in kept} == files
    assert "finished before" in second
    assert second.endswith(first)
    assert main([*command, "--fresh"]) == 0
    other = half.with_name("half-2")
    assert str(other) in capsys.readouterr().out
    assert_same(other, whole)


def test_another_recipe_may_not_write_into_the_folder(options: list[str], half: Path) -> None:
    before = {path: path.read_bytes() for path in half.rglob("*") if path.is_file()}
    with pytest.raises(RunRefused, match=r"half holds a run with another recipe.*--fresh"):
        evaluate([RECIPE], [*options, "--system.fusion.window", "3"], run_dir=half)
    assert {path: path.read_bytes() for path in half.rglob("*") if path.is_file()} == before


def test_what_changes_no_row_may_change_between_two_starts(options: list[str], half: Path, whole: Path) -> None:
    evaluate([RECIPE], [*options, "--data.batch_size", "16", "--wandb.group", "x"], run_dir=half)
    assert_same(half, whole)


def test_changed_annotations_are_another_run(small: list[str], tmp_path: Path) -> None:
    names = ("reference", "target", "edit", "reference_caption", "target_caption")
    lines = [json.dumps({name: getattr(row, name) for name in names}) for row in world(8, 4, seed=0)]
    file, overlay = tmp_path / "t.jsonl", tmp_path / "o.yaml"
    file.write_text("\n".join(lines))
    init = {"annotations": str(file), "columns": {name: name for name in names}}
    overlay.write_text(json.dumps({"data": {"class_path": "covr_lab.data.TripletFile", "init_args": init}}))
    evaluate([RECIPE, overlay], small, run_dir=tmp_path / "run")
    file.write_text("\n".join([lines[0].replace('"edit": "', '"edit": "please '), *lines[1:]]))
    with pytest.raises(RunRefused, match="another data"):
        evaluate([RECIPE, overlay], small, run_dir=tmp_path / "run")


def test_changed_weights_are_another_run(options: list[str], half: Path) -> None:
    change(half, models={"retrievers.captions": "0" * 64})
    parts = sorted(half.glob("turns/*"))
    with pytest.raises(RunRefused, match="weights"):
        evaluate([RECIPE], options, run_dir=half)
    assert sorted(half.glob("turns/*")) == parts


def test_a_folder_of_something_else_is_left_alone(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunRefused, match="not empty"):
        evaluate([RECIPE], options, run_dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("finished", [False, True])
def test_a_damaged_part_is_named(
    finished: bool, options: list[str], whole: Path, half: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(whole, half.with_name("finished")) if finished else half
    part = sorted(folder.glob("turns/*.parquet"))[0]
    part.write_bytes(part.read_bytes()[:-100])
    main = runpy.run_path(str(ROOT / "tools" / "eval.py"))["main"]
    assert main([str(RECIPE), "--run_dir", str(folder), *options]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: ")
    assert part.name in said
    part.unlink()
    evaluate([RECIPE], options, run_dir=folder)
    assert_same(folder, whole)


def test_metrics_are_made_again_from_the_rows(options: list[str], whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "metrics.json").unlink()
    evaluate([RECIPE], options, run_dir=folder)
    assert_same(folder, whole)


def test_help_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", str(ROOT / "tools" / "eval.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "120"})
    assert "--run_dir" in done.stdout
    assert "argparse" in done.stderr
    for name in ("torch", "lightning", "transformers", "pyarrow", "jsonargparse"):
        assert f" {name}\n" not in done.stderr, f"--help imports {name}"
