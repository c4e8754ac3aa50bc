"""Schedules of comparisons: who meets whom, and the order that results (X-CoT; dossier, section 4).

A schedule is a generator. It yields a :class:`Phase`, is sent for each of its pairs whether the second item won, and
returns the items in their final order. Items are places of the initial order; the first of a pair stands higher.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Pair = tuple[int, int]
ScheduleName = Literal["odd_even", "sliding", "merge"]


class Phase(NamedTuple):
    """Comparisons that do not wait for each other.

    Attributes:
        encounter: 0-based pass; no two items meet twice in one.
        pairs: (item that stands higher, item that stands lower).
    """

    encounter: int
    pairs: list[Pair]


Schedule = Generator[Phase, Sequence[bool], list[int]]


def odd_even(size: int, passes: int) -> Schedule:
    """Odd-even transposition: neighbours (0, 1), (2, 3), ... meet, then (1, 2), (3, 4), ...; a winning second swaps.

    ``size - 1`` comparisons a pass, in two phases. ``size / 2`` passes, rounded up, sort by a consistent judge.

    Args:
        size: number of items.
        passes: rounds of both phases.
    """
    order = list(range(size))
    for encounter in range(passes):
        for start in (0, 1):
            places = range(start, size - 1, 2)
            if places:
                yield from _met(order, places, encounter)
    return order


def sliding(size: int, passes: int) -> Schedule:
    """Neighbours from the top down, one comparison after another; a winning second swaps.

    ``size - 1`` comparisons a pass, each its own phase. ``size - 1`` passes sort by a consistent judge.

    Args:
        size: number of items.
        passes: sweeps.
    """
    order = list(range(size))
    for encounter in range(passes):
        for place in range(size - 1):
            yield from _met(order, (place,), encounter)
    return order


def merge_sort(size: int) -> Schedule:
    """Runs of one item are merged two by two, then those of two, ...; the merges of one level go on side by side.

    Sorts by a consistent judge in at most :func:`most` comparisons, about ``size * log2(size)``, and no two items meet
    twice. They wait for each other more often than in transposition: 20 items take 73 comparisons in some 40 phases,
    ten passes of :func:`odd_even` 190 in 20. An encounter is a level.

    Args:
        size: number of items.
    """
    runs = [[item] for item in range(size)]
    encounter = 0
    while len(runs) > 1:
        merges = [(left, right, list[int]()) for left, right in zip(runs[::2], runs[1::2], strict=False)]
        while active := [merge for merge in merges if merge[0] and merge[1]]:
            lost = yield Phase(encounter, [(left[0], right[0]) for left, right, _ in active])
            for (left, right, merged), second in zip(active, lost, strict=True):
                merged.append((right if second else left).pop(0))
        runs = [[*merged, *left, *right] for left, right, merged in merges] + runs[2 * len(merges) :]
        encounter += 1
    return runs[0] if runs else []


def schedule(name: ScheduleName, size: int, passes: int) -> Schedule:
    """The schedule of that name; merging knows no passes."""
    if name == "merge":
        return merge_sort(size)
    return (odd_even if name == "odd_even" else sliding)(size, passes)


def most(name: ScheduleName, size: int, passes: int) -> int:
    """Comparisons that a schedule makes at most.

    >>> most("odd_even", 20, 10), most("sliding", 20, 1), most("merge", 20, 10)
    (190, 19, 73)
    """
    if size < 2:
        return 0
    if name != "merge":
        return passes * (size - 1)
    runs, count = [1] * size, 0
    while len(runs) > 1:
        pairs = list(zip(runs[::2], runs[1::2], strict=False))
        count += sum(left + right - 1 for left, right in pairs)
        runs = [left + right for left, right in pairs] + runs[2 * len(pairs) :]
    return count


def win_matrix(size: int, results: Iterable[tuple[int, int, float]], counts: Literal["all", "unique"]) -> Tensor:
    """Wins of items against each other.

    Args:
        size: number of items, n.
        results: first item, second item, share of the win that the first one gets.
        counts: every meeting of two items counts, or the first one alone (X-CoT's explanation script).

    Returns:
        float64 ``(n, n)``: wins of the row's item against the column's.

    >>> win_matrix(2, [(0, 1, 1.0), (1, 0, 0.25)], "all").tolist()
    [[0.0, 1.75], [0.25, 0.0]]
    """
    wins, seen = [[0.0] * size for _ in range(size)], set[frozenset[int]]()
    for first, second, share in results:
        if counts == "unique" and frozenset((first, second)) in seen:
            continue
        seen.add(frozenset((first, second)))
        wins[first][second] += share
        wins[second][first] += 1 - share
    return torch.tensor(wins, dtype=torch.float64).reshape(size, size)


def _met(order: list[int], places: Sequence[int], encounter: int) -> Generator[Phase, Sequence[bool], None]:
    """One phase of neighbours; the swaps are applied to ``order`` in the order of the places."""
    lost = yield Phase(encounter, [(order[at], order[at + 1]) for at in places])
    for at, second in zip(places, lost, strict=True):
        if second:
            order[at], order[at + 1] = order[at + 1], order[at]
