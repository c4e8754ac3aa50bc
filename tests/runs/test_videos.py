"""Runs over videos from files to a report: broken files, no index, two processes, real clips, broken checkpoints."""

from __future__ import annotations

import csv
import io
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file

from covr_lab.evaluate import evaluate, prepare
from covr_lab.gallery import videos as media
from covr_lab.gallery.build import index
from covr_lab.gallery.videos import VideoStore
from covr_lab.recipe import Machine
from covr_lab.results.reader import read_rows
from covr_lab.results.report import write_report
from covr_lab.results.schema import TIMING
from covr_lab.results.strips import pictured, strip_file
from covr_lab.retrievers.blip import Blip
from covr_lab.video import Clip, FrameSampler
from tests.gallery.toy import write_clip
from tests.tiny_blip import make_tiny_blip

ROOT = Path(__file__).resolve().parents[2]
RECIPES = (ROOT / "recipes" / "recovr_webvid.yaml", ROOT / "recipes" / "engines" / "rules_recovr.yaml")
DEMO = ROOT / "recipes" / "recovr_demo.yaml"
LIMIT = 3  # seconds a clip may take; the pipe takes them all
CAPTIONS = ("a red boat", "a blue boat at night", "two dogs on a beach", "a man in a street", "a white house", "snow")
Tool = Callable[..., int]
Fault = Callable[[Path, Path], Path]


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_blip(tmp_path_factory.mktemp("blip") / "tiny")


def tool(name: str) -> Tool:
    main: Tool = runpy.run_path(str(ROOT / "tools" / f"{name}.py"))["main"]
    return main


def write_rows(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    """An annotation file of WebVid-CoVR."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("pth1", "pth2", "edit", "txt1", "txt2"), *rows])
    return path


def options(folder: Path, model: Path, *more: str) -> list[str]:
    """What the recipe needs to run on a folder with ``test.csv`` and clips, with a small model."""
    keys = {
        "trainer.accelerator": "cpu",
        "data.annotations": folder / "test.csv",
        "data.videos_dir": folder,
        "data.reader": "covr_lab.video.PyAVReader",
        "data.reader.timeout": LIMIT,
        "system.retrievers.blip.blip.model": model,
        "system.retrievers.blip.blip.tokenizer": model if model.is_dir() else model.parent,
    }
    return [*(text for key, value in keys.items() for text in (f"--{key}", str(value))), *more]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips, and five queries that ask each for the next one."""
    folder = tmp_path_factory.mktemp("good")
    for number in range(6):
        write_clip(folder / f"v{number}.mp4", number)
    write_rows(
        folder / "test.csv",
        [(f"v{n}", f"v{n + 1}", f"make it {CAPTIONS[n + 1]}", CAPTIONS[n], CAPTIONS[n + 1]) for n in range(5)],
    )
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder without any index."""
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# A folder with a good share of broken files.

BROKEN = {"empty": "is empty", "text": "is no video", "cut": "is truncated", "pipe": "was not read in time"}
ROWS = (
    ("v0", "v1"),
    ("v1", "v2"),
    ("empty", "v3"),  # an unreadable reference: it cannot be composed with anything
    ("v2", "text"),  # an unreadable target: the session goes on, and misses
    ("v3", "cut"),
    ("v4", "pipe"),
    ("cut", "v4"),
    ("pipe", "v0"),
)
LOST = {"3": "text", "4": "cut", "5": "pipe"}
FAILED = {"2": "empty", "6": "cut", "7": "pipe"}


@dataclass(frozen=True)
class Broken:
    """The run, and what the two tools said."""

    run: Path
    arguments: list[str]
    indexed: subprocess.CompletedProcess[str]
    status: int
    said: str

    def content(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / f"{name}.json").read_text())
        return found

    def rows(self, sessions: Collection[str]) -> list[dict[str, Any]]:
        return [row for row in read_rows(self.run).to_pylist() if row["session_id"] in sessions]


@pytest.fixture(scope="module")
def broken(blip: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broken]:
    folder = tmp_path_factory.mktemp("broken")
    for number in range(5):
        write_clip(folder / f"v{number}.mp4", number)
    (folder / "empty.mp4").touch()
    (folder / "text.mp4").write_text("<html>404 Not Found</html>")
    whole = write_clip(folder / "cut.mp4", 7, frames=40)
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    os.mkfifo(folder / "pipe.mp4")  # nobody ever writes into it: opening it hangs
    said = {f"v{number}": caption for number, caption in enumerate(CAPTIONS)}
    said |= {"empty": "rain on a city", "text": "a cat on a tree", "cut": "two people walking", "pipe": "a fast car"}
    write_rows(folder / "test.csv", [(a, b, "make it different", said[a], said[b]) for a, b in ROWS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVR_CACHE", str(folder / "cache"))
        arguments = [*map(str, RECIPES), *options(folder, blip, "--protocol.turns", "2")]
        command = [sys.executable, str(ROOT / "tools" / "index.py"), *arguments, "--workers", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
        run, said_then = folder / "run", io.StringIO()
        with redirect_stdout(said_then):
            status = tool("eval")([*arguments, "--run_dir", str(run)])
        yield Broken(run, arguments, done, status, said_then.getvalue())


def test_the_index_names_every_broken_file_and_why(broken: Broken) -> None:
    """A file that hangs costs its time limit, not the index."""
    done = broken.indexed
    assert done.returncode == 3, done.stderr
    gallery, anchors, *_ = done.stdout.split("retrievers.blip.anchors")
    assert "8 clips, 8 encoded now" in gallery
    for text, names in ((gallery, ("text", "cut", "pipe")), (anchors, tuple(BROKEN))):
        assert f"{len(names)} failed, see failed.tsv there" in text
        for name in names:
            assert f"{name}: video " in text
            assert f"{name}.mp4 {BROKEN[name]} (id '{name}'" in text
    assert f"limit {LIMIT} s" in anchors
    assert "4 videos could not be read or described (failed.tsv says why)" in done.stdout
    assert "Traceback" not in done.stderr


def test_lost_queries_stay_in_the_denominator(broken: Broken) -> None:
    metrics = broken.content("metrics")
    assert (metrics["n"], metrics["n_gallery"]) == (len(ROWS), 8)
    assert {row["session_id"] for row in broken.rows(list("01234567"))} == set("01234567")
    for turn in range(3):
        last = {row["session_id"]: row for row in broken.rows(list("01234567")) if row["turn"] <= turn}
        hits = sum(row["target_rank"] == 1 for row in last.values())
        assert metrics["per_turn"]["R@1"][turn] == pytest.approx(100 * hits / len(ROWS))
        assert metrics["per_turn"]["R@10"][turn] == pytest.approx(100 * 2 / len(ROWS))
        assert metrics["per_turn"]["coverage"][turn] == pytest.approx(100 * 2 / len(ROWS))
    assert metrics["failures"]["rows_with_error"] == len(FAILED)
    assert metrics["failures"]["sessions_missing_target"] == len(LOST) + len(FAILED)


def test_an_unreadable_reference_is_a_row_that_says_why(broken: Broken) -> None:
    rows = broken.rows([*FAILED])
    assert [(row["session_id"], row["turn"]) for row in rows] == [(session, 0) for session in FAILED]
    for row in rows:
        name = FAILED[row["session_id"]]
        assert f"video '{name}' could not be read: video " in row["error"]
        assert BROKEN[name] in row["error"]
        assert (row["target_rank"], row["top_ids"], row["shown"]) == (row["n_gallery"] + 1, [], None)


def test_an_unreadable_target_is_a_miss_at_every_turn(broken: Broken) -> None:
    """It is never shown or ranked, and the rest of the gallery keeps its rows."""
    rows = broken.rows([*LOST])
    assert [(row["session_id"], row["turn"]) for row in rows] == [(s, turn) for s in LOST for turn in range(3)]
    assert all(row["error"] is None and row["feedback"] for row in rows if row["turn"])
    assert {row["target_rank"] for row in rows} == {9}
    ranked = {video for row in broken.rows(list("01345")) for video in (*row["top_ids"], row["shown"])}
    assert ranked == {f"v{number}" for number in range(5)}


def test_the_run_says_what_could_not_be_read(broken: Broken) -> None:
    assert broken.status == 3
    assert "8 sessions, 8 videos in the gallery" in broken.said
    assert "3 of 8 sessions failed and count as misses: 2: video 'empty' could not be read" in broken.said
    unreadable = broken.content("run")["unreadable_videos"]
    assert unreadable.keys() == BROKEN.keys()
    assert all(BROKEN[video] in why for video, why in unreadable.items())
    strips = {path.name for path in (broken.run / "strips").iterdir()}
    assert strips == {strip_file(broken.run, video).name for video in pictured(broken.run)}
    assert not strips & {strip_file(broken.run, video).name for video in BROKEN}
    _, (page, *_) = write_report([broken.run])
    assert "is empty (id &#39;empty&#39;" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("cache")
def test_a_query_with_nothing_left_to_rank_fails_alone(good: Path, blip: Path, tmp_path: Path) -> None:
    """The one readable gallery video is its reference, which is masked."""
    for name in ("v0", "v1"):
        shutil.copy(good / f"{name}.mp4", tmp_path)
    (tmp_path / "bad.mp4").write_text("no video")
    rows = [("v0", "v1", "make it blue", "a red boat", "a blue boat"), ("v1", "bad", "add", "a blue boat", "two dogs")]
    write_rows(tmp_path / "test.csv", rows)
    outcome = evaluate(RECIPES, options(tmp_path, blip, "--protocol.turns", "1"), run_dir=tmp_path / "run", build=True)
    assert outcome is not None
    assert [*outcome.failed] == ["1"]
    assert json.loads((outcome.folder / "metrics.json").read_text())["n"] == 2


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a clip or encoding an image is a failure of the test."""

    def refuse(*args: object) -> None:
        raise AssertionError("a clip was read, or an image encoded")

    monkeypatch.setattr(VideoStore, "clip", refuse)
    monkeypatch.setattr(Blip, "images", refuse)


@pytest.mark.usefixtures("no_work")
def test_a_second_index_reads_nothing(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither what was encoded nor what failed, unless --retry asks for it."""
    assert tool("index")(broken.arguments) == 3
    said = capsys.readouterr().out
    assert said.count(" 0 encoded now") == 2
    assert "everything was encoded before: nothing to do" in said
    assert tool("eval")([*broken.arguments, "--build", "--run_dir", str(broken.run)]) == 3
    assert "this run was finished before" in capsys.readouterr().out


# No index.


def test_without_an_index_no_session_is_played(
    good: Path, blip: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the command; the same command works once the index is there."""
    command = [*map(str, RECIPES), *options(good, blip, "--protocol.turns", "1", "--run_dir", str(tmp_path / "run"))]
    assert tool("eval")(command) == 1
    said = capsys.readouterr()
    (line,) = said.err.strip().splitlines()
    assert line.startswith("error: no index for this recipe (run tools/index.py RECIPE, or add --build): ")
    assert said.out == ""
    assert not list(tmp_path.glob("run/turns/*"))
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert not cache.exists()
    assert tool("eval")([*command, "--build"]) == 0
    assert "5 sessions, 5 videos in the gallery" in capsys.readouterr().out


# Two processes.


@pytest.mark.timeout(600)
def test_two_processes_write_what_one_writes(good: Path, blip: Path, cache: Path, tmp_path: Path) -> None:
    more = options(good, blip, "--protocol.turns", "2", "--data.batch_size", "2")
    one, two = tmp_path / "one", tmp_path / "two"
    evaluate(RECIPES, more, run_dir=one, build=True)
    shutil.rmtree(cache)
    command = [sys.executable, str(ROOT / "tools" / "eval.py"), *map(str, RECIPES), *more]
    command += ["--build", "--run_dir", str(two), "--trainer.devices", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    tables = [read_rows(folder).drop_columns(list(TIMING)) for folder in (one, two)]
    assert len(tables[0]) > 5
    assert tables[0].equals(tables[1])
    assert (one / "metrics.json").read_bytes() == (two / "metrics.json").read_bytes()
    records = [json.loads((folder / "run.json").read_text()) for folder in (one, two)]
    assert records[0]["models"] == records[1]["models"]
    assert [record["world_size"] for record in records] == [1, 2]
    strips = [{path.name: path.read_bytes() for path in (folder / "strips").iterdir()} for folder in (one, two)]
    assert strips[0] == strips[1]
    assert done.stdout.count("sessions, ") == 1  # one process reports


# Real clips.


@pytest.fixture(scope="module")
def real() -> list[dict[str, str]]:
    """Rows of the manifest of the real clips."""
    if "COVR_VIDEOS" not in os.environ:
        pytest.skip("COVR_VIDEOS is not set (folder of real clips)")
    with (Path(os.environ["COVR_VIDEOS"]) / "manifest.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_real_clips_from_files_to_a_report(
    real: list[dict[str, str]], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of file through reader, index, run and report. The demo's model has never seen such pictures."""
    names = [row["file"] for row in real]
    said = {name: " ".join(Path(name).stem.split("_")[1:]) or name for name in names}
    triplets = [
        {"ref": a, "target": b, "edit": f"show {said[b]} instead", "before": said[a], "after": said[b]}
        for a, b in zip(names, names[1:] + names[:1], strict=True)
    ]
    annotations, overlay = tmp_path / "real.jsonl", tmp_path / "real.yaml"
    annotations.write_text("\n".join(map(json.dumps, triplets)))
    columns = {"reference": "ref", "target": "target", "edit": "edit"}
    columns |= {"reference_caption": "before", "target_caption": "after"}
    data = {"annotations": str(annotations), "columns": columns, "videos_dir": os.environ["COVR_VIDEOS"]}
    data |= {"video_name": "{id}", "reader": {"class_path": "covr_lab.video.PyAVReader"}}
    overlay.write_text(yaml.safe_dump({"data": {"class_path": "covr_lab.data.TripletFile", "init_args": data}}))
    recipe, small = [DEMO, overlay], ["--trainer.accelerator", "cpu", "--protocol.turns", "1", "--data.limit", "12"]

    clips: list[tuple[str, Clip]] = []
    read = VideoStore.clip

    def watched(store: VideoStore, video: str, sampler: FrameSampler) -> Clip:
        clip = read(store, video, sampler)
        clips.append((video, clip))
        return clip

    _, module, runner = prepare(recipe, small)
    with monkeypatch.context() as patch:
        patch.setattr(VideoStore, "clip", watched)
        reports = index(runner.system, module.gallery, module.videos, Machine("cpu"), workers=0)
    assert reports is not None
    assert {report.name: (report.clips, dict(report.failed)) for report in reports} == {
        "retrievers.blip.gallery": (39, {}),
        "retrievers.blip.anchors": (39, {}),
        "captioner.tags": (39, {}),
    }
    facts = {row["file"]: row for row in real}
    assert {video for video, _ in clips} == set(names)
    for video, clip in clips:
        seconds, length = clip.seconds, float(facts[video]["duration_s"])
        assert seconds is not None, video
        assert seconds[0] >= 0, video
        assert (np.diff(seconds) >= 0).all(), video
        assert seconds[-1] <= length, video
        assert clip.total < 8 or seconds[-1] - seconds[0] > length / 2, video  # four segments' middles: 3/4 of it

    outcome = evaluate(recipe, small, run_dir=tmp_path / "run")
    assert outcome is not None
    assert (outcome.sessions, outcome.failed) == (12, {})
    rows = read_rows(outcome.folder).to_pylist()
    assert [row["session_id"] for row in rows if row["turn"] == 0] == sorted(map(str, range(12)))
    for row in rows:
        assert (row["n_gallery"], row["error"]) == (39, None)
        assert row["reference"] not in row["top_ids"]
        assert len(row["top_ids"]) == len(set(row["top_ids"])) == 38
        assert row["target_rank"] == row["top_ids"].index(row["target"]) + 1
    for video in pictured(outcome.folder):
        fact = facts[video]
        size = int(fact["width"]), int(fact["height"])
        wide, high = size[::-1] if fact["rotation"] in ("-90", "90") else size
        strip = Image.open(io.BytesIO(strip_file(outcome.folder, video).read_bytes()))
        assert strip.size == (3 * round(72 * wide / high) + 6, 72), video
        assert np.asarray(strip).std() > 5, video  # no black frames
    text, (page, *_) = write_report([outcome.folder])
    assert "coverage" in text
    source = page.read_text(encoding="utf-8")
    assert all(f'alt="frames of {video}"' in source for video in pictured(outcome.folder))


# Checkpoints that do not fit.


def lacking(blip: Path, folder: Path) -> Path:
    tensors = load_file(blip / "model.safetensors")
    del tensors["text_proj.bias"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def misshapen(blip: Path, folder: Path) -> Path:
    tensors = load_file(blip / "model.safetensors")
    tensors["vision_proj.weight"] = torch.zeros(5, 32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def other_file(blip: Path, folder: Path) -> Path:
    torch.save({"model": {"Qformer.bert.encoder.weight": torch.zeros(2, 2)}}, folder / "model.pth")
    return folder / "model.pth"


def other_folder(blip: Path, folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "clip"}))
    return folder


def half_a_file(blip: Path, folder: Path) -> Path:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    return folder


def not_there(blip: Path, folder: Path) -> Path:
    return folder / "nowhere.ckpt"


FAULTS: dict[Fault, str] = {
    lacking: "lacks weights (1): text_proj.bias",
    misshapen: "has weights of another shape (1): vision_proj.weight",
    other_file: "is BLIP-2, not BLIP",
    other_folder: "is a clip model: name a BLIP",
    half_a_file: "cannot be read",
    not_there: "no such file or folder",
}


@pytest.mark.usefixtures("no_work", "cache")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_checkpoint_that_does_not_fit_is_one_line_before_a_clip_is_opened(
    fault: Fault,
    good: Path,
    blip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def looked_at(path: Path) -> str:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(media, "media_identity", looked_at)
    model = fault(blip, shutil.copytree(blip, tmp_path / "model"))
    assert tool("eval")([*map(str, RECIPES), *options(good, model), "--build", "--run_dir", str(tmp_path / "run")]) == 1
    said = capfd.readouterr()
    (line,) = said.err.strip().splitlines()
    assert line.startswith(f"error: model '{model}")
    assert FAULTS[fault] in line
    assert said.out == ""
    assert not list(tmp_path.glob("run/turns/*"))
