"""Asking an engine until its answer can be read: once, then with one repair request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Call, Request

T = TypeVar("T")
SHOWN = 1000  # characters of an unreadable answer that the repair request repeats


class ParseError(ValueError):
    """An answer that its module cannot read; the module's deterministic fallback takes over."""


@dataclass(frozen=True, slots=True)
class Consulted(Generic[T]):
    """What came of one request: the answer, ``None`` if it could not be read, and the calls it took."""

    answer: T | None
    calls: tuple[Call, ...]


def consult(requests: Sequence[Request], parsers: Sequence[Callable[[str], T]], engine: Engine) -> list[Consulted[T]]:
    """Ask for everything as one list, then repair what could not be read as another one.

    Args:
        requests: what to ask.
        parsers: how to read each answer; raises :class:`ParseError` when it breaks the contract.
        engine: who answers.

    Returns:
        One result a request, in order. Free text is not repaired, nor an answer that the engine failed to give.
    """
    if not requests:
        return []
    found, again = list[Consulted[T]](), dict[int, Request]()
    for index, (request, parse, response) in enumerate(zip(requests, parsers, engine.generate(requests), strict=True)):
        try:
            if response.error:
                raise ParseError(response.error)
            found.append(Consulted(parse(response.text), (Call(request, response, True),)))
        except ParseError as error:
            found.append(Consulted(None, (Call(request, response, False),)))
            if request.schema is not None and request.attempt == 1 and not response.error:
                again[index] = repair(request, response.text, str(error))
    if again:
        repaired = consult(list(again.values()), [parsers[index] for index in again], engine)
        for index, second in zip(again, repaired, strict=True):
            found[index] = Consulted(second.answer, (*found[index].calls, *second.calls))
    return found


def repair(request: Request, answer: str, reason: str) -> Request:
    """The request once more, with the answer that could not be read and why."""
    note = (
        f"\n\nYour last answer was:\n{answer[:SHOWN]}\n\nIt cannot be used: {reason}\n"
        "Answer again with one JSON object of the requested form and nothing else."
    )
    return replace(request, content=(*request.content, note), attempt=2)
