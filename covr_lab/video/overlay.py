"""What is done to frames between the decoder and a prompt: scaled down, then stamped with their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from covr_lab.video.base import Clip, Frames

VERSION: Final = 1  # another number: other pixels
TIMESTAMP_NOTE: Final = (
    "The time printed in the top left corner of each frame, in seconds from the start of its video, was added for "
    "orientation: it is metadata and no part of the scene. Videos may differ in length, so equal times need not show "
    "corresponding moments."
)


def fitted(width: int, height: int, side: int | None) -> tuple[int, int]:
    """Size of a frame whose longer side may have ``side`` pixels; a smaller one is left alone.

    >>> fitted(1920, 1080, 512), fitted(100, 300, 256), fitted(64, 48, 256), fitted(9000, 3, 256)
    ((512, 288), (85, 256), (64, 48), (256, 1))
    """
    longer = max(width, height)
    if side is None or longer <= side:
        return width, height
    # Whole numbers, halves up: no rounding of floats.
    return max(1, (2 * width * side + longer) // (2 * longer)), max(1, (2 * height * side + longer) // (2 * longer))


def fit(frames: Frames, side: int | None) -> Frames:
    """Frames uint8 ``(F, H, W, 3)`` scaled down, bicubic, to a longer side of at most ``side`` pixels."""
    from PIL import Image

    height, width = frames.shape[1:3]
    size = fitted(width, height, side)
    if size == (width, height):
        return frames
    small = np.empty((len(frames), size[1], size[0], 3), dtype=np.uint8)
    for place, frame in enumerate(frames):
        small[place] = np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC))
    return small


def stamps(clip: Clip) -> list[str]:
    """The time of each frame, index / native fps, with two decimals; its number in a clip without a clock.

    >>> from covr_lab.video.base import Clip
    >>> frames, at = np.zeros((2, 4, 4, 3), np.uint8), np.array([0, 100])
    >>> stamps(Clip(frames, at, None, 200, 30.0, 1.0)), stamps(Clip(frames, at, None, 200, None, 1.0))
    (['0.00s', '3.33s'], ['frame 0', 'frame 100'])
    """
    if clip.fps is None:
        return [f"frame {index}" for index in clip.indices.tolist()]
    return [f"{index / clip.fps:.2f}s" for index in clip.indices.tolist()]


def stamped(frames: Frames, texts: list[str]) -> Frames:
    """A copy of frames uint8 ``(F, H, W, 3)``, each with its text at the top left, white with a black outline.

    Letters are a sixteenth of the shorter side high, but ten pixels at least.
    """
    from PIL import Image, ImageDraw, ImageFont

    size = max(10, min(frames.shape[1:3]) // 16)
    font, margin, outline = ImageFont.load_default(size), size // 3, max(1, size // 10)
    marked = np.empty_like(frames)
    for place, (frame, text) in enumerate(zip(frames, texts, strict=True)):
        picture = Image.fromarray(frame)
        ImageDraw.Draw(picture).text(
            (margin, margin), text, fill="white", font=font, stroke_width=outline, stroke_fill="black"
        )
        marked[place] = np.asarray(picture)
    return marked
