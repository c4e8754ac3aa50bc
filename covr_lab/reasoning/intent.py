"""Intent: what to send to the channels, by rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from covr_lab.engines.consult import ParseError
from covr_lab.reasoning.base import Initialiser, IntentReasoner
from covr_lab.reasoning.language import Parsed, apply_clauses, parse_feedback, relative_edit
from covr_lab.types import Context, Intent


def feedback_texts(context: Context) -> list[str]:
    """All feedback of the session, oldest first, the newest included."""
    earlier = [turn.feedback.text for turn in context.session.turns if turn.feedback is not None]
    return [*earlier, context.feedback.text] if context.feedback is not None else earlier


def read_feedback(context: Context) -> Parsed:
    """The newest feedback, parsed as an answer when a question was open."""
    return parse_feedback(context.feedback.text if context.feedback else "", context.question)


class InitialQuery(Initialiser):
    """Text-to-video initialiser: the edit applied to the reference caption (ReCoVR; dossier, section 1.2)."""

    def render(self, context: Context) -> str:
        """Standalone description of the target before any feedback."""
        edit = context.session.query.text
        if edit and not parse_feedback(edit).clauses:
            raise ParseError(f"nothing understood of {edit!r}")
        return initial_query(context.reference_caption, edit)

    def fallback(self, context: Context) -> str:
        """Caption and edit side by side."""
        return ", but ".join(filter(None, (context.reference_caption, context.session.query.text)))


def initial_query(reference_caption: str, edit: str) -> str:
    """The edit applied to the reference caption; the edit alone without a caption.

    >>> initial_query("Woman eating carrot in garden", "replace the carrot with a banana")
    'Woman eating banana in garden'
    """
    return apply_clauses(reference_caption, parse_feedback(edit).clauses) if reference_caption else edit


class DualChannelIntent(IntentReasoner):
    """Intent decomposer (ReCoVR, section 3.2.1): a running description for one channel, a relative edit for the other.

    Args:
        edit: the ``relative`` change of the newest feedback, or a ``rolling`` one that grows with every feedback (the
            composed channel alone; dossier, section 1.10).
    """

    def __init__(self, *, edit: Literal["relative", "rolling"] = "relative") -> None:
        super().__init__()
        self.edit = edit

    def render(self, context: Context) -> Intent:
        """Read the feedback into both queries."""
        parsed = read_feedback(context)
        if not parsed.clauses and context.feedback and parsed.satisfaction == "neutral":
            raise ParseError(f"nothing understood of {context.feedback.text!r}")
        search = apply_clauses(context.state.query, parsed.clauses)
        if self.edit == "relative":
            return Intent(search, relative_edit(parsed.clauses))
        rolling = context.session.query.text
        for text in feedback_texts(context):
            rolling = apply_clauses(rolling, parse_feedback(text).clauses)
        return Intent(search, rolling)

    def fallback(self, context: Context) -> Intent:
        """The words themselves, added to the running query (dossier, section 1.3)."""
        text = context.feedback.text if context.feedback else ""
        return Intent("; ".join(filter(None, (context.state.query, text))), "")


class ConcatHistory(IntentReasoner):
    """Open loop: everything said so far as one text (IVR's concatenation).

    Args:
        query: which channels read it: composed ones (``edit``) or text-to-video ones (``search``).
        separator: between pieces.
        caption: put the reference caption first.
        max_words: drop the oldest feedback, never caption, edit or the newest, until the text fits the encoder.
    """

    def __init__(
        self,
        *,
        query: Literal["edit", "search"] = "edit",
        separator: str = " [SEP] ",
        caption: bool = False,
        max_words: int = 160,
    ) -> None:
        super().__init__()
        self.query, self.separator, self.caption, self.max_words = query, separator, caption, max_words

    def render(self, context: Context) -> Intent:
        """Join caption, edit and feedback."""
        first = [context.reference_caption] if self.caption else []
        pieces = [piece for piece in (*first, context.session.query.text, *feedback_texts(context)) if piece]
        text = self.separator.join(fit_words(pieces, self.max_words, keep=len(first) + 1))
        return Intent(edit=text) if self.query == "edit" else Intent(search=text)

    def fallback(self, context: Context) -> Intent:
        """Joining cannot fail."""
        return self.render(context)


def fit_words(pieces: Sequence[str], limit: int, keep: int = 1) -> list[str]:
    """The first ``keep`` pieces and as many of the newest as fit ``limit`` words, the newest in any case.

    >>> fit_words(["make it red", "a b c", "d e"], 6)
    ['make it red', 'd e']
    """
    kept, words = list(pieces), [len(piece.split()) for piece in pieces]
    while len(kept) > keep + 1 and sum(words) > limit:
        del kept[keep], words[keep]
    return kept
