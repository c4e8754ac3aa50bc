"""Generators behind reasoners: a list of requests in, a list of responses out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from covr_lab.engines.request import Request, Response
from covr_lab.frozen import Frozen
from covr_lab.types import Refused


class EngineError(Refused):
    """An engine that cannot go on at all (server gone, key refused): the run stops and can be resumed."""


class Engine(Frozen, ABC):
    """A frozen generator; how requests are batched is its business.

    A request that cannot be answered (unreadable video, time-out, out of memory alone) is a :class:`Response` with an
    ``error``; it never ends a run.

    Attributes:
        name: what the recipe calls it.
        sampled: whether an answer also depends on session, turn, role and attempt, as a sampled one does by its seed.
    """

    name: str = ""
    sampled: bool = False

    def load(self) -> None:
        """Bring weights into memory, before a trainer moves the engine to its device; a client has none."""
        return

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256 of everything that can change an answer, but for the request itself; needs no loaded weights."""

    @abstractmethod
    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """One response a request, in order; an answer does not depend on the other requests.

        Raises:
            EngineError: no request can be answered any more.
        """


def seed_of(seed: int, request: Request) -> int:
    """Seed of a sampled answer, below 2**31: from the run, session, turn, role, attempt and draw, whatever the batch.

    >>> one, two = (Request("intent", ("hello",), session, 1) for session in ("a", "b"))
    >>> seed_of(0, one) == seed_of(0, one), seed_of(0, one) == seed_of(0, two)
    (True, False)
    """
    parts = f"{seed}\0{request.session_id}\0{request.turn}\0{request.role}\0{request.attempt}"
    parts += f"\0{request.draw}" if request.draw else ""
    return int.from_bytes(hashlib.sha256(parts.encode()).digest()[:4], "big") >> 1


def borrow(engines: Mapping[str, Engine], wanted: Mapping[str, str | None]) -> dict[str, Engine]:
    """The engines that components name.

    Args:
        engines: those of the recipe.
        wanted: recipe key -> name of an engine, ``None`` where none is needed.

    Raises:
        ValueError: the recipe has no such engine; names the key.
    """
    for key, name in wanted.items():
        if name is not None and name not in engines:
            have = ", ".join(sorted(engines)) or "none"
            raise ValueError(f"{key} names engine '{name}', the recipe's `engines` are: {have}")
    return {name: engines[name] for name in dict.fromkeys(wanted.values()) if name is not None}
