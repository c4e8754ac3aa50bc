"""What a retrieval system is: three batched verbs over session values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Rehearsal
from covr_lab.frozen import Frozen
from covr_lab.gallery.gallery import Gallery
from covr_lab.types import Feedback, Query, Question, Session, Turn

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

    def connect(self, engines: Mapping[str, Engine]) -> frozenset[str]:
        """Take the engines that the system names, before :meth:`load`; returns their names.

        Raises:
            ValueError: the recipe has no engine of that name.
        """
        del engines
        return frozenset()

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

    @property
    def undescribed(self) -> dict[str, str]:
        """Id -> reason of the videos of which the system knows nothing in words, though it should."""
        return {}

    def rehearse(self, query: Query) -> Rehearsal:
        """What a session of ``query`` would ask of engines, for an estimate; nothing is sent."""
        del query
        return Rehearsal()

    @abstractmethod
    def start(self, queries: Sequence[Query]) -> list[Turn]:
        """Turn 0 of each query.

        Raises:
            SessionError: a query cannot be answered; called with it alone, the error is about it.
        """

    @abstractmethod
    def ask(self, sessions: Sequence[Session]) -> list[Question | None]:
        """One question to each user, ``None`` where nothing is asked."""

    @abstractmethod
    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[Question | None]
    ) -> list[Turn]:
        """The next turn of each session, given the feedback and the question that was open.

        A turn records text and events of its question; whoever asked accounts for its calls.

        Raises:
            SessionError: as for :meth:`start`.
        """
