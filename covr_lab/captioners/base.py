"""What a system knows of videos in words: long-term progress memory, made by a frozen model from frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor

from covr_lab.engines.base import Engine
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.store import Artifact
from covr_lab.retrievers.video import VideoEncoder
from covr_lab.types import Refused

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


class Captioner(VideoEncoder, ABC):
    """Describes gallery and reference videos (ReCoVR, section 3.1); its one part has a row for each of them.

    Attributes:
        engine: name of the engine that describes, ``None`` for a captioner with weights of its own.
        proxy: what its descriptions stand for when they are not made of what a model saw, ``None`` when they are.
    """

    engine: str | None = None
    proxy: str | None = None

    def connect(self, engine: Engine) -> None:
        """Take the engine named by ``engine``, before :meth:`load`."""
        raise NotImplementedError(f"{type(self).__name__} names engine '{self.engine}' and does not take it")

    @abstractmethod
    def caption(self, row: Tensor) -> str:
        """The description that a row of the artifact stands for."""

    def describe(self, gallery: Gallery, videos: VideoStore | None) -> dict[str, str]:
        """Video id -> description, of every gallery and reference video that could be read; see :meth:`opened`."""
        artifact = self.opened(gallery, videos)
        return {video: self.caption(artifact.row(video)) for video in artifact.ids}

    def opened(self, gallery: Gallery, videos: VideoStore | None) -> Artifact:
        """The rows of all that could be described.

        Raises:
            Refused: the artifact is missing or damaged, or not a single video could be described.
        """
        self.open(gallery, videos)
        (artifact,) = self.artifacts.values()
        if artifact.failed and not artifact.ids:
            raise Refused(
                f"{artifact.folder}: none of {len(artifact.failed)} videos could be described, the first because: "
                f"{next(iter(artifact.failed.values()))} (mend it, then run tools/index.py RECIPE --retry)"
            )
        return artifact
