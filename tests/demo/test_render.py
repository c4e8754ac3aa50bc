from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from covr_lab.demo import render, world

STAR = world.Scene((world.Thing("red", "star", "left"),), "plain", "steady")


def reddest(picture):
    red = picture[..., 0].astype(int) - picture[..., 1:].max(-1)
    ys, xs = np.nonzero(red > 80)
    return xs.mean() / picture.shape[1], ys.mean() / picture.shape[0]


def test_shape_and_kind():
    frames = render.render(STAR)
    assert frames.shape == (render.FRAMES, render.SIDE, render.SIDE, 3)
    assert frames.dtype == np.uint8


@pytest.mark.parametrize(
    ("motion", "axis", "sign"), [("left", 0, -1), ("right", 0, 1), ("rise", 1, -1), ("fall", 1, 1)]
)
def test_things_move_as_told(motion, axis, sign):
    scene = world.Scene((world.Thing("red", "circle", motion),), "plain", "steady")
    frames = render.render(scene)
    first, last = reddest(frames[0]), reddest(frames[-1])
    assert (last[axis] - first[axis]) * sign > 0.3
    assert abs(last[1 - axis] - first[1 - axis]) < 0.02


def test_things_grow_and_light_fades():
    grow = render.render(world.Scene((world.Thing("red", "circle", "grow"),), "plain", "steady"))
    areas = [(frame[..., 0].astype(int) - frame[..., 1] > 80).sum() for frame in (grow[0], grow[-1])]
    assert areas[1] > 3 * areas[0]
    fade = render.render(world.Scene(STAR.things, "plain", "fading"))
    assert fade[-1].mean() < 0.6 * fade[0].mean()


@pytest.mark.parametrize("shape", world.SHAPES)
def test_every_shape_is_drawn_in_its_colour(shape):
    scene = world.Scene((world.Thing("green", shape, "still"),), "dark", "steady")
    picture = render.frame(scene, 0.5)
    painted = (np.abs(picture.astype(int) - render.PAINT["green"]).max(-1) < 3).sum()
    assert 500 < painted < 128 * 128 / 4


def test_the_same_scene_gives_the_same_pixels_and_the_same_file(tmp_path: Path):
    rng = random.Random(3)
    scene = world.placed(rng, world.scene(rng, "train", 2))
    assert np.array_equal(render.render(scene), render.render(scene))
    for name in ("a.mp4", "b.mp4"):
        render.write_clip(scene, tmp_path / name)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_the_file_is_a_short_h264_clip_close_to_the_pixels(tmp_path: Path):
    import av

    render.write_clip(STAR, tmp_path / "clip.mp4")
    with av.open(str(tmp_path / "clip.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(stream)])
    wanted = render.render(STAR)
    assert frames.shape == wanted.shape
    assert np.abs(frames.astype(int) - wanted).mean() < 6
    assert (tmp_path / "clip.mp4").stat().st_size < 30_000
