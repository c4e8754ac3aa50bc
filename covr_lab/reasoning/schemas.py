"""Forms of the answers of model-backed reasoners; all bounded, so that a limit on tokens can be computed from them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from covr_lab.types import Satisfaction

# Characters and items that a real answer does not reach: the prompts ask for 40, 20 and 4 words.
DESCRIPTION: Final = 300
EDIT: Final = 200
ITEM: Final = 60
ITEMS: Final = 6

Description = Annotated[str, Field(max_length=DESCRIPTION)]
Items = Annotated[list[Annotated[str, Field(max_length=ITEM)]], Field(max_length=ITEMS)]


class Answer(BaseModel):
    """A JSON object with exactly the keys of its class."""

    model_config = ConfigDict(extra="forbid")


class InitialAnswer(Answer):
    """Text-to-video initialiser: what the wanted video shows."""

    query: Annotated[Description, Field(min_length=1)]


class IntentAnswer(Answer):
    """Intent decomposer: what the words do, a standalone description, a change of the shown video ("" for none)."""

    action: Literal["modify", "rewrite", "answer", "mixed"]
    search: Description
    edit: Annotated[str, Field(max_length=EDIT)]


class ReflectionAnswer(Answer):
    """State reflector: verdict on the shown video, new constraints, running query."""

    satisfaction: Satisfaction
    keep: Items
    require: Items
    avoid: Items
    query: Description


class CompressAnswer(Answer):
    """Query compression: what was said, in fewer words."""

    query: Annotated[Description, Field(min_length=1)]


class CompareAnswer(Answer):
    """Judge of a pair: who fits better, and the reason in one sentence."""

    winner: Literal["A", "B", "tie"]
    reason: Description


class HistoryAnswer(Answer):
    """Full-history rewriter: one edit of the reference video that says all that was said; longer than one turn's."""

    edit: Annotated[Description, Field(min_length=1)]
