"""A turn as a value, from what was thought and what retrieval made of it."""

from __future__ import annotations

from dataclasses import replace

from covr_lab.ranking.correct import Corrected
from covr_lab.reasoning.base import Thought
from covr_lab.types import Context, Event, Intent, Reflection, Turn


def turn_of(
    context: Context,
    thoughts: tuple[Thought[Reflection], Thought[Intent], Thought[Reflection]],
    corrected: Corrected,
    events: list[Event],
) -> Turn:
    """The turn that follows those of ``context``.

    Args:
        context: what the turn knew, its feedback included.
        thoughts: snapshot of the memory, intent, reflection.
        corrected: what is shown and remembered.
        events: what happened before; those of the thoughts come after them.
    """
    state, intent, reflection = thoughts
    fell_back = {"initial": state.fell_back, "intent": intent.fell_back, "reflection": reflection.fell_back}
    events += [Event("fallback", name) for name, fell in fell_back.items() if fell]
    if context.session.state is None:
        events.append(Event("initial_query", state.answer.query))
    return Turn(
        len(context.session.turns),
        corrected.result,
        question=context.question,
        feedback=context.feedback,
        intent=replace(intent.answer, parse_ok=not intent.fell_back),
        state=replace(reflection.answer, parse_ok=not reflection.fell_back),
        channels=corrected.lists,
        caps=corrected.caps,
        events=tuple(events),
        calls=(*state.calls, *intent.calls, *reflection.calls),
    )
