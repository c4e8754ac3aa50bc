from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covr_lab.types import SessionError
from covr_lab.video import All, FrameSampler, Middle, Uniform, VideoReader
from covr_lab.video.base import Clip
from covr_lab.video.overlay import fit, fitted, stamped, stamps
from covr_lab.video.samplers import Listed, Probes


def grey(count: int = 1, width: int = 256, height: int = 144) -> np.ndarray:
    return np.full((count, height, width, 3), 128, dtype=np.uint8)


@pytest.mark.parametrize(
    ("size", "side", "small"),
    [
        ((1280, 720), 512, (512, 288)),
        ((720, 1280), 512, (288, 512)),
        ((596, 336), 256, (256, 144)),  # 144.3
        ((592, 336), 256, (256, 145)),  # 145.3
        ((512, 255), 256, (256, 128)),  # 127.5: halves up
        ((200, 100), 256, (200, 100)),
        ((256, 256), 256, (256, 256)),
        ((5000, 2), 256, (256, 1)),
    ],
)
def test_the_longer_side_is_bounded_and_the_shape_stays(
    size: tuple[int, int], side: int, small: tuple[int, int]
) -> None:
    assert fitted(*size, side) == small
    frames = grey(2, *size)
    assert fit(frames, side).shape == (2, small[1], small[0], 3)
    assert fit(frames, None) is frames


def test_a_scaled_frame_does_not_depend_on_the_others() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 90, 160, 3), dtype=np.uint8)
    together = fit(frames, 64)
    for place, frame in enumerate(frames):
        assert (fit(frame[None], 64)[0] == together[place]).all()


def test_times_are_index_by_native_rate_with_two_decimals() -> None:
    clip = Clip(grey(4), np.array([0, 1, 100, 299]), np.zeros(4), 300, 30000 / 1001, 1.0)
    assert stamps(clip) == ["0.00s", "0.03s", "3.34s", "9.98s"]
    assert stamps(replace(clip, fps=None, seconds=None)) == ["frame 0", "frame 1", "frame 100", "frame 299"]


@pytest.mark.parametrize(("width", "height"), [(256, 144), (512, 288), (1920, 1080), (64, 48)])
def test_a_time_stands_top_left_in_white_on_black_and_nowhere_else(width: int, height: int) -> None:
    frames = grey(2, width, height)
    marked = stamped(frames, ["3.40s", "13.47s"])
    assert (frames == 128).all()
    for frame in marked:
        rows, columns = np.nonzero((frame != 128).any(2))
        assert rows.max() < max(20, height // 8)
        assert columns.max() < max(56, width // 3)
        assert rows.min() < height // 8
        assert (frame > 230).all(2).any()
        assert (frame < 25).all(2).any()
        assert rows.max() - rows.min() >= 7  # pixels that can be read
    assert (marked[0] != marked[1]).any()
    assert (stamped(frames[1:], ["13.47s"])[0] == marked[1]).all()


@pytest.mark.parametrize("sampler", [Uniform(4), Middle(), All(), Listed([0, 7, 9])])
def test_samplers_that_need_no_duration_ignore_it(sampler: FrameSampler) -> None:
    assert sampler.choose(20, 3.0).tolist() == sampler.choose(20, None).tolist() == sampler.indices(20).tolist()


def test_probes_follow_the_clock_of_the_clip(clips: Callable[..., Path], reader: VideoReader) -> None:
    path = clips("probes.mp4", 60)  # two seconds
    clip = reader.read(path, Probes())
    assert clip.indices.tolist() == [(2 * j + 1) * 60 // 32 for j in range(16)]


def test_a_reader_scales_down_what_a_sampler_wants_small(clips: Callable[..., Path], reader: VideoReader) -> None:
    path = clips("small.mp4", 20)
    whole, small = reader.read(path, All()), reader.read(path, Probes(((0, 1000),), side=48))
    assert whole.frames.shape == (20, 64, 96, 3)
    assert small.frames.shape == (20, 32, 48, 3)
    assert (small.frames == fit(whole.frames, 48)).all()


def test_listed_frames_of_another_clip_are_an_error(clips: Callable[..., Path], reader: VideoReader) -> None:
    path = clips("listed.mp4", 20)
    assert reader.read(path, Listed([3, 19])).indices.tolist() == [3, 19]
    with pytest.raises(SessionError, match="frame 20 was chosen of a clip that has 20 frames"):
        reader.read(path, Listed([3, 20]))
    assert reader.read(path, Listed([5])).indices.tolist() == [5]  # the reader goes on
    for wrong in ([], [2, 1], [-1]):
        with pytest.raises(ValueError, match="must ascend"):
            Listed(wrong)


def test_other_frames_are_another_description() -> None:
    samplers = [
        Listed([1, 2]),
        Listed([12]),
        Listed([1, 2, 3]),
        Probes(),
        Probes(side=255),
        Probes(((0, 8), (10, 4))),
        Probes(((0, 8), (10, 4), (30, 3))),
    ]
    assert len({sampler.describe() for sampler in samplers}) == len(set(samplers)) == len(samplers)
