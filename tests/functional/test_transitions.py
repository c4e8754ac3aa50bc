from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from covr_lab.functional.transitions import transition_counts, transition_statistics


def by_loop(ranks: Any, executed: Any, shown: Any, fired: Any) -> dict[str, float | int | None]:
    """The definitions, one transition at a time."""
    seen: dict[str, list[bool]] = {
        key: [] for key in ("improved", "not_improved", "drift", "repeat", "rejected_shown_again", "rank_cap_fired")
    }
    recovered: list[bool] = []
    fired_improved: list[bool] = []
    for s in range(len(ranks)):
        for t in range(1, len(ranks[s])):
            if not executed[s][t]:
                continue
            better = bool(ranks[s][t] < ranks[s][t - 1])
            video = shown[s][t]
            seen["improved"].append(better)
            seen["not_improved"].append(bool(ranks[s][t] >= ranks[s][t - 1]))
            seen["drift"].append(bool(ranks[s][t] > ranks[s][t - 1]))
            seen["repeat"].append(video is not None and video == shown[s][t - 1])
            seen["rejected_shown_again"].append(video is not None and video in list(shown[s][:t]))
            seen["rank_cap_fired"].append(bool(fired[s][t]))
            if fired[s][t]:
                fired_improved.append(better)
            if not better and t + 1 < len(ranks[s]) and executed[s][t + 1]:
                recovered.append(bool(ranks[s][t + 1] < ranks[s][t]))

    def percent(flags: list[bool]) -> float | None:
        return 100 * sum(flags) / len(flags) if flags else None

    return {
        "active": len(seen["improved"]),
        **{key: percent(flags) for key, flags in seen.items()},
        "recovery": percent(recovered),
        "recovery_n": len(recovered),
        "improved_when_fired": percent(fired_improved),
    }


def test_by_hand() -> None:
    shown = np.array(
        [
            ["a", "b", "a", "x"],  # a worse rank, then a ping-pong with an equal one, then the target
            ["c", "c", "y", "y"],  # a repeat with an equal rank, then the target; turn 3 is carried forward
            [None, None, "d", "e"],  # turns 0 and 1 failed: nothing shown, so nothing is shown again
            ["z", "z", "z", "z"],  # found at turn 0: no transition
        ],
        dtype=object,
    )
    ranks = np.array([[5, 9, 9, 1], [4, 4, 1, 1], [99, 99, 7, 8], [1, 1, 1, 1]])
    executed = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=bool)
    fired = np.array([[1, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)
    assert transition_statistics(ranks, executed, shown, fired) == {
        "active": 8,
        "improved": 37.5,  # session 0 turn 3, 1 turn 2, 2 turn 2
        "not_improved": 62.5,
        "drift": 25.0,  # 0 turn 1, 2 turn 3
        "repeat": 12.5,  # 1 turn 1
        "rejected_shown_again": 25.0,  # 0 turn 2, 1 turn 1
        "recovery": 75.0,  # of 0 turns 1 (no) and 2 (yes), 1 turn 1 (yes), 2 turn 1 (yes)
        "recovery_n": 4,
        "rank_cap_fired": 50.0,
        "improved_when_fired": 50.0,  # 0 turns 2 (no) and 3 (yes), 1 turns 1 (no) and 2 (yes)
    }


def test_counts_are_those_of_each_session() -> None:
    """Sessions on their own and together count alike, and the counts are those that the rates divide."""
    rng = np.random.default_rng(1)
    ranks, executed = rng.integers(1, 6, (40, 6)), np.arange(6) <= rng.integers(0, 6, (40, 1))
    shown, fired = rng.choice(np.array([*"abc", None], dtype=object), (40, 6)), rng.random((40, 6)) < 0.4
    counts = transition_counts(ranks, executed, shown, fired)
    for row in range(40):
        alone = transition_counts(*(part[row : row + 1] for part in (ranks, executed, shown, fired)))
        assert {name: count[0] for name, count in alone.items()} == {name: count[row] for name, count in counts.items()}
        rates = by_loop(*(part[row : row + 1] for part in (ranks, executed, shown, fired)))
        assert counts["stuck"][row] == rates["recovery_n"]
        assert counts["fired"][row] + counts["unfired"][row] == rates["active"]
        if counts["fired"][row]:
            share = 100 * counts["fired_improved"][row] / counts["fired"][row]
            assert share == pytest.approx(rates["improved_when_fired"])
    assert (counts["fired_improved"] + counts["unfired_improved"] == counts["improved"]).all()


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (80, 6)
    ranks = rng.integers(1, 6, shape)
    executed = np.arange(6) <= rng.integers(0, 6, (80, 1))
    shown = rng.choice(np.array([*"abcdefgh", None], dtype=object), shape)
    fired = rng.random(shape) < 0.4
    result = transition_statistics(ranks, executed, shown, fired)
    assert result == pytest.approx(by_loop(ranks, executed, shown, fired))
    assert result["improved"] + result["not_improved"] == pytest.approx(100)  # type: ignore[operator]


def test_no_denominator_no_rate() -> None:
    ranks, shown = np.array([[3, 3]]), np.array([["a", "a"]], dtype=object)
    no = np.zeros((1, 2), dtype=bool)
    result = transition_statistics(ranks, np.array([[True, False]]), shown, no)
    assert result.pop("active") == result.pop("recovery_n") == 0
    assert set(result.values()) == {None}


def test_inputs_that_do_not_fit_are_refused() -> None:
    ranks, shown = np.ones((2, 3), dtype=np.int64), np.full((2, 3), "a", dtype=object)
    yes: npt.NDArray[np.bool_] = np.ones((2, 3), dtype=bool)
    with pytest.raises(ValueError, match="one shape"):
        transition_statistics(ranks, yes[:, :1], shown, yes)
    gap = np.array([[True, True, True], [True, False, True]])
    with pytest.raises(ValueError, match="session row 1"):
        transition_statistics(ranks, gap, shown, yes)
