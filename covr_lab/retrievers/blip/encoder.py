"""What is the same for everything that encodes clips with BLIP."""

from __future__ import annotations

from abc import ABC
from dataclasses import replace
from typing import TYPE_CHECKING

from covr_lab.retrievers.blip.model import Blip
from covr_lab.retrievers.video import VideoEncoder

if TYPE_CHECKING:
    from covr_lab.video import Clip


class BlipEncoder(VideoEncoder, ABC):
    """Encodes clips with :attr:`blip`."""

    blip: Blip

    def load(self) -> None:
        """Load BLIP."""
        self.blip.load()

    @property
    def fingerprint(self) -> str:
        """That of BLIP: what is done with its outputs happens after the artifacts are read."""
        return self.blip.fingerprint

    @property
    def row_fingerprint(self) -> str:
        """That of BLIP's images: limits of texts change no row."""
        return self.blip.image_fingerprint

    def prepare(self, name: str, clip: Clip) -> Clip:
        """Frames at the size that BLIP reads, so that less is sent between processes."""
        del name
        return replace(clip, frames=self.blip.resized(clip.frames))
