from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.ranking.correct import Corrected, Found, correct
from covr_lab.ranking.fusion import Fusion, StaticRRF, TimeWeightedRRF
from covr_lab.ranking.policies import RankCap, RankPolicy, Tops
from covr_lab.types import Cap, Query, RankedList, Satisfaction, Session, Turn

CHANNELS = ("text", "composed")
SIGNALS: tuple[Satisfaction, ...] = ("positive", "neutral", "negative")
SEEDS = st.integers(0, 2**32 - 1)
Found_ = dict[str, list[int]]


def ranking(rows: Sequence[int]) -> RankedList:
    return RankedList(np.array(rows, dtype=np.int32))


def opened(rows: Sequence[int], lists: Found_ | None = None) -> Session:
    turn = Turn(0, ranking(rows), channels={name: ranking(x) for name, x in (lists or {}).items()})
    return Session(Query("q", None, ""), (turn,))


def run(
    sessions: Sequence[Session],
    signals: Sequence[Satisfaction],
    found: Sequence[Found_],
    *,
    fusion: Fusion | None = None,
    policies: Sequence[RankPolicy] = (),
    opening: bool = False,
) -> list[Corrected]:
    return correct(
        sessions,
        signals,
        [Found({name: ranking(rows) for name, rows in lists.items()}) for lists in found],
        channels=CHANNELS,
        fusion=fusion or StaticRRF(pool=3),
        policies=policies,
        opening=opening,
    )


def after(session: Session, corrected: Corrected) -> Session:
    turn = Turn(len(session.turns), corrected.result, channels=corrected.lists, caps=corrected.caps)
    return session.then(turn)


def draw_found(random: Random, rows: Sequence[int], shown: int) -> Found_:
    """Full rankings of the channels that run; the composed one leaves its anchor, the shown video, out."""
    lists = {name: random.sample(list(rows), len(rows)) for name in CHANNELS if random.random() < 0.75}
    if "composed" in lists and random.random() < 0.5 and len(rows) > 1:
        lists["composed"] = [row for row in lists["composed"] if row != shown]
    return lists


def demoted(rows: list[int], caps: dict[int, int]) -> list[int]:
    """Each capped video lets as many of the others pass as its position asks for."""
    free = [row for row in rows if row not in caps]
    waiting: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        if row in caps:
            before = sum(other in free for other in rows[: rows.index(row)])
            waiting[max(before, min(caps[row] - 1, len(free)))].append(row)
    return [row for place in range(len(free) + 1) for row in (*waiting[place], *free[place : place + 1])]


@dataclass
class Mutable:
    """The same turn as a program with mutable lists and fractions; ``shares`` are per channel, newest turn first."""

    result: list[int]
    shares: list[dict[str, Fraction]]
    pool: int
    negative: int
    neutral: int
    all_rejected: bool
    memory: list[Found_] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)

    def fused(self, tail: list[int], caps: dict[int, int]) -> list[int]:
        sums: dict[int, Fraction] = defaultdict(Fraction)
        for shares, lists in zip(self.shares, reversed(self.memory), strict=False):
            for name, rows in lists.items():
                for rank, row in enumerate(demoted(rows, caps), start=1):
                    sums[row] += shares[name] / (60 + rank)
        head = sorted((row for row in sums if row in tail), key=lambda row: -sums[row])
        return head + [row for row in tail if row not in sums]

    def guarded(self, tail: list[int], caps: dict[int, int]) -> list[int]:
        order = self.fused(tail, caps)
        return demoted(order, caps) if order[0] in caps else order

    def step(self, signal: Satisfaction, found: Found_) -> dict[int, tuple[int, bool]]:
        """Row -> position and whether a list changed."""
        shown = self.result[0]
        first = next((found[name] for name in CHANNELS if name in found), self.result)
        tail = [*first, *(row for row in self.result if row not in first)]
        self.memory.append({name: rows[: self.pool] for name, rows in found.items()})
        caps = dict.fromkeys(self.rejected, self.negative) if self.all_rejected else {}
        if signal == "negative":
            caps[shown] = self.negative
            self.rejected += [shown] * (shown not in self.rejected)
        # Stagnant: first as things are, or first once older rejections are out of the way.
        elif shown in (self.fused(tail, {})[0], self.guarded(tail, caps)[0]):
            caps.setdefault(shown, self.neutral)
        window = self.memory[-len(self.shares) :]
        lists = [rows for turn in window for rows in turn.values()]
        plan = {row: (kappa, any(demoted(rows, {row: kappa}) != rows for rows in lists)) for row, kappa in caps.items()}
        for turn in window:
            turn.update({name: demoted(rows, caps) for name, rows in turn.items()})
        self.result = self.fused(tail, {})
        if self.result[0] in caps:
            self.result = demoted(self.result, caps)
        return plan


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.booleans(), st.sampled_from([(4, 2), (3, 3), (11, 4)]))
def test_equals_a_program_with_mutable_lists(seed: int, all_rejected: bool, positions: tuple[int, int]) -> None:
    """Three sessions of four turns, together, against each alone; weights that no two rows can tie with."""
    random = Random(seed)
    fusion = TimeWeightedRRF(window=3, pool=4, recency="exponential", gamma=0.6137, channel_weights=(1.0, 0.7311))
    policy = RankCap(negative=positions[0], neutral=positions[1], memory="all_rejected" if all_rejected else "last")
    shares = [{"text": Fraction(a), "composed": Fraction(a) * Fraction(0.7311)} for a in (1.0, 0.6137, 0.6137**2)]
    rows = [random.sample(range(9), random.randint(3, 9)) for _ in range(3)]
    sessions = [opened(order) for order in rows]
    peers = [Mutable(order, shares, 4, *positions, all_rejected) for order in rows]
    for _ in range(4):
        found = [draw_found(random, order, peer.result[0]) for order, peer in zip(rows, peers, strict=True)]
        signals = [random.choice(SIGNALS) for _ in sessions]
        turns = run(sessions, signals, found, fusion=fusion, policies=[policy])
        for turn, peer, signal, lists in zip(turns, peers, signals, found, strict=True):
            plan = peer.step(signal, lists)
            assert {cap.row: (cap.position, cap.fired) for cap in turn.caps} == plan
            assert {name: x.rows.tolist() for name, x in turn.lists.items()} == peer.memory[-1]
            assert turn.result.rows.tolist() == peer.result
        sessions = [after(session, turn) for session, turn in zip(sessions, turns, strict=True)]


@pytest.mark.parametrize(("memory", "smallest"), [("last", 3), ("all_rejected", 13)])
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, extra=st.integers(0, 15), rule=st.sampled_from([TimeWeightedRRF, StaticRRF]))
def test_a_video_is_never_shown_twice_in_a_row(
    memory: Literal["last", "all_rejected"], smallest: int, seed: int, extra: int, rule: type[TimeWeightedRRF]
) -> None:
    """ReCoVR, table 8: no repeat by design. Any lists, any signal, also when no channel runs."""
    random, fusion, policy = Random(seed), rule(), RankCap(memory=memory)
    favourite = random.sample(range(smallest + extra), smallest + extra)  # the same list every turn: the hardest case
    session = opened(favourite, {"text": favourite})
    for _ in range(6):
        found = draw_found(random, favourite, session.shown or 0)
        found = {name: favourite if random.random() < 0.5 else rows for name, rows in found.items()}
        (turn,) = run([session], [random.choice(SIGNALS)], [found], fusion=fusion, policies=[policy], opening=True)
        assert turn.result.rows[0] != session.shown
        session = after(session, turn)


def test_the_guard_of_an_older_rejection_does_not_bring_the_video_back() -> None:
    rows = np.arange(15, dtype=np.int32)
    session = opened([1, *range(2, 15), 0])
    session = session.then(Turn(1, RankedList(rows), caps=(Cap(1, 11, "rejected"),)))  # 1 was rejected, 0 is on display
    arguments: dict[str, Any] = {"fusion": StaticRRF(pool=1), "policies": [RankCap(memory="all_rejected")]}
    (turn,) = run([session], ["neutral"], [{"text": [1, 0, *range(2, 15)]}], **arguments)
    assert turn.result.rows[0] == 2


def test_only_the_guard_outweighs_an_old_list_that_cannot_be_capped() -> None:
    session = opened([5, *range(5), 6], {"text": [5]})
    found = {"text": [0, 5, 1, 2, 3, 4, 6]}
    for more, first in (({"scope": "current"}, 5), ({"fused_guard": False}, 5), ({}, 0)):
        fusion, policy = TimeWeightedRRF(recency="uniform"), RankCap(neutral=2, **more)
        (turn,) = run([session], ["neutral"], [found], fusion=fusion, policies=[policy], opening=True)
        assert turn.result.rows[0] == first


@pytest.mark.parametrize(("scope", "order", "fired"), [("current", [5, 0, 1], False), ("window", [0, 5, 1], True)])
def test_scope(scope: Literal["window", "current"], order: list[int], fired: bool) -> None:
    """5 is last in the new list, so only the old one can change; with [1, 0, 5] there, 0 gets more than 5."""
    arguments: dict[str, Any] = {
        "fusion": TimeWeightedRRF(recency="uniform"),
        "policies": [RankCap(scope=scope, fused_guard=False)],
    }
    session = opened([5, 1, 0], {"text": [5, 1, 0]})
    (turn,) = run([session], ["negative"], [{"text": [0, 5]}], **arguments, opening=True)
    assert turn.result.rows.tolist() == order
    assert turn.caps == (Cap(5, 11, "rejected", scope, guard=False, fired=fired),)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # 2/61 for 4; what no list of three holds follows in the order of the first channel that ran.
        ({"composed": [4, 6, 5, 3, 2, 1, 0], "text": [4, 1, 0, 6, 5, 3, 2]}, [4, 1, 6, 0, 5, 3, 2]),
        ({"text": [4, 1, 0, 6, 5, 3, 2]}, [4, 1, 0, 6, 5, 3, 2]),
        ({"composed": [4, 6, 5, 3, 2, 1, 0]}, [4, 6, 5, 3, 2, 1, 0]),
        ({}, [3, 0, 1, 2, 4, 5, 6]),
    ],
)
def test_order_of_what_no_list_holds(found: Found_, expected: list[int]) -> None:
    (turn,) = run([opened([3, 0, 1, 2, 4, 5, 6])], ["positive"], [found])
    assert turn.result.rows.tolist() == expected
    assert set(turn.lists) == set(found)
    assert all(rows.rows.tolist() == found[name][:3] for name, rows in turn.lists.items())
    assert turn.caps == ()


def test_no_channel_ran_the_memory_still_speaks() -> None:
    session = opened([3, 0, 1, 2], {"text": [2, 3]})
    (turn,) = run([session], ["neutral"], [{}], fusion=TimeWeightedRRF(window=2, pool=2), opening=True)
    assert (turn.result.rows.tolist(), turn.lists) == ([2, 3, 0, 1], {})
    (turn,) = run([opened([3, 0, 1, 2])], ["negative"], [{}], policies=[RankCap()])
    assert turn.result.rows.tolist() == [0, 1, 2, 3]
    assert turn.caps == (Cap(3, 11, "rejected", fired=False),)


def test_masked_rows_never_appear() -> None:
    """Row 2 is in the memory, but the ranking lacks it."""
    session = opened([0, 1, 3], {"text": [2, 0, 1]})
    fusion = TimeWeightedRRF(window=2, pool=3)
    for found in ({"text": [3, 1, 0]}, {"composed": [0, 3, 1]}):
        for signal in SIGNALS:
            (turn,) = run([session], [signal], [found], fusion=fusion, policies=[RankCap()], opening=True)
            assert sorted(turn.result.rows.tolist()) == [0, 1, 3]


class Fixed(RankPolicy):
    """Names what it is told, whatever happened."""

    def __init__(self, *caps: Cap) -> None:
        super().__init__()
        self.caps = caps

    def plan(self, session: Session, satisfaction: Satisfaction, tops: Tops) -> tuple[Cap, ...]:
        del session, satisfaction
        assert tops.channels == (0, 6)
        return self.caps


def test_the_first_policy_that_names_a_video_decides() -> None:
    first, second = Cap(0, 3, "stagnant", guard=False), Cap(6, 2, "rejected", "current", guard=False)
    policies = [Fixed(first), Fixed(Cap(0, 7, "rejected"), second)]
    found = {"text": [0, 1, 2, 3, 4, 5, 6], "composed": [6, 0, 1, 2, 3, 4, 5]}
    (turn,) = run([opened([0, 1])], ["neutral"], [found], policies=policies)
    assert [(cap.row, cap.position, cap.fired) for cap in turn.caps] == [(0, 3, True), (6, 2, True)]
    assert {name: rows.rows.tolist() for name, rows in turn.lists.items()} == {"text": [1, 2, 0], "composed": [1, 6, 0]}


def test_a_session_without_any_ranking() -> None:
    (turn,) = run([opened([])], ["neutral"], [{}], policies=[RankCap()])
    assert turn.result.rows.tolist() == []
