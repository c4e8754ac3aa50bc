"""All clips of COVR_VIDEOS by both readers, against what their manifest says."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import av
import numpy as np
import pytest

from covr_lab.video import All, DecordReader, PyAVReader, Uniform, VideoError, VideoReader
from covr_lab.video.av_source import AVSource, decode

Row = dict[str, str]


def manifest() -> list[object]:
    if "COVR_VIDEOS" not in os.environ:
        return [pytest.param({}, marks=pytest.mark.skip(reason="COVR_VIDEOS is not set (folder of real clips)"))]
    with (Path(os.environ["COVR_VIDEOS"]) / "manifest.csv").open(newline="") as file:
        return [pytest.param(row, id=row["file"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("row", manifest())
def test_both_readers_agree(row: Row, videos: Path, pyav: PyAVReader, decord: DecordReader) -> None:
    path, sampler = videos / row["file"], Uniform(2)
    probe, clip = pyav.probe(path), pyav.read(path, sampler)
    assert clip.frames.shape == (2, probe.height, probe.width, 3)
    assert clip.seconds is not None
    assert clip.seconds[-1] < (probe.seconds or 0)
    assert clip.decodable == 1
    assert probe.codec == row["codec"]
    if row["file"] == "torchcodec_nasa_13013.mp4":  # the manifest lists its first stream, a player shows the second
        assert (probe.width, probe.height, probe.total) == (480, 270, 390)
    else:
        size = sorted((int(row["width"]), int(row["height"])), reverse=row["rotation"] != "-90")
        assert [probe.width, probe.height] == (size if int(row["height"]) < int(row["width"]) else size[::-1])
        assert probe.total == int(row["nb_frames"] or probe.total)
        assert probe.fps == pytest.approx(float(row["avg_fps"]), abs=1e-3)
    if row["codec"] == "av1":
        with pytest.raises(VideoError, match="av1") as error:
            decord.read(path, sampler)
        assert error.value.reason == "codec"
        return
    other = decord.read(path, sampler)
    assert (other.total, other.fps, other.decodable) == (clip.total, clip.fps, 1)
    np.testing.assert_array_equal(other.indices, clip.indices)
    np.testing.assert_array_equal(other.seconds, clip.seconds)
    if row["pix_fmt"] == "yuv420p10le":  # another way to enlarge the chroma, seen at the edges of a test card
        assert np.abs(other.frames.astype(int) - clip.frames).mean() < 5
    else:
        np.testing.assert_array_equal(other.frames, clip.frames)


@pytest.mark.parametrize(("degrees", "turns"), [(0, 0), (90, 3), (180, 2)])
def test_three_frames_of_a_turned_phone(degrees: int, turns: int, videos: Path, reader: VideoReader) -> None:
    """Shots of a keyboard, all three upright (looked at); stored with quarter turns that FFmpeg does not undo."""
    path = videos / f"decord_video_{degrees}.mov"
    clip = reader.read(path, Uniform(15))
    assert clip.indices.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    with av.open(str(path)) as container:
        stored = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    np.testing.assert_array_equal(clip.frames[::5], [np.rot90(frame, turns) for frame in stored])


def test_variable_frame_rates(videos: Path, reader: VideoReader) -> None:
    """One frame of this clip is missing in the middle of a second: from there on, index / fps is wrong."""
    clip = reader.read(videos / "mmaction_tests_data_rawvideo_dataset_part_0.mp4", All())
    assert clip.seconds is not None
    steps = np.diff(clip.seconds)
    assert steps.max() > 1.5 * steps.min()
    assert abs(clip.seconds[-1] - 31 / 30) > 0.03


@pytest.mark.parametrize("name", ["umivr_sample_demo_3.mp4", "videollama_boat.mp4", "mmaction_tests_data_test.avi"])
def test_skipping_changes_no_bit(name: str, videos: Path) -> None:
    """Packets that nobody needs are skipped; the others give the bits of a decoder that saw everything."""
    source = AVSource(videos / name)
    total = source.probe.total
    wanted = sorted({0, 1, total // 2, total - 1, *np.random.default_rng(0).integers(0, total, 6).tolist()})
    complete = {index: frame.to_ndarray() for index, frame in decode(source.path, source.index) if frame is not None}
    assert list(complete) == list(range(total))
    for chosen in (wanted, [total // 2], wanted[3:5]):
        for index, frame in source.intact(chosen):
            np.testing.assert_array_equal(frame.to_ndarray(), complete[index])
