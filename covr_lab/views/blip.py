"""A frozen BLIP as an embedder of frames."""

from __future__ import annotations

import torch
from torch import Tensor

from covr_lab.retrievers.blip.images import Frames
from covr_lab.retrievers.blip.model import Blip
from covr_lab.views.base import FrameEmbedder


class BlipFrameEmbedder(FrameEmbedder):
    """Image embeddings of BLIP.

    Args:
        blip: the model, without a storyboard.
    """

    def __init__(self, *, blip: Blip) -> None:
        super().__init__()
        if blip.storyboard != 1:
            raise ValueError(f"single frames are embedded: set blip.storyboard to 1, not {blip.storyboard}")
        self.blip = blip

    def load(self) -> None:
        """Load BLIP."""
        self.blip.load()

    @property
    def fingerprint(self) -> str:
        """That of BLIP's images."""
        return self.blip.image_fingerprint

    def embed_frames(self, frames: Frames) -> Tensor:
        """Unit vectors float32 ``(F, D)`` on the CPU of frames uint8 ``(F, H, W, 3)``."""
        # Tile by tile: the visual tokens of all frames of a clip together would be large.
        tiles = (frames[start : start + self.blip.tile] for start in range(0, len(frames), self.blip.tile))
        return torch.cat([self.blip.images(self.blip.pixels(tile))[0].cpu() for tile in tiles])
