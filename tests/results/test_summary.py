from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from covr_lab.results.reader import Unfinished, read_rows, read_run
from covr_lab.results.summary import summarise, write_metrics


def test_every_number_by_hand(make_run: Any) -> None:
    folder = make_run(proxy="no video was seen")
    summary = summarise(read_rows(folder), read_run(folder))
    sections = "protocol proxy per_turn transitions failures cost cost_per_turn modules stages routing"
    assert summary.keys() == {"n", "n_gallery", *sections.split()}
    assert (summary["n"], summary["n_gallery"], summary["proxy"]) == (8, 100, "no video was seen")
    per_turn = summary["per_turn"]
    assert per_turn["R@1"] == [12.5, 25.0, 37.5]
    assert per_turn["R@5"] == [37.5, 50.0, 62.5]
    assert per_turn["R@10"] == [62.5, 75.0, 75.0]
    assert per_turn["R@50"] == [75.0, 87.5, 87.5]
    assert per_turn["Hits@1"] == [12.5, 25.0, 37.5]
    assert per_turn["Hits@10"] == [62.5, 75.0, 87.5]  # s5 was within ten once
    assert per_turn["MdR"] == [7.5, 6.0, 3.5]
    assert per_turn["MnR"] == [25.5, 18.25, 16.125]
    assert per_turn["MRR"][0] == pytest.approx((1 + 1 / 4 + 1 / 8 + 1 / 3 + 1 / 60 + 1 / 7 + 1 / 20) / 8)
    assert per_turn["MeanR3"] == pytest.approx([112.5 / 3, 50.0, 175 / 3])
    assert per_turn["MeanR4"] == pytest.approx([46.875, 59.375, 65.625])
    assert per_turn["ties"] == [2, 2, 3]
    best = [(1, 1, 1), (4, 1, 1), (8, 2, 1), (3, 3, 3), (60, 9, 9), (7, 7, 2), (101, 101, 101), (20, 20, 6)]
    assert per_turn["BRI"][0] is None
    assert per_turn["BRI"][1] == pytest.approx(sum(math.log(a * b) / 2 for a, b, _ in best) / 8)
    assert per_turn["BRI"][2] == pytest.approx(sum(math.log(a * b * b * c) / 4 for a, b, c in best) / 8)
    assert summary["transitions"] == pytest.approx(
        {
            "active": 13,
            "improved": 600 / 13,
            "not_improved": 700 / 13,
            "drift": 300 / 13,
            "repeat": 200 / 13,
            "rejected_shown_again": 300 / 13,
            "recovery": 50.0,
            "recovery_n": 4,
            "rank_cap_fired": 300 / 13,
            "improved_when_fired": 200 / 3,
        }
    )
    assert summary["failures"] == {
        "rows_with_error": 1,
        "sessions_missing_target": 1,
        "intent_fallbacks": 2,
        "reflection_fallbacks": 1,
    }
    assert summary["cost"] == {"calls": 26, "tokens_in": 1300, "tokens_out": 130}
    assert {name: sum(values) for name, values in summary["cost_per_turn"].items()} == summary["cost"]
    assert summary["modules"] == summary["stages"] == summary["routing"] == {}


def test_metrics_file_depends_on_rows_and_not_on_their_order_or_timing(make_run: Any, hand: list[Any]) -> None:
    slow = [row | {"seconds": 9.0} for row in sorted(hand, key=lambda row: (row["turn"], row["session_id"]))]
    first, second = (write_metrics(make_run("one")), write_metrics(make_run("two", rows=slow)))
    assert first.read_bytes() == second.read_bytes()
    assert json.loads(first.read_text(encoding="utf-8"))["n"] == 8
    assert not list(first.parent.glob("*.tmp"))


def test_missing_sessions_and_foreign_rows_are_refused(make_run: Any) -> None:
    folder = make_run(n_sessions=10)
    with pytest.raises(Unfinished, match="2 of 10 sessions missing"):
        write_metrics(folder)
    assert not (folder / "metrics.json").exists()
    assert json.loads(Path(write_metrics(folder, allow_partial=True)).read_text(encoding="utf-8"))["n"] == 8
    with pytest.raises(ValueError, match=r"n_gallery 100, run\.json has 99"):
        write_metrics(make_run("other", n_gallery=99))
