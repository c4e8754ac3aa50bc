"""Made-up clips: every frame carries its number, so that a test sees which one came out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from covr_lab.video import DecordReader, PyAVReader, VideoReader

Picture = npt.NDArray[np.uint8]
BITS = 9


def picture(index: int, width: int = 96, height: int = 64, colour: tuple[int, int, int] = (40, 90, 160)) -> Picture:
    """A frame whose lower half shows ``index`` as white and black columns; its upper half is textured."""
    frame = np.empty((height, width, 3), dtype=np.uint8)
    frame[:] = colour
    texture = np.random.default_rng(index).integers(0, 60, (height // 8 + 1, width // 4 + 1), dtype=np.uint8)
    frame[: height // 2] += np.kron(texture, np.ones((4, 4), dtype=np.uint8))[: height // 2, :width, None]
    for bit in range(BITS):
        columns = slice(bit * width // BITS, (bit + 1) * width // BITS)
        frame[height // 2 :, columns] = 255 if index >> bit & 1 else 0
    return frame


def read_number(frame: Picture) -> int:
    """What :func:`picture` wrote."""
    height, width, _ = frame.shape
    middle = [(2 * bit + 1) * width // (2 * BITS) for bit in range(BITS)]
    return sum(int(frame[height * 3 // 4, column].mean() > 127) << bit for bit, column in enumerate(middle))


def write_clip(
    path: Path,
    frames: Sequence[Picture],
    codec: str = "libx264",
    *,
    fps: int = 30,
    stamps: Sequence[int] | None = None,
    rotation: int = 0,
    flags: str = "",
    **options: Any,
) -> Path:
    """Encode frames.

    ``stamps`` are milliseconds for a variable frame rate, ``flags`` the movflags, ``options`` go to the encoder.
    """
    with av.open(str(path), "w", container_options={"movflags": flags} if flags else {}) as container:
        stream = container.add_stream(codec, rate=fps, options={key: str(value) for key, value in options.items()})
        stream.height, stream.width, _ = frames[0].shape
        stream.pix_fmt = "yuv420p" if stream.height % 2 == stream.width % 2 == 0 else "yuv444p"
        stream.codec_context.thread_count = 1
        if rotation:
            stream.set_display_rotation(rotation)
        if stamps is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for position, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if stamps is not None:
                frame.pts, frame.time_base = stamps[position], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``clips(name, count, ...)``: the path of a made-up clip of ``count`` numbered frames."""
    folder = tmp_path_factory.mktemp("clips")

    def make(name: str, count: int = 60, codec: str = "libx264", **settings: Any) -> Path:
        path = folder / name
        return (
            path if path.exists() else write_clip(path, [picture(index) for index in range(count)], codec, **settings)
        )

    return make


@pytest.fixture(scope="session")
def number() -> Callable[[Picture], int]:
    """The number that a frame of a made-up clip carries."""
    return read_number


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    """``write(path, frames, codec, ...)`` encodes any frames."""
    return write_clip


@pytest.fixture(scope="session")
def videos() -> Path:
    """The folder of real clips."""
    if "COVR_VIDEOS" not in os.environ:
        pytest.skip("COVR_VIDEOS is not set (folder of real clips)")
    return Path(os.environ["COVR_VIDEOS"])


@pytest.fixture(scope="session")
def pyav() -> Iterator[PyAVReader]:
    reader = PyAVReader(timeout=30)
    yield reader
    reader.close()


@pytest.fixture(scope="session")
def decord() -> Iterator[DecordReader]:
    pytest.importorskip("decord", reason="needs the extra `decord`")
    reader = DecordReader(timeout=30)
    yield reader
    reader.close()


@pytest.fixture(scope="session", params=["pyav", "decord"])
def reader(request: pytest.FixtureRequest) -> VideoReader:
    """Both readers, one after the other."""
    chosen: VideoReader = request.getfixturevalue(request.param)
    return chosen
