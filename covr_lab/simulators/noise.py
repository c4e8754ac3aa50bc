"""Surface noise of typed text: slips in words and of words (ReCoVR, appendix D.4; dossier, section 1.12)."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from covr_lab.functional.text import WORD
from covr_lab.simulators.degraded import Degradation, check_rate

ROWS: Final = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
SHORTEST: Final = 4  # letters of a word that may be misspelt


def _neighbours() -> dict[str, str]:
    """Key -> keys that touch it: beside it, and the two above and below, each row being half a key further right."""
    places = {key: (row, at) for row, keys in enumerate(ROWS) for at, key in enumerate(keys)}
    touching = {(0, -1), (0, 1), (-1, 0), (-1, 1), (1, -1), (1, 0)}
    return {
        key: "".join(other for other, (r, a) in places.items() if (r - row, a - at) in touching)
        for key, (row, at) in places.items()
    }


NEIGHBOURS: Final[Mapping[str, str]] = _neighbours()


def swapped(word: str, draw: random.Random) -> str | None:
    """``word`` with two neighbouring characters in the wrong order; ``None`` where no two differ."""
    places = [at for at in range(len(word) - 1) if word[at] != word[at + 1]]
    if not places:
        return None
    at = draw.choice(places)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def shortened(word: str, draw: random.Random) -> str | None:
    """``word`` without one of its characters."""
    at = draw.randrange(len(word))
    return word[:at] + word[at + 1 :]


def lengthened(word: str, draw: random.Random) -> str | None:
    """``word`` with one letter too many."""
    at = draw.randrange(len(word) + 1)
    return word[:at] + draw.choice(string.ascii_lowercase) + word[at:]


def mistyped(word: str, draw: random.Random) -> str | None:
    """``word`` with the key beside the right one, in the right case; ``None`` where no character has a key here."""
    places = [at for at, letter in enumerate(word) if letter.lower() in NEIGHBOURS]
    if not places:
        return None
    at = draw.choice(places)
    key = draw.choice(NEIGHBOURS[word[at].lower()])
    return word[:at] + (key.upper() if word[at].isupper() else key) + word[at + 1 :]


SLIPS: Final[Sequence[Callable[[str, random.Random], str | None]]] = (swapped, shortened, lengthened, mistyped)


def misspell(text: str, rate: float, draw: random.Random) -> str:
    """``text`` with one slip in about ``rate`` of its words of four characters or more; the others stay.

    >>> misspell("replace the dog with a zebra", 1.0, random.Random(1))
    'repalce the dog sith a zbera'
    """

    def slip(word: str) -> str:
        if len(word) < SHORTEST or draw.random() >= rate:
            return word
        return next(wrong for one in draw.sample(SLIPS, len(SLIPS)) if (wrong := one(word, draw)) is not None)

    return WORD.sub(lambda match: slip(match.group()), text)


def jumble(text: str, rate: float, draw: random.Random) -> str:
    """``text`` with about ``rate`` of its words left out, said twice, or said after the next one.

    Words are what blanks separate. A text of one word never loses it.

    >>> jumble("replace the dog with a zebra", 0.5, random.Random(1))
    'replace replace dog a zebra zebra'
    """
    words = text.split()
    spoken: list[tuple[float, str]] = []
    for at, word in enumerate(words):
        deeds = ["double", *(["delete"] if words[1:] else []), *(["swap"] if words[at + 1 :] else [])]
        deed = draw.choice(deeds) if draw.random() < rate else "say"
        place = at + 1.5 if deed == "swap" else at
        spoken += [(place, word)] * {"delete": 0, "double": 2}.get(deed, 1)
    return " ".join(word for _, word in sorted(spoken, key=lambda each: each[0])) if spoken else text


class CharacterNoise(Degradation):
    """Misspelt words: two letters swapped, one lost, one too many, or a neighbouring key."""

    def __init__(self, *, rate: float = 0.2, seed: int = 0) -> None:
        """Set the rate.

        Args:
            rate: chance of each word of four characters or more to get one slip.
            seed: of the slips.

        Raises:
            ValueError: the rate is out of range.
        """
        super().__init__(seed=seed)
        self.rate = check_rate("CharacterNoise", rate)

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        """``text`` with slips (:func:`misspell`)."""
        del said
        return misspell(text, self.rate, draw)


class WordNoise(Degradation):
    """Words left out, said twice, or in the wrong order."""

    def __init__(self, *, rate: float = 0.1, seed: int = 0) -> None:
        """Set the rate.

        Args:
            rate: chance of each word.
            seed: of the slips.

        Raises:
            ValueError: the rate is out of range.
        """
        super().__init__(seed=seed)
        self.rate = check_rate("WordNoise", rate)

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        """``text`` jumbled (:func:`jumble`)."""
        del said
        return jumble(text, self.rate, draw)
