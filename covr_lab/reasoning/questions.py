"""Questions: one short open question a turn, by rule."""

from __future__ import annotations

from covr_lab.functional.text import content_words
from covr_lab.reasoning.base import Questioner
from covr_lab.types import Context, Reflection

FALLBACK = "What else can you tell me about the scene, objects or action in the video you want?"
# Attribute -> words that show it has been talked about, question (no yes/no, at most 20 words).
ATTRIBUTES: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset("man woman girl boy child people person couple family animal dog cat bird car boat".split()),
        "Who or what is the main subject of the video you want?",
    ),
    (
        frozenset("walking running sitting standing playing dancing eating drinking talking working flying".split()),
        "What is happening in the video you want?",
    ),
    (
        frozenset("beach street city forest field room kitchen office park mountain sea river indoors outdoors".split()),
        "Where does the video you want take place?",
    ),
    (
        frozenset("red green blue yellow orange purple pink brown black white gray grey gold silver".split()),
        "Which colours stand out in the video you want?",
    ),
    (
        frozenset("day night sunset sunrise morning evening winter summer autumn spring rain snow sunny".split()),
        "What time of day, season or weather does the video you want show?",
    ),
    (
        frozenset("closeup close aerial drone timelapse lapse slow motion zoom animation background".split()),
        "How is the video you want filmed or made?",
    ),
)


def open_question(state: Reflection) -> str:
    """The first attribute that neither the running query nor a constraint mentions.

    >>> open_question(Reflection(query="A woman walking"))
    'Where does the video you want take place?'
    """
    words = {*content_words(state.query), *state.keep, *state.require, *state.avoid}
    return next((question for known, question in ATTRIBUTES if not words & known), FALLBACK)


class ConstraintQuestion(Questioner):
    """Asks about an attribute that the memory does not cover (dossier, section 1.8)."""

    def render(self, context: Context) -> str:
        """The question."""
        return open_question(context.state)

    def fallback(self, context: Context) -> str:
        """The general question."""
        del context
        return FALLBACK
