"""How much users say and whether they stand by it: fewer constraints, few words, many words, contradictions."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final

from covr_lab.functional.text import content_words
from covr_lab.gallery.gallery import Gallery
from covr_lab.reasoning.language import parse_feedback
from covr_lab.simulators.degraded import Degradation, check_rate

JOINT: Final = re.compile(r"((?:^|\s*)(?:(?:[,;](?=\s)|\b(?:and|with|but)\b)\s*)+)", re.IGNORECASE)
# Made of function words alone: none of them gives a word of a caption away.
RECANTATIONS: Final[tuple[str, ...]] = (
    "But no {word}.",
    "And without the {word}.",
    "Just not with {word}.",
    "It should not have any {word}.",
)
BEFORE: Final[tuple[str, ...]] = (
    "So, here it is:",
    "It's just that I would have it so:",
    "Hello again, I hope you don't mind me asking so many times, but",
    "Thank you for your patience so far, I really appreciate it.",
    "Hmm, okay, let me think for a moment about how best to put it.",
    "Honestly, I have been trying to explain this to everybody all week.",
)
AFTER: Final[tuple[str, ...]] = (
    "And that is it from me, as it were.",
    "If you could, then that would be it.",
    "I know I tend to ramble, apologies for that, and thanks a lot in advance.",
    "Anyway, I guess you know much better than I do what happens next.",
    "Does that make any sense to you? I certainly hope so.",
    "Please let me know if anything remains unclear.",
)


def closed(text: str) -> str:
    """``text``, ready for another sentence.

    >>> closed("add snow"), closed("Why snow? ")
    ('add snow.', 'Why snow?')
    """
    return text.rstrip() + ("" if text.rstrip().endswith((".", "!", "?")) else ".")


def clauses(text: str) -> list[tuple[str, str]]:
    """(joint before it, words) of each part of ``text`` between ``,``, ``;``, "and", "with" and "but".

    >>> clauses("with snow, and a dog")
    [('with ', 'snow'), (', and ', 'a dog')]
    """
    pieces = ["", *JOINT.split(text)]
    found = list(zip(pieces[::2], pieces[1::2], strict=True))
    return [each for each in found if each[1]]


def drop_clauses(text: str, rate: float, draw: random.Random) -> str:
    """``text`` without about ``rate`` of its constraints: clauses with a content word. One of them always stays.

    >>> drop_clauses("keep the dog, but with snow and a red hat", 0.6, random.Random(1))
    'with snow and a red hat'
    """
    parts = clauses(text)
    constraints = [at for at, (_, words) in enumerate(parts) if content_words(words)]
    dropped = {at for at in constraints if draw.random() < rate}
    if constraints and len(dropped) == len(constraints):
        dropped.remove(draw.choice(constraints))
    if not dropped:
        return text
    kept = [part for at, part in enumerate(parts) if at not in dropped]
    first = "with " if "with" in kept[0][0].lower() else ""  # "and", "but" and a comma open no sentence
    return first + kept[0][1] + "".join(joint + words for joint, words in kept[1:])


class DropConstraints(Degradation):
    """A user who forgets part of what it wants (ReCoVR, appendix D.4; dossier, section 1.12)."""

    def __init__(self, *, rate: float = 0.3, seed: int = 0) -> None:
        """Set the rate.

        Args:
            rate: chance of each clause to be left out, as long as one stays.
            seed: of what is left out.

        Raises:
            ValueError: the rate is out of range.
        """
        super().__init__(seed=seed)
        self.rate = check_rate("DropConstraints", rate)

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        """What is left of ``text`` (:func:`drop_clauses`)."""
        del said
        return drop_clauses(text, self.rate, draw)


def wanted_words(said: Sequence[str]) -> list[str]:
    """Content words that a user asked for and did not take back, oldest first.

    >>> wanted_words(["make it a red car", "add snow", "no snow"])
    ['red', 'car']
    """
    wanted: dict[str, None] = {}
    for text in said:
        parsed = parse_feedback(text)
        wanted |= dict.fromkeys((*parsed.require, *parsed.keep))
        wanted = {word: None for word in wanted if word not in parsed.avoid}
    return list(wanted)


class Inconsistent(Degradation):
    """A user who now and then does not want what it asked for before."""

    def __init__(self, *, rate: float = 0.3, seed: int = 0) -> None:
        """Set the rate.

        Args:
            rate: chance of each turn to take back one word of the edit or of earlier feedback.
            seed: of turns, words and wordings.

        Raises:
            ValueError: the rate is out of range.
        """
        super().__init__(seed=seed)
        self.rate = check_rate("Inconsistent", rate)

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        """``text``, and perhaps that a word asked for before is not wanted."""
        if draw.random() >= self.rate:
            return text
        words = [word for word in wanted_words(said) if word not in content_words(text)]
        if not words:
            return text
        return f"{closed(text)} {draw.choice(RECANTATIONS).format(word=draw.choice(words))}"


class Terse(Degradation):
    """A user who types the first content words of a sentence and no more; small words such as "not" are lost."""

    def __init__(self, *, words: int = 4) -> None:
        """Set the length.

        Args:
            words: content words of a turn at most.

        Raises:
            ValueError: fewer than one.
        """
        super().__init__()
        if words < 1:
            raise ValueError(f"Terse.words must be 1 or more, not {words}")
        self.words = words

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        """The first content words of ``text``, or ``text`` where it has none."""
        del said, draw
        return " ".join(content_words(text)[: self.words]) or text


class Verbose(Degradation):
    """A user who talks before and after the point. The talk has no content word of any caption in the gallery."""

    def __init__(self, *, seed: int = 0) -> None:
        """Set the seed.

        Args:
            seed: of the wordings.
        """
        super().__init__(seed=seed)
        self.before, self.after = BEFORE, AFTER

    def bind(self, gallery: Gallery) -> None:
        """Leave out wordings with a word of a caption; those of function words alone always stay."""
        known = {word for video in gallery.ids for word in content_words(gallery.caption(video))}
        self.before, self.after = (
            tuple(text for text in wordings if known.isdisjoint(content_words(text))) for wordings in (BEFORE, AFTER)
        )

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        """``text`` between two sentences that say nothing."""
        del said
        return f"{draw.choice(self.before)} {closed(text)} {draw.choice(self.after)}"
