"""Questions: one short open question a turn, by rule."""

from __future__ import annotations

from covr_lab.functional.text import content_words
from covr_lab.reasoning.base import Questioner
from covr_lab.types import Context, Reflection

FALLBACK = "What else can you tell me about the scene, objects or action in the video you want?"
# Words that show an attribute has been talked about -> question (no yes/no, at most 20 words).
ATTRIBUTES = {
    "man woman girl boy child people person couple family animal dog cat bird car boat": (
        "Who or what is the main subject of the video you want?"
    ),
    "walking running sitting standing playing dancing eating drinking talking working flying": (
        "What is happening in the video you want?"
    ),
    "beach street city forest field room kitchen office park mountain sea river indoors outdoors": (
        "Where does the video you want take place?"
    ),
    "red green blue yellow orange purple pink brown black white gray grey gold silver": (
        "Which colours stand out in the video you want?"
    ),
    "day night sunset sunrise morning evening winter summer autumn spring rain snow sunny": (
        "What time of day, season or weather does the video you want show?"
    ),
    "closeup close aerial drone timelapse lapse slow motion zoom animation background": (
        "How is the video you want filmed or made?"
    ),
}


def open_questions(text: str) -> list[str]:
    """Questions about the attributes that a text does not mention, the most telling one first.

    >>> open_questions("A woman walking at night in a red coat on a beach")
    ['How is the video you want filmed or made?']
    """
    words = set(content_words(text))
    return [question for known, question in ATTRIBUTES.items() if words.isdisjoint(known.split())]


def open_question(state: Reflection) -> str:
    """The first attribute that neither the running query nor a constraint mentions.

    >>> open_question(Reflection(query="A woman walking"))
    'Where does the video you want take place?'
    """
    return next(iter(open_questions(" ".join((state.query, *state.keep, *state.require, *state.avoid)))), FALLBACK)


class ConstraintQuestion(Questioner):
    """Asks about an attribute that the memory does not cover (dossier, section 1.8)."""

    def render(self, context: Context) -> str:
        """The question."""
        return open_question(context.state)

    def fallback(self, context: Context) -> str:
        """The general question."""
        del context
        return FALLBACK
