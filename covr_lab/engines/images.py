"""Frames of a video as labelled images, for servers that take images and no videos."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from covr_lab.video import Clip
    from covr_lab.video.base import Frames

ENCODING: Final = "jpeg-95-444 bicubic labels-1"  # everything here that can change an answer


def frame_labels(clip: Clip) -> list[str]:
    """What stands before each frame: its time as Qwen3-VL writes it, or its place in a clip without a clock."""
    if clip.seconds is None:
        return [f"frame {place} of {len(clip.frames)}" for place in range(1, len(clip.frames) + 1)]
    return [f"<{second:.1f} seconds>" for second in clip.seconds]


def data_url(frame: Frames, max_side: int | None = None) -> str:
    """One frame as a JPEG in a ``data:`` URL.

    Args:
        frame: uint8 ``(H, W, 3)``, RGB.
        max_side: pixels that the longer side may have; a larger frame is scaled down, a smaller one is left alone.

    >>> import numpy as np
    >>> data_url(np.zeros((2, 3, 3), np.uint8))[:31]
    'data:image/jpeg;base64,/9j/4AAQ'
    """
    from PIL import Image

    image = Image.fromarray(frame)
    if max_side is not None:
        image.thumbnail((max_side, max_side), Image.Resampling.BICUBIC, reducing_gap=None)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
