"""Reasoners turn a session into text for the channels, into memory, or into a question."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from covr_lab.engines.base import Engine
from covr_lab.engines.consult import Consulted, ParseError, consult
from covr_lab.engines.request import Call, Request
from covr_lab.frozen import Frozen
from covr_lab.types import Context, Event, Intent, Reflection

if TYPE_CHECKING:
    from covr_lab.reasoning.interview import Interview

T = TypeVar("T")


class Reasoner(Frozen, ABC, Generic[T]):
    """One decision about one session: by rule, or by asking an engine.

    A rule answers in :meth:`render`. A model-backed reasoner renders a :class:`Request`, names its ``engine``, and
    reads the response in :meth:`parse`.

    Attributes:
        engine: name of an engine of the recipe, ``None`` for a rule.
        fingerprint: sha256 of what shapes its requests and stands in no recipe: its prompt; "" for a rule.
    """

    engine: str | None = None
    fingerprint: str = ""

    @abstractmethod
    def render(self, context: Context) -> T | Request:
        """The answer, or the request that will bring it.

        Raises:
            ParseError: the rule cannot read the feedback.
        """

    def rehearse(self, context: Context) -> Request:
        """The request of a turn in which it asks its engine, to estimate what a run costs.

        Raises:
            TypeError: it is a rule.
        """
        request = self.render(context)
        if not isinstance(request, Request):
            raise TypeError(f"{type(self).__name__} asks nothing")
        return request

    def parse(self, text: str, context: Context) -> T:
        """Read an engine's answer.

        Raises:
            ParseError: the answer does not follow the contract.
        """
        raise ParseError(f"{type(self).__name__} asks no engine (session {context.session.query.session_id}): {text!r}")

    @abstractmethod
    def fallback(self, context: Context) -> T:
        """The deterministic answer when nothing could be read."""


class IntentReasoner(Reasoner[Intent], ABC):
    """What to send to the channels."""


class Reflector(Reasoner[Reflection], ABC):
    """What the feedback says about the shown video, and what the memory becomes."""


class Initialiser(Reasoner[str], ABC):
    """A standalone description of the target before any feedback."""


class Questioner(Reasoner[str], ABC):
    """One question to the user.

    Attributes:
        reads_captions: whether it needs the vectors of the candidates' captions (:attr:`Context.caption_vectors`).
    """

    reads_captions: bool = False

    def events(self, context: Context) -> tuple[Event, ...]:
        """What led to the question, for the record; a later question reads it in the session's turns."""
        del context
        return ()

    def interview(self, context: Context, question: str) -> Interview | None:
        """The round of questions that ``question`` opens, ``None`` where it is the only one."""
        del context, question
        return None


@dataclass(frozen=True, slots=True)
class Thought(Generic[T]):
    """An answer and the calls it took; ``fell_back`` says that it is the fallback."""

    answer: T
    fell_back: bool = False
    calls: tuple[Call, ...] = ()


def think(jobs: Sequence[tuple[Reasoner[Any], Context]], engines: Mapping[str, Engine]) -> list[Thought[Any]]:
    """Let every reasoner of a step answer; all requests to one engine go to it as one list.

    Args:
        jobs: reasoner and context, in any mix.
        engines: name -> engine.

    Returns:
        One thought a job, in order.
    """
    thoughts: list[Thought[Any] | None] = [None] * len(jobs)
    waiting: dict[str, dict[int, Request]] = {}
    for index, (reasoner, context) in enumerate(jobs):
        try:
            answer = reasoner.render(context)
        except ParseError:
            thoughts[index] = Thought(reasoner.fallback(context), fell_back=True)
            continue
        if isinstance(answer, Request):
            waiting.setdefault(str(reasoner.engine), {})[index] = answer
        else:
            thoughts[index] = Thought(answer)
    for name, asked in waiting.items():
        parsers = [partial(jobs[index][0].parse, context=jobs[index][1]) for index in asked]
        found: list[Consulted[Any]] = consult(list(asked.values()), parsers, engines[name])
        for index, one in zip(asked, found, strict=True):
            reasoner, context = jobs[index]
            fell_back = one.answer is None
            thoughts[index] = Thought(reasoner.fallback(context) if fell_back else one.answer, fell_back, one.calls)
    return [thought for thought in thoughts if thought is not None]
