"""UMIVR's scores against hand-computed numbers, scipy, and a literal reading of their description."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax
from scipy.stats import entropy

from covr_lab.functional.uncertainty import (
    WEIGHTS,
    candidate_weights,
    cluster_entropy,
    greedy_clusters,
    jensen_shannon,
    mapping_uncertainty,
    next_level,
    text_ambiguity,
    vagueness,
)

Vectors = npt.NDArray[np.float64]


def at_angles(*degrees: float) -> Vectors:
    """Unit vectors of the plane; cos 49.45 degrees is 0.650."""
    return np.array([[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in degrees])


def unit(draw: np.random.Generator, count: int, width: int) -> Vectors:
    vectors = draw.standard_normal((count, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_caption_joins_by_the_first_member_of_a_cluster_not_by_its_neighbour() -> None:
    assert greedy_clusters(at_angles(0, 40, 80)).tolist() == [0, 0, 1]
    assert greedy_clusters(at_angles(40, 0, 80)).tolist() == [0, 0, 0]  # the order decides who leads
    assert greedy_clusters(at_angles(0, 90, 45, 45)).tolist() == [0, 1, 0, 0]  # the first of two that are near
    assert greedy_clusters(np.array([[1.0, 0.0], [0.65, math.sqrt(1 - 0.65**2)]])).tolist() == [0, 0]
    assert greedy_clusters(np.array([[1.0, 0.0], [0.649, math.sqrt(1 - 0.649**2)]])).tolist() == [0, 1]
    assert greedy_clusters(np.empty((0, 3))).tolist() == []


def clusters_one_by_one(vectors: Vectors) -> list[list[int]]:
    found: list[list[int]] = []
    for number in range(len(vectors)):
        for cluster in found:
            if sum(a * b for a, b in zip(vectors[cluster[0]], vectors[number], strict=True)) >= 0.65:
                cluster.append(number)
                break
        else:
            found.append([number])
    return found


def test_entropy_of_meanings_equals_a_loop_and_scipy() -> None:
    draw = np.random.default_rng(0)
    sizes = set()
    for _ in range(200):
        vectors, scores = unit(draw, 5, 3), draw.uniform(-1, 1, 5)
        clusters = clusters_one_by_one(vectors)
        mass = [sum(softmax(scores)[member] for member in cluster) for cluster in clusters]
        assert cluster_entropy(scores.tolist(), vectors) == pytest.approx(entropy(mass, base=2), abs=1e-12)
        sizes.add(len(clusters))
    assert sizes >= {2, 3, 4}


def test_entropy_by_hand() -> None:
    assert cluster_entropy([math.log(3), 0.0], at_angles(0, 90)) == pytest.approx(0.8112781244591328)  # 3/4 and 1/4
    assert cluster_entropy([math.log(3), 0.0], at_angles(0, 10)) == 0
    assert math.copysign(1, cluster_entropy([1.0], at_angles(0))) == 1


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], 1.0),
        (["other"] * 9, 1.0),
        # 3*3 + 2 + 2*0.5 + 0.5 + 1 = 13.5 over eight words: 1 - 13.5 / 34.81
        (["adjective"] * 3 + ["adverb", "noun", "noun", "verb", "name"], 0.6121804079287562),
        # 7 nouns: 3.5 * 7/8 = 3.0625; 15 nouns: 7.5 * (1 + ln(8) / 2) = 15.2979
        (["noun"] * 7, 0.8743460867781311),
        (["noun"] * 15, 0.5821146975005944),
    ],
)
def test_vagueness_by_hand(kinds: Sequence[str], expected: float) -> None:
    assert vagueness(kinds) == pytest.approx(expected, abs=1e-12)


def test_a_longer_text_is_never_vaguer() -> None:
    for kind in WEIGHTS:
        values = [vagueness([kind] * count) for count in range(40)]
        assert all(after < before for before, after in pairwise(values))
    padded = [vagueness(["noun"] + ["other"] * count) for count in range(40)]
    assert all(after <= before for before, after in pairwise(padded))


def test_text_ambiguity_by_hand() -> None:
    four, level = at_angles(0, 90, 180, 270), [0.3] * 4  # two bits: the logistic is one half
    assert text_ambiguity(level, four, []) == pytest.approx(0.2 * 0.5 + 0.8)
    words = ["adjective"] * 3 + ["adverb", "noun", "noun", "verb", "name"]
    assert text_ambiguity(level, four, words) == pytest.approx(0.1 + 0.8 * 0.6121804079287562)
    # one meaning: 1 / (1 + e^6) = 0.0024726231566347743
    assert text_ambiguity([0.3, 0.2], at_angles(0, 1), []) == pytest.approx(0.2 * 0.0024726231566347743 + 0.8)
    assert text_ambiguity(level, four, words, enhanced=False) == 1
    # 1/4, 1/4 and 1/2: 1.5 bits of 2
    assert text_ambiguity(level, at_angles(0, 90, 180, 185), words, enhanced=False) == pytest.approx(0.75)
    assert text_ambiguity([0.3], at_angles(0), [], enhanced=False) == 0
    assert text_ambiguity([], np.empty((0, 2)), [], enhanced=False) == 0


def weights_in_words(scores: Sequence[float]) -> list[float]:
    mean = sum(scores) / len(scores)
    best = max(scores)
    if abs(best - mean) <= 1e-8:
        return [1 / len(scores)] * len(scores)
    raw = [((score - mean) / (best - mean)) ** 2 if score >= mean else 0.0 for score in scores]
    return [value / sum(raw) for value in raw]


def test_mapping_uncertainty_equals_scipy() -> None:
    draw = np.random.default_rng(1)
    for size in (2, 3, 5, 8):
        for _ in range(50):
            scores = draw.uniform(-1, 1, size).tolist()
            weights = candidate_weights(scores)
            assert weights == pytest.approx(weights_in_words(scores), abs=1e-12)
            certain = [float(score == max(scores)) for score in scores]
            apart, most = (jensenshannon(p, certain) ** 2 for p in (weights, [1 / size] * size))
            assert mapping_uncertainty(weights) == pytest.approx(min(1, apart / most), abs=1e-9)
            assert jensen_shannon(np.array(weights), np.array(certain)) == pytest.approx(apart, abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "weights", "mapping"),
    [
        ([], [], 0.0),
        ([0.4], [1.0], 0.0),
        ([0.4] * 5, [0.2] * 5, 1.0),
        ([0.4, 0.4 - 1e-9], [0.5, 0.5], 1.0),
        ([0.4, 0.2], [1.0, 0.0], 0.0),
        # 0.2157616 (two halves) over 0.3803954 (four quarters)
        ([0.1, 0.4, 0.4, 0.1], [0.0, 0.5, 0.5, 0.0], 0.5672029776089055),
        ([0.3, 0.6, 0.0], [0.0, 1.0, 0.0], 0.0),  # one exactly at the mean
        ([-0.5, -0.7, -0.9], [1.0, 0.0, 0.0], 0.0),
    ],
)
def test_mapping_edge_cases(scores: list[float], weights: list[float], mapping: float) -> None:
    found = candidate_weights(scores)
    assert found.tolist() == pytest.approx(weights, abs=1e-9)
    assert mapping_uncertainty(found) == pytest.approx(mapping, abs=1e-9)


def test_weights_follow_their_candidates_and_ignore_scale() -> None:
    scores = np.array([0.31, 0.28, 0.305, 0.1, 0.22])
    order = np.array([3, 0, 4, 2, 1])
    weights = candidate_weights(scores.tolist())
    assert candidate_weights(scores[order].tolist()) == pytest.approx(weights[order])
    assert candidate_weights((7 * scores - 2).tolist()) == pytest.approx(weights)
    assert mapping_uncertainty(weights[order]) == pytest.approx(mapping_uncertainty(weights))


def test_levels() -> None:
    """Every case: from 1 on always 2; ambiguous texts and first questions stay open; else by the mapping."""
    for level, first, text, mapping in product((0, 1, 2), (True, False), (0.49, 0.5, 0.9), (0.19, 0.2, 0.9)):
        expected = 2 if level else 0 if first or text >= 0.5 else 1 if mapping >= 0.2 else 2
        assert next_level(level, first=first, text=text, mapping=mapping) == expected
    assert {next_level(0, first=False, text=0.1, mapping=value) for value in (0.1, 0.3)} == {1, 2}
