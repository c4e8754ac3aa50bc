"""Frames at the middles of equal segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from covr_lab.engines.request import Media
from covr_lab.types import Refused
from covr_lab.views.base import FrameView

if TYPE_CHECKING:
    from covr_lab.gallery.gallery import Gallery
    from covr_lab.gallery.videos import VideoStore


class UniformView(FrameView):
    """Uniformly spaced frames (CoVRAGE shows 15 at 512 pixels for embedding; dossier, section 2.7).

    Args:
        frames: how many; a shorter clip repeats frames.
        side: pixels that the longer side may have, ``None`` for any.
        timestamps: print the time of each frame into it.
    """

    def __init__(self, *, frames: int = 15, side: int | None = 512, timestamps: bool = False) -> None:
        super().__init__()
        check_look(frames, side)
        self.frames, self.side, self.timestamps = frames, side, timestamps

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take the media.

        Raises:
            Refused: there are none.
        """
        if videos is None:
            raise Refused("UniformView needs videos: set data.videos_dir")
        super().bind(gallery, videos)

    def media(self, video: str) -> Media:
        """The frames of ``video``."""
        assert self.videos is not None  # bind refuses it
        return Media(video, self.frames, self.videos, side=self.side, timestamps=self.timestamps)


def check_look(frames: int, side: int | None) -> None:
    """Refuse a number of frames or a size below 1.

    Raises:
        ValueError: see above.
    """
    for name, value in {"frames": frames, "side": 1 if side is None else side}.items():
        if value < 1:
            raise ValueError(f"{name} of a view must be 1 or more, not {value}")
