"""What prompts show is read once, bounded in memory, and on disk either whole or a miss."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from covr_lab.engines.request import Media
from covr_lab.gallery.bundles import FrameBundles, bundle_file, load
from covr_lab.gallery.videos import VideoStore
from covr_lab.video import Clip, FrameSampler, Middle, Probe, Uniform, VideoError, VideoReader
from covr_lab.video.samplers import Listed


class Counted(VideoReader):
    """Frames whose pixels are their indices, and a count of what was read."""

    def __init__(self, clock: bool = True, version: str = "1", min_decodable: float = 0.9) -> None:
        super().__init__(min_decodable=min_decodable)
        self.clock, self.version, self.count = clock, version, 0

    @property
    def fingerprint(self) -> str:
        return f"counted {self.version}"

    def probe(self, path: Path) -> Probe:
        raise NotImplementedError

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        self.count += 1
        if not path.exists():
            raise VideoError(path, "missing")
        at = sampler.indices(40)
        frames = np.broadcast_to(at.astype(np.uint8)[:, None, None, None], (len(at), 60, 80, 3)).copy()
        return Clip(frames, at, at / 10 if self.clock else None, 40, 10.0 if self.clock else None, 0.95)


SIZE = 60 * 80 * 3  # bytes of one frame


@pytest.fixture
def media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "media"
    folder.mkdir()
    for name in "abc":
        (folder / name).write_text(name)
    return folder


def store(folder: Path, bundles: FrameBundles | None = None, **reader: object) -> VideoStore:
    return VideoStore(lambda video: folder / video, Counted(**reader), bundles=bundles)  # type: ignore[arg-type]


def read(videos: VideoStore) -> int:
    return videos.reader.count  # type: ignore[attr-defined, no-any-return]


def same(one: Clip, other: Clip) -> bool:
    arrays = [(one.frames, other.frames), (one.indices, other.indices)]
    if one.seconds is not None and other.seconds is not None:
        arrays.append((one.seconds, other.seconds))
    numbers = [(clip.total, clip.fps, clip.decodable, clip.seconds is None) for clip in (one, other)]
    return numbers[0] == numbers[1] and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


def test_a_clip_is_read_once_for_each_way_to_show_it(media: Path) -> None:
    videos = store(media)
    ways = [
        Media("a", 3, videos),
        Media("b", 3, videos),
        Media("a", 4, videos),
        Media("a", 3, videos, sampler=Listed([1, 2, 3])),
        Media("a", 3, videos, side=40),
        Media("a", 3, videos, timestamps=True),
        Media("a", 3, videos, side=40, timestamps=True),
    ]
    shown = [way.clip() for way in ways]
    assert read(videos) == len({way.digest for way in ways}) == len(ways)
    assert all(same(way.clip(), clip) for way, clip in zip(ways, shown, strict=True))
    assert read(videos) == len(ways)
    assert [clip.frames.shape[1:3] for clip in shown[3:]] == [(60, 80), (30, 40), (60, 80), (30, 40)]
    assert [bool((clip.frames == clip.frames[:, -1:, -1:]).all()) for clip in shown[3:]] == [True, True, False, False]


def test_what_a_caller_does_to_a_clip_changes_no_other(media: Path) -> None:
    videos = store(media)
    for _ in range(3):
        clip = videos.shown("a", Uniform(2))
        assert clip.frames[0, 0, 0].tolist() == [10] * 3
        clip.frames[:] = 0
        clip.indices[:] = 0


def test_memory_is_bounded_and_the_clip_used_last_stays(media: Path) -> None:
    bundles = FrameBundles(limit=4 * SIZE)
    videos = store(media, bundles)
    for video in "ab":
        videos.shown(video, Uniform(2))
    videos.shown("a", Uniform(2))  # now b is the older one
    assert (read(videos), bundles.size) == (2, 4 * SIZE)
    videos.shown("c", Middle())
    assert bundles.size == 3 * SIZE
    videos.shown("a", Uniform(2))
    assert read(videos) == 3
    videos.shown("b", Uniform(2))
    assert read(videos) == 4
    for _ in range(2):
        assert len(videos.shown("a", Uniform(5)).frames) == 5  # larger than all there is room for
    assert read(videos) == 6
    assert bundles.size <= 4 * SIZE


def test_a_store_may_keep_nothing(media: Path) -> None:
    videos = store(media)
    videos.bundles = None
    assert same(videos.shown("a", Middle()), videos.shown("a", Middle()))
    assert read(videos) == 2


def test_a_failure_is_not_kept(media: Path) -> None:
    videos = store(media, FrameBundles(keep=True))
    for _ in range(2):
        with pytest.raises(VideoError, match="id 'd'"):
            videos.shown("d", Middle())
    (media / "d").write_text("now it is there")
    assert videos.shown("d", Middle()).total == 40


@pytest.mark.parametrize("clock", [True, False])
def test_what_is_on_disk_is_the_same_clip_in_another_process(clock: bool, media: Path) -> None:
    first = store(media, FrameBundles(keep=True), clock=clock)
    shown = first.shown("a", Uniform(3), side=40, timestamps=True)
    again = store(media, FrameBundles(keep=True), clock=clock)
    assert same(again.shown("a", Uniform(3), side=40, timestamps=True), shown)
    assert read(again) == 0
    assert not list(bundle_file("ab").parents[1].rglob("*.tmp"))


def test_what_can_change_a_frame_on_disk_is_in_its_address(media: Path) -> None:
    store(media, FrameBundles(keep=True)).shown("a", Uniform(2))
    others: list[Callable[[], VideoStore]] = [
        lambda: store(media, FrameBundles(keep=True), version="2"),
        lambda: store(media, FrameBundles(keep=True), min_decodable=0.5),
    ]
    for other in others:
        videos = other()
        videos.shown("a", Uniform(2))
        assert read(videos) == 1
    (media / "a").write_text("another clip")
    videos = store(media, FrameBundles(keep=True))
    videos.shown("a", Uniform(2))
    assert read(videos) == 1
    assert len(list(bundle_file("ab").parents[1].rglob("*.safetensors"))) == 4


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "flipped", "header", "other format"])
def test_a_damaged_file_is_a_miss_and_mended(damage: str, media: Path) -> None:
    shown = store(media, FrameBundles(keep=True)).shown("a", Uniform(2))
    (path,) = bundle_file("ab").parents[1].rglob("*.safetensors")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-100] ^= 1
    path.write_bytes(
        {
            "cut": whole[:-7],
            "empty": b"",
            "garbage": b"<html>" * 100,
            "flipped": bytes(flipped),
            "header": whole.replace(b'"total":"40"', b'"totel":"40"'),
            "other format": whole.replace(b'"format":"1"', b'"format":"0"'),
        }[damage]
    )
    assert path.read_bytes() != whole
    assert load(path) is None
    videos = store(media, FrameBundles(keep=True))
    assert same(videos.shown("a", Uniform(2)), shown)
    assert read(videos) == 1
    found = load(path)
    assert found is not None
    assert same(found, shown)


def test_a_folder_that_cannot_be_written_is_one_warning(
    media: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = media.parent / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("COVR_CACHE", str(blocked))
    videos = store(media, FrameBundles(keep=True))
    with caplog.at_level(logging.WARNING):
        for video in "abc":
            videos.shown(video, Middle())
            videos.shown(video, Middle())
    assert read(videos) == 3
    assert len(caplog.records) == 1
    assert "set COVR_CACHE" in caplog.text


def test_threads_get_the_right_clips_within_the_bound(media: Path) -> None:
    bundles = FrameBundles(limit=3 * SIZE)
    videos = store(media, bundles)

    def indices(number: int) -> bool:
        clip = videos.shown("abc"[number % 3], Listed([number % 7]))
        return bool((clip.frames == number % 7).all()) and clip.indices.tolist() == [number % 7]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(indices, range(400)))
    assert bundles.size == 3 * SIZE
    assert sum(clip.frames.nbytes for clip in bundles._held.values()) == bundles.size


def test_a_copy_in_another_process_starts_empty(media: Path) -> None:
    bundles = FrameBundles(limit=9 * SIZE, keep=True)
    store(media, bundles).shown("a", Uniform(5))
    data = pickle.dumps(bundles)
    assert len(data) < SIZE
    copy = pickle.loads(data)
    assert (copy.limit, copy.keep, copy.size) == (9 * SIZE, True, 0)


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        FrameBundles(limit=-1)
