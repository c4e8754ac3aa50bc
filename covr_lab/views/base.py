"""Views: which frames of a video a stage shows, how large, and with which marks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from covr_lab.frozen import Frozen

if TYPE_CHECKING:
    from torch import Tensor

    from covr_lab.engines.request import Media
    from covr_lab.gallery.gallery import Gallery
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video.base import Frames


class FrameView(Frozen, ABC):
    """Frames of one video for a prompt or a scorer."""

    videos: VideoStore | None = None

    def load(self) -> None:
        """Bring weights into memory; most views have none."""
        return

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take the media; called once, after :meth:`load`."""
        del gallery
        self.videos = videos

    @abstractmethod
    def media(self, video: str) -> Media:
        """The frames of ``video``; nothing is read before they are needed.

        Raises:
            SessionError: nothing is known of the video, or it could not be read.
        """


class FrameEmbedder(Frozen, ABC):
    """Embeds single frames, for selections by novelty."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256 of the weights and of how frames are prepared."""

    @abstractmethod
    def load(self) -> None:
        """Bring the weights into memory."""

    @abstractmethod
    def embed_frames(self, frames: Frames) -> Tensor:
        """Unit vectors float32 ``(F, D)`` of frames uint8 ``(F, H, W, 3)``; a row depends on its frame alone."""
