"""Reflection: satisfaction with the shown video and the constraints so far, by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from covr_lab.reasoning.base import Reflector
from covr_lab.reasoning.intent import read_feedback
from covr_lab.reasoning.language import apply_clauses
from covr_lab.types import Action, Context, Reflection, Satisfaction

LIMIT = 12  # constraints kept of a kind (dossier, section 1.1)
# Users rewrite or answer on a major discrepancy, modify on a minor one (ReCoVR, appendix A.2; dossier, section 1.10).
SIGNALS: Final[Mapping[Action, Satisfaction]] = {"rewrite": "negative", "answer": "negative", "modify": "neutral"}


def merge_constraints(
    state: Reflection, keep: Sequence[str], require: Sequence[str], avoid: Sequence[str]
) -> Reflection:
    """Constraints with the newest ones added; of a contradiction the newest side stays.

    >>> state = Reflection(require=("dog",), avoid=("snow",))
    >>> merged = merge_constraints(state, [], ["snow"], ["Dog"])
    >>> merged.require, merged.avoid
    (('snow',), ('Dog',))
    """
    newest = {"keep": list(keep), "require": list(require), "avoid": list(avoid)}
    said = {word.casefold() for words in newest.values() for word in words}
    merged = {}
    for kind, words in newest.items():
        earlier = [word for word in getattr(state, kind) if word.casefold() not in said]
        unique = {word.casefold(): word for word in (*earlier, *words)}
        merged[kind] = tuple(unique.values())[-LIMIT:]
    return Reflection(state.satisfaction, merged["keep"], merged["require"], merged["avoid"], state.query)


class StateReflector(Reflector):
    """State reflector (ReCoVR, section 3.2): the signal is inferred from the text alone."""

    def render(self, context: Context) -> Reflection:
        """Read the feedback into signal, constraints and running query."""
        parsed = read_feedback(context)
        merged = merge_constraints(context.state, parsed.keep, parsed.require, parsed.avoid)
        return Reflection(
            parsed.satisfaction,
            merged.keep,
            merged.require,
            merged.avoid,
            apply_clauses(context.state.query, parsed.clauses),
        )

    def fallback(self, context: Context) -> Reflection:
        """Neutral, and the memory as it was."""
        return Reflection(
            "neutral", context.state.keep, context.state.require, context.state.avoid, context.state.query
        )


class ActionSatisfaction(Reflector):
    """Signal of the transplanted rank-cap: what kind of feedback it was (ReCoVR, appendix A.2); the memory stays.

    A person's feedback has no kind (``free``): its signal is read from the text as :class:`StateReflector` does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reader = StateReflector()

    def render(self, context: Context) -> Reflection:
        """The memory with the signal of the action."""
        action: Action = context.feedback.action if context.feedback is not None else "modify"
        signal = SIGNALS.get(action) or self.reader.render(context).satisfaction
        return replace(context.state, satisfaction=signal)

    def fallback(self, context: Context) -> Reflection:
        """Neutral, and the memory as it was."""
        return self.reader.fallback(context)
