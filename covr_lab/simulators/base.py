"""The user's side of the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import nn

from covr_lab.gallery.gallery import Gallery
from covr_lab.types import Feedback, Session, Target


class UserSimulator(nn.Module, ABC):
    """Answers the shown video. The only component, beside the scorer, that sees targets."""

    gallery: Gallery

    def bind(self, gallery: Gallery) -> None:
        """Take the gallery that ``Session`` rows refer to (called once before the loop)."""
        self.gallery = gallery

    @abstractmethod
    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        """Feedback for each session, in order; ``action="stop"`` ends one.

        Args:
            sessions: dialogues so far; ``session.shown`` is the gallery row on display.
            targets: what each user has in mind, aligned with ``sessions``.
            questions: what the system asked, ``None`` where it asked nothing.
        """
