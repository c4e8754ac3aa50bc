"""Broken files: one typed reason each, never a picture that is not in the file."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from covr_lab.types import SessionError
from covr_lab.video import All, DecordReader, Middle, PyAVReader, Uniform, VideoError, VideoReader

Clips = Callable[..., Path]
Number = Callable[[npt.NDArray[np.uint8]], int]


FLAGS = {"cut_fast.mp4": "faststart", "cut_parts.mp4": "frag_keyframe+empty_moov"}


def reason(reader: VideoReader, path: Path, sampler: Any = None) -> str:
    with pytest.raises(VideoError) as error:
        reader.read(path, sampler or Uniform(15))
    assert isinstance(error.value, SessionError)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    assert ": " in message
    return error.value.reason


def sound(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 16000), dtype=np.float32), format="fltp", layout="mono")
        silence.sample_rate, silence.pts, silence.time_base = 16000, 0, Fraction(1, 16000)
        container.mux(stream.encode(silence))
        container.mux(stream.encode(None))
    return path


def test_files_that_are_no_videos(tmp_path: Path, reader: VideoReader) -> None:
    """Dead links saved as videos."""
    contents = {
        "page.mp4": (b"<!DOCTYPE html><html><body>403 Forbidden</body></html>" * 9, "not_a_video"),
        "text.mp4": (b"1\n00:00:01,000 --> 00:00:02,000\nThe page you are looking for\n" * 9, "not_a_video"),
        "text.txt": (b"no film\n" * 900, "not_a_video"),
        "noise.mp4": (np.random.default_rng(0).bytes(9000), "not_a_video"),
        "page.jpg": (b"<html>404</html>", "not_a_video"),
        "zero.mp4": (b"", "empty"),
        "zero.png": (b"", "empty"),
    }
    for name, (content, expected) in contents.items():
        (tmp_path / name).write_bytes(content)
        assert reason(reader, tmp_path / name) == expected, name
    assert reason(reader, sound(tmp_path / "sound.mp4")) == "no_video_stream"
    assert reason(reader, tmp_path / "nowhere.mp4") == "missing"
    assert reason(reader, tmp_path / "nowhere.jpg") == "missing"
    assert reason(reader, tmp_path / ("long" * 100)) == "unreadable"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("no pictures")
    assert reason(reader, tmp_path / "folder") == "empty"


def test_an_error_crosses_processes(tmp_path: Path, pyav: PyAVReader) -> None:
    with pytest.raises(VideoError, match="is missing: restore") as error:
        pyav.probe(tmp_path / "nowhere.mp4")
    copy = pickle.loads(pickle.dumps(error.value))
    assert (str(copy), copy.reason, copy.path) == (str(error.value), "missing", tmp_path / "nowhere.mp4")


@pytest.mark.parametrize("name", ["cut.mp4", "cut_fast.mp4", "cut.mkv", "cut.avi", "cut.webm", "cut_parts.mp4"])
def test_a_file_cut_at_60_percent(
    name: str, clips: Clips, number: Number, tmp_path: Path, reader: VideoReader, pyav: PyAVReader
) -> None:
    codec = {".avi": "mpeg4", ".webm": "libvpx"}.get(Path(name).suffix, "libx264")
    whole = clips(name, 120, codec, g=12, flags=FLAGS.get(name, ""))
    assert reader.read(whole, Middle()).decodable == 1
    path = tmp_path / name
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size * 6 // 10])
    for _ in range(2):  # the reader is none the worse for it
        assert reason(reader, path) == "truncated"
    if name in ("cut.mp4", "cut_parts.mp4"):
        return  # its index was at the end; nobody knows how many parts there were
    left = PyAVReader(min_decodable=0.1, timeout=30)
    clip = left.read(path, Uniform(15))
    left.close()
    assert 0.2 < clip.decodable < 0.8
    assert clip.total == pytest.approx(120 * clip.decodable, abs=1.5)
    assert [number(frame) for frame in clip.frames] == clip.indices.tolist() == Uniform(15).indices(clip.total).tolist()


def damaged(path: Path, source: Path, start: float, stop: float) -> Path:
    """Overwrite a part of the media data (index and headers stay as they are)."""
    data = bytearray(source.read_bytes())
    begin, end = data.find(b"mdat") + 4, data.find(b"moov") - 4
    first, last = (begin + int((end - begin) * share) for share in (start, stop))
    data[first:last] = np.random.default_rng(0).bytes(last - first)
    path.write_bytes(data)
    return path


def test_a_damaged_half_is_not_filled_with_copies(clips: Clips, tmp_path: Path, reader: VideoReader) -> None:
    path = damaged(tmp_path / "half.mp4", clips("groups.mp4", 60, g=12, bf=3), 0.5, 1)
    assert reason(reader, path) == "corrupt"
    assert reason(reader, path, All()) == "corrupt"


def test_single_flipped_bytes_are_seen(clips: Clips, tmp_path: Path, reader: VideoReader) -> None:
    """The decoder patches such frames together and says nothing."""
    data = bytearray(clips("plain.mp4", 60).read_bytes())
    middle, end = len(data) // 2, data.find(b"moov")
    for place in np.random.default_rng(1).integers(middle, end, 30):
        data[place] ^= 0xFF
    (tmp_path / "flipped.mp4").write_bytes(data)
    assert reason(reader, tmp_path / "flipped.mp4") == "corrupt"


def test_a_little_damage_is_stepped_over_and_reported(clips: Clips, number: Number, tmp_path: Path) -> None:
    """PyAV takes the next frame that decodes, and says which one it took."""
    path = damaged(tmp_path / "little.mp4", clips("groups.mp4", 60, g=12, bf=3), 0.5, 0.53)
    reader = PyAVReader(min_decodable=0.5, timeout=30)
    clip = reader.read(path, All())
    assert 0.5 <= clip.decodable < 1
    assert clip.total == 60
    moved = clip.indices != np.arange(60)
    assert 0 < moved.sum() == pytest.approx(60 * (1 - clip.decodable), abs=1)
    assert [number(frame) for frame in clip.frames] == clip.indices.tolist()
    assert (np.diff(clip.indices) >= 0).all()
    reader.close()
    strict = PyAVReader(min_decodable=1.0, timeout=30)
    assert reason(strict, path, All()) == "corrupt"
    strict.close()


def test_more_promised_than_there_is(clips: Clips, number: Number, tmp_path: Path, reader: VideoReader) -> None:
    """Durations that claim 431 frames of 60. The frames that are there are the clip."""
    data = bytearray(clips("plain.mp4", 60).read_bytes())
    for box, offset in ((b"mvhd", 20), (b"tkhd", 24), (b"mdhd", 20), (b"elst", 12)):
        at = data.find(box) + offset
        data[at : at + 4] = (int.from_bytes(data[at : at + 4]) * 431 // 60).to_bytes(4)
    (tmp_path / "claim.mp4").write_bytes(data)
    clip = reader.read(tmp_path / "claim.mp4", Uniform(15))
    assert clip.total == 60
    assert [number(frame) for frame in clip.frames] == Uniform(15).indices(60).tolist()


def test_frames_hidden_by_an_edit_list(
    clips: Clips, number: Number, tmp_path: Path, pyav: PyAVReader, decord: DecordReader
) -> None:
    """A player shows the first half. decord counts all 60 frames: refused, not silently another clip."""
    data = bytearray(clips("plain.mp4", 60).read_bytes())
    at = data.find(b"elst") + 12
    data[at : at + 4] = (int.from_bytes(data[at : at + 4]) // 2).to_bytes(4)
    (tmp_path / "edit.mp4").write_bytes(data)
    clip = pyav.read(tmp_path / "edit.mp4", All())
    assert (clip.total, clip.decodable) == (30, 1)
    assert [number(frame) for frame in clip.frames] == list(range(30))
    assert reason(decord, tmp_path / "edit.mp4") == "codec"


def test_a_broken_image_is_not_skipped(tmp_path: Path, clips: Clips, reader: VideoReader) -> None:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (64, 96, 3), dtype=np.uint8)
    for index in range(3):
        Image.fromarray(noise).save(tmp_path / f"{index}.jpg")
    whole = (tmp_path / "1.jpg").read_bytes()
    (tmp_path / "1.jpg").write_bytes(whole[: len(whole) // 2])
    assert reason(reader, tmp_path) == "truncated"
    Image.fromarray(noise[:, :40]).save(tmp_path / "1.jpg")
    assert reason(reader, tmp_path) == "corrupt"
    (tmp_path / "1.jpg").unlink()
    (tmp_path / "1.jpg").symlink_to(tmp_path / "gone.jpg")
    assert reason(reader, tmp_path) == "missing"
    (tmp_path / "1.jpg").unlink()
    shutil.copy(clips("plain.mp4", 60), tmp_path / "1.jpg")
    assert reason(reader, tmp_path) == "not_a_video"


def test_bounds_are_checked() -> None:
    for wrong in ({"min_decodable": 90.0}, {"timeout": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PyAVReader(**wrong)
