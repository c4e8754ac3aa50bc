"""A progress memory that a person edited: what it changes, by rule."""

from __future__ import annotations

from dataclasses import replace

from covr_lab.reasoning.base import IntentReasoner, Reflector
from covr_lab.reasoning.language import Clause, apply_clauses, relative_edit
from covr_lab.types import Context, Intent, Reflection


def edited(state: Reflection, memory: Reflection) -> Reflection:
    """``memory`` as the user left it, with the running query that follows from the edits.

    A running query that the user wrote stays; one that is blank or as it was loses the constraints that were taken away
    or turned round, and gets the new ones.

    >>> before = Reflection("negative", require=("red", "boat"), query="a red boat")
    >>> edited(before, Reflection(require=("boat", "night"))).query
    'a boat, night'
    """
    if memory.query.strip() not in ("", state.query):
        return replace(memory, satisfaction="neutral", query=memory.query.strip())
    gone = _lacking((*state.keep, *state.require), (*memory.keep, *memory.require))
    drops = [Clause("remove", old=word) for word in gone]
    return replace(memory, satisfaction="neutral", query=apply_clauses(state.query, [*drops, *added(state, memory)]))


def added(state: Reflection, memory: Reflection) -> list[Clause]:
    """The constraints of ``memory`` that ``state`` lacks, as clauses.

    >>> [clause.kind for clause in added(Reflection(avoid=("snow",)), Reflection(require=("dog",), avoid=("snow",)))]
    ['add']
    """
    return [
        *(Clause("keep", new=word) for word in _lacking(memory.keep, state.keep)),
        *(Clause("add", new=word) for word in _lacking(memory.require, state.require)),
        *(Clause("remove", old=word) for word in _lacking(memory.avoid, state.avoid)),
    ]


def _lacking(words: tuple[str, ...], known: tuple[str, ...]) -> list[str]:
    """Those of ``words`` that are not ``known``, whatever their case."""
    have = {word.casefold() for word in known}
    return [word for word in words if word.casefold() not in have]


class EditedIntent(IntentReasoner):
    """What a turn without words asks after the memory was edited: its running query, and what was added to it."""

    def render(self, context: Context) -> Intent:
        """The running query, and the new constraints as an edit."""
        return Intent(context.state.query, relative_edit(added(context.session.state or Reflection(), context.state)))

    def fallback(self, context: Context) -> Intent:
        """Nothing can fail."""
        return self.render(context)


class EditedReflector(Reflector):
    """The edited memory is the memory after the turn; of the video on display it says nothing."""

    def render(self, context: Context) -> Reflection:
        """The snapshot, neutral."""
        return replace(context.state, satisfaction="neutral", parse_ok=True)

    def fallback(self, context: Context) -> Reflection:
        """Nothing can fail."""
        return self.render(context)
