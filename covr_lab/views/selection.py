"""Views whose frames are chosen once for each video, by what the frames show: no query changes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from covr_lab.engines.request import Media
from covr_lab.functional.sampling import Indices
from covr_lab.retrievers.video import VideoEncoder
from covr_lab.types import Refused
from covr_lab.video.samplers import Listed
from covr_lab.views.base import FrameView

if TYPE_CHECKING:
    from covr_lab.gallery.gallery import Gallery
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video import Clip

EXACT: Final = 2**24  # whole numbers below are exact in float32
NOTHING: Final = -1.0  # fills rows of videos with fewer frames


class SelectionView(VideoEncoder, FrameView, ABC):
    """Shows the frames whose native indices are the row of a video in its artifact, which ``tools/index.py`` makes.

    Attributes:
        frames: how many to show at most.
        side: pixels that the longer side may have in the prompt, ``None`` for any.
        timestamps: print the time of each frame into it.
    """

    frames: int
    side: int | None
    timestamps: bool

    @abstractmethod
    def choose(self, video: str, clip: Clip) -> Indices | str:
        """Native indices int64 of the frames to show, strictly ascending; or why nothing could be chosen."""

    def encode_clips(self, name: str, clips: Mapping[str, Clip]) -> dict[str, Tensor | str]:
        """Native indices float32 ``(frames,)`` of each clip, ascending, then -1; or why nothing was selected."""
        del name
        return {video: self._row(self.choose(video, clip)) for video, clip in clips.items()}

    def _row(self, chosen: Indices | str) -> Tensor | str:
        if isinstance(chosen, str):
            return chosen
        if chosen[-1] >= EXACT:
            return f"it has frames beyond the {EXACT}th: cut it"
        row = torch.full((self.frames,), NOTHING)
        row[: len(chosen)] = torch.from_numpy(chosen)
        return row

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Read the selections.

        Raises:
            Refused: the artifact is missing or damaged, or nothing could be selected of any video.
        """
        self.open(gallery, videos)
        self.videos, artifact = videos, self.artifacts["selection"]
        if artifact.failed and not artifact.ids:
            raise Refused(
                f"{artifact.folder}: frames could be selected of none of {len(artifact.failed)} videos, the first "
                f"because: {next(iter(artifact.failed.values()))} (mend it, then run tools/index.py RECIPE --retry)"
            )

    def selection(self, video: str) -> Indices:
        """Native indices int64 ``(F,)`` of the frames to show, strictly ascending.

        Raises:
            SessionError: the video could not be read or embedded, or is not in the index.
        """
        row = self.artifacts["selection"].row(video).numpy()
        return row[row >= 0].astype(np.int64)

    def media(self, video: str) -> Media:
        """The selected frames of ``video``."""
        assert self.videos is not None  # bind refuses it
        chosen = Listed(self.selection(video).tolist())
        count = len(chosen.chosen)
        return Media(video, count, self.videos, sampler=chosen, side=self.side, timestamps=self.timestamps)
