"""How uncertain a search is: ambiguity of the text, and of its mapping to videos (UMIVR; dossier, section 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]

SAME: Final = 0.65  # cosine with a cluster's first member from which on a caption belongs to it
MIDDLE_BITS: Final = 2.0  # entropy at which the logistic of the text's ambiguity is one half
STEEPNESS: Final = 3.0
HALF_SPECIFIC: Final = 21.31  # weighted words at which a text is half specific
SHARE: Final = 0.2  # of the entropy in the text's ambiguity; the rest is the text's vagueness
AMBIGUOUS: Final = 0.5  # ambiguity from which on the text is asked about first
UNSURE: Final = 0.2  # mapping uncertainty from which on candidates are told apart
# Part of speech -> what a word of it adds to specificity; a named entity counts as that and not as a noun.
WEIGHTS: Final[Mapping[str, float]] = {"adjective": 3.0, "adverb": 2.0, "noun": 0.5, "verb": 0.5, "name": 1.0}


def greedy_clusters(vectors: Floats, same: float = SAME) -> npt.NDArray[np.int64]:
    """Cluster of each vector: the first one whose *first* member is near enough, else a new one.

    Args:
        vectors: unit vectors ``(N, D)``, in order of rank.
        same: cosine with the first member from which on a vector joins.

    Returns:
        int64 ``(N,)``, numbered in order of appearance.

    >>> greedy_clusters(np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.6, 0.8]]))
    array([0, 1, 0, 1])
    """
    leaders = list[int]()
    labels = np.empty(len(vectors), np.int64)
    for at, vector in enumerate(np.asarray(vectors, np.float64)):
        near = (number for number, leader in enumerate(leaders) if float(vectors[leader] @ vector) >= same)
        labels[at] = next(near, len(leaders))
        if labels[at] == len(leaders):
            leaders.append(at)
    return labels


def cluster_entropy(scores: Sequence[float], vectors: Floats) -> float:
    """Entropy in bits of the meanings among the best captions.

    Args:
        scores: similarity of the query to each, ``N`` finite numbers; their softmax is each one's probability.
        vectors: unit vectors ``(N, D)`` of the captions, in order of rank.

    >>> two_meanings = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.6, 0.8]])
    >>> cluster_entropy([0.3, 0.3, 0.3, 0.3], two_meanings)
    1.0
    >>> cluster_entropy([], np.empty((0, 2)))
    0.0
    """
    if not len(scores):
        return 0.0
    known = np.asarray(scores, np.float64)
    odds = np.exp(known - known.max())
    mass = np.bincount(greedy_clusters(vectors), odds)
    mass = mass / mass.sum()
    return float(-(mass * np.log2(mass)).sum()) + 0.0  # no minus zero


def vagueness(kinds: Sequence[str]) -> float:
    """How little a text says, in (0, 1]: 1 for a text without words that count.

    Args:
        kinds: part of speech of each of its words (keys of :data:`WEIGHTS`; others weigh nothing).

    >>> round(vagueness(["adjective", "noun"]), 4)  # (3 + 0.5) * 2/8 = 0.875
    0.9606
    """
    count = len(kinds)
    length = count / 8 if count < 8 else 1 + 0.5 * math.log(count - 7)
    detail = sum(WEIGHTS.get(kind, 0.0) for kind in kinds) * length
    return 1 - detail / (detail + HALF_SPECIFIC)


def text_ambiguity(scores: Sequence[float], vectors: Floats, kinds: Sequence[str], *, enhanced: bool = True) -> float:
    """Text ambiguity score in [0, 1].

    Args:
        scores: similarity of the query to each of the best captions, ``N`` finite numbers.
        vectors: unit vectors ``(N, D)`` of those captions, in order of rank.
        kinds: part of speech of each word of the query.
        enhanced: as UMIVR's code has it, a logistic of the entropy and the text's vagueness; else, as its paper has it,
            the entropy over its maximum, ``log2(N)``.

    >>> alike = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> round(text_ambiguity([0.5, 0.4], alike, ["noun"]), 4)  # 0.2 / (1 + e^6) + 0.8 * 21.31 / 21.3725
    0.7982
    >>> text_ambiguity([0.5, 0.4], alike, ["noun"], enhanced=False)
    0.0
    """
    entropy = cluster_entropy(scores, vectors)
    if not enhanced:
        return min(1.0, entropy / math.log2(len(scores))) if len(scores) > 1 else 0.0
    return SHARE / (1 + math.exp(-STEEPNESS * (entropy - MIDDLE_BITS))) + (1 - SHARE) * vagueness(kinds)


def candidate_weights(scores: Sequence[float]) -> npt.NDArray[np.float64]:
    """How plausible each of the best candidates is: float64 ``(N,)``, none below the mean score, of sum 1.

    Args:
        scores: ``N`` finite similarities, in any order.

    >>> candidate_weights([0.5, 0.4, 0.3, 0.2, 0.1]).round(9).tolist()  # squares of 1, 1/2 and 0, over 5/4
    [0.8, 0.2, 0.0, 0.0, 0.0]
    >>> candidate_weights([0.3, 0.3]).tolist()
    [0.5, 0.5]
    """
    above = np.asarray(scores, np.float64)
    if not above.size:
        return above
    above = above - above.mean()
    if above.max() <= 1e-8:
        return np.full(above.size, 1 / above.size)
    share = np.where(above > 1e-12, above / above.max(), 0.0) ** 2
    return np.asarray(share / share.sum())


def mapping_uncertainty(weights: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Mapping uncertainty score in [0, 1]: 0 for one plausible candidate, 1 where all are equally plausible.

    Args:
        weights: of sum 1 (:func:`candidate_weights`).

    Returns:
        Jensen-Shannon divergence of the weights from certainty, over that of the uniform weights.

    >>> mapping_uncertainty([1.0, 0.0, 0.0]), mapping_uncertainty([0.5, 0.5]), mapping_uncertainty([1.0])
    (0.0, 1.0, 0.0)
    """
    p = np.asarray(weights, np.float64)
    if p.size < 2:
        return 0.0
    certain = np.zeros_like(p)
    certain[p.argmax()] = 1.0
    return min(1.0, jensen_shannon(p, certain) / jensen_shannon(np.full_like(p, 1 / p.size), certain))


def jensen_shannon(p: Floats, q: Floats) -> float:
    """Jensen-Shannon divergence in nats of two distributions ``(N,)``.

    >>> round(jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) / math.log(2), 6)
    1.0
    """
    middle = (p + q) / 2
    halves = (float((part[part > 0] * np.log(part[part > 0] / middle[part > 0])).sum()) for part in (p, q))
    return max(0.0, sum(halves) / 2)


def next_level(level: int, *, first: bool, text: float, mapping: float) -> int:
    """Kind of the next question: 0 open, 1 telling candidates apart, 2 filling in what is missing.

    Args:
        level: that of the question before, 0 at first.
        first: whether nothing has been asked yet.
        text: text ambiguity score.
        mapping: mapping uncertainty score.

    >>> [next_level(0, first=False, text=0.4, mapping=mapping) for mapping in (0.2, 0.1)]
    [1, 2]
    """
    if level > 0:
        return 2
    if first or text >= AMBIGUOUS:
        return 0
    return 1 if mapping >= UNSURE else 2
