"""Content words: the one definition that users, parsers and analyses share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
FUNCTION_WORDS = frozenset(
    """a an the this that these those some any each every
    i me my we us our you your he him his she her hers it its they them their theirs who whom whose which what
    and or nor but so yet if then than as
    of in on at by for from to into onto with within without over under above below between through during
    about against along around across behind beside near off out up down after before until
    is are was were be been being am do does did doing done has have had having can could will would shall should may
    might must there here when where why how it's i'm i'd i've i'll don't doesn't isn't aren't there's that's let's
    not no yes very just only also too""".split()
)


@lru_cache(maxsize=65536)  # users, parsers and analyses ask about the same captions again and again
def content_words(text: str) -> tuple[str, ...]:
    """Lower-case words of ``text`` that carry content, in order of first appearance, each once.

    >>> content_words("A red car, and the RED bus of 1920")
    ('red', 'car', 'bus', '1920')
    """
    words = (match.group().lower().replace("\u2019", "'") for match in WORD.finditer(text))
    return tuple(dict.fromkeys(word for word in words if word not in FUNCTION_WORDS))


def side_by_side(answers: Iterable[str]) -> str:
    """The answers of a round as one text, without blank ones.

    >>> side_by_side(["a star", " ", "red"])
    'a star; red'
    """
    return "; ".join(filter(None, map(str.strip, answers)))
