"""What a retrieval system is: three batched verbs over session values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from covr_lab.frozen import Frozen
from covr_lab.gallery.gallery import Gallery
from covr_lab.types import Feedback, Query, Session, Turn

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


class System(Frozen, ABC):
    """An interactive retrieval system. It keeps no state between calls and never sees a target.

    The same three verbs serve evaluation, a replay of recorded feedback, and people. A session's result does not
    depend on the sessions it shares a call with.

    Attributes:
        proxy: what stands for videos that were not seen, ``None`` when videos were.
        gallery: what it is bound to, with the captions that it knows.
    """

    proxy: str | None = None
    gallery: Gallery

    @abstractmethod
    def load(self) -> None:
        """Bring the weights into memory, before a trainer moves the system to its device."""

    @abstractmethod
    def bind(self, gallery: Gallery, videos: VideoStore | None = None, *, mask_source: bool = True) -> None:
        """Take the gallery and the media; called once, after :meth:`load` and before the other verbs."""

    @property
    @abstractmethod
    def fingerprints(self) -> dict[str, str]:
        """Component name -> sha256 of its weights, and of the vectors that it reads once it is bound."""

    @property
    def unreadable(self) -> dict[str, str]:
        """Id -> reason of the gallery and reference videos that could not be encoded."""
        return {}

    @abstractmethod
    def start(self, queries: Sequence[Query]) -> list[Turn]:
        """Turn 0 of each query.

        Raises:
            SessionError: a query cannot be answered; called with it alone, the error is about it.
        """

    @abstractmethod
    def ask(self, sessions: Sequence[Session]) -> list[str | None]:
        """One question to each user, ``None`` where nothing is asked."""

    @abstractmethod
    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[str | None]
    ) -> list[Turn]:
        """The next turn of each session, given the feedback and the question that was open.

        Raises:
            SessionError: as for :meth:`start`.
        """
