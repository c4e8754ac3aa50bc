"""What a system knows of videos in words: long-term progress memory, made by a frozen model from frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor

from covr_lab.gallery.gallery import Gallery
from covr_lab.retrievers.video import VideoEncoder

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


class Captioner(VideoEncoder, ABC):
    """Describes gallery and reference videos (ReCoVR, section 3.1); its one part has a row for each of them."""

    @abstractmethod
    def caption(self, row: Tensor) -> str:
        """The description that a row of the artifact stands for."""

    def describe(self, gallery: Gallery, videos: VideoStore | None) -> dict[str, str]:
        """Video id -> description, of every gallery and reference video that could be read.

        Raises:
            Refused: the artifact is missing or damaged.
        """
        self.open(gallery, videos)
        (artifact,) = self.artifacts.values()
        return {video: self.caption(artifact.row(video)) for video in artifact.ids}
