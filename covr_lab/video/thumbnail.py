"""Small pictures of videos for reports and web pages."""

from __future__ import annotations

import io
from pathlib import Path

from covr_lab.video.base import Frames, VideoReader
from covr_lab.video.samplers import Middle


def to_jpeg(frame: Frames, width: int = 160) -> bytes:
    """A frame as JPEG, no wider than ``width``.

    Args:
        frame: uint8 ``(H, W, 3)``, RGB.
        width: pixels; the height follows. A narrower frame keeps its size.
    """
    from PIL import Image

    image = Image.fromarray(frame)
    if image.width > width:
        image = image.resize((width, max(1, round(image.height * width / image.width))), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def thumbnail(path: Path, reader: VideoReader, width: int = 160) -> bytes:
    """The middle frame of a video, upright, as JPEG (first frames are often black).

    Raises:
        VideoError: it cannot be read.
    """
    return to_jpeg(reader.read(path, Middle()).frames[0], width)
