"""Generators behind reasoners: a list of requests in, a list of responses out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from covr_lab.frozen import Frozen


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt.

    Attributes:
        role: which reasoner asks ("intent", "reflection", ...).
        prompt: the whole text.
        session_id: whose turn it is, for records and seeds.
        turn: which turn it is.
    """

    role: str
    prompt: str
    session_id: str
    turn: int


@dataclass(frozen=True, slots=True)
class Response:
    """What an engine answered, and what it cost."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0


class Engine(Frozen, ABC):
    """A frozen generator; how requests are batched is its business."""

    @abstractmethod
    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """One response a request, in order."""
