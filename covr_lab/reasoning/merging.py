"""Intents of the adapted baselines: a merged text that is kept short, the newest words alone, nothing at all."""

from __future__ import annotations

from typing import Literal

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request
from covr_lab.engines.schema import read_json
from covr_lab.functional.text import content_words
from covr_lab.reasoning.asking import Asking, tidy
from covr_lab.reasoning.base import IntentReasoner
from covr_lab.reasoning.schemas import CompressAnswer
from covr_lab.types import Context, Intent

AND = " and "
RESERVE = 10  # words that must be free before the newest feedback is put in front


def newest(context: Context) -> str:
    """The newest feedback on one line."""
    return tidy(context.feedback.text) if context.feedback is not None else ""


class MergedQuery(IntentReasoner):
    """Length-guarded merge (UMIVR; dossier, section 5): first query, newest feedback, and all that was said before it.

    The first query is the edit, or without a reference the description that the dialogue began with.

    Where fewer than ten words, or than the newest feedback has, are left of the limit, what was said before is first
    compressed: by a model, or by rule to its content words. What is still too long loses its oldest words.

    Args:
        engine: name of the engine that compresses, ``None`` for the rule.
        prompts: packaged prompt suite, or a folder with ``compress.yaml``.
        max_words: of the text, in words separated by blanks as everywhere in recipes; about 1.3 tokens each.
        query: which channels read it: composed ones (``edit``) or text-to-video ones (``search``).
    """

    def __init__(
        self,
        *,
        engine: str | None = None,
        prompts: str = "default",
        max_words: int = 160,
        query: Literal["edit", "search"] = "edit",
    ) -> None:
        super().__init__()
        self.engine, self.max_words, self.query = engine, max_words, query
        self.asking = Asking("compress", prompts, 0, CompressAnswer) if engine is not None else None
        self.fingerprint = self.asking.prompt.digest if self.asking is not None else ""

    def render(self, context: Context) -> Intent | Request:
        """The merged text, or the request to compress what was said before."""
        said = self._said(context)
        if said and self._room(context, said) < max(RESERVE, len(newest(context).split())):
            return self.fallback(context) if self.asking is None else self.asking.request(context, None, said=said)
        return self._merged(context, said)

    def rehearse(self, context: Context) -> Request:
        """The request for an edit to compress; a turn with room for all words asks for nothing."""
        if self.asking is None:
            raise TypeError("MergedQuery asks nothing")
        return self.asking.request(context, None, said=context.session.query.text)

    def parse(self, text: str, context: Context) -> Intent:
        """The merged text with what was said before in the model's words."""
        said = tidy(read_json(text, CompressAnswer).query)
        if not said:
            raise ParseError("query: must not be empty")
        return self._merged(context, said)

    def fallback(self, context: Context) -> Intent:
        """The merged text with the content words of what was said before."""
        return self._merged(context, " ".join(content_words(self._said(context))))

    def _said(self, context: Context) -> str:
        """What was merged up to the turn before, without the first query."""
        spoken = [turn for turn in context.session.turns if turn.feedback is None or not turn.feedback.wordless]
        texts = [getattr(turn.intent, self.query) for turn in spoken if turn.intent is not None]
        edit = tidy(context.session.query.text)
        return str(texts[-1]).removeprefix(edit).removeprefix(AND) if texts else ""

    def _room(self, context: Context, said: str) -> int:
        """Words that are left beside the edit and what was said before; each piece comes with an "and"."""
        return self.max_words - len(context.session.query.text.split()) - len(said.split()) - 2

    def _merged(self, context: Context, said: str) -> Intent:
        edit = tidy(context.session.query.text)
        later = AND.join(filter(None, (newest(context), said))).split()
        room = max(self.max_words - len(edit.split()) - 1, len(newest(context).split()))
        kept = " ".join(later[:room]).removesuffix(AND.rstrip())  # the newest words come first
        text = AND.join(filter(None, (edit, kept)))
        return Intent(edit=text) if self.query == "edit" else Intent(search=text)


class NewestFeedback(IntentReasoner):
    """The newest feedback alone as search text; the channel's fold remembers the rest (MERLIN; dossier, section 6)."""

    def render(self, context: Context) -> Intent:
        """The words themselves."""
        return Intent(search=newest(context))

    def fallback(self, context: Context) -> Intent:
        """Nothing can fail."""
        return self.render(context)


class IgnoreFeedback(IntentReasoner):
    """Hears nothing: every channel is silent and the ranking on display stays (the line without interaction)."""

    def render(self, context: Context) -> Intent:
        """Silence."""
        del context
        return Intent()

    def fallback(self, context: Context) -> Intent:
        """Silence."""
        return self.render(context)
