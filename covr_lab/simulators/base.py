"""The user's side of the loop."""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from torch import nn

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Rehearsal
from covr_lab.gallery.gallery import Gallery
from covr_lab.types import Feedback, Question, Session, Target

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

Choice = Literal["modify", "rewrite", "answer"]  # what a user who goes on may do (ReCoVR, appendix D.2)
CHOICES: Final[frozenset[Choice]] = frozenset({"modify", "rewrite", "answer"})


class UserSimulator(nn.Module, ABC):
    """Answers the shown video. The only component, beside the scorer, that sees targets.

    Attributes:
        gallery: what it is bound to, with the captions that a user knows.
        allowed: the actions that it may choose from (:meth:`restrict`).
    """

    gallery: Gallery
    allowed: frozenset[Choice] = CHOICES
    fingerprint: str = ""  # sha256 of what shapes its words and stands in no recipe: prompts

    def restrict(self, allowed: frozenset[Choice]) -> None:
        """Choose among ``allowed`` alone from now on; among them is "modify" or "rewrite".

        Raises:
            ValueError: this user's actions cannot be restricted.
        """
        self.allowed = allowed

    def connect(self, engines: Mapping[str, Engine]) -> frozenset[str]:
        """Take the engines that the user names, before anything is loaded; returns their names.

        Raises:
            ValueError: the recipe has no engine of that name.
        """
        del engines
        return frozenset()

    def load(self) -> None:
        """Bring weights into memory, once, before a trainer moves the user to its device; most users have none."""
        return

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take the gallery that ``Session`` rows refer to, and the media (called once before the loop)."""
        del videos  # most users know captions alone
        self.gallery = gallery

    def rehearse(self, session: Session, target: Target) -> Rehearsal:
        """What the user would ask of an engine about ``session``, for an estimate; nothing is sent."""
        del session, target
        return Rehearsal()

    def satisfied(self, sessions: Sequence[Session], targets: Sequence[Target]) -> list[bool]:
        """Who stops at the sight of the video on display, before a question is asked; costs nothing."""
        del targets
        return [False] * len(sessions)

    def converse(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[Question | None]
    ) -> list[Feedback]:
        """Feedback for each session, in order; a user who can, answers every question of a round.

        By default the text of a question is all that is heard of it (:meth:`respond`).
        """
        return self.respond(sessions, targets, [None if question is None else question.text for question in questions])

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


def shows(session: Session, target: Target, gallery: Gallery) -> bool:
    """Whether a target is on display."""
    return session.shown is not None and gallery.ids[session.shown] in target.videos


def permitted(choice: Choice, allowed: frozenset[Choice]) -> Choice:
    """``choice``, or what a user does who may not: rewrites, or else modifies.

    >>> permitted("rewrite", frozenset({"modify"})), permitted("answer", frozenset({"modify", "rewrite"}))
    ('modify', 'rewrite')
    """
    if choice in allowed:
        return choice
    return "rewrite" if "rewrite" in allowed else "modify"


def stream(*key: str | int) -> random.Random:
    """Random numbers of their own for each key: batch, order and process of a session change none."""
    return random.Random(hashlib.sha256("\0".join(map(str, key)).encode()).digest())
