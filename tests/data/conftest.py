from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Video = Callable[..., Path]


@pytest.fixture(scope="session")
def make_video() -> Video:
    """Writes a small clip: mpeg4 in whatever container the name asks for."""
    import av

    def make(path: Path, frames: int = 6, fps: int = 5, size: tuple[int, int] = (32, 16)) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w") as container:
            codec = "libvpx" if path.suffix == ".webm" else "mpeg4"
            stream = container.add_stream(codec, rate=fps)
            stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
            for shade in np.linspace(0, 255, frames).astype(np.uint8):
                picture = np.full((size[1], size[0], 3), shade, dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
        return path

    return make
