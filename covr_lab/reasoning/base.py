"""Reasoners turn a session into text for the channels, into memory, or into a question."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from covr_lab.engines.base import Engine, Request
from covr_lab.frozen import Frozen
from covr_lab.types import Context, Cost, Intent, Reflection

T = TypeVar("T")


class ParseError(ValueError):
    """An answer that the reasoner cannot read; its deterministic fallback takes over."""


class Reasoner(Frozen, ABC, Generic[T]):
    """One decision about one session: by rule, or by asking an engine.

    A rule answers in :meth:`render`. A model-backed reasoner renders a :class:`Request`, names its ``engine``, and
    reads the response in :meth:`parse`.

    Attributes:
        engine: name of an engine of the recipe, ``None`` for a rule.
    """

    engine: str | None = None

    @abstractmethod
    def render(self, context: Context) -> T | Request:
        """The answer, or the request that will bring it.

        Raises:
            ParseError: the rule cannot read the feedback.
        """

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
    """One question to the user."""


@dataclass(frozen=True, slots=True)
class Thought(Generic[T]):
    """An answer and what it took; ``fell_back`` says that it is the fallback."""

    answer: T
    fell_back: bool
    cost: Cost


def think(jobs: Sequence[tuple[Reasoner[Any], Context]], engines: Mapping[str, Engine]) -> list[Thought[Any]]:
    """Let every reasoner of a step answer; all requests to one engine go to it as one list.

    Args:
        jobs: reasoner and context, in any mix.
        engines: name -> engine.

    Returns:
        One thought a job, in order.
    """
    thoughts: list[Thought[Any] | None] = [None] * len(jobs)
    waiting: dict[str, list[tuple[int, Request]]] = {}
    for index, (reasoner, context) in enumerate(jobs):
        try:
            answer = reasoner.render(context)
        except ParseError:
            thoughts[index] = Thought(reasoner.fallback(context), True, Cost())
            continue
        if isinstance(answer, Request):
            waiting.setdefault(str(reasoner.engine), []).append((index, answer))
        else:
            thoughts[index] = Thought(answer, False, Cost())
    for name, asked in waiting.items():
        responses = engines[name].generate([request for _, request in asked])
        for (index, _), response in zip(asked, responses, strict=True):
            reasoner, context = jobs[index]
            cost = Cost(1, response.tokens_in, response.tokens_out)
            try:
                thoughts[index] = Thought(reasoner.parse(response.text, context), False, cost)
            except ParseError:
                thoughts[index] = Thought(reasoner.fallback(context), True, cost)
    return [thought for thought in thoughts if thought is not None]
