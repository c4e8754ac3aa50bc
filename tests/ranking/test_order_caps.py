"""Rank-caps of fusion rules that read similarities: on the fused order, of this turn alone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.ranking import Fusion, RankCap, SimMax, SimSum, TimeWeightedRRF
from covr_lab.ranking.correct import Corrected, Found, correct
from covr_lab.types import Cap, RankedList, Satisfaction, Session
from tests.ranking.test_correct import CHANNELS, SIGNALS, after, demoted, opened

SIZE, WINDOW, POOL = 9, 3, 4
Scored = dict[str, dict[int, float]]  # channel -> row -> similarity


def ranking(scores: dict[int, float]) -> RankedList:
    rows = sorted(scores, key=lambda row: -scores[row])
    return RankedList(np.array(rows, np.int32), np.array([scores[row] for row in rows], np.float32))


def run(
    sessions: Sequence[Session],
    signals: Sequence[Satisfaction],
    found: Sequence[Scored],
    fusion: Fusion,
    policy: RankCap,
) -> list[Corrected]:
    lists = [Found({name: ranking(scores) for name, scores in each.items()}) for each in found]
    return correct(sessions, signals, lists, channels=CHANNELS, fusion=fusion, policies=[policy], opening=False)


class Mutable:
    """The same turns as a program of dictionaries that forgets nothing."""

    def __init__(self, result: list[int], rule: Literal["max", "sum"], cap: RankCap) -> None:
        self.result, self.rule, self.cap = result, rule, cap
        self.turns: list[Scored] = []
        self.rejected: list[int] = []

    def step(self, signal: Satisfaction, found: Scored) -> dict[int, int]:
        shown = self.result[0]
        pools = {name: dict(sorted(scores.items(), key=lambda item: -item[1])[:POOL]) for name, scores in found.items()}
        self.turns.append(pools)
        values: dict[int, list[float]] = {}
        for turn in self.turns[-WINDOW:]:
            for scores in turn.values():
                for row, score in scores.items():
                    values.setdefault(row, []).append(score)
        total = {row: max(x) if self.rule == "max" else sum(x) for row, x in values.items()}
        first = next((found[name] for name in CHANNELS if name in found), None)
        tail = self.result if first is None else sorted(first, key=lambda row: -first[row])
        order = sorted(total, key=lambda row: -total[row])
        order += [row for row in [*tail, *self.result] if row not in total]
        order = list(dict.fromkeys(order))
        caps = dict.fromkeys(self.rejected, self.cap.negative) if self.cap.memory == "all_rejected" else {}
        if signal == "negative":
            caps[shown] = self.cap.negative
            self.rejected += [shown] * (shown not in self.rejected)
        elif shown in (order[0], demoted(order, caps)[0]):
            caps.setdefault(shown, self.cap.neutral)
        self.fired = {row: demoted(order, {row: position}) != order for row, position in caps.items()}
        self.result = demoted(order, caps)
        return caps


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["max", "sum"]), st.booleans(), st.sampled_from([(4, 2), (11, 4)]))
def test_equals_a_program_with_dictionaries(
    seed: int, rule: Literal["max", "sum"], everything: bool, positions: tuple[int, int]
) -> None:
    """Three sessions of five turns, together; the recipe's cap says ``window``, the rule makes it ``order``."""
    random, fusion = Random(seed), {"max": SimMax, "sum": SimSum}[rule](window=WINDOW, pool=POOL)
    policy = RankCap(negative=positions[0], neutral=positions[1], memory="all_rejected" if everything else "last")
    rows = [random.sample(range(SIZE), SIZE) for _ in range(3)]
    sessions, peers = [opened(order) for order in rows], [Mutable(order, rule, policy) for order in rows]
    for _ in range(5):
        signals = random.choices(SIGNALS, k=3)
        found: list[Scored] = [
            {
                name: {row: float(np.float32(random.random())) for row in range(SIZE)}
                for name in CHANNELS
                if random.random() < 0.8
            }
            for _ in range(3)
        ]
        turns = run(sessions, signals, found, fusion, policy)
        for turn, peer, signal, lists in zip(turns, peers, signals, found, strict=True):
            caps = peer.step(signal, lists)
            assert turn.result.rows.tolist() == peer.result
            assert {cap.row: (cap.position, cap.fired) for cap in turn.caps} == {
                row: (position, peer.fired[row]) for row, position in caps.items()
            }
            assert {(cap.scope, cap.guard) for cap in turn.caps} <= {("order", False)}
            for name, kept in turn.lists.items():
                assert kept.rows.tolist() == ranking(lists[name]).rows[:POOL].tolist()
        sessions = [after(session, turn) for session, turn in zip(sessions, turns, strict=True)]


def test_a_rejected_video_leaves_the_order_and_no_list() -> None:
    """5 is the most similar; rejected, it goes to place 3 of the order, and comes first in the stored list."""
    scores = {"text": {5: 0.9, 1: 0.8, 2: 0.7, 3: 0.6}}
    policy, fusion = RankCap(negative=3, neutral=2), SimMax(window=2, pool=4)
    (turn,) = run([opened([5, 1, 2, 3])], ["negative"], [scores], fusion, policy)
    assert turn.result.rows.tolist() == [1, 2, 5, 3]
    assert turn.caps == (Cap(5, 3, "rejected", "order", guard=False, fired=True),)
    assert turn.lists["text"].rows.tolist() == [5, 1, 2, 3]
    assert turn.lists["text"].scores is not None
    assert turn.lists["text"].scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6])


@pytest.mark.parametrize(("memory", "first"), [("last", 5), ("all_rejected", 2)])
def test_a_cap_is_in_force_for_one_turn(memory: Any, first: int) -> None:
    scores = {"text": {5: 0.9, 1: 0.8, 2: 0.7, 3: 0.6}}
    policy, fusion = RankCap(negative=4, memory=memory), SimMax(window=2, pool=4)
    session = opened([5, 1, 2, 3])
    for shown in (5, 1):
        assert session.shown == shown
        (turn,) = run([session], ["negative"], [scores], fusion, policy)
        session = after(session, turn)
    assert session.shown == first


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([SimMax, SimSum]))
def test_what_was_on_display_never_stays_first(seed: int, rule: type[SimMax | SimSum]) -> None:
    random, session = Random(seed), opened(range(SIZE))
    for _ in range(6):
        found = {name: {row: random.random() ** 3 + (row == 0) for row in range(SIZE)} for name in CHANNELS}
        (turn,) = run([session], [random.choice(SIGNALS)], [found], rule(window=3, pool=5), RankCap())
        assert turn.result.rows[0] != session.shown
        session = after(session, turn)


def test_rules_that_read_ranks_keep_similarities_with_their_rows() -> None:
    scores = {"text": {5: 0.9, 1: 0.8, 2: 0.7, 3: 0.6}}
    (turn,) = run([opened([5, 1, 2, 3])], ["negative"], [scores], TimeWeightedRRF(pool=3), RankCap(negative=3))
    kept = turn.lists["text"]
    assert kept.rows.tolist() == [1, 2, 5]
    assert kept.scores is not None
    assert kept.scores.tolist() == pytest.approx([0.8, 0.7, 0.9])
