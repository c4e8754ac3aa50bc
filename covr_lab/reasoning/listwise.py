"""A whole list of candidates put into order at once, without reasons (X-CoT's ablation; dossier, section 4)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request
from covr_lab.engines.schema import read_json
from covr_lab.prompts.suite import Kind, load_prompt
from covr_lab.reasoning.base import Reasoner
from covr_lab.types import Context

MOST: Final = 50  # candidates that an answer can hold
FIELDS: Final[Mapping[str, Kind]] = {"query": "text", "candidates": "lines"}
Order = tuple[int, ...]  # 0-based places of all candidates, best first


class OrderAnswer(BaseModel):
    """What an engine says of a list: 1-based numbers of its candidates, best first."""

    model_config = ConfigDict(extra="forbid")

    order: list[Annotated[int, Field(ge=1, le=MOST)]] = Field(max_length=MOST)


class ListRanker(Reasoner["Order | None"], ABC):
    """The order of the ``candidates`` of a context under its ``text``; ``None``: unclear, the order stands."""

    def fallback(self, context: Context) -> Order | None:
        """Unclear."""
        del context
        return None


class ModelRanker(ListRanker):
    """One answer of a model, from the captions of all candidates.

    Args:
        engine: name of the engine to ask.
        prompts: packaged prompt suite, or a folder with ``direct.yaml``.
    """

    def __init__(self, *, engine: str, prompts: str = "default") -> None:
        super().__init__()
        self.engine, self.prompt = engine, load_prompt(prompts, "direct", FIELDS, tuple(FIELDS))
        self.fingerprint = self.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask about all of them; an unknown one keeps its number."""
        listed = [f"{number}: {caption or '(unknown)'}" for number, caption in enumerate(context.candidates, 1)]
        system, content = self.prompt.render({"query": context.text, "candidates": listed})
        session = context.session
        return Request("direct", content, session.query.session_id, len(session.turns), system, OrderAnswer)

    def parse(self, text: str, context: Context) -> Order:
        """The order; it must name every candidate once."""
        return whole_order(read_json(text, OrderAnswer).order, len(context.candidates))


def whole_order(numbers: list[int], size: int) -> Order:
    """Places of 1-based ``numbers``.

    Raises:
        ParseError: they are no permutation of 1 to ``size``.

    >>> whole_order([2, 1, 3], 3)
    (1, 0, 2)
    """
    if sorted(numbers) != list(range(1, size + 1)):
        raise ParseError(f"order: must hold each number from 1 to {size} once")
    return tuple(number - 1 for number in numbers)
