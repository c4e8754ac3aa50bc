"""Questions that a language model makes of what was said so far (IVR's Auto-text; dossier, section 3.5)."""

from __future__ import annotations

from typing import Final, Literal

from covr_lab.engines.request import Request
from covr_lab.reasoning.asking import Asking, read_question
from covr_lab.reasoning.base import Questioner
from covr_lab.reasoning.interview import Chains, Interview, regular_and_objects
from covr_lab.reasoning.statements import session_pieces
from covr_lab.types import Context, Probe

# What the rule asks, in turn: questions of which an answer makes a statement.
QUESTIONS: Final = (
    "What is the main subject?",
    "What is the subject doing?",
    "Where is the subject?",
    "What color is the subject?",
    "What is in the background?",
    "How many people are there?",
)
PROMPTS: Final = {"text": "question_auto", "text_vid": "question_auto_vid"}


class AutoTextQuestion(Questioner):
    """A round about one question of a language model, which reads the query and the answers so far.

    The question is asked about the whole video and about its halves, and an object, its colour and its place are asked
    for in each half. Without an engine the rule goes through a fixed list, again and again.

    Args:
        source: what the question is made of: the ``text`` alone, or also the captions of the best videos on display
            (``text_vid``, the paper's five).
        engine: name of the engine to ask, ``None`` for the rule.
        prompts: packaged prompt suite, or a folder with ``question_auto.yaml`` or ``question_auto_vid.yaml``.
        segments: ask the question about each half, too (Ask-Segment).
        objects: ask about an object in each half (Ask-Object).
    """

    def __init__(
        self,
        *,
        source: Literal["text", "text_vid"] = "text",
        engine: str | None = None,
        prompts: str = "default",
        segments: bool = True,
        objects: bool = True,
    ) -> None:
        super().__init__()
        self.engine, self.segments, self.objects = engine, segments, objects
        self.asking = Asking(PROMPTS[source], prompts, 0) if engine is not None else None
        self.fingerprint = self.asking.prompt.digest if self.asking is not None else ""

    def render(self, context: Context) -> str | Request:
        """The question of the rule, or the request for one."""
        if self.asking is not None:
            return self.asking.request(context, None, said=", ".join(session_pieces(context.session)))
        return self.fallback(context)

    def parse(self, text: str, context: Context) -> str:
        """The question."""
        del context
        return read_question(text)

    def interview(self, context: Context, question: str) -> Interview:
        """The question about the whole video and its halves, then the halves' objects."""
        del context
        first = Probe(question)
        halves = regular_and_objects(first, segments=self.segments, objects=self.objects)
        later = [probe for half in halves for probe in half]
        return Chains((first, *sorted(later, key=lambda probe: probe.slot != "")))

    def fallback(self, context: Context) -> str:
        """The next question of the fixed list."""
        asked = sum(turn.question is not None for turn in context.session.turns)
        return QUESTIONS[asked % len(QUESTIONS)]
