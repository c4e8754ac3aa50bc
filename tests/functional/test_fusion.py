from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.functional.fusion import CHUNK, Recency, recency_weights, reciprocal_rank_fusion
from covr_lab.ranking.fusion import StaticRRF, TimeWeightedRRF
from covr_lab.ranking.memory import Memory

ROWS, LONGEST = 9, 6
Case = tuple[list[list[list[int]]], list[Fraction], int, int]


def pad(sessions: Sequence[Sequence[Sequence[int]]], length: int) -> npt.NDArray[np.int32]:
    padded = [[[*rows, *[-1] * (length - len(rows))] for rows in lists] for lists in sessions]
    return np.array(padded, dtype=np.int32).reshape(len(sessions), -1, length)


def by_ranks(rows: npt.NDArray[np.int32]) -> Memory:
    """Lists ``(S, W, C, K)`` of which only the ranks are known."""
    return Memory(rows, np.full(rows.shape, np.nan, dtype=np.float32))


def fuse(
    lists: Sequence[Sequence[int]], weights: Sequence[float], *, k: int = 60, current: int = 0
) -> tuple[list[int], dict[int, float]]:
    """One session without the padding: the order, and row -> score."""
    rows, scores = reciprocal_rank_fusion(pad([lists], max(map(len, lists))), weights, k=k, current=current)
    size = int((rows[0] >= 0).sum())
    assert (rows[0, size:] == -1).all()
    assert (scores[0, size:] == 0).all()
    return rows[0, :size].tolist(), dict(zip(rows[0].tolist(), scores[0].tolist(), strict=True))


def tie_keys(lists: Sequence[Sequence[int]], current: int) -> dict[int, tuple[tuple[int, int], int]]:
    """Row -> best rank in a list of this turn, then the earliest of these lists, then the row."""
    places: dict[int, list[tuple[int, int]]] = {row: [] for rows in lists for row in rows}
    for number, rows in enumerate(lists[len(lists) - current :]):
        for rank, row in enumerate(rows):
            places[row].append((rank, number))
    return {row: (min(found, default=(LONGEST * ROWS, 0)), row) for row, found in places.items()}


class Exact:
    """The definition, with fractions: what each row gets, from where, and what decides its ties."""

    def __init__(
        self,
        lists: Sequence[Sequence[int]],
        weights: Sequence[Fraction],
        k: int,
        current: int,
        penalty: int | None = None,
    ) -> None:
        self.sums: dict[int, Fraction] = {row: Fraction(0) for rows in lists for row in rows}
        self.shares: dict[int, Counter[tuple[Fraction, int]]] = defaultdict(Counter)
        for rows, weight in zip(lists, weights, strict=True):
            for rank, row in enumerate(rows, start=1):
                self.sums[row] += weight / (k + rank)
                self.shares[row][weight, rank] += 1
            for row in self.sums if rows and penalty else ():
                self.sums[row] -= 0 if row in rows else weight / (k + penalty)
        self.ties = tie_keys(lists, current)

    def disagrees(self, order: Sequence[int]) -> list[tuple[int, int]]:
        """Pairs that stand the wrong way round; equal sums of *unequal* parts are judged by a test of their own."""
        assert sorted(order) == sorted(self.sums)
        return [
            (first, second)
            for first, second in combinations(order, 2)
            if self.sums[first] < self.sums[second]
            or (self.shares[first] == self.shares[second] and self.ties[first] > self.ties[second])
        ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 5))
    rows = st.lists(st.integers(0, ROWS - 1), unique=True, max_size=LONGEST)
    sessions = draw(st.lists(st.lists(rows, min_size=count, max_size=count), min_size=1, max_size=3))
    weights = draw(st.lists(st.sampled_from([Fraction(n, 5) for n in range(6)]), min_size=count, max_size=count))
    return sessions, weights, draw(st.sampled_from([1, 7, 60])), draw(st.integers(0, count))


@settings(max_examples=400, deadline=None)
@given(cases(), st.sampled_from([None, 1, LONGEST + 1, 50]))
def test_equals_the_definition_in_exact_arithmetic(case: Case, penalty: int | None) -> None:
    sessions, weights, k, current = case
    lists = pad(sessions, LONGEST)
    rows, scores = reciprocal_rank_fusion(lists, [float(w) for w in weights], k=k, current=current, penalty=penalty)
    assert rows.shape == scores.shape == (len(sessions), len(weights) * LONGEST)
    for session, order, values in zip(sessions, rows.tolist(), scores.tolist(), strict=True):
        exact = Exact(session, weights, k, current, penalty)
        size = len(exact.sums)
        assert set(order[size:]) <= {-1}
        assert set(values[size:]) <= {0.0}
        assert exact.disagrees(order[:size]) == []
        assert values[:size] == pytest.approx([float(exact.sums[row]) for row in order[:size]], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("lists", "current", "expected"),
    [
        ([[3, 5], [9, 3], [5]], 2, [5, 3, 9]),  # the better rank in a list of this turn, though the list is a later one
        ([[5], [3]], 2, [5, 3]),  # the earlier list of this turn
        ([[3], [5]], 1, [5, 3]),  # in a list of this turn at all
        ([[5], [3], [7]], 1, [7, 3, 5]),  # the smaller row
        ([[5], [3]], 0, [3, 5]),
    ],
)
def test_ties(lists: list[list[int]], current: int, expected: list[int]) -> None:
    assert fuse(lists, [1.0] * len(lists), current=current)[0] == expected


def test_the_fusion_rule_breaks_ties_by_all_channels_of_the_turn() -> None:
    memory = np.array([[[[3], [-1]], [[5], [4]]]], dtype=np.int32)  # two turns of two channels
    assert TimeWeightedRRF(window=2, pool=1, recency="uniform")(by_ranks(memory)).tolist() == [[5, 4, 3, -1]]
    assert StaticRRF(pool=1)(by_ranks(memory[:, 1:])).tolist() == [[5, 4]]


def test_default_window_equals_the_definition() -> None:
    """The recipe's shape: five turns, two channels, a hundred rows of a gallery of 150, some channels silent."""
    fusion, rng = TimeWeightedRRF(), np.random.default_rng(0)
    sessions = [[rng.permutation(150)[:100].tolist() for _ in range(10)] for _ in range(6)]
    for session in sessions:
        session[rng.integers(10)] = []
        session[rng.integers(10)] = session[-1][:40]
    weights = [Fraction(turn, 5) for turn in range(1, 6) for _ in range(2)]  # oldest first, two channels each
    orders = fusion(by_ranks(pad(sessions, 100).reshape(6, 5, 2, 100)))
    for session, order in zip(sessions, orders.tolist(), strict=True):
        exact = Exact(session, weights, 60, 2)
        assert exact.disagrees(order[: len(exact.sums)]) == []


@pytest.mark.parametrize(
    ("lists", "weights", "current"),
    [
        ([[0], [1], [1], [2]], [0.8, 0.4, 0.2, 0.6], 1),
        ([[0], [1], [1], [2], [2]], [1 / 2, 1 / 3, 1 / 4, 1 / 3, 1 / 4], 2),
    ],
    ids=["2/5 + 1/5 = 3/5", "1/3 + 1/4 twice"],
)
def test_equal_sums_of_unequal_parts_are_ties(lists: list[list[int]], weights: list[float], current: int) -> None:
    exact = Exact(lists, [Fraction(weight).limit_denominator(5) for weight in weights], 60, current)
    order, _ = fuse(lists, weights, current=current)
    assert order == sorted(exact.sums, key=lambda row: (-exact.sums[row], exact.ties[row]))


def test_equals_ranx() -> None:
    ranx = pytest.importorskip("ranx")
    rng = np.random.default_rng(1)
    sessions = [[rng.permutation(40)[: rng.integers(1, 25)].tolist() for _ in range(4)] for _ in range(8)]
    runs = [
        ranx.Run(
            {f"q{s}": {str(row): -float(rank) for rank, row in enumerate(lists[i])} for s, lists in enumerate(sessions)}
        )
        for i in range(4)
    ]
    peer = ranx.fuse(runs=runs, norm=None, method="rrf", params={"k": 60})
    for number, lists in enumerate(sessions):
        order, scores = fuse(lists, [1.0] * 4)
        theirs = {int(row): score for row, score in peer.run[f"q{number}"].items()}
        assert set(order) == set(theirs)
        assert {row: scores[row] for row in order} == pytest.approx(theirs, abs=1e-6)
        assert all(theirs[a] >= theirs[b] - 1e-12 for a, b in pairwise(order))


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ("linear", [1, 0.8, 0.6, 0.4, 0.2]),
        ("exponential", [1, 0.7, 0.49, 0.343, 0.2401]),
        ("harmonic", [1, 0.5, 0.333333333, 0.25, 0.2]),
        ("uniform", [1, 1, 1, 1, 1]),
    ],
)
def test_recency_laws(law: Recency, expected: list[float]) -> None:
    assert recency_weights(5, law) == pytest.approx(expected)
    # The newest list weighs most: a row that is second now against one that was first in the oldest turn of the window.
    memory = np.full((1, 5, 1, 2), -1, dtype=np.int32)
    memory[0, 0, 0, 0], memory[0, -1, 0] = 1, (0, 2)
    order = TimeWeightedRRF(window=5, pool=2, recency=law)(by_ranks(memory))[0].tolist()[:3]
    assert order == ([0, 1, 2] if law == "uniform" else [0, 2, 1])


def test_absent_adds_zero() -> None:
    """A row of one list gets no share of the other, ranks start at 1, and k keeps one list from winning."""
    dense, sparse = ["X", "a", "Y"], ["b", "c", "Y"]
    names = ["a", "b", "c", "X", "Y"]
    order, scores = fuse([[names.index(name) for name in names_] for names_ in (dense, sparse)], [1.0, 1.0], current=2)
    assert [names[row] for row in order] == ["Y", "X", "b", "a", "c"]
    expected = {"Y": 2 / 63, "X": 1 / 61, "b": 1 / 61, "a": 1 / 62, "c": 1 / 62}
    assert {names[row]: scores[row] for row in order} == pytest.approx(expected, rel=1e-6)
    silent = fuse([[], [3, 0, 4], [1, 2, 4], []], [5.0, 1.0, 1.0, 5.0])
    assert silent[1] == pytest.approx(scores, rel=1e-6)


def test_a_penalty_is_taken_off_by_lists_that_ran() -> None:
    """By hand, k = 1 and penalty 4: each of three lists that ran takes 1/5 off the rows that it lacks."""
    lists = [[5, 8], [7, 6], [], [9, 7]]
    exact = {7: 1 / 2 + 1 / 3 - 1 / 5, 5: 1 / 2 - 2 / 5, 9: 1 / 2 - 2 / 5, 8: 1 / 3 - 2 / 5, 6: 1 / 3 - 2 / 5}
    rows, scores = reciprocal_rank_fusion(pad([lists], 2), [1.0] * 4, k=1, current=1, penalty=4)
    assert rows[0].tolist() == [7, 9, 5, 6, 8, -1, -1, -1]
    assert scores[0].tolist() == pytest.approx([exact[row] for row in (7, 9, 5, 6, 8)] + [0, 0, 0], abs=1e-6)


def test_a_penalty_changes_the_order() -> None:
    """Late in both lists against first in one: 1/83 + 1/82 is a little less than 1/41, and more than 1/41 - 1/121."""
    lists = [[1, *range(50, 91), 2], [*range(10, 51), 2]]
    plain, penal = (
        reciprocal_rank_fusion(pad([lists], 43), [1.0, 1.0], k=40, penalty=penalty)[0][0].tolist()
        for penalty in (None, 81)
    )
    assert plain.index(1) < plain.index(2)
    assert penal.index(2) < penal.index(1)


def test_zero_weight_rows_stay_behind_the_others() -> None:
    assert fuse([[5, 4], [7]], [0.0, 1.0], current=1)[0] == [7, 4, 5]


def random_lists(sessions: int) -> npt.NDArray[np.int32]:
    rng = np.random.default_rng(2)
    return pad([[rng.permutation(30)[: rng.integers(0, 13)].tolist() for _ in range(4)] for _ in range(sessions)], 12)


def test_sessions_do_not_meet() -> None:
    """Chunks, any split and any order of the sessions give the same bits."""
    lists, weights = random_lists(2 * CHUNK + 5), [0.25, 0.5, 1.0, 0.7]
    rows, scores = reciprocal_rank_fusion(lists, weights, current=2)
    shuffled = np.random.default_rng(3).permutation(len(lists))
    for parts in (np.split(lists, [1, CHUNK, CHUNK + 7]), [lists[i : i + 1] for i in range(9)], [lists[shuffled]]):
        split = [reciprocal_rank_fusion(part, weights, current=2) for part in parts]
        at = shuffled if len(parts) == 1 else np.arange(sum(map(len, parts)))
        np.testing.assert_array_equal(np.concatenate([part for part, _ in split]), rows[at])
        np.testing.assert_array_equal(np.concatenate([part for _, part in split]), scores[at])


def test_a_window_of_one_is_static() -> None:
    memory = random_lists(20).reshape(20, 2, 2, 12)
    shares = (1.0, 0.3)
    static = StaticRRF(pool=12, channel_weights=shares)(by_ranks(memory[:, -1:]))
    np.testing.assert_array_equal(
        static, TimeWeightedRRF(window=1, pool=12, channel_weights=shares)(by_ranks(memory[:, -1:]))
    )
    silent_past = np.concatenate((np.full_like(memory, -1), memory[:, -1:]), axis=1)
    late = TimeWeightedRRF(window=3, pool=12, channel_weights=shares)(by_ranks(silent_past))
    np.testing.assert_array_equal(late[:, : static.shape[1]], static)
    assert (late[:, static.shape[1] :] == -1).all()
    assert not np.array_equal(
        TimeWeightedRRF(window=2, pool=12, channel_weights=shares)(by_ranks(memory))[:, : static.shape[1]], static
    )


@settings(max_examples=200, deadline=None)
@given(cases(), st.data())
def test_a_better_rank_never_hurts(case: Case, data: st.DataObject) -> None:
    sessions, weights, k, current = case
    lists = [list(rows) for rows in sessions[0]]
    longer = [number for number, rows in enumerate(lists) if len(rows) > 1]
    if not longer:
        return
    rows = lists[data.draw(st.sampled_from(longer))]
    old = data.draw(st.integers(1, len(rows) - 1))
    row, numbers = rows[old], [float(weight) for weight in weights]
    before = fuse(lists, numbers, k=k, current=current)[0].index(row)
    rows.insert(data.draw(st.integers(0, old - 1)), rows.pop(old))
    assert fuse(lists, numbers, k=k, current=current)[0].index(row) <= before


def test_nothing_to_fuse() -> None:
    rows, scores = reciprocal_rank_fusion(np.empty((0, 4, 12), dtype=np.int32), [1.0] * 4)
    assert rows.shape == scores.shape == (0, 48)
    rows, scores = reciprocal_rank_fusion(np.full((3, 4, 12), -1), [1.0] * 4, current=2)
    assert (rows == -1).all()
    assert (scores == 0).all()


def test_long_lists_keep_their_order_or_are_refused() -> None:
    last_first = np.arange(50_000, dtype=np.int32)[None, None, ::-1]
    np.testing.assert_array_equal(reciprocal_rank_fusion(last_first, [1.0])[0][0], last_first[0, 0])
    with pytest.raises(ValueError, match="10 lists of 65536 rows are too long to fuse exactly: lower `pool`"):
        reciprocal_rank_fusion(np.empty((0, 10, 65_536), dtype=np.int32), [1.0] * 10, current=2)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [({"window": 0}, "fusion.window"), ({"k": 0}, "fusion.k"), ({"pool": 0}, "fusion.pool"),
     ({"channel_weights": [1.0, -0.5]}, "fusion.channel_weights")],
)  # fmt: skip
def test_bad_settings_name_their_key(arguments: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        TimeWeightedRRF(**arguments)


def test_channel_weights_must_fit_the_channels() -> None:
    with pytest.raises(ValueError, match=r"fusion\.channel_weights has 3 weights for 2 channels"):
        TimeWeightedRRF(window=2, pool=12, channel_weights=[1, 1, 1])(by_ranks(random_lists(1).reshape(1, 2, 2, 12)))
