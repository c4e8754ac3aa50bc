"""Film strips: which videos get one, what it looks like, and the page that carries them."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from covr_lab.gallery.videos import VideoStore
from covr_lab.results.report import write_report
from covr_lab.results.strips import pictured, strip, strip_file, write_strips
from covr_lab.video import Clip, FrameSampler, Probe, VideoError, VideoReader
from tests.results.conftest import RANKS, hand_rows
from tests.results.test_report import Page

SHOWN_SESSIONS = ("s3", "s2", "s4", "s7", "s5", "s8")  # the rule's choice, see test_examples_follow_the_rule
LOST = "target-s4"


class Painted(VideoReader):
    """Frames without files: red, green, blue in time; one video cannot be read."""

    asked: list[str]

    def __init__(self, height: int = 90, width: int = 160) -> None:
        super().__init__()
        self.height, self.width, self.asked = height, width, []

    @property
    def fingerprint(self) -> str:
        return "painted"

    def probe(self, path: Path) -> Probe:
        raise NotImplementedError

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        self.asked.append(path.name)
        if path.name == LOST:
            raise VideoError(path, "truncated")
        chosen = sampler.indices(30)
        frames = np.zeros((len(chosen), self.height, self.width, 3), np.uint8)
        frames[np.arange(len(chosen)), ..., chosen * 3 // 30] = 250
        return Clip(frames, chosen, chosen / 10, 30, 10.0, 1.0)


class Pictures(Page):
    """A page with pictures, whose tags are never closed."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if tag == "img":
            self.open.pop()


def store(reader: VideoReader) -> VideoStore:
    return VideoStore(Path, reader)


def of_session(name: str) -> set[str]:
    rows = [row for row in hand_rows() if row["session_id"] == name]
    return {row[key] for row in rows for key in ("reference", "target", "shown")}


def test_the_videos_of_the_example_sessions_are_pictured(make_run: Callable[..., Path]) -> None:
    found = pictured(make_run())
    assert len(found) == len(set(found))
    assert set(found) == set().union(*map(of_session, SHOWN_SESSIONS))
    assert not set(found) & {f"target-{name}" for name in RANKS.keys() - set(SHOWN_SESSIONS)}


def test_a_video_that_failed_before_is_not_read_again(make_run: Callable[..., Path]) -> None:
    folder = make_run()
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "unreadable_videos": {"target-s7": "it hangs"}}))
    assert "target-s7" not in pictured(folder)
    assert "ref-s7" in pictured(folder)


def test_a_missing_reference_and_an_empty_ranking_need_no_picture(
    make_run: Callable[..., Path], hand: list[dict[str, Any]]
) -> None:
    rows = [row | {"reference": None, "shown": None} for row in hand]
    assert pictured(make_run(rows=rows)) == [f"target-{name}" for name in sorted(SHOWN_SESSIONS)]


def test_strips_are_written_once_and_an_unreadable_video_has_none(make_run: Callable[..., Path]) -> None:
    folder, reader = make_run(), Painted()
    write_strips(folder, store(reader), pictured(folder))
    assert reader.asked == pictured(folder)
    written = {path: path.stat().st_mtime_ns for path in (folder / "strips").iterdir()}
    assert {path.name for path in written} == {strip_file(folder, v).name for v in pictured(folder) if v != LOST}
    reader.asked.clear()
    write_strips(folder, store(reader), pictured(folder))
    assert reader.asked == [LOST]
    assert {path: path.stat().st_mtime_ns for path in (folder / "strips").iterdir()} == written


@pytest.mark.parametrize("video", ["007/12.mp4", "a" * 300, "../../out", "clip \u00e9 \u4e2d.webm", "con", "nul\n"])
def test_any_id_names_a_file_of_its_own_in_the_folder(video: str, tmp_path: Path) -> None:
    reader = Painted()
    write_strips(tmp_path, VideoStore(lambda _: Path("x.mp4"), reader), [video, video.replace("/", "_") + "_"])
    assert len(list(tmp_path.rglob("*.jpg"))) == 2
    assert all(re.fullmatch(r"[0-9a-f]{16}\.jpg", path.name) for path in (tmp_path / "strips").iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["strips"]


@pytest.mark.parametrize(("height", "width"), [(90, 160), (1080, 1920), (1920, 1080), (72, 72), (40, 2000), (2000, 1)])
def test_a_strip_is_three_frames_in_order_at_a_fixed_height(height: int, width: int, tmp_path: Path) -> None:
    write_strips(tmp_path, store(Painted(height, width)), ["v"])
    data = strip_file(tmp_path, "v").read_bytes()
    image = Image.open(io.BytesIO(data))
    one = max(1, round(72 * width / height))
    assert (image.format, image.size) == ("JPEG", (3 * one + 6, 72))
    assert len(data) < 40_000
    if one > 30:
        middles = np.asarray(image)[36, [one // 2, one + 3 + one // 2, 2 * (one + 3) + one // 2]]
        assert middles.argmax(1).tolist() == [0, 1, 2]
        assert np.asarray(image)[36, one + 1].min() > 150  # a light gap between the frames


def test_equal_frames_give_equal_bytes() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 40, 50, 3)).astype(np.uint8)
    assert strip(frames) == strip(frames.copy())


def test_the_page_carries_the_strips_itself(make_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_run()
    write_strips(folder, store(Painted()), pictured(folder))
    _, (path, *_) = write_report([folder], tmp_path / "elsewhere")
    source = path.read_text(encoding="utf-8")
    page = Pictures(source)
    assert page.open == []
    pictures = page.loads[1::2]
    assert page.loads[::2] == ["img"] * len(pictures)
    assert all(picture.startswith("data:image/jpeg;base64,") for picture in pictures)
    shown = {base64.b64decode(picture.split(",")[1]) for picture in pictures}
    assert shown == {path.read_bytes() for path in (folder / "strips").iterdir()}
    assert f'alt="frames of {LOST}"' not in source
    assert 'alt="frames of target-s3"' in source
    for name in SHOWN_SESSIONS:
        assert f"<code>{name}</code>" in source


def test_each_run_shows_its_own_strips(make_run: Callable[..., Path]) -> None:
    with_strips, without = make_run("a", name="a"), make_run("b", name="b")
    write_strips(with_strips, store(Painted()), ["target-s3"])
    _, (path, *_) = write_report([with_strips, without])
    first, second = path.read_text(encoding="utf-8").split("<h3>b: solved late</h3>")
    assert 'alt="frames of target-s3"' in first
    assert "<img" not in second
