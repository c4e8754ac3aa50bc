"""Small pictures of videos for people, made once."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from covr_lab.gallery.cache import cache_dir

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video.base import Frames

SIDE: Final = 320  # pixels of the longer side


def picture(frames: Frames) -> bytes:
    """The first of frames uint8 ``(F, H, W, 3)`` as a JPEG, its longer side at most ``SIDE`` pixels.

    >>> import numpy as np
    >>> picture(np.zeros((1, 480, 640, 3), np.uint8))[:2] == bytes([0xFF, 0xD8])
    True
    """
    from PIL import Image

    from covr_lab.video.overlay import fit

    target = io.BytesIO()
    Image.fromarray(fit(frames[:1], SIDE)[0]).save(target, "JPEG", quality=85)
    return target.getvalue()


def thumbnail_path(videos: VideoStore, video: str) -> Path:
    """Where the picture of a video lies once it is made."""
    return cache_dir() / "thumbnails" / f"{videos.digest([video])[:32]}.jpg"


def thumbnail(videos: VideoStore, video: str) -> Path:
    """The file with the middle frame of a video; the first one is often black.

    Raises:
        SessionError: the video is unknown or cannot be read.
    """
    from covr_lab.video import Middle

    path = thumbnail_path(videos, video)
    if not path.exists():
        data = picture(videos.clip(video, Middle()).frames)
        part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    return path
