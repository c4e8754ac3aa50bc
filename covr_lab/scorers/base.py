"""Pair scorers: how well one candidate fits one composed query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covr_lab.frozen import Frozen
from covr_lab.gallery.gallery import Gallery

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


@dataclass(frozen=True, slots=True)
class Pair:
    """A composed query and one candidate.

    Attributes:
        source: id of the video that the text changes, ``None`` for a text alone.
        text: modification, or a description of the target.
        candidate: id of the video that is scored.
        session: id of the session that asks.
        turn: 0 for the opening query.
    """

    source: str | None
    text: str
    candidate: str
    session: str = ""
    turn: int = 0


class PairScorer(Frozen, ABC):
    """Relevance of candidates to composed queries, one pair at a time.

    Attributes:
        proxy: what the scores stand for when no video was seen, ``None`` for a scorer that sees videos.
        by_session: whether a score also depends on the session that asks.
        busy: seconds that its requests have taken so far, where several are in flight at once; ``None`` where scoring
            takes what the call takes.
        gallery: captions and ids, known after :meth:`bind`.
    """

    proxy: str | None = None
    by_session: bool = False
    busy: float | None = None
    gallery: Gallery

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256 of the weights and of everything else that can change a score."""

    def load(self) -> None:
        """Bring the weights into memory, before a trainer moves the scorer to its device."""
        return

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take the gallery with the captions that the system knows, and the media; called once, after :meth:`load`."""
        del videos
        self.gallery = gallery

    def reads(self, video: str) -> str:
        """Everything about one video that can change a score, for caches; here, its caption.

        Raises:
            SessionError: nothing is known of the video.
        """
        return self.gallery.caption(video)

    @abstractmethod
    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Relevance from 0 to 1 of each pair, in order; NaN for a pair that could not be scored.

        The score of a pair depends neither on the others nor on their number.
        """
