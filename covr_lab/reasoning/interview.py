"""Rounds of questions: which one comes next is a function of the answers so far (IVR; dossier, section 3.4)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from covr_lab.types import Exchange, Part, Probe

HALVES: Final[tuple[Part, Part]] = ("first half", "second half")
CARTOON: Final = "Is this cartoon?"
OBJECT: Final = "What is the object?"
_DOING = re.compile(r"What (is|are) the (.+) doing\?")


class Interview(ABC):
    """The questions of one round; a value, equal to another one that asks the same."""

    @abstractmethod
    def following(self, said: Sequence[Exchange]) -> tuple[Probe, ...]:
        """The questions that can be asked together after ``said``, the round so far; none when it is over."""


@dataclass(frozen=True, slots=True)
class Chains(Interview):
    """Questions that follow from the answers to some first ones, all chains side by side.

    A question that two chains share is asked once.

    Attributes:
        openings: the first question of each chain; its slot says how the chain goes on (:func:`chain`).
        released: see :func:`chain`.
    """

    openings: tuple[Probe, ...]
    released: bool = False

    def following(self, said: Sequence[Exchange]) -> tuple[Probe, ...]:
        """The next question of every chain that has one."""
        asked, found = {exchange.probe for exchange in said}, dict[Probe, None]()
        for opening in self.openings:
            answers = {each.probe.slot: each.answer for each in said if each.probe.part == opening.part}
            links = chain(opening, answers, released=self.released)
            found |= dict.fromkeys([probe for probe in links if probe not in asked][:1])
        return tuple(found)


def chain(opening: Probe, answers: Mapping[str, str], *, released: bool = False) -> Iterator[Probe]:
    """The questions of one chain about one part of the video, as far as the answers lead.

    What a person does and where; a cartoon's character and what it does; else an animal, what it does and where; else
    an object, its colour and its place (IVR; dossier, section 3.4). Every other question stands alone.

    Args:
        opening: the first question, with the slot ``doing``, ``cartoon``, ``object`` or none.
        answers: slot -> answer, about the same part.
        released: ask what "the yes" of a cartoon is doing, as the released code does by mistake.

    >>> first = Probe("What is the man doing?", slot="doing")
    >>> [probe.text for probe in chain(first, {"doing": "cooking"})]
    ['What is the man doing?', 'Where is the man cooking?']
    """
    yield opening
    steps = {"doing": _person, "cartoon": _cartoon, "object": _object}.get(opening.slot)
    if steps is None or opening.slot not in answers:
        return
    for slot, text in steps(opening.text, answers, released):
        yield Probe(" ".join(text.split()).replace(" ?", "?"), opening.part, slot)
        if slot not in answers:
            return


Steps = Iterator[tuple[str, str]]


def _person(question: str, answers: Mapping[str, str], released: bool) -> Steps:
    del released
    verb, who = subject(question)
    yield "where", f"Where {verb} the {who} {answers['doing']}?"


def _cartoon(question: str, answers: Mapping[str, str], released: bool) -> Steps:
    if says_yes(answers["cartoon"]):
        yield "character", "What is the character?"
        who = answers["cartoon"] if released else answers["character"]
        yield "character doing", f"What is the {who} doing?"
        return
    yield "any animal", "Is there any animal?"
    if says_yes(answers["any animal"]):
        yield "animal", "What is the animal?"
        yield "animal doing", f"What is the {answers['animal']} doing?"
        yield "animal place", f"Where is the {answers['animal']}?"
        return
    yield "object", OBJECT
    yield from _object(question, answers, released)


def _object(question: str, answers: Mapping[str, str], released: bool) -> Steps:
    del question, released
    yield "colour", f"What color is the {answers['object']}?"
    yield "place", f"Where is the {answers['colour']} {answers['object']}?"


def doing(verb: str, who: str) -> str:
    """The first question about a person.

    >>> doing("are", "girls")
    'What are the girls doing?'
    """
    return f"What {verb} the {who} doing?"


def subject(question: str) -> tuple[str, str]:
    """Verb and person of :func:`doing`.

    Raises:
        ValueError: it asks something else.

    >>> subject("What are the girls doing?")
    ('are', 'girls')
    """
    found = _DOING.fullmatch(question)
    if found is None:
        raise ValueError(f"not a question what somebody is doing: {question!r}")
    return found[1], found[2]


def says_yes(answer: str) -> bool:
    """Whether an answer begins with yes.

    >>> says_yes("Yes, a cat"), says_yes("yesterday")
    (True, False)
    """
    return re.match(r"\s*yes\b", answer, re.I) is not None


def regular_and_objects(regular: Probe, *, segments: bool, objects: bool) -> list[tuple[Probe, ...]]:
    """A question on each half of the video (Ask-Segment) and the object's (Ask-Object), as far as they are wanted.

    >>> halves = regular_and_objects(Probe("Is it?"), segments=True, objects=False)
    >>> [[(probe.text, probe.part) for probe in half] for half in halves]
    [[('Is it?', 'first half')], [('Is it?', 'second half')]]
    """
    asked = [(regular.text, regular.slot)] * segments + [(OBJECT, "object")] * objects
    return [tuple(Probe(text, part, slot) for text, slot in asked) for part in HALVES]
