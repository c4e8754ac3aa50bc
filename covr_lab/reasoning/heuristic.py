"""The fixed questions of IVR's heuristic generator (Liang and Albanie, ICCV 2023; dossier, section 3.4)."""

from __future__ import annotations

from typing import Final

from covr_lab.reasoning.base import Questioner
from covr_lab.reasoning.interview import CARTOON, Chains, Interview, doing, regular_and_objects
from covr_lab.types import Context, Probe

# Words for people in the order in which a query is searched for them, and the verb that goes with each.
PEOPLE: Final = {
    **{"person": "is", "people": "are", "man": "is", "men": "are", "woman": "is", "women": "are", "girl": "is"},
    **{"girls": "are", "boy": "is", "boys": "are", "child": "is", "children": "are", "male": "is", "female": "is"},
    **{"lady": "is", "family": "is", "models": "are"},
}


def first_question(query: str) -> Probe:
    """What the first person of the list that the query names is doing; without a person, whether it is a cartoon.

    The first *of the list* decides, not the first of the query. Only whole words between blanks count, in any case.

    >>> first_question("two women and a man dance").text
    'What is the man doing?'
    >>> first_question("a man, dancing").text
    'Is this cartoon?'
    """
    words = query.lower().split()
    who = next((word for word in PEOPLE if word in words), None)
    return Probe(CARTOON, slot="cartoon") if who is None else Probe(doing(PEOPLE[who], who), slot="doing")


class HeuristicQuestions(Questioner):
    """A round of questions that follow from the first query by rule: who does what and where, or which object is where.

    They are asked about the whole video and again about its halves, so that query and answers are at most six pieces
    (:class:`~covr_lab.reasoning.statements.StatementHistory`). A later round asks the same. The words are those of the
    released code but for blanks and letter case, which BLIP does not read.

    Args:
        segments: ask the questions about each half, too (Ask-Segment).
        objects: ask about an object in each half, its colour and its place (Ask-Object).
        released: make the mistake of the released code in cartoons (:func:`~covr_lab.reasoning.interview.chain`).
    """

    def __init__(self, *, segments: bool = True, objects: bool = True, released: bool = False) -> None:
        super().__init__()
        self.segments, self.objects, self.released = segments, objects, released

    def render(self, context: Context) -> str:
        """The first question of the round."""
        return first_question(context.session.query.text).text

    def interview(self, context: Context, question: str) -> Interview:
        """The whole round: the whole video, then of each half its own questions and its object's."""
        del question
        first = first_question(context.session.query.text)
        halves = regular_and_objects(first, segments=self.segments, objects=self.objects)
        return Chains((first, *halves[0], *halves[1]), self.released)

    def fallback(self, context: Context) -> str:
        """The rule cannot fail."""
        return self.render(context)
