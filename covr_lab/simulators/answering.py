"""Users who answer the questions of a round and say nothing else (IVR; dossier, section 3.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from covr_lab.engines.request import Call
from covr_lab.functional.text import side_by_side
from covr_lab.reasoning.interview import Interview
from covr_lab.simulators.base import Choice, UserSimulator, shows
from covr_lab.types import Exchange, Feedback, Probe, Question, Session, Target


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a user: in which turn of whose dialogue, about which video."""

    session_id: str
    turn: int
    video: str
    probe: Probe


@dataclass(frozen=True, slots=True)
class Answer:
    """What a user answers, "" if nothing, and the calls that it took."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class SingleQuestion(Interview):
    """A round of one question."""

    text: str

    def following(self, said: Sequence[Exchange]) -> tuple[Probe, ...]:
        """The question, until it is answered."""
        return () if said else (Probe(self.text),)


def play(
    interviews: Sequence[Interview], answer: Callable[[list[tuple[int, Probe]]], Sequence[str]]
) -> list[tuple[Exchange, ...]]:
    """Whole rounds in lockstep: what is open in any of them is answered as one list.

    Args:
        interviews: one a round.
        answer: answers to pairs of a place in ``interviews`` and a question.

    Returns:
        The exchanges of each round, in the order asked.

    >>> rounds = [SingleQuestion("What colour?"), SingleQuestion("Where?")]
    >>> [said[0].answer for said in play(rounds, lambda asked: [probe.text.lower() for _, probe in asked])]
    ['what colour?', 'where?']
    """
    said: list[tuple[Exchange, ...]] = [()] * len(interviews)
    while asked := [(at, probe) for at, each in enumerate(interviews) for probe in each.following(said[at])]:
        for (at, probe), text in zip(asked, answer(asked), strict=True):
            said[at] = (*said[at], Exchange(probe, text))
    return said


class AnsweringUser(UserSimulator, ABC):
    """Answers what it is asked about its target, every question by itself: it remembers none of the others.

    Where nothing is asked it has nothing to say, and the dialogue ends. By default it does not end because the target
    is on display: IVR's numbers are ranks of all queries after a round, whoever had a hit before it.
    """

    def __init__(self, *, stop: bool = False) -> None:
        """Set when a dialogue ends.

        Args:
            stop: end a dialogue, unasked, once a target is on display.
        """
        super().__init__()
        self.stop = stop

    def restrict(self, allowed: frozenset[Choice]) -> None:
        """Refused, unless answers are among what is allowed.

        Raises:
            ValueError: they are not.
        """
        if "answer" not in allowed:
            raise ValueError(
                f"a {type(self).__name__} only answers questions: drop the policy {' or '.join(sorted(allowed))}"
            )
        super().restrict(allowed)

    def satisfied(self, sessions: Sequence[Session], targets: Sequence[Target]) -> list[bool]:
        """Who has a target on display, if that ends a dialogue."""
        return [self.stop and shows(*each, self.gallery) for each in zip(sessions, targets, strict=True)]

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        """Answers to single questions (see :meth:`converse`)."""
        return self.converse(sessions, targets, [None if text is None else Question(text) for text in questions])

    def converse(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[Question | None]
    ) -> list[Feedback]:
        """Feedback for each session, with the exchanges of its round where the question opens one.

        Raises:
            SessionError: a target cannot be read.
        """
        done = self.satisfied(sessions, targets)
        open_at = [at for at, question in enumerate(questions) if question is not None and not done[at]]
        rounds = [question.interview or SingleQuestion(question.text) for at in open_at if (question := questions[at])]
        spent: list[tuple[Call, ...]] = [()] * len(rounds)

        def answer(asked: list[tuple[int, Probe]]) -> list[str]:
            whose = [(sessions[open_at[at]], targets[open_at[at]], probe) for at, probe in asked]
            found = self.answer([Asked(s.query.session_id, len(s.turns), t.video, probe) for s, t, probe in whose])
            for (at, _), each in zip(asked, found, strict=True):
                spent[at] = (*spent[at], *each.calls)
            return [each.text for each in found]

        said = [Feedback("stop", "")] * len(sessions)
        for at, exchanges, calls in zip(open_at, play(rounds, answer), spent, strict=True):
            kept = exchanges if (question := questions[at]) and question.interview else ()
            said[at] = Feedback("answer", side_by_side(e.answer for e in exchanges), calls=calls, exchanges=kept)
        return said

    @abstractmethod
    def answer(self, asked: Sequence[Asked]) -> list[Answer]:
        """Answers in order; none depends on the other questions.

        Raises:
            SessionError: a target cannot be read.
        """
