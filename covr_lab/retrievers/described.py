"""Retrieval over what a system knows of videos in words: text against text, in the space of another retriever."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from covr_lab.gallery.gallery import Gallery
from covr_lab.retrievers.base import Retriever
from covr_lab.types import Refused, SessionError

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


class DescribedVideos(Retriever):
    """A video is the text vector of its description, as the captioner of the system wrote it.

    For queries without a reference. X-CoT's ablation "annotations as input of CLIP"; a description longer than the
    encoder reads is cut. A video without a description is never ranked.

    Args:
        retriever: whose text encoder; its videos are not looked at.
    """

    def __init__(self, *, retriever: Retriever) -> None:
        super().__init__()
        self.retriever = retriever

    def load(self) -> None:
        """Load the encoder."""
        self.retriever.load()

    @property
    def fingerprint(self) -> str:
        """That of the encoder; the descriptions are the captioner's."""
        return hashlib.sha256(f"described {self.retriever.fingerprint}".encode()).hexdigest()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Encode the descriptions.

        Raises:
            Refused: there is not a single one.
        """
        del videos
        self.gallery = gallery
        texts = [gallery.caption(video) for video in gallery.ids]
        self.unusable_rows = tuple(row for row, text in enumerate(texts) if not text)
        if len(self.unusable_rows) == len(texts):
            raise Refused("DescribedVideos: no gallery video has a description: set system.captions and its captioner")
        self.features = self._texts(texts).float().T.contiguous()

    def encode_videos(self, videos: Sequence[str]) -> Tensor:
        """Unit vectors ``(B, D)`` of the descriptions."""
        missing = [video for video in videos if not self.gallery.caption(video)]
        if missing:
            raise SessionError(f"video '{missing[0]}' has no description")
        return self._texts([self.gallery.caption(video) for video in videos])

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        """Unit vectors ``(B, D)`` of the texts."""
        anchor = next((one for one in anchors if one is not None), None)
        if anchor is not None:
            raise SessionError(f"DescribedVideos composes no query with a video ('{anchor}'): it searches texts alone")
        return self._texts(texts)

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are longer than the encoder reads."""
        return self.retriever.truncated(texts)

    def _texts(self, texts: Sequence[str]) -> Tensor:
        return self.retriever.encode_queries(texts, [None] * len(texts))
