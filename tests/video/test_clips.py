"""Both readers on made-up clips whose frames carry their numbers, and on the real clips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from covr_lab.video import All, DecordReader, FrameSampler, Middle, Probe, PyAVReader, Uniform, VideoError, VideoReader

Clips = Callable[..., Path]
Number = Callable[[npt.NDArray[np.uint8]], int]
COUNT = 60


class At(FrameSampler):
    """Any indices, in any order."""

    def __init__(self, *indices: int) -> None:
        self.chosen = indices

    def indices(self, total: int) -> npt.NDArray[np.int64]:
        return np.array(self.chosen, dtype=np.int64)

    def describe(self) -> str:
        return f"at:{self.chosen}"


# Frames that refer across key frames, recovery points, hidden frames, no presentation stamps, no header count.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain.mp4": ("libx264", {}),
    "groups.mp4": ("libx264", {"g": 12, "bf": 3}),
    "groups.mkv": ("libx264", {"g": 12, "bf": 3}),
    "open.mp4": ("libx264", {"g": 12, "bf": 3, "x264-params": "open-gop=1"}),
    "refresh.mp4": ("libx264", {"g": 20, "intra-refresh": 1}),
    "open_hevc.mp4": ("libx265", {"x265-params": "keyint=12:open-gop=1:log-level=none"}),
    "vp8.webm": ("libvpx", {"g": 16}),
    "vp9.webm": ("libvpx-vp9", {"g": 16, "deadline": "realtime", "cpu-used": 8}),
    "mpeg4.mp4": ("mpeg4", {"bf": 2}),
    "mpeg4.avi": ("mpeg4", {"bf": 2}),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_frames_asked_for_come_out(name: str, clips: Clips, number: Number, reader: VideoReader) -> None:
    codec, options = KINDS[name]
    path = clips(name, COUNT, codec, **options)
    everything = reader.read(path, All())
    assert [number(frame) for frame in everything.frames] == list(range(COUNT))
    assert everything.seconds is not None
    np.testing.assert_allclose(everything.seconds, np.arange(COUNT) / 30, atol=1e-3)  # Matroska counts milliseconds
    assert (everything.total, everything.fps, everything.decodable) == (COUNT, 30.0, 1.0)
    for sampler in (Middle(), Uniform(7), At(59), At(13, 14, 50), At(24, 36), At(40, 11, 11, 0)):
        clip = reader.read(path, sampler)
        assert clip.indices.tolist() == sampler.indices(COUNT).tolist()
        # Whatever was skipped on the way, the bits are those of decoding everything.
        np.testing.assert_array_equal(clip.frames, everything.frames[clip.indices])
        np.testing.assert_array_equal(clip.seconds, everything.seconds[clip.indices])


def test_av1(clips: Clips, number: Number, pyav: PyAVReader, decord: DecordReader) -> None:
    path = clips("av1.mp4", COUNT, "libsvtav1", g=16, preset=12)
    assert [number(frame) for frame in pyav.read(path, Uniform(15)).frames] == Uniform(15).indices(COUNT).tolist()
    with pytest.raises(VideoError, match=r"av1\.mp4 .*\(av1.*PyAVReader.*ffmpeg -i") as error:
        decord.read(path, Middle())
    assert error.value.reason == "codec"


@pytest.mark.parametrize("name", ["clip.ts", "clip.mpg"])
def test_broadcast_streams(name: str, clips: Clips, number: Number, pyav: PyAVReader) -> None:
    path = clips(name, COUNT, "mpeg2video", bf=2)
    clip = pyav.read(path, Uniform(7))
    assert [number(frame) for frame in clip.frames] == Uniform(7).indices(COUNT).tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_short_clips(count: int, clips: Clips, number: Number, reader: VideoReader) -> None:
    clip = reader.read(clips(f"short{count}.mp4", count), Uniform(15))
    assert clip.total == count
    assert clip.frames.shape == (15, 64, 96, 3)
    assert [number(frame) for frame in clip.frames] == clip.indices.tolist() == Uniform(15).indices(count).tolist()


@pytest.mark.parametrize("size", [(95, 63), (17, 31), (34, 18)])
def test_odd_sizes(size: tuple[int, int], tmp_path: Path, write: Callable[..., Path], reader: VideoReader) -> None:
    width, height = size
    ramp = np.linspace(0, 255, width * height * 3).reshape(height, width, 3).astype(np.uint8)
    clip = reader.read(write(tmp_path / "odd.mp4", [ramp] * 5), All())
    assert clip.frames.shape == (5, height, width, 3)
    assert np.abs(clip.frames.astype(int) - ramp).mean() < 10


def test_widths_that_decord_cannot_show(tmp_path: Path, write: Callable[..., Path], decord: DecordReader) -> None:
    with pytest.raises(VideoError, match=r"shape \(32, 48, 4\), expected \(32, 48, 3\)"):
        decord.read(write(tmp_path / "narrow.mp4", [np.zeros((32, 48, 3), dtype=np.uint8)] * 3), Middle())


def test_red_is_the_first_channel(tmp_path: Path, write: Callable[..., Path], reader: VideoReader) -> None:
    red = np.zeros((48, 64, 3), dtype=np.uint8)
    red[..., 0] = 255
    frames = reader.read(write(tmp_path / "red.mp4", [red] * 3), All()).frames
    assert frames[..., 0].min() > 240
    assert frames[..., 1:].max() < 15


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_rotated_clips_stand_upright(
    rotation: int, tmp_path: Path, write: Callable[..., Path], reader: VideoReader
) -> None:
    """The shot has a red bar on top; the camera stored it lying on its side."""
    upright = np.full((64, 96, 3), 30, dtype=np.uint8)
    upright[:12, :, 0] = 250
    stored = np.rot90(upright, -rotation // 90)
    path = write(tmp_path / f"turned{rotation}.mp4", [np.ascontiguousarray(stored)] * 3, rotation=rotation)
    clip, probe = reader.read(path, Middle()), reader.probe(path)
    assert clip.frames.shape == (1, 64, 96, 3)
    assert (probe.width, probe.height, probe.rotation) == (96, 64, rotation)
    assert np.abs(clip.frames[0].astype(int) - upright).mean() < 10


def test_times_come_from_the_stamps(clips: Clips, reader: VideoReader) -> None:
    """With a variable frame rate, index / fps is not the time. The clock starts with the first frame."""
    stamps = [500, 540, 600, 1000, 1010, 2500, 2600, 4000]
    clip = reader.read(clips("variable.mp4", 8, stamps=stamps, bf=2), All())
    np.testing.assert_allclose(clip.seconds, (np.array(stamps) - 500) / 1000, atol=1e-4)


def test_probe(clips: Clips, reader: VideoReader) -> None:
    probe = reader.probe(clips("plain.mp4", COUNT))
    assert probe == Probe(COUNT, 30.0, 96, 64, "h264", pytest.approx(2.0), 0)


def test_samplers_must_stay_inside(clips: Clips, pyav: PyAVReader) -> None:
    path = clips("plain.mp4", COUNT)
    for sampler in (At(60), At()):
        with pytest.raises(ValueError, match=r"at:.* chose .* of 60 frames"):
            pyav.read(path, sampler)
    assert pyav.read(path, At(5)).indices.tolist() == [5]


def test_a_path_is_a_path(clips: Clips, number: Number, tmp_path: Path, reader: VideoReader) -> None:
    """Nothing in a name is a protocol, a pattern or an option."""
    for name in ("concat:a|b.mp4", "-i %03d [x] é#?.mp4", "http:example"):
        path = tmp_path / name
        path.write_bytes(clips("short3.mp4", 3).read_bytes())
        assert number(reader.read(path, Middle()).frames[0]) == 1


def test_a_playlist_fetches_nothing(clips: Clips, tmp_path: Path, reader: VideoReader) -> None:
    list_of = f"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{clips('short3.mp4', 3)}\n#EXT-X-ENDLIST\n"
    (tmp_path / "list.mp4").write_text(list_of)
    with pytest.raises(VideoError) as error:
        reader.read(tmp_path / "list.mp4", Middle())
    assert error.value.reason == "not_a_video"
