"""Questions by how uncertain the search is (UMIVR; dossier, section 5)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from covr_lab.engines.request import Request
from covr_lab.functional.uncertainty import candidate_weights, mapping_uncertainty, next_level, text_ambiguity
from covr_lab.reasoning.asking import Asking, read_question
from covr_lab.reasoning.base import Questioner
from covr_lab.reasoning.questions import ATTRIBUTES, FALLBACK, open_questions
from covr_lab.reasoning.tagging import require_tagger, tagged
from covr_lab.types import Context, Event, Session

PLAUSIBLE: Final = 0.02  # weight from which on a candidate is told apart from the others
OPEN: Final = "What does the video you want look like, and what happens in it?"
_WHO, _WHAT, _WHERE, *_ = ATTRIBUTES.values()
FACETS: Final = {"what": _WHAT, "where": _WHERE, "who": _WHO}
# Level -> what a question of it is for, as a prompt says it.
AIMS: Final = (
    "open: let the user describe the look, the action or the event in their own words",
    "tell apart: ask what, where or who, in the detail in which the candidates differ most",
    "fill in: ask for a detail that nobody has mentioned yet",
)
_LEVEL = re.compile(r"level=(\d)")


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Level of the question, both scores (``None`` where nothing was retrieved), weight of each candidate."""

    level: int
    text: float | None = None
    mapping: float | None = None
    weights: tuple[float, ...] = ()

    def event(self) -> Event:
        """The line of the record that a later question reads."""
        scores = {"text": self.text, "mapping": self.mapping}
        known = [f"{name}={score:.3f}" for name, score in scores.items() if score is not None]
        return Event("uncertainty", " ".join((f"level={self.level}", *known)))


def running_text(session: Session) -> str:
    """What was searched last: the text of the newest intent, at first the edit."""
    intents = (turn.intent for turn in reversed(session.turns) if turn.intent is not None)
    return next(filter(None, (intent.edit or intent.search for intent in intents)), session.query.text)


def last_level(session: Session) -> int | None:
    """Level of the newest question on record, ``None`` before the first one."""
    events = (event for turn in reversed(session.turns) for event in turn.events if event.kind == "uncertainty")
    return next((int(found[1]) for event in events if (found := _LEVEL.match(event.detail))), None)


def measure(context: Context, *, enhanced: bool = True) -> Uncertainty:
    """Both scores over the candidates that the newest query has a similarity to, and the level that follows.

    Without one (a turn that searched for nothing), the level stays.

    Args:
        context: with ``scores`` and ``caption_vectors``; a candidate without a caption counts for the mapping alone.
        enhanced: see :func:`~covr_lab.functional.uncertainty.text_ambiguity`.

    Raises:
        ValueError: there are scores and no vectors.
    """
    before = last_level(context.session)
    scores = np.asarray(context.scores, np.float64)
    known = np.flatnonzero(np.isfinite(scores))
    if not known.size:
        return Uncertainty(before or 0)
    if context.caption_vectors is None:
        raise ValueError("Context.caption_vectors is missing: fill it for questioners with reads_captions")
    weights = np.zeros(len(scores))
    weights[known] = candidate_weights(scores[known].tolist())
    described = [int(at) for at in known if context.candidates[at]]
    kinds = [kind for _, kind in tagged(running_text(context.session))]
    text = text_ambiguity(scores[described].tolist(), context.caption_vectors[described], kinds, enhanced=enhanced)
    mapping = mapping_uncertainty(weights[known])
    level = next_level(before or 0, first=before is None, text=text, mapping=mapping)
    return Uncertainty(level, text, mapping, tuple(weights.tolist()))


def facets(caption: str) -> dict[str, frozenset[str]]:
    """Content of a caption by the question that it answers: nouns before the first verb or preposition are *who*.

    >>> {name: sorted(words) for name, words in facets("Young woman eating carrots in a garden").items()}
    {'who': ['woman', 'young'], 'what': ['carrots', 'eating'], 'where': ['garden']}
    """
    found: dict[str, set[str]] = {"who": set(), "what": set(), "where": set()}
    at = "who"
    for word, part in tagged(caption):
        if part == "verb":
            at = "what"
        elif part == "preposition":
            at = "where"
        if part in ("verb", "noun", "name", "adjective"):
            found[at].add(word)
    return {name: frozenset(words) for name, words in found.items()}


def telling_questions(captions: Sequence[str], weights: Sequence[float]) -> list[str]:
    """Questions on which the captions differ, the one that separates most weight first.

    >>> telling_questions(["A man cooks in a kitchen", "A man cooks on a beach"], [0.5, 0.5])
    ['Where does the video you want take place?']
    """
    apart = dict.fromkeys(FACETS, 0.0)
    for (one, a), (other, b) in combinations(zip(map(facets, captions), weights, strict=True), 2):
        for name in FACETS:
            union = one[name] | other[name]
            apart[name] += a * b * (1 - len(one[name] & other[name]) / len(union)) if union else 0.0
    return [FACETS[name] for name in sorted(FACETS, key=lambda name: -apart[name]) if apart[name] > 0]


class UncertaintyQuestion(Questioner):
    """Asks for what the search is uncertain about: the text, which candidate is meant, or what is missing.

    The level is a fold over the session's record. By rule, the question is drawn from a fixed list; a question that was
    asked before is not asked again.

    Args:
        engine: name of the engine to ask, ``None`` for the rule.
        prompts: packaged prompt suite, or a folder with ``question_umivr.yaml``.
        enhanced: text ambiguity as UMIVR's code has it; else the entropy alone, as in its paper.

    Raises:
        Refused: no part-of-speech tagger is installed.
    """

    reads_captions = True

    def __init__(self, *, engine: str | None = None, prompts: str = "default", enhanced: bool = True) -> None:
        super().__init__()
        require_tagger("UncertaintyQuestion")
        self.engine, self.enhanced = engine, enhanced
        self.asking = Asking("question_umivr", prompts, 0) if engine is not None else None
        self.fingerprint = self.asking.prompt.digest if self.asking is not None else ""

    def events(self, context: Context) -> tuple[Event, ...]:
        """Level and scores."""
        return (measure(context, enhanced=self.enhanced).event(),)

    def render(self, context: Context) -> str | Request:
        """The question, or the request for one with the aim of its level."""
        found = measure(context, enhanced=self.enhanced)
        likely = [at for at, weight in enumerate(found.weights) if weight >= PLAUSIBLE and context.candidates[at]]
        captions = tuple(context.candidates[at] for at in likely)
        if self.asking is not None:
            shown = replace(context, candidates=captions) if found.level == 1 else context
            return self.asking.request(shown, None, aim=AIMS[found.level])
        questions = [OPEN] if found.level == 0 else open_questions(running_text(context.session))
        if found.level == 1:
            questions = [*telling_questions(captions, [found.weights[at] for at in likely]), *questions]
        asked = {turn.question for turn in context.session.turns}
        return next((question for question in questions if question not in asked), FALLBACK)

    def parse(self, text: str, context: Context) -> str:
        """The question."""
        del context
        return read_question(text)

    def fallback(self, context: Context) -> str:
        """The general question."""
        del context
        return FALLBACK
