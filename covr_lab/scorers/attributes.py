"""Attributes of the demo world, read off words: what a text wants, and how far a caption agrees."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from covr_lab.demo import wording
from covr_lab.functional.text import content_words
from covr_lab.reasoning.language import parse_feedback, stems
from covr_lab.scorers.base import Pair, PairScorer

Attributes = dict[
    str, str
]  # "colour", "shape", "motion", "background", "light" -> value; one that is left open is absent
_TABLES: Final = {
    "colour": (wording.COLOUR,),
    "shape": (wording.SHAPE,),
    "motion": (wording.MOTION, wording.VERB),
    "background": (wording.BACKGROUND,),
    "light": (wording.LIGHT,),
}


def _words(text: str) -> list[str]:
    """Content words in the forms that stand for all of equal meaning, in order."""
    return [form for word in content_words(text) for form in stems(word)]


def _cues() -> dict[str, tuple[str, str]]:
    """Word -> the attribute and value that it gives away; a word of two values gives nothing away."""
    found = dict[str, set[tuple[str, str]]]()
    for kind, tables in _TABLES.items():
        for table in tables:
            for value, phrases in table.items():
                for word in (word for phrase in phrases for word in _words(phrase)):
                    found.setdefault(word, set()).add((kind, value))
    return {word: next(iter(meanings)) for word, meanings in found.items() if len(meanings) == 1}


CUES: Final = _cues()


def attributes(text: str) -> Attributes:
    """The attributes that a text names; of two values the last one counts.

    >>> attributes("A red star moving left in front of a striped curtain in steady light")
    {'colour': 'red', 'shape': 'star', 'motion': 'left', 'background': 'striped', 'light': 'steady'}
    >>> attributes("make the star a hoop that drifts leftwards")
    {'shape': 'ring', 'motion': 'left'}
    """
    return dict(CUES[word] for word in _words(text) if word in CUES)


def named(text: str) -> Attributes:
    """The attributes that an edit, a feedback or a description wants, without what it wants gone.

    >>> named("swap the red cross for a heart and let it get darker")
    {'shape': 'heart', 'light': 'fading'}
    """
    unwanted = {word for clause in parse_feedback(text).clauses for word in _words(clause.old)}
    return dict(CUES[word] for word in _words(text) if word in CUES and word not in unwanted)


def agreement(wanted: Mapping[str, str], have: Mapping[str, str], weights: Mapping[str, float]) -> float:
    """Share of the weight of what is wanted that a candidate has, from 0 to 1; NaN if nothing is wanted.

    >>> agreement({"colour": "red", "shape": "star"}, {"colour": "red", "shape": "ring"}, {"colour": 2.0})
    0.6666666666666666
    """
    total = sum(weights.get(kind, 1.0) for kind in wanted)
    agreed = sum(weights.get(kind, 1.0) for kind, value in wanted.items() if have.get(kind) == value)
    return agreed / total if wanted else float("nan")


class AttributeScorer(PairScorer):
    """Agreement of the attributes that source and text ask for with those that the candidate's caption names.

    Wanted is what the source's caption names, overridden by what the text names. It reads the captions that the system
    has; in the demo world they come from a model that saw the pixels.

    Args:
        weight: of an attribute that the text names, against 1 for one that it leaves as in the source.
    """

    def __init__(self, *, weight: float = 2.0) -> None:
        super().__init__()
        if not weight > 0:
            raise ValueError(f"weight must be above 0, not {weight}")
        self.weight = weight

    @property
    def fingerprint(self) -> str:
        """sha256 of the weight and of the words that are understood."""
        return hashlib.sha256(json.dumps([1, self.weight, CUES]).encode()).hexdigest()

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Agreements; NaN where nothing is wanted, or nothing is known of the candidate."""
        return [self._score(pair) for pair in pairs]

    def _score(self, pair: Pair) -> float:
        have, said = attributes(self.gallery.caption(pair.candidate)), named(pair.text)
        wanted = {**attributes(self.gallery.caption(pair.source)), **said}
        return agreement(wanted, have, dict.fromkeys(said, self.weight)) if have else float("nan")
