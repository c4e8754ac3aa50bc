"""Schedules of comparisons against sorting, and their counts against formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random

import pytest

from covr_lab.functional.pairwise import Phase, Schedule, merge_sort, most, odd_even, schedule, sliding, win_matrix

NAMES = ("odd_even", "sliding", "merge")


def run(plan: Schedule, second_wins: Callable[[int, int], bool]) -> tuple[list[int], list[Phase]]:
    """The final order, and the phases."""
    phases = list[Phase]()
    try:
        phase = next(plan)
        while True:
            phases.append(phase)
            phase = plan.send([second_wins(*pair) for pair in phase.pairs])
    except StopIteration as end:
        return end.value, phases


def falls(keys: Sequence[int]) -> Callable[[int, int], bool]:
    return lambda first, second: keys[second] > keys[first]


@pytest.mark.parametrize("name", NAMES)
def test_a_consistent_judge_sorts(name: str) -> None:
    for size in range(6):
        for keys in permutations(range(size)):
            order, _ = run(schedule(name, size, size), falls(keys))  # type: ignore[arg-type]
            assert order == sorted(range(size), key=lambda item: -keys[item])
    keys = list(range(20))
    Random(0).shuffle(keys)
    assert run(schedule(name, 20, 20), falls(keys))[0] == sorted(range(20), key=lambda item: -keys[item])  # type: ignore[arg-type]


def test_half_as_many_passes_as_items_sort_by_transposition() -> None:
    for size in (2, 5, 9, 20):
        worst = list(range(size))
        assert run(odd_even(size, (size + 1) // 2), falls(worst))[0] == worst[::-1]


def test_transposition_meets_even_places_then_odd_ones() -> None:
    _, phases = run(odd_even(5, 2), lambda first, second: False)
    expected = [[(0, 1), (2, 3)], [(1, 2), (3, 4)]]
    assert phases == [Phase(encounter, pairs) for encounter in (0, 1) for pairs in expected]


def test_swaps_of_a_phase_show_in_the_next_one() -> None:
    order, phases = run(odd_even(4, 1), lambda first, second: (first, second) in {(0, 1), (0, 3)})
    assert [phase.pairs for phase in phases] == [[(0, 1), (2, 3)], [(0, 2)]]
    assert order == [1, 0, 2, 3]


def test_sliding_carries_a_winner_down_its_pass_and_not_up() -> None:
    """One pass from the top: the worst sinks to the end, the best rises by one place."""
    order, phases = run(sliding(4, 1), falls([0, 1, 2, 3]))
    assert [phase.pairs for phase in phases] == [[(0, 1)], [(0, 2)], [(0, 3)]]
    assert order == [1, 2, 3, 0]


@pytest.mark.parametrize("name", NAMES)
def test_no_two_meet_twice_in_an_encounter(name: str) -> None:
    dice = Random(3)
    for size in (2, 7, 20):
        order, phases = run(schedule(name, size, 6), lambda first, second: dice.random() < 0.5)  # type: ignore[arg-type]
        assert sorted(order) == list(range(size))
        met = [(phase.encounter, frozenset(pair)) for phase in phases for pair in phase.pairs]
        assert len(set(met)) == len(met)
        assert all(len({item for pair in phase.pairs for item in pair}) == 2 * len(phase.pairs) for phase in phases)
        if name == "merge":
            assert len({pair for _, pair in met}) == len(met)


@pytest.mark.parametrize("name", ["odd_even", "sliding"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 20])
def test_a_pass_has_one_comparison_less_than_items(name: str, size: int) -> None:
    _, phases = run(schedule(name, size, 10), lambda first, second: False)  # type: ignore[arg-type]
    count = sum(len(phase.pairs) for phase in phases)
    assert count == 10 * max(size - 1, 0) == most(name, size, 10)  # type: ignore[arg-type]
    assert [phase for phase in phases if not phase.pairs] == []


def test_merging_needs_few_comparisons() -> None:
    for size in (0, 1, 2, 3, 8, 20, 50):
        worst, dice = 0, Random(size)
        for _ in range(200):
            keys = dice.sample(range(size), size)
            _, phases = run(merge_sort(size), falls(keys))
            worst = max(worst, sum(len(phase.pairs) for phase in phases))
            assert len(phases) < max(4 * size, 1)
        assert worst <= most("merge", size, 0)
    assert most("merge", 8, 0) == 17  # 4 x 1 + 2 x 3 + 7
    assert run(merge_sort(4), falls([3, 1, 2, 0]))[1] == [
        Phase(0, [(0, 1), (2, 3)]),
        Phase(1, [(0, 2)]),
        Phase(1, [(1, 2)]),
        Phase(1, [(1, 3)]),
    ]


def test_wins_count_every_meeting_or_the_first_alone() -> None:
    results = [(0, 1, 1.0), (1, 0, 1.0), (2, 0, 0.25), (0, 1, 1.0)]
    assert win_matrix(3, results, "all").tolist() == [[0, 2, 0.75], [1, 0, 0], [0.25, 0, 0]]
    assert win_matrix(3, results, "unique").tolist() == [[0, 1, 0.75], [0, 0, 0], [0.25, 0, 0]]
    assert win_matrix(0, [], "all").shape == (0, 0)
