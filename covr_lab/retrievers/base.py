"""Frozen retrievers: what a channel asks for scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from covr_lab.frozen import Frozen
from covr_lab.gallery.gallery import Gallery

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

TILE = 16  # queries scored together: one matrix shape for one query or many, so that a batch changes no bit


@dataclass(frozen=True, slots=True)
class Ask:
    """A query to a channel.

    Attributes:
        text: what is searched.
        anchor: id of the video that the text changes, ``None`` for a description.
        masked: gallery rows left out of the ranking.
        session: id of the session that asks, for features that were computed elsewhere.
        turn: 0 for the opening query.
    """

    text: str
    anchor: str | None = None
    masked: tuple[int, ...] = ()
    session: str = ""
    turn: int = 0


def similarities(queries: Tensor, features: Tensor) -> Tensor:
    """Inner products in fp32, the same bits for a query alone or in any batch.

    Args:
        queries: ``(B, D)``.
        features: gallery vectors, ``(D, N)`` contiguous (about twice as fast as ``(N, D)``).

    Returns:
        float32 ``(B, N)``.

    >>> similarities(torch.eye(2), torch.tensor([[1.0, 0.5], [0.0, 2.0]])).tolist()
    [[1.0, 0.5], [0.0, 2.0]]
    """
    scores = torch.empty(len(queries), features.shape[1], device=features.device)
    with torch.autocast(features.device.type, enabled=False):
        for start in range(0, len(queries), TILE):
            part = queries[start : start + TILE].float()
            tile = torch.zeros(TILE, features.shape[0], device=features.device)
            tile[: len(part)] = part
            scores[start : start + TILE] = (tile @ features.float())[: len(part)]
    return scores


class Retriever(Frozen, ABC):
    """Scores gallery videos for text queries and composed queries.

    Attributes:
        proxy: what the scores stand for when no video was seen, ``None`` for a retriever that sees videos.
        unusable_rows: gallery rows whose video could not be read: they are never ranked.
    """

    proxy: str | None = None
    unusable_rows: tuple[int, ...] = ()
    gallery: Gallery
    features: Tensor

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take the gallery and its vectors; called once, after :meth:`load`.

        Args:
            gallery: what is searched, and the captions that are known of videos.
            videos: the media of gallery and reference videos, ``None`` when there are none.
        """
        del videos  # the vectors of a gallery of captions need none
        self.gallery = gallery
        # Kept as a plain fp32 attribute: a trainer's precision plugin must not round the gallery.
        self.features = self.encode_videos(gallery.ids).float().T.contiguous()

    @abstractmethod
    def load(self) -> None:
        """Bring the weights into memory."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256 of the weights and of how they are read."""

    @abstractmethod
    def encode_videos(self, videos: Sequence[str]) -> Tensor:
        """Unit vectors ``(B, D)`` of gallery or reference videos.

        Raises:
            SessionError: a video is unknown or unreadable.
        """

    @abstractmethod
    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        """Unit vectors ``(B, D)`` of the texts, composed with the anchor video where one is given."""

    def encode(self, asks: Sequence[Ask]) -> Tensor:
        """Unit vectors ``(B, D)`` of what channels ask."""
        return self.encode_queries([ask.text for ask in asks], [ask.anchor for ask in asks])

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are longer than the encoder reads."""
        return [False] * len(texts)

    def score(self, queries: Tensor) -> Tensor:
        """Similarities float32 ``(B, N)`` of query vectors ``(B, D)`` and the gallery."""
        if self.features.device != queries.device:
            self.features = self.features.to(queries.device)
        return similarities(queries, self.features)
