"""Users who say what people said of the target before: held-out captions, or the answers of a recorded dialogue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from covr_lab.simulators.base import Choice, UserSimulator, permitted, shows
from covr_lab.types import Action, Feedback, Session, SessionError, Target


class LineUser(UserSimulator, ABC):
    """Says one line of its target a turn, whatever is asked; without a line left the dialogue ends.

    The line of turn t is the t-th: a dialogue that was degraded or taken back hears the same ones. Nothing is repeated.
    """

    def __init__(self, *, stop: bool = False) -> None:
        """Set when a dialogue ends.

        Args:
            stop: end a dialogue, without a word, once a target is on display.
        """
        super().__init__()
        self.stop = stop

    def satisfied(self, sessions: Sequence[Session], targets: Sequence[Target]) -> list[bool]:
        """Who has a target on display, if that ends a dialogue."""
        return [self.stop and shows(*each, self.gallery) for each in zip(sessions, targets, strict=True)]

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        """Next line of each session (see :meth:`UserSimulator.respond`).

        Raises:
            SessionError: nothing is known of a target.
        """
        done = self.satisfied(sessions, targets)
        said = list[Feedback]()
        for session, target, question, over in zip(sessions, targets, questions, done, strict=True):
            turn, lines = len(session.turns), () if over else self.lines(target.video)
            ends = turn > len(lines)
            said.append(Feedback("stop", "") if ends else Feedback(self.action(question), lines[turn - 1]))
        return said

    def action(self, question: str | None) -> Action:
        """What a line counts as: an answer to an open question, else a description afresh."""
        return permitted("rewrite" if question is None else "answer", self.allowed)

    @abstractmethod
    def lines(self, video: str) -> Sequence[str]:
        """What can be said of a video, in order.

        Raises:
            SessionError: nothing is known of it.
        """


class AnnotationUser(LineUser):
    """Says a held-out caption of its target a turn: other people's words, disjoint from query and gallery."""

    def restrict(self, allowed: frozenset[Choice]) -> None:
        """Choose among ``allowed`` alone.

        Raises:
            ValueError: descriptions afresh are not among them.
        """
        if "rewrite" not in allowed:
            raise ValueError(f"AnnotationUser says captions: it cannot be kept to {', '.join(sorted(allowed))}")
        super().restrict(allowed)

    def lines(self, video: str) -> tuple[str, ...]:
        """The captions of a video, one a line of what a user knows of it."""
        found = tuple(filter(None, map(str.strip, self.gallery.caption(video).splitlines())))
        if not found:
            raise SessionError(f"video {video}: no caption to say; add one to the annotation file")
        return found


class DialogueUser(LineUser):
    """Says an answer of a dialogue that two people had about its target: the human baseline of IVR on AVSD."""

    def restrict(self, allowed: frozenset[Choice]) -> None:
        """Refused: recorded answers have no action to choose.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"DialogueUser says recorded answers: it cannot be kept to {', '.join(sorted(allowed))}")

    def action(self, question: str | None) -> Action:
        """An answer, to the question of the record where the system asks none."""
        del question
        return "answer"

    def lines(self, video: str) -> tuple[str, ...]:
        """The answers of the dialogue."""
        dialogue = self.gallery.dialogues.get(video, ())
        if not dialogue:
            raise SessionError(f"video {video}: no dialogue about it; set data.dialogues to the file that has one")
        return tuple(answer for _, answer in dialogue)
