"""Descriptions by an engine: bounded, stored like features, one request a video; ``python -m`` this indexes clips."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn

from covr_lab.captioners import Captioner, VLMCaptioner
from covr_lab.captioners.vlm import WIDTH, Description, pack, read_description, unpack
from covr_lab.engines.base import Engine, EngineError
from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Media, Request, Response
from covr_lab.gallery.build import Indexed, index
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.store import Address, Artifact, finish, write_shard
from covr_lab.prompts import suite
from covr_lab.recipe import Machine
from covr_lab.retrievers.video import Part
from covr_lab.types import Refused, SessionError
from covr_lab.video import Clip, FrameSampler, PyAVReader, Uniform
from tests.gallery.toy import known, store, world, write_clip

ROOT = Path(__file__).resolve().parents[2]
FILES = ["failed.tsv", "features.safetensors", "manifest.json"]


class Painter(Engine):
    """Describes the mean colour of the frames that it is shown.

    Args:
        pause: seconds an answer.
        answers: video id -> what it says instead, at the first and at the second attempt.
        errors: video id -> why it does not answer.
        model: the fingerprint.
    """

    def __init__(
        self,
        pause: float = 0.0,
        answers: dict[str, tuple[str, str]] | None = None,
        errors: dict[str, str] | None = None,
        model: str = "painter",
    ) -> None:
        super().__init__()
        self.pause, self.answers, self.errors, self.model = pause, answers or {}, errors or {}, model
        self.asked: list[list[Request]] = []

    @property
    def fingerprint(self) -> str:
        return self.model

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.asked.append(list(requests))
        time.sleep(self.pause * len(requests))
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Response:
        video = request.session_id
        if video in self.errors:
            return Response("", error=self.errors[video])
        if video in self.answers:
            return Response(self.answers[video][request.attempt - 1])
        return Response(f"Sure: {colour(media_of(request).clip())} I hope this helps.")


def media_of(request: Request) -> Media:
    (media,) = (part for part in request.content if isinstance(part, Media))
    return media


def colour(clip: Clip) -> str:
    """The JSON that the painter writes of a clip."""
    red, green, blue = clip.frames.mean((0, 1, 2)).round(3).tolist()
    return json.dumps({"caption": f"Paint, {red} {green} {blue}.", "main_objects": ["wall"], "scene": "a studio"})


class Counting(PyAVReader):
    """Counts what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        self.paths.append(path.stem)
        return super().read(path, sampler)


def captioner_of(engine: Engine, **options: Any) -> VLMCaptioner:
    captioner = VLMCaptioner(engine="vlm", **options)
    captioner.connect(engine)
    return captioner


def run(captioner: Captioner, folder: Path, **options: Any) -> list[Indexed] | None:
    gallery, references = known(folder)
    videos = options.pop("videos", None) or store(folder, references)
    options = {"batch_size": 3, "workers": 0, **options}
    system, machine = nn.ModuleDict({"captioner": captioner}), Machine(accelerator="cpu")
    return index(system, Gallery.of(gallery, {}), videos, machine, **options)


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five gallery videos and two references."""
    folder = tmp_path_factory.mktemp("media")
    world(folder, gallery=5, references=2)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def content(cache: Path) -> dict[str, bytes]:
    """All artifacts, byte for byte."""
    paths = [path for path in cache.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(cache).as_posix(): path.read_bytes() for path in sorted(paths)}


@pytest.fixture(scope="module")
def whole(media: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run writes that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVR_CACHE", str(folder))
        run(captioner_of(Painter(), frames=3), media)
    found = content(folder)
    assert sorted(Path(name).name for name in found) == FILES
    return found


def words(**changes: Any) -> Description:
    return Description(**{"caption": "A dog runs.", "main_objects": ["dog", "ball"], "scene": "beach", **changes})


# Bounds


def bounded(schema: dict[str, Any]) -> bool:
    """Whether every string and list of a JSON schema has a bound."""
    if schema.get("type") == "string":
        return "maxLength" in schema
    if schema.get("type") == "array":
        return "maxItems" in schema and bounded(schema["items"])
    return all(bounded(part) for part in schema["properties"].values()) and schema["additionalProperties"] is False


ANY = st.characters(codec="utf-8")


@settings(max_examples=30, deadline=None)
@given(
    st.text(ANY, min_size=1, max_size=640) | st.text('\0\x1f"\\', min_size=600, max_size=640),
    st.lists(st.text(ANY, max_size=40), max_size=5),
    st.text(ANY, max_size=60),
)
def test_every_description_fits_a_row_and_comes_back(caption: str, objects: list[str], scene: str) -> None:
    description = words(caption=caption, main_objects=objects, scene=scene)
    row = pack(description)
    assert (row.dtype, row.shape) == (torch.uint8, (WIDTH,))
    assert unpack(row) == description


@pytest.mark.parametrize("letter", ["a", "\0", "\x1f", "\x7f", '"', "\\", "ü", "\u2028", "\uffff", "\U0010ffff"])
def test_the_widest_of_each_kind_of_character_fits(letter: str) -> None:
    widest = words(caption=letter * 640, main_objects=[letter * 40] * 5, scene=letter * 60)
    assert len(widest.model_dump_json().encode()) <= WIDTH
    assert unpack(pack(widest)) == widest


def test_what_exceeds_a_bound_is_no_description() -> None:
    assert bounded(Description.model_json_schema())
    for changes in (
        {"caption": "a" * 641},
        {"caption": ""},
        {"main_objects": ["a"] * 6},
        {"main_objects": ["a" * 41]},
        {"scene": "a" * 61},
        {"mood": "gloomy"},
        {"caption": "\ud83d"},  # half a character, which no encoding can hold
    ):
        with pytest.raises(ValidationError):
            words(**changes)
    with pytest.raises(ParseError, match="blank"):
        read_description(words(caption=" \n").model_dump_json())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "A dog runs. Objects: dog, ball. Scene: beach."),
        ({"main_objects": [], "scene": " "}, "A dog runs."),
        ({"caption": "A dog\n runs", "main_objects": ["dog ", "\t"]}, "A dog runs. Objects: dog. Scene: beach."),
        ({"caption": "so " * 200, "main_objects": [], "scene": ""}, f"{' '.join(['so'] * 80)}."),
    ],
)
def test_a_description_in_words(changes: dict[str, Any], text: str) -> None:
    assert captioner_of(Painter()).caption(pack(words(**changes))) == text


# Requests


def test_one_request_a_video_one_list_a_batch_and_no_file_is_read_twice(media: Path) -> None:
    gallery, references = known(media)
    reader, engine = Counting(), Painter()
    videos = store(media, references, reader)
    captioner = captioner_of(engine, frames=3)
    reports = run(captioner, media, videos=videos)
    assert reports is not None
    assert [(report.name, report.clips, report.encoded) for report in reports] == [("captioner.descriptions", 7, 7)]
    ids = sorted([*gallery, *references])
    assert [[request.session_id for request in batch] for batch in engine.asked] == [ids[:3], ids[3:6], ids[6:]]
    assert sorted(reader.paths) == sorted(Path(video).name for video in ids)
    for request in (request for batch in engine.asked for request in batch):
        assert (request.role, request.turn, request.schema, request.attempt) == ("describe", 0, Description, 1)
        lazy = Media(request.session_id, 3, videos)
        assert media_of(request).digest == lazy.digest  # one key for answers that are kept
        np.testing.assert_array_equal(media_of(request).clip().frames, lazy.clip().frames)
    described = captioner.describe(Gallery.of(gallery, {}), videos)
    expected = {video: json.loads(colour(videos.clip(video, Uniform(3))))["caption"] for video in ids}
    assert described == {video: f"{text} Objects: wall. Scene: a studio." for video, text in expected.items()}
    assert len(set(described.values())) == len(ids)


def test_what_cannot_be_described_is_listed_with_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    for number, video in enumerate(["good", "slow", "prose", "mended", "blank"]):
        write_clip(folder / f"{video}.mp4", number)
    (folder / "cut.mp4").write_bytes((folder / "good.mp4").read_bytes()[:300])
    good = words().model_dump_json()
    answers = {"prose": ("no idea", "still\nno idea"), "mended": ('{"caption": "A do', good), "blank": ("", "")}
    engine = Painter(answers=answers, errors={"slow": "no answer within 60 s"})
    captioner = captioner_of(engine)
    reports = run(captioner, folder, batch_size=8)
    assert reports is not None
    failed = dict(reports[0].failed)
    assert sorted(failed) == ["blank", "cut", "prose", "slow"]
    assert "cut.mp4" in failed["cut"]
    assert failed["slow"] == "no answer within 60 s"
    assert failed["prose"] == r"its description could not be read, even asked twice: 'still\nno idea'"
    assert "''" in failed["blank"]
    assert [sorted(request.session_id for request in batch) for batch in engine.asked] == [
        ["blank", "good", "mended", "prose", "slow"],
        ["blank", "mended", "prose"],
    ]
    found = captioner.describe(Gallery.of(known(folder)[0], {}), store(folder))
    assert sorted(found) == ["good", "mended"]
    assert found["mended"] == words().text
    assert captioner.unusable == failed
    with pytest.raises(SessionError, match="'prose' could not be read: its description"):
        captioner.artifacts["descriptions"].row("prose")
    again = captioner_of(Painter())  # the model has got better: only what failed is asked again
    assert run(again, folder, retry=True) is not None
    asked = [request.session_id for batch in again.describer.asked for request in batch]  # type: ignore[union-attr]
    assert sorted(asked) == ["blank", "prose", "slow"]


def test_a_gallery_that_nobody_could_describe_is_refused(tmp_path: Path) -> None:
    write_clip(tmp_path / "media" / "a.mp4", 0)
    captioner = captioner_of(Painter(answers={"a": ("no", "no")}))
    run(captioner, tmp_path / "media")
    with pytest.raises(Refused, match=r"none of 1 videos could be described, .*'no'.*--retry"):
        captioner.describe(Gallery.of(["a"], {}), store(tmp_path / "media"))


def test_an_engine_that_is_gone_stops_the_run_and_loses_nothing(
    media: Path, whole: dict[str, bytes], cache: Path
) -> None:
    class Leaving(Painter):
        def generate(self, requests: Sequence[Request]) -> list[Response]:
            if len(self.asked) == 2:
                raise EngineError("vlm: the server at 127.0.0.1 is gone: start it")
            return super().generate(requests)

    with pytest.raises(EngineError, match="is gone"):
        run(captioner_of(Leaving(), frames=3), media)
    engine = Painter()
    reports = run(captioner_of(engine, frames=3), media)
    assert reports is not None
    assert reports[0].encoded == sum(map(len, engine.asked)) == 1
    assert content(cache) == whole


# Artifacts


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 64, "workers": 1}])
def test_batches_and_workers_change_no_byte(
    options: dict[str, int], media: Path, whole: dict[str, bytes], cache: Path
) -> None:
    run(captioner_of(Painter(), frames=3), media, **options)
    assert content(cache) == whole
    engine = Painter()
    run(captioner_of(engine, frames=3), media)
    assert engine.asked == []


def test_a_killed_run_goes_on_where_it_stopped(media: Path, whole: dict[str, bytes], cache: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "tests.captioners.test_vlm_captioner", str(media)], cwd=ROOT)
    try:
        end = time.monotonic() + 120
        while not list(cache.rglob("part-*.safetensors")):
            assert process.poll() is None
            assert time.monotonic() < end, "no shard in two minutes"
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    gallery, references = known(media)
    with pytest.raises(Refused, match="an unfinished index"):
        captioner_of(Painter(), frames=3).describe(Gallery.of(gallery, {}), store(media, references))
    engine = Painter()
    run(captioner_of(engine, frames=3), media)
    assert 0 < sum(map(len, engine.asked)) < 7
    assert content(cache) == whole


def test_what_can_change_a_description_changes_the_address(media: Path, tmp_path: Path) -> None:
    gallery, references = known(media)

    def address(model: str = "painter", **options: Any) -> str:
        captioner = captioner_of(Painter(model=model), **options)
        return captioner.locate(Gallery.of(gallery, {}), store(media, references))["descriptions"].digest

    packaged = Path(suite.__file__).parent / "default"
    copies = [tmp_path / name for name in ("same", "user", "system")]
    for copy in copies:
        shutil.copytree(packaged, copy)
    for copy, old, new in ((copies[1], "at most 80 words", "at most 60 words"), (copies[2], "opinions", "jokes")):
        text = (copy / "describe.yaml").read_text()
        assert text.count(old) == 1
        (copy / "describe.yaml").write_text(text.replace(old, new))
    assert address(prompts=str(copies[0])) == address()
    suites = [str(copies[1]), str(copies[2]), "variant_a", "variant_b"]
    found = {address(), address("other"), address(frames=4), *(address(prompts=name) for name in suites)}
    assert len(found) == 7


def test_text_lies_in_a_plain_safetensors_file(media: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    from safetensors.torch import load

    (features,) = (data for name, data in whole.items() if name.endswith("features.safetensors"))
    (rows,) = load(features).values()
    assert (rows.dtype, rows.shape) == (torch.uint8, (7, WIDTH))
    assert [unpack(row).scene for row in rows] == ["a studio"] * 7
    run(captioner_of(Painter(), frames=3), media)
    gallery, references = known(media)
    address = captioner_of(Painter(), frames=3).locate(Gallery.of(gallery, {}), store(media, references))
    artifact = Artifact.open(address["descriptions"])
    assert torch.equal(artifact.rows(artifact.ids), rows)
    assert (artifact.rows([]).dtype, artifact.rows([]).shape) == (torch.uint8, (0, WIDTH))


def test_rows_are_floats_or_bytes_and_of_one_kind(media: Path) -> None:
    class Wide(VLMCaptioner):
        def encode_clips(self, name: str, clips: Mapping[str, Clip]) -> dict[str, Tensor | str]:
            return {video: torch.zeros(3, dtype=torch.float64) for video in clips}

    class Idle(Captioner):
        parts: ClassVar = {"nothing": Part("gallery", Uniform(1))}
        fingerprint = "idle"

        def load(self) -> None:
            return

        def caption(self, row: Tensor) -> str:
            return ""

    wide = Wide(engine="vlm")
    wide.connect(Painter())
    with pytest.raises(TypeError, match=r"captioner\.descriptions gave torch\.float64 .*, not float32 or uint8"):
        run(wide, media)
    with pytest.raises(NotImplementedError, match="Idle has neither encode_part nor encode_clips"):
        run(Idle(), media)
    address = Address("weights", "part", "uniform:3", "reader", "media", ("a", "b"))
    for video, dtype in (("a", torch.uint8), ("b", torch.float32)):
        write_shard(address.folder, {video: torch.ones(4, dtype=dtype)}, {})
    with pytest.raises(Refused, match=r"video 'b' has a row .*\(torch\.float32, torch\.uint8\)"):
        finish(address)


def test_bad_settings_name_themselves(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"VLMCaptioner\.frames must be 1 or more, not 0"):
        VLMCaptioner(engine="vlm", frames=0)
    with pytest.raises(ValueError, match="no prompt suite 'formal'"):
        VLMCaptioner(engine="vlm", prompts="formal")
    (tmp_path / "describe.yaml").write_text("system: hello\nuser: Describe it.\n")
    with pytest.raises(ValueError, match=r"describe\.yaml: placeholder \{video\} is missing"):
        VLMCaptioner(engine="vlm", prompts=str(tmp_path))


if __name__ == "__main__":
    run(captioner_of(Painter(pause=0.3), frames=3), Path(sys.argv[1]))
