from __future__ import annotations

import json
from dataclasses import replace
from math import asin, log, sqrt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from covr_lab.results import analysis
from covr_lab.results.compare import Run, load_runs
from covr_lab.results.resample import Resamples
from covr_lab.results.tables import Table


@pytest.fixture
def runs(make_run: Any, hand: list[Any]) -> list[Run]:
    """The hand-scored run, and one in which s4 is solved at turn 1 and no row follows."""
    better = [
        row | ({"target_rank": 1} if (row["session_id"], row["turn"]) == ("s4", 1) else {})
        for row in hand
        if (row["session_id"], row["turn"]) != ("s4", 2)
    ]
    return load_runs([make_run("a", name="old"), make_run("b", name="new", rows=better)])


def pick(table: Table, **wanted: Any) -> dict[str, Any]:
    """The one record that has these values; all records are what JSON keeps, and every row fits the head."""
    json.dumps(table.records, allow_nan=False)
    assert all(len(row) == len(table.head) for row in table.rows)
    (found,) = [record for record in table.records if wanted.items() <= record.items()]
    return dict(found)


def test_differences_have_their_significance(runs: list[Run]) -> None:
    old, new = runs
    table = analysis.difference_table([new, old], old, Resamples(runs))
    record = pick(table, metric="R@1", run="new", turn=1)
    assert (record["difference"], record["low"], record["high"]) == (12.5, 0, 37.5)
    assert (record["wins"], record["losses"], record["p"], record["p_holm"]) == (1, 0, 1, 1)
    assert not record["significant"]
    bri = pick(table, metric="BRI", run="new", turn=2)
    assert bri["difference"] == pytest.approx(-3 * log(3) / 4 / 8)
    assert pick(table, metric="BRI", run="new", turn=0)["difference"] is None
    assert {record["run"] for record in table.records} == {"new"}


def many(run: Run, ranks: Any, name: str) -> Run:
    """``run`` as if 40 sessions had these ranks."""
    ranks = np.asarray(ranks)
    ids, yes = tuple(f"{number:02}" for number in range(len(ranks))), np.ones(ranks.shape, bool)
    outcomes = replace(run.outcomes, session_ids=ids, ranks=ranks, executed=yes, shown=yes.astype(object), fired=~yes)
    return replace(run, name=name, outcomes=outcomes)


def test_a_star_marks_what_excludes_zero_and_p_is_adjusted_over_tested_turns(runs: list[Run]) -> None:
    base = np.full((40, 3), 2)
    solved = base.copy()
    solved[:8, 1] = 1  # 8 wins at turn 1, 6 at turn 2; turn 0 is one for both and tests nothing
    solved[:6, 2] = 1
    old, new = many(runs[0], base, "old"), many(runs[0], solved, "new")
    table = analysis.difference_table([old, new], old, Resamples([old, new]), metrics=["R@1"])
    assert table.rows[0] == ("R@1", "new", "+0.0", "+20.0*", "+15.0*")
    assert table.rows[2] == ("", "  p, adjusted", "1.000", "0.016", "0.031")  # 2 x 2 / 2^8, and 2 / 2^6
    assert pick(table, turn=1)["significant"] is True
    back = analysis.difference_table([old, new], new, Resamples([old, new]), metrics=["R@1"], method="bca")
    assert back.rows[0] == ("R@1", "old", "+0.0", "-20.0*", "-15.0*")
    assert back.rows[1][2] == "+0.0 to +0.0"


def test_effect_sizes(runs: list[Run]) -> None:
    record = pick(analysis.effect_table(runs, runs[0]), run="new")
    assert (record["turn"], record["wins"], record["losses"], record["p"]) == (2, 1, 0, 1)
    assert record["odds_ratio"] is None  # no loss: infinite
    assert record["cohens_h"] == pytest.approx(2 * asin(sqrt(4 / 8)) - 2 * asin(sqrt(3 / 8)))
    # one of eight sessions differs by d: its mean is d / 8, its standard deviation |d| / sqrt(8)
    assert record["d_z"] == pytest.approx(-1 / sqrt(8))
    assert pick(analysis.effect_table(runs, runs[0], turn=0), run="new")["d_z"] is None


def test_failure_modes_show_their_own_denominator(runs: list[Run]) -> None:
    table = analysis.failure_mode_table(runs)
    assert table.head[:3] == ("run", "n", "improved")
    assert table.rows[0] == ("old", "13", "46.2", "53.8", "23.1", "15.4", "23.1", "50.0", "4", "23.1", "66.7")
    assert table.rows[1][:2] == ("new", "12")
    assert pick(table, run="old")["improved"] == pytest.approx(100 * 6 / 13)


def test_recovery_stands_beside_its_base_rate(runs: list[Run]) -> None:
    record = pick(analysis.recovery_table(runs), run="old")
    assert (record["recovered"], record["recovered_n"]) == (50, 4)  # s4 and s7 do not, s6 and s8 do
    assert record["improved"] == pytest.approx(100 * 6 / 13)
    assert record["difference"] == pytest.approx(50 - 100 * 6 / 13)
    assert record["low"] is None  # a resample without any of the four has no rate


def test_intervals_of_rates_resample_sessions(runs: list[Run]) -> None:
    rng = np.random.default_rng(0)
    run = many(runs[0], rng.integers(1, 9, (40, 6)), "x")
    record = pick(analysis.recovery_table([run]), run="x")
    improved = np.diff(run.outcomes.ranks, axis=1) < 0
    drawn = np.random.default_rng(0).integers(0, 40, (10_000, 40))
    stuck = ~improved[:, :-1]
    recovered = (stuck & improved[:, 1:]).sum(axis=1)
    means = 100 * (
        recovered[drawn].sum(axis=1) / stuck.sum(axis=1)[drawn].sum(axis=1)
        - improved.sum(axis=1)[drawn].sum(axis=1) / 200
    )
    assert [record["low"], record["high"]] == pytest.approx(np.percentile(means, [2.5, 97.5]).tolist())
    assert record["difference"] > 10  # after a bad rank the next is likely better: no merit of a system


def test_the_rank_cap_is_an_association(runs: list[Run]) -> None:
    table = analysis.rank_cap_table(runs)
    record = pick(table, run="old")
    assert (record["fired_improved_n"], record["unfired_improved_n"]) == (3, 10)
    assert record["fired_improved"] == pytest.approx(100 * 2 / 3)
    assert record["unfired_improved"] == 40
    assert "not an effect" in table.note


def test_slices_by_rank_at_turn_0(runs: list[Run]) -> None:
    table = analysis.slice_table(runs, "opening_rank")
    found = [(row[0], row[1], row[2], row[3]) for row in table.rows if row[1] == "old"]
    assert found == [
        ("1", "old", "1", "100.0"),
        ("2 to 5", "old", "2", "50.0"),  # s2 is solved, s4 is not
        ("6 to 10", "old", "2", "50.0"),
        ("11 to 50", "old", "1", "0.0"),
        ("over 50", "old", "2", "0.0"),
    ]
    assert pick(table, run="new", slice="2 to 5")["value"] == 100
    assert sum(record["n"] for record in table.records) == 16


def test_slices_by_words_keep_equal_lengths_together(make_run: Any, hand: list[Any]) -> None:
    words = {"s1": 1, "s2": 1, "s3": 1, "s4": 2, "s5": 4, "s6": 4, "s7": 7, "s8": 9}
    rows = [row | {"edit": " ".join("w" * words[row["session_id"]])} for row in hand]
    (run,) = load_runs([make_run("c", rows=rows)])
    table = analysis.slice_table([run], "edit_length", turn=1, metric="R@10")
    assert [row[0] + " x" + row[2] for row in table.rows] == ["1 x3", "2 to 4 x3", "7 to 9 x2"]
    assert pick(table, slice="2 to 4")["value"] == 100
    assert pick(table, slice="7 to 9")["value"] == 0
    with pytest.raises(ValueError, match="BRI has no value at turn 0"):
        analysis.slice_table([run], metric="BRI", turn=0)
    with pytest.raises(ValueError, match="choose one of edit_length"):
        analysis.slice_table([run], "colour")  # type: ignore[arg-type]


def test_slices_by_action_are_those_of_the_runs_own_feedback(make_run: Any, hand: list[Any]) -> None:
    said = {("s3", 1): "rewrite", ("s4", 1): "rewrite", ("s4", 2): "rewrite", ("s2", 1): "stop"}
    rows = [row | {"action": said.get((row["session_id"], row["turn"]), row["action"])} for row in hand]
    (run,) = load_runs([make_run("c", rows=rows)])
    table = analysis.slice_table([run], "actions")
    counts = {row[0]: int(row[2]) for row in table.rows}
    assert counts == {"modify": 4, "no feedback": 2, "rewrite": 1, "modify + rewrite": 1}


def test_agreement_of_two_users(runs: list[Run]) -> None:
    record = pick(analysis.agreement_table([(runs[0], runs[1])]), a="old", b="new")
    assert record["agreement"] == 87.5
    assert record["kappa"] == pytest.approx((0.875 - 0.5) / 0.5)  # 3 and 4 of 8: chance 0.375 x 0.5 + 0.625 x 0.5
    assert (record["mean"], record["low"], record["high"]) == (-12.5, -37.5, 0)


def test_disagreements_name_the_sessions(runs: list[Run]) -> None:
    table = analysis.disagreement_table(runs[1], runs[0])
    (record,) = table.records
    assert (record["solved_by"], record["session_id"], record["a_rank"], record["b_rank"]) == ("new", "s4", 1, 5)
    assert "1 sessions only in new, 0 only in old" in table.note
    assert analysis.disagreement_table(runs[1], runs[0], turn=0).rows == ()


def test_the_worst_rank_of_the_other_comes_first(runs: list[Run]) -> None:
    winner, loser = np.ones((6, 2), int), np.array([[1, 3], [1, 9], [1, 1], [1, 9], [1, 70], [1, 2]])
    edits = replace(runs[0], table=runs[0].table.slice(0, 0))
    first, second = many(edits, winner, "w"), many(edits, loser, "l")
    rows = pa.table({"turn": [0] * 6, "edit": list("abcdef")})
    first, second = replace(first, table=rows), replace(second, table=rows)
    table = analysis.disagreement_table(first, second, size=3)
    assert [record["session_id"] for record in table.records] == ["04", "01", "03"]
    assert [record["edit"] for record in table.records] == ["e", "b", "d"]
    assert "5 sessions only in w" in table.note
    with pytest.raises(ValueError, match="different sessions"):
        analysis.disagreement_table(first, runs[0])
