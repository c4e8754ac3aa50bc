"""Users who say less well what they mean (ReCoVR, appendix D.4): degradations laid around any user."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, cast

from torch import nn

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Rehearsal
from covr_lab.frozen import Frozen
from covr_lab.functional.text import side_by_side
from covr_lab.gallery.gallery import Gallery
from covr_lab.simulators.base import CHOICES, Choice, UserSimulator, stream
from covr_lab.types import Feedback, Question, Session, Target

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

POLICIES: Final[Mapping[str, frozenset[Choice]]] = {
    "modify_only": frozenset({"modify"}),
    "rewrite_only": frozenset({"rewrite"}),
    "no_answers": frozenset({"modify", "rewrite"}),
}


class Degradation(Frozen, ABC):
    """One way to spoil what a user says. It keeps no state between calls and is told no target.

    Attributes:
        allowed: the actions that it leaves to the user; a user who may not answer hears no question.
    """

    allowed: frozenset[Choice] = CHOICES

    def __init__(self, *, seed: int = 0) -> None:
        """Set the seed.

        Args:
            seed: of the random numbers, one stream per session and turn.
        """
        super().__init__()
        self.seed = seed

    def bind(self, gallery: Gallery) -> None:
        """Take the gallery with the captions that a user knows (called once before the loop)."""

    @abstractmethod
    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        """What the system hears in the place of ``text``; never blank where ``text`` is not.

        Args:
            text: what the user means to say.
            said: edit and earlier feedback as the system heard them, oldest first.
            draw: the random numbers of this session and turn.
        """


class Policy(Degradation):
    """A user who does one thing only, or never answers (ReCoVR, appendix D.4); the words are those of that action."""

    def __init__(self, *, policy: Literal["modify_only", "rewrite_only", "no_answers"]) -> None:
        """Name the policy.

        Args:
            policy: what the user keeps to. Under each of them it hears no question.
        """
        super().__init__()
        self.allowed = POLICIES[policy]

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        """``text`` itself."""
        del said, draw
        return text


class DegradedUser(UserSimulator):
    """A user, and the degradations that its words pass through in order.

    The system hears, and the record keeps, the degraded text; so do the later turns of the user. What it would have
    said is in :attr:`Feedback.clean` wherever the two differ.
    """

    def __init__(self, user: UserSimulator, degradations: Mapping[str, Degradation]) -> None:
        """Lay ``degradations`` around ``user``.

        Args:
            user: who speaks.
            degradations: name -> degradation, the first one is applied first. A name is part of the random stream:
                two of one class do not do the same.

        Raises:
            ValueError: the policies leave no action, or this user cannot keep to one.
        """
        super().__init__()
        self.user, self.names = user, tuple(degradations)
        self.degradations = nn.ModuleList(degradations.values())
        self.fingerprint, self.allowed = user.fingerprint, user.allowed
        for degradation in degradations.values():
            if not self.allowed <= degradation.allowed:
                self.restrict(degradation.allowed)

    def restrict(self, allowed: frozenset[Choice]) -> None:
        """Keep the user to what it was allowed so far and is now.

        Raises:
            ValueError: that is nothing, or the user cannot.
        """
        left = self.allowed & allowed
        if not left:
            raise ValueError(f"degradations {', '.join(self.names)} leave the user no action: drop one of the policies")
        self.user.restrict(left)
        self.allowed = left

    def connect(self, engines: Mapping[str, Engine]) -> frozenset[str]:
        """Hand the user its engines."""
        return self.user.connect(engines)

    def load(self) -> None:
        """Load the user's weights; its fingerprint may be known only then."""
        self.user.load()
        self.fingerprint = self.user.fingerprint

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Bind user and degradations."""
        self.gallery = gallery
        self.user.bind(gallery, videos)
        for degradation in self.degradations:
            cast(Degradation, degradation).bind(gallery)

    def rehearse(self, session: Session, target: Target) -> Rehearsal:
        """What the user would ask of its engine."""
        return self.user.rehearse(session, target)

    def satisfied(self, sessions: Sequence[Session], targets: Sequence[Target]) -> list[bool]:
        """Who stops at the sight of the video on display."""
        return self.user.satisfied(sessions, targets)

    def converse(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[Question | None]
    ) -> list[Feedback]:
        """Degraded feedback for each session; of a round, every answer has a degradation of its own."""
        asked = questions if "answer" in self.allowed else [None] * len(questions)
        meant = self.user.converse(self._remembered(sessions), targets, asked)
        return [self._degraded(session, words) for session, words in zip(sessions, meant, strict=True)]

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        """Degraded feedback for each session (see :meth:`UserSimulator.respond`)."""
        asked = questions if "answer" in self.allowed else [None] * len(questions)
        meant = self.user.respond(self._remembered(sessions), targets, asked)
        return [self._degraded(session, words) for session, words in zip(sessions, meant, strict=True)]

    def _remembered(self, sessions: Sequence[Session]) -> Sequence[Session]:
        return sessions if "answer" in self.allowed else [deaf(session) for session in sessions]

    def _degraded(self, session: Session, words: Feedback) -> Feedback:
        if words.action == "stop":
            return words
        exchanges = tuple(
            replace(each, answer=self._spoilt(session, each.answer, "answer", at)) if each.answer.strip() else each
            for at, each in enumerate(words.exchanges)
        )
        # The text of a round is its answers: the system hears them once, not two versions of them.
        text = side_by_side(e.answer for e in exchanges) if exchanges else self._spoilt(session, words.text)
        if text == words.text and exchanges == words.exchanges:
            return words
        return replace(words, text=text, exchanges=exchanges, clean=words.clean or words.text)

    def _spoilt(self, session: Session, text: str, *key: str | int) -> str:
        """``text`` after all degradations; ``key`` sets the random streams of an answer apart."""
        said = [session.query.text, *(turn.feedback.text for turn in session.turns if turn.feedback is not None)]
        for name, module in zip(self.names, self.degradations, strict=True):
            degradation = cast(Degradation, module)
            draw = stream(degradation.seed, name, session.query.session_id, len(session.turns), *key)
            text = degradation.degrade(text, said, draw)
        return text


def deaf(session: Session) -> Session:
    """The dialogue as a user remembers it who hears no question."""
    return replace(session, turns=tuple(replace(turn, question=None) for turn in session.turns))


def check_rate(owner: str, rate: float) -> float:
    """``rate`` of a degradation.

    Raises:
        ValueError: it is no probability.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"{owner}.rate must lie in [0, 1], not {rate}")
    return rate
