"""Gates of a cascade: when a query is bypassed, read deeper, described or verified (CoVRAGE; dossier, 2.3-2.5).

Two numbers that agree to fp32 are equal (:data:`EQUAL`), so that a score of 0.6 and one of 0.45 stand exactly a quarter
apart whatever the last bit says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

EQUAL: Final = 1e-7  # differences below it are rounding of fp32 scores
_WORD: Final = re.compile(r"[A-Za-z0-9']+")


def _below(value: float, limit: float) -> bool:
    return value < limit - EQUAL


def bypass(e1: float | None, e2: float | None, gap: float = 0.25) -> bool:
    """Whether the best two similarities are so far apart that the order of retrieval stands; equality does not do.

    Args:
        e1: similarity of the first video, ``None`` when there is none.
        e2: similarity of the second.
        gap: distance that has to be exceeded.

    >>> bypass(0.75, 0.49), bypass(0.75, 0.5), bypass(0.75, None)
    (True, False, False)
    """
    if e1 is None or e2 is None or not math.isfinite(e1 - e2):
        return False
    return _below(gap, e1 - e2)


def more_pages(best: float, pages: int, left: int, threshold: float = 0.70, max_pages: int = 9) -> bool:
    """Whether one more page of candidates is scored; a best score that reaches the threshold stops.

    Args:
        best: highest relevance so far.
        pages: pages added to the seed so far.
        left: candidates that are not scored yet.
        threshold: relevance that is good enough.
        max_pages: pages at most.

    >>> more_pages(0.69, 0, 5), more_pages(0.70, 0, 5), more_pages(0.1, 9, 5), more_pages(0.1, 0, 0)
    (True, False, False, False)
    """
    return _below(best, threshold) and pages < max_pages and left > 0


def word_count(text: str) -> int:
    """Words of a text: longest runs of ASCII letters, digits and apostrophes.

    >>> word_count("make it the dog's 2nd-best day"), word_count("")
    (7, 0)
    """
    return len(_WORD.findall(text))


def concise(text: str, words: int = 10) -> bool:
    """Whether an edit is so short that it is described before anything is scored; one of ``words`` words is not.

    >>> concise("a b c d e f g h i"), concise("a b c d e f g h i j")
    (True, False)
    """
    return word_count(text) < words


def ambiguous(r1: float | None, r2: float | None, floor: float = 0.25, gap: float = 0.50) -> bool:
    """Whether the best two candidates are plausible and close: their relative distance is below ``gap``.

    Args:
        r1: highest relevance, ``None`` when nothing was scored.
        r2: second highest, ``None`` counts as 0.
        floor: what ``r1`` has to reach.
        gap: relative distance from which on the best is clear.

    >>> ambiguous(0.8, 0.5), ambiguous(0.8, 0.4), ambiguous(0.25, 0.2), ambiguous(0.24, 0.24), ambiguous(0.9, None)
    (True, False, True, False, False)
    """
    if r1 is None or not r1 > 0 or _below(r1, floor):
        return False
    return _below((r1 - (r2 or 0.0)) / r1, gap)


def cluster(scores: Sequence[float], floor: float = 0.15, gap: float = 0.25, limit: int = 10) -> int:
    """How many leading candidates stand so close that they are verified; 0 where there is nothing to decide.

    Args:
        scores: relevance, best first.
        floor: what the best has to reach.
        gap: relative distance to the best that ends the prefix; who comes later is out, whatever its score.
        limit: candidates at most.

    Returns:
        Length of the prefix, at least 2, or 0.

    >>> cluster([0.8, 0.7, 0.6, 0.6]), cluster([0.8, 0.6]), cluster([0.15, 0.15]), cluster([0.1, 0.1]), cluster([0.9])
    (2, 0, 2, 0, 0)
    """
    if not scores or not scores[0] > 0 or _below(scores[0], floor):
        return 0
    best, length = scores[0], 0
    for score in scores[:limit]:
        if not _below((best - score) / best, gap):
            break
        length += 1
    return length if length > 1 else 0
