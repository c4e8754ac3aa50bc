"""A frozen BLIP behind both channels: texts against clips, and edits read over a reference's visual tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from covr_lab.functional.pooling import pool_query
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.store import Address
from covr_lab.retrievers.blip.encoder import BlipEncoder
from covr_lab.retrievers.blip.model import Blip
from covr_lab.retrievers.video import Part, VideoRetriever
from covr_lab.types import Refused
from covr_lab.video.samplers import Middle, Uniform
from covr_lab.views.quality import FrameChoice

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video import Clip


class BlipRetriever(BlipEncoder, VideoRetriever):
    """Retrieval by BLIP as CoVR does it (Ventura et al., AAAI 2024; dossier, section 7).

    A gallery video is the mean of its frames' image embeddings. A description is the text encoder's projected [CLS]. A
    composed query is the edit, read by the image-grounded text encoder over the visual tokens of the reference's middle
    frame. With a storyboard the reference is one image of its frames instead.

    Args:
        blip: the model.
        frames: frames of a gallery video, at uniform segment midpoints; a multiple of the storyboard's cells.
        pooling: ``mean`` over frames, or ``query``: weighted by similarity to the edit of the video's own annotation
            row (CoVR's protocol, which tells the gallery a little of the queries; set ``data.target_edits``).
        temperature: of the weights of ``query``.
        choice: chooses the frames of a gallery video by what they show; a clip with fewer repeats them.
    """

    def __init__(
        self,
        *,
        blip: Blip,
        frames: int = 15,
        pooling: Literal["mean", "query"] = "mean",
        temperature: float = 0.1,
        choice: FrameChoice | None = None,
    ) -> None:
        super().__init__()
        cells = blip.storyboard**2
        if frames < 1 or frames % cells:
            raise ValueError(f"frames must be a multiple of the storyboard's {cells} cells, not {frames}")
        self.blip, self.frames, self.pooling, self.temperature, self.choice = blip, frames, pooling, temperature, choice
        self.parts = {
            "gallery": Part("gallery", Uniform(frames) if choice is None else choice.sampler),
            "anchors": Part("all", Middle() if cells == 1 else Uniform(cells)),
        }

    def load(self) -> None:
        """Load BLIP and what the choice of frames needs."""
        super().load()
        if self.choice is not None:
            self.choice.load()

    def locate(self, gallery: Gallery, videos: VideoStore) -> dict[str, Address]:
        """See the base class; the choice of frames is for the gallery alone."""
        found = super().locate(gallery, videos)
        if self.choice is not None:
            encoder = f"{self.row_fingerprint} {self.choice.fingerprint} {self.frames}"
            found["gallery"] = replace(found["gallery"], encoder=encoder)
        return found

    def prepare(self, name: str, clip: Clip) -> Clip:
        """Frames at the size that BLIP reads, unless they are yet to be chosen."""
        return super().prepare(name, clip) if self._choice(name) is None else clip

    def encode_clips(self, name: str, clips: Mapping[str, Clip]) -> Mapping[str, Tensor | str]:
        """Rows of :meth:`encode_part`, of the frames that are chosen."""
        if (choice := self._choice(name)) is not None:
            clips = {video: choice.fill(video, clip, self.frames) for video, clip in clips.items()}
        return super().encode_clips(name, clips)

    def _choice(self, name: str) -> FrameChoice | None:
        return self.choice if name == "gallery" else None

    def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
        """``gallery``: embeddings ``(F, D)`` of the images; ``anchors``: visual tokens ``(T, W)`` of the one image."""
        pixels = [self.blip.pixels(clip.frames) for clip in clips]
        embeds, tokens = self.blip.images(torch.cat(pixels))
        if name == "anchors":
            return list(tokens.cpu())
        return list(torch.split(embeds.cpu(), [len(images) for images in pixels]))

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """See :meth:`~covr_lab.retrievers.video.VideoRetriever.bind`.

        Raises:
            Refused: also when the pooling needs edits and the gallery has none.
        """
        if self.pooling == "query" and not gallery.edits:
            raise Refused("pooling: query needs the edits of the target videos: set data.target_edits to true")
        super().bind(gallery, videos)

    def pool(self, rows: Tensor, ids: Sequence[str]) -> Tensor:
        """Unit vectors ``(N, D)`` of frame embeddings ``(N, F, D)``; a video of no annotation row is a mean."""
        pooled = super().pool(rows, ids)
        own = [at for at, video in enumerate(ids) if self.gallery.edits.get(video)]
        if self.pooling == "query" and own:
            edits = self.blip.texts([self.gallery.edits[ids[at]] for at in own])
            pooled[own] = pool_query(rows[own], edits.cpu(), self.temperature)
        return pooled

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        """Unit vectors ``(B, D)``: descriptions where there is no anchor, composed queries where there is one."""
        composed = [row for row, anchor in enumerate(anchors) if anchor is not None]
        described = [row for row, anchor in enumerate(anchors) if anchor is None]
        vectors = torch.empty(len(texts), self.blip.width, device=self.blip.device)
        if described:
            vectors[described] = self.blip.texts([texts[row] for row in described])
        if composed:
            tokens = self.artifacts["anchors"].rows([str(anchors[row]) for row in composed])
            vectors[composed] = self.blip.composed([texts[row] for row in composed], tokens)
        return vectors

    def match(self, texts: Sequence[str], videos: Sequence[str]) -> Tensor:
        """Logits float32 ``(B,)`` that text and video belong together (image-text matching), for reranking.

        Raises:
            Refused: the checkpoint has no matching head.
            SessionError: a video could not be read.
        """
        return self.blip.match(texts, self.artifacts["anchors"].rows(videos))[:, 1]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are longer than BLIP reads."""
        return self.blip.truncated(texts)
