from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.ranking import Fusion, PenaltyRRF, SimMax, SimSum, StaticRRF, TimeWeightedRRF, UniformRRF
from covr_lab.ranking.memory import Memory
from covr_lab.types import RankedList

WINDOW, CHANNELS, POOL, ROWS = 3, 2, 5, 11
SEEDS = st.integers(0, 2**32 - 1)


def remembered(seed: int, sessions: int = 3) -> Memory:
    """Lists over the window with silent channels and short lists; similarities that no two rows can tie with."""
    rng = np.random.default_rng(seed)
    memory = Memory.empty(sessions, WINDOW, CHANNELS, POOL)
    for session, slot, channel in np.ndindex(sessions, WINDOW, CHANNELS):
        if rng.random() < 0.75:
            size = int(rng.integers(1, POOL + 1))
            scores = np.sort(rng.random(size, dtype=np.float32))[::-1]
            memory.write((session, slot, channel), RankedList(rng.permutation(ROWS)[:size].astype(np.int32), scores))
    return memory


def order_of(rule: Fusion, memory: Memory) -> list[list[int]]:
    return [[row for row in rows if row >= 0] for rows in rule(memory).tolist()]


def brute_force(memory: Memory, session: int, rule: str, weights: list[float], k: int) -> dict[int, float]:
    """Score of every row in a list of the session, as the definitions say; ``weights[0]`` is the newest turn's."""
    totals: dict[int, float] = defaultdict(float)
    union = {row for row in memory.rows[session].ravel().tolist() if row >= 0}
    for age, weight in enumerate(weights):
        for channel in range(CHANNELS):
            found = memory.read((session, WINDOW - 1 - age, channel))
            for row in union:
                rank = found.rank(row)
                if rule.startswith("sim"):
                    similarity = 0.0 if rank is None or found.scores is None else float(found.scores[rank - 1])
                    totals[row] = max(totals[row], similarity) if rule == "sim_max" else totals[row] + similarity
                elif rank is not None:
                    totals[row] += weight / (k + rank)
                elif rule == "penalty" and len(found.rows):
                    totals[row] -= weight / (k + POOL + 1)
    return totals


RULES: dict[str, tuple[Fusion, list[float]]] = {
    "uniform": (UniformRRF(window=WINDOW, k=7, pool=POOL), [1, 1, 1]),
    "penalty": (PenaltyRRF(window=WINDOW, k=7, pool=POOL), [1, 2 / 3, 1 / 3]),
    "penalty, harmonic": (PenaltyRRF(window=WINDOW, k=7, pool=POOL, recency="harmonic"), [1, 1 / 2, 1 / 3]),
    "linear": (TimeWeightedRRF(window=WINDOW, k=7, pool=POOL), [1, 2 / 3, 1 / 3]),
    "exponential": (TimeWeightedRRF(window=WINDOW, k=7, pool=POOL, recency="exponential"), [1, 0.7, 0.49]),
    "sim_max": (SimMax(window=WINDOW, pool=POOL), [1, 1, 1]),
    "sim_sum": (SimSum(window=WINDOW, pool=POOL), [1, 1, 1]),
}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_equals_the_definition(name: str, seed: int) -> None:
    rule, weights = RULES[name]
    memory = remembered(seed)
    for session, order in enumerate(order_of(rule, memory)):
        totals = brute_force(memory, session, name.split(",")[0], weights, 7)
        assert sorted(order) == sorted(totals)
        values = [totals[row] for row in order]
        assert all(first >= second - 1e-9 for first, second in pairwise(values))


def test_a_penalty_by_hand() -> None:
    """One turn of two lists of at most three, k = 1: absent costs 1/5. The short list is one that ran.

    4: 1/2 - 1/5 = 0.3; 5: 1/3 + 1/2 = 0.83; 6: 1/4 - 1/5 = 0.05. A silent second channel costs nothing.
    """
    memory = Memory.empty(2, 1, 2, 3)
    memory.write((0, 0, 0), RankedList(np.array([4, 5, 6], dtype=np.int32)))
    memory.write((0, 0, 1), RankedList(np.array([5], dtype=np.int32)))
    memory.write((1, 0, 0), RankedList(np.array([4, 5, 6], dtype=np.int32)))
    rule = PenaltyRRF(window=1, k=1, pool=3)
    assert order_of(rule, memory) == [[5, 4, 6], [4, 5, 6]]
    assert rule.penalty == 4


def test_rules_differ_where_their_definitions_do() -> None:
    """2 is best in an old turn alone, 1 in the newest alone, 3 is middling everywhere."""
    memory = Memory.empty(1, 3, 1, 3)
    turns = [([2, 3], [0.875, 0.25]), ([3, 5], [0.25, 0.125]), ([1, 4, 3], [0.625, 0.5, 0.25])]
    for slot, (rows, scores) in enumerate(turns):
        memory.write((0, slot, 0), RankedList(np.array(rows, np.int32), np.array(scores, np.float32)))
    rules = {"sim_max": SimMax(window=3, pool=3), "sim_sum": SimSum(window=3, pool=3), "uniform": UniformRRF(window=3)}
    first = {name: order_of(rule, memory)[0][:3] for name, rule in rules.items()}
    assert first == {"sim_max": [2, 1, 4], "sim_sum": [2, 3, 1], "uniform": [3, 1, 2]}
    assert order_of(StaticRRF(pool=3), Memory(memory.rows[:, -1:], memory.scores[:, -1:])) == [[1, 4, 3]]


def test_rules_without_similarities_cannot_sum_them() -> None:
    memory = Memory.empty(1, 1, 1, 2)
    memory.write((0, 0, 0), RankedList(np.array([1, 2], dtype=np.int32)))
    assert order_of(StaticRRF(pool=2), memory) == [[1, 2]]
    with pytest.raises(ValueError, match="no similarity"):
        SimSum(window=1, pool=2)(memory)


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES.values()], ids=list(RULES))
def test_a_session_fuses_alone_as_in_any_batch(rule: Fusion) -> None:
    memory = remembered(5, sessions=70)
    together = rule(memory)
    for part in (slice(3, 4), slice(60, 70), slice(None, None, -1)):
        np.testing.assert_array_equal(rule(Memory(memory.rows[part], memory.scores[part])), together[part])


@pytest.mark.parametrize(
    ("rule", "arguments", "key"),
    [
        (UniformRRF, {"k": 0}, "fusion.k"),
        (UniformRRF, {"channel_weights": [-1.0]}, "fusion.channel_weights"),
        (PenaltyRRF, {"pool": 0}, "fusion.pool"),
        (PenaltyRRF, {"gamma": 1.5}, "fusion.gamma"),
        (SimMax, {"window": 0}, "fusion.window"),
        (SimSum, {"pool": -1}, "fusion.pool"),
    ],
)
def test_bad_settings_name_their_key(rule: Any, arguments: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        rule(**arguments)
