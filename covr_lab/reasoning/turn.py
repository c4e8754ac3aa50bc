"""What a turn thinks before it retrieves: the snapshot of the memory, the intent, the reflection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from covr_lab.engines.base import Engine
from covr_lab.reasoning.base import Initialiser, IntentReasoner, Reasoner, Reflector, Thought, think
from covr_lab.reasoning.edited import EditedIntent, EditedReflector
from covr_lab.types import Context, Intent, Reflection


def snapshots(
    initial: Initialiser | None, contexts: Sequence[Context], engines: Mapping[str, Engine]
) -> list[Thought[Reflection]]:
    """Progress memory before the turn.

    It is made from the query when no reflection has happened yet: a session that is solved at turn 0 costs no call
    (ReCoVR; dossier, section 1.2).

    Args:
        initial: makes the first running query; without it, that is the edit.
        contexts: what is known of each session.
        engines: name -> engine.
    """
    known = [Thought(context.state) for context in contexts]
    fresh = [index for index, context in enumerate(contexts) if context.session.state is None]
    if initial is not None:
        thoughts: list[Thought[str]] = think([(initial, contexts[index]) for index in fresh], engines)
        for index, thought in zip(fresh, thoughts, strict=True):
            known[index] = Thought(Reflection(query=thought.answer), thought.fell_back, thought.calls)
    return known


def decide(
    intent: IntentReasoner, reflection: Reflector | None, contexts: Sequence[Context], engines: Mapping[str, Engine]
) -> tuple[list[Thought[Intent]], list[Thought[Reflection]]]:
    """Intent and reflection of every session from the same snapshot, asked for together.

    Without a reflector the signal is neutral and the memory keeps the search text alone; it becomes the running query
    where a reflector falls back, too (dossier, section 1.4). Where a person edited the memory and wrote nothing,
    nobody is asked: the edited memory is what to search for.
    """
    jobs: list[tuple[Reasoner[Any], Context]] = [
        (EditedIntent() if _wordless(context) else intent, context) for context in contexts
    ]
    if reflection is not None:
        jobs += [(EditedReflector() if _wordless(context) else reflection, context) for context in contexts]
    thoughts = think(jobs, engines)
    intents, reflections = thoughts[: len(contexts)], thoughts[len(contexts) :]
    if reflection is None:
        reflections = [Thought(replace(context.state, satisfaction="neutral"), fell_back=True) for context in contexts]
    for at, (thought, searched) in enumerate(zip(reflections, intents, strict=True)):
        if thought.fell_back:
            state = replace(thought.answer, query=searched.answer.search or thought.answer.query)
            reflections[at] = Thought(state, reflection is not None, thought.calls)
    return intents, reflections


def _wordless(context: Context) -> bool:
    return context.feedback is not None and context.feedback.wordless
