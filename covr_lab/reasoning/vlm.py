"""Reasoners that ask a model; their fallbacks are deterministic (ReCoVR; dossier, sections 1.2 to 1.10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request
from covr_lab.engines.schema import read_json
from covr_lab.reasoning.asking import Asking, read_question, tidy
from covr_lab.reasoning.base import Initialiser, IntentReasoner, Questioner, Reflector
from covr_lab.reasoning.intent import feedback_texts, read_feedback
from covr_lab.reasoning.questions import FALLBACK
from covr_lab.reasoning.reflection import merge_constraints
from covr_lab.reasoning.schemas import HistoryAnswer, InitialAnswer, IntentAnswer, ReflectionAnswer
from covr_lab.types import Context, Intent, Reflection


def appended(context: Context) -> str:
    """The running query and the newest words side by side."""
    text = context.feedback.text if context.feedback else ""
    return "; ".join(filter(None, (context.state.query, tidy(text))))


class VLMInitialQuery(Initialiser):
    """Text-to-video initialiser by a model (ReCoVR; dossier, section 1.2).

    Args:
        engine: name of the engine to ask.
        prompts: packaged prompt suite, or a folder with ``initial.yaml``.
        frames: frames of the reference video in the prompt, 0 for its caption alone.
    """

    def __init__(self, *, engine: str, prompts: str = "default", frames: int = 0) -> None:
        super().__init__()
        self.engine, self.asking = engine, Asking("initial", prompts, frames, InitialAnswer)
        self.fingerprint = self.asking.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask what the wanted video shows."""
        return self.asking.request(context, context.session.query.reference)

    def parse(self, text: str, context: Context) -> str:
        """The description."""
        del context
        return _filled(read_json(text, InitialAnswer).query, "query")

    def fallback(self, context: Context) -> str:
        """Caption and edit side by side."""
        return ", but ".join(filter(None, (context.reference_caption, context.session.query.text)))


class VLMIntent(IntentReasoner):
    """Intent decomposer by a model: a running description and a relative edit (ReCoVR, section 3.2.1).

    Args:
        engine: name of the engine to ask.
        prompts: packaged prompt suite, or a folder with ``intent.yaml``.
        frames: frames of the video on display in the prompt, 0 for its caption alone.
    """

    def __init__(self, *, engine: str, prompts: str = "default", frames: int = 0) -> None:
        super().__init__()
        self.engine, self.asking = engine, Asking("intent", prompts, frames, IntentAnswer)
        self.fingerprint = self.asking.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask for both queries."""
        return self.asking.request(context, context.shown)

    def parse(self, text: str, context: Context) -> Intent:
        """Both queries; without a description the running one goes on."""
        answer = read_json(text, IntentAnswer)
        return Intent(tidy(answer.search) or context.state.query, tidy(answer.edit))

    def fallback(self, context: Context) -> Intent:
        """The words themselves: added to the running query, and as the edit if they begin with a change."""
        clauses = read_feedback(context).clauses
        changes = context.feedback is not None and bool(clauses) and clauses[0].kind != "describe"
        return Intent(appended(context), tidy(context.feedback.text) if context.feedback and changes else "")


class VLMReflector(Reflector):
    """State reflector by a model (ReCoVR, section 3.2).

    Args:
        engine: name of the engine to ask.
        prompts: packaged prompt suite, or a folder with ``reflection.yaml``.
        frames: frames of the video on display in the prompt, 0 for its caption alone.
    """

    def __init__(self, *, engine: str, prompts: str = "default", frames: int = 0) -> None:
        super().__init__()
        self.engine, self.asking = engine, Asking("reflection", prompts, frames, ReflectionAnswer)
        self.fingerprint = self.asking.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask for the verdict and the notes."""
        return self.asking.request(context, context.shown)

    def parse(self, text: str, context: Context) -> Reflection:
        """Verdict, constraints with the new ones merged in, running query (the old one where the answer has none)."""
        answer = read_json(text, ReflectionAnswer)
        avoid, require, keep = _distinct(answer.avoid, answer.require, answer.keep)
        merged = merge_constraints(context.state, keep, require, avoid)
        query = tidy(answer.query) or context.state.query
        return replace(merged, satisfaction=answer.satisfaction, query=query)

    def fallback(self, context: Context) -> Reflection:
        """Neutral, and the memory as it was."""
        return replace(context.state, satisfaction="neutral")


class VLMQuestion(Questioner):
    """Question asker by a model (dossier, sections 1.8, 3.5 and 5).

    Args:
        engine: name of the engine to ask.
        prompts: packaged prompt suite, or a folder with the prompt.
        frames: frames of the video on display in the prompt, 0 for its caption alone.
        prompt: what is asked about: what the memory lacks (``question``), what adds most to the text
            (``question_ivr``), what the best video leaves open (``question_merlin``, MERLIN; dossier, section 6).
    """

    def __init__(
        self,
        *,
        engine: str,
        prompts: str = "default",
        frames: int = 0,
        prompt: Literal["question", "question_ivr", "question_merlin"] = "question",
    ) -> None:
        super().__init__()
        self.engine, self.asking = engine, Asking(prompt, prompts, frames)
        self.fingerprint = self.asking.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask for a question."""
        return self.asking.request(context, context.shown)

    def parse(self, text: str, context: Context) -> str:
        """The question."""
        del context
        return read_question(text)

    def fallback(self, context: Context) -> str:
        """The general question."""
        del context
        return FALLBACK


class VLMRewrite(IntentReasoner):
    """Full-history rewriting: one composed query from everything said so far (dossier, section 1.10).

    Args:
        engine: name of the engine to ask.
        prompts: packaged prompt suite, or a folder with ``history.yaml``.
        frames: frames of the video on display in the prompt, 0 for its caption alone.
    """

    def __init__(self, *, engine: str, prompts: str = "default", frames: int = 0) -> None:
        super().__init__()
        self.engine, self.asking = engine, Asking("history", prompts, frames, HistoryAnswer)
        self.fingerprint = self.asking.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask for the whole change in one sentence."""
        return self.asking.request(context, context.shown)

    def parse(self, text: str, context: Context) -> Intent:
        """The edit of the reference video."""
        del context
        return Intent(edit=_filled(read_json(text, HistoryAnswer).edit, "edit"))

    def fallback(self, context: Context) -> Intent:
        """Edit and all feedback side by side."""
        said = map(tidy, (context.session.query.text, *feedback_texts(context)))
        return Intent(edit="; ".join(filter(None, said)))


def _filled(text: str, key: str) -> str:
    if not tidy(text):
        raise ParseError(f"{key}: must not be empty")
    return tidy(text)


def _distinct(*lists: Sequence[str]) -> list[list[str]]:
    """Items without blanks at their ends, each only in the first list that names it."""
    seen, kept = set[str](), list[list[str]]()
    for items in lists:
        named = {tidy(item).casefold(): tidy(item) for item in items if tidy(item)}
        kept.append([item for key, item in named.items() if key not in seen])
        seen |= named.keys()
    return kept
