"""What stages did, from turn to row to number: by hand, and against a slow reading of random rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from covr_lab.functional.paired import mcnemar
from covr_lab.gallery.gallery import Gallery
from covr_lab.results.compare import load_runs
from covr_lab.results.reader import densify, ordered, read_rows
from covr_lab.results.report import write_report
from covr_lab.results.resample import stage_gains
from covr_lab.results.routing import routing_summary, stage_outcomes, stage_seconds, stage_summary
from covr_lab.results.rows import turn_row
from covr_lab.results.schema import SCHEMA
from covr_lab.results.stage_tables import routing_table, stages_table
from covr_lab.results.summary import write_metrics
from covr_lab.results.wandb_log import read_payload
from covr_lab.types import Query, RankedList, Session, Target, Turn

RunMaker = Callable[..., Path]
Row = dict[str, Any]
NAMES = ("retrieval", "reranking", "verification")


def staged(session: str, ranks: tuple[int, ...], turn: int = 0, **routing: float) -> Row:
    """One row whose target has the three ``ranks``."""
    base = {"seed": 5.0, "pool": 5.0, "pairs_scored": 5.0, "reranked": 1.0}
    return {
        "session_id": session,
        "turn": turn,
        "edit": "make it red",
        "target": f"target-{session}",
        "target_rank": ranks[-1],
        "target_ties": 0,
        "n_gallery": 100,
        "action": "modify" if turn else None,
        "shown": "a",
        "calls": 0,
        "tokens_in": 0,
        "tokens_out": 0,
        "stage_target_rank": dict(zip(NAMES, ranks, strict=True)),
        "routing": base | routing,
        "stage_timing": {"reranking": 0.25, "verification": 0.5, "scoring": 0.75},
        "module_timing": [
            {"module": "verify", "seconds": 2.0, "retries": 0, "cached": 0},
            {"module": "user", "seconds": 9.0, "retries": 0, "cached": 0},
        ],
        "seconds": 1.0,
    }


VERIFIED = {"verify_entered": 1.0, "cluster": 3.0}
HAND = [
    staged("a", (1, 1, 1), gap_skip=1, pool=0, pairs_scored=0, reranked=0),
    staged("b", (9, 2, 1), expanded=1, pages=1, pool=10, pairs_scored=10, verify_calls=2, promoted=2, **VERIFIED),
    staged("c", (12, 4, 4), expanded=1, pages=3, pool=20, pairs_scored=40, late_description=1),
    staged("d", (5, 1, 3), early_description=1, verify_calls=3, promoted=3, **VERIFIED),
    staged("e", (30, 30, 30), expanded=1, pages=2, pool=15, pairs_scored=15),  # outside the pool
    staged("f", (101, 101, 101), failed=1),  # not in the gallery
    staged("g", (4, 1, 1), early_description=1),  # in the seed: no rescue
    staged("h", (8, 1, 1), expanded=1, pages=1, pool=10, pairs_scored=10, early_description=1),
]


def table_of(rows: list[Row]) -> pa.Table:
    return ordered(pa.Table.from_pylist(rows, schema=SCHEMA))


def test_a_row_has_the_rank_after_every_stage_in_their_order() -> None:
    gallery = Gallery(("v1", "v2", "v3"), {})
    order = np.array([2, 0], dtype=np.int32)
    tied = RankedList(order, np.array([0.5, 0.5], dtype=np.float32))
    turn = Turn(
        0,
        RankedList(order[::-1]),
        stages={"retrieval": tied, "reranking": RankedList(order), "a later one": RankedList(order[::-1])},
        routing={"pages": 3.0},
        stage_seconds={"reranking": 0.5},
    )
    session = Session(Query("s", None, "red"), (turn,))
    row = turn_row(session, turn, gallery, Target("s", "v1"), "optimistic")
    stored = pa.Table.from_pylist([row], schema=SCHEMA).to_pylist(maps_as_pydicts="strict")[0]
    assert list(stored["stage_target_rank"].items()) == [("retrieval", 1), ("reranking", 2), ("a later one", 1)]
    assert stored["target_rank"] == 1
    assert (stored["routing"], stored["stage_timing"]) == ({"pages": 3.0}, {"reranking": 0.5})
    missed = turn_row(session, turn, gallery, Target("s", "v2"), "optimistic")
    assert set(missed["stage_target_rank"].values()) == {4}
    assert turn_row(session, turn, gallery, None, "optimistic")["stage_target_rank"] == {}


def test_routing_by_hand() -> None:
    found = routing_summary(table_of(HAND))
    assert found["per_turn"] == [found["all"]]
    assert found["all"] == pytest.approx(
        {
            "queries": 8,
            "gap_skip": 12.5,
            "expanded": 50.0,
            "mean_pages": 7 / 4,
            "rescued": 25.0,  # b and h; c is in the first five
            "rescued_top5": 37.5,
            "described": 50.0,
            "concise": 37.5,
            "ambiguous": 12.5,
            "verified": 25.0,
            "mean_cluster": 3.0,
            "mean_scan": 2.5,
            "repaired": 12.5,  # b
            "regressed": 12.5,  # d
            "failed": 12.5,
            "pairs": (5 * 3 + 10 + 40 + 15 + 10) / 8,
            "descriptions": 0.5,
            "verifications": 5 / 8,
        }
    )


def test_stages_by_hand() -> None:
    table = table_of(HAND)
    outcomes = densify(table, turns=0)
    found = stage_summary(table, outcomes, (1, 5))
    assert list(found) == list(NAMES)
    assert [found[name]["R@1"] for name in NAMES] == [[12.5], [50.0], [50.0]]
    assert [found[name]["R@5"] for name in NAMES] == [[37.5], [75.0], [75.0]]
    assert found["reranking"]["MRR"] == pytest.approx([(1 + 1 / 2 + 1 / 4 + 1 + 1 / 30 + 0 + 1 + 1) / 8])
    assert [(found[name]["won"], found[name]["lost"]) for name in NAMES[1:]] == [([3], [0]), ([1], [1])]
    gains = stage_gains(table, outcomes)
    assert list(gains) == ["reranking", "verification"]
    mean, low, high = (part.item() for part in gains["reranking"]["R@1"])
    # three of eight sessions change by 100 points: Binomial(8, 3/8) of them in a resample, 2.5 and 97.5 % are 1 and 6
    assert (mean, low, high) == (37.5, 0.0 + 12.5 * 1, 12.5 * 6)
    mean, low, high = (part.item() for part in gains["verification"]["R@1"])
    assert mean == 0
    assert low == -high < 0


def test_wall_and_busy_seconds_are_a_query() -> None:
    assert stage_seconds(table_of(HAND)) == {"wall": 1.0, "reranking": 0.25, "verification": 0.5, "busy": 2.75}


INTERACTIVE = [
    staged("a", (7, 1, 1)),
    staged("b", (9, 3, 2)),
    staged("b", (6, 2, 1), 1, expanded=1, pages=2, pool=15, **VERIFIED),
    staged("c", (3, 3, 3)),
    staged("c", (2, 2, 2), 1) | {"stage_target_rank": {}, "routing": {}, "stage_timing": {}, "error": "no answer"},
]


def test_a_session_that_ended_or_failed_counts_after_every_stage() -> None:
    table = table_of(INTERACTIVE)
    outcomes = densify(table, turns=2)
    found = stage_outcomes(table, outcomes)
    assert found["retrieval"].ranks.tolist() == [[7, 1, 1], [9, 6, 1], [3, 2, 2]]
    assert found["reranking"].ranks.tolist() == [[1, 1, 1], [3, 2, 1], [3, 2, 2]]
    assert found["verification"].ranks.tolist() == outcomes.ranks.tolist()
    summary = stage_summary(table, outcomes, (1,))
    assert summary["verification"]["R@1"] == pytest.approx([100 / 3, 200 / 3, None])
    routing = routing_summary(table)
    assert [part["queries"] for part in (routing["all"], *routing["per_turn"])] == [4, 3, 1]
    assert routing["per_turn"][1]["mean_pages"] == 2
    assert routing["per_turn"][0]["mean_pages"] is None


def test_stages_at_the_opening_alone_say_nothing_of_later_turns() -> None:
    later = staged("a", (4, 4, 4), 1) | {"stage_target_rank": {}, "routing": {}, "stage_timing": {}}
    table = table_of([staged("a", (7, 2, 1)), later])
    outcomes = densify(table, turns=1)
    assert stage_summary(table, outcomes, (1,))["verification"]["R@1"] == [100.0, None]
    assert stage_outcomes(table, outcomes)["retrieval"].ranks.tolist() == [[7, 4]]


def random_rows(seed: int) -> list[Row]:
    draw, rows = np.random.default_rng(seed), []
    for number in range(60):
        pages, entered = int(draw.integers(0, 4)), bool(draw.integers(0, 2))
        pool = 5 + 5 * pages
        ranks = (int(draw.integers(1, 30)), int(draw.integers(1, 4)), int(draw.integers(1, 4)))
        gates = {"expanded": float(pages > 0), "pages": float(pages), "pool": float(pool)}
        rows.append(staged(f"s{number:02}", ranks, **gates, **(VERIFIED if entered else {})))
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_rates_are_those_of_a_slow_reading(seed: int) -> None:
    rows = random_rows(seed)
    found = routing_summary(table_of(rows))["all"]
    rescued = repaired = regressed = 0
    for row in rows:
        start, middle, end = row["stage_target_rank"].values()
        in_seed, in_pool = start <= 5, start <= row["routing"]["pool"]
        rescued += row["routing"]["expanded"] == 1 and not in_seed and in_pool and end == 1
        repaired += middle != 1 and end == 1
        regressed += middle == 1 and end != 1
    counts = {"rescued": rescued, "repaired": repaired, "regressed": regressed}
    for name, count in counts.items():
        assert found[name] == pytest.approx(100 * count / 60)
    assert min(counts.values()) > 0
    table = table_of(rows)
    after = stage_summary(table, densify(table, 0), (1,))
    gain = after["verification"]["R@1"][0] - after["reranking"]["R@1"][0]
    assert gain == pytest.approx(found["repaired"] - found["regressed"])


def test_metrics_depend_on_no_timing(make_run: RunMaker) -> None:
    slow = [row | {"stage_timing": {"reranking": 7.0}, "seconds": 9.0, "module_timing": None} for row in HAND]
    one, two = (write_metrics(make_run(name, rows=rows, turns=0)) for name, rows in (("a", HAND), ("b", slow)))
    assert one.read_bytes() == two.read_bytes()
    assert json.loads(one.read_text())["stages"]["verification"]["R@1"] == [50.0]


def test_the_report_has_stages_and_routing(make_run: RunMaker, hand: list[Row]) -> None:
    text, (page, *_) = write_report([make_run("a", name="cascade", rows=HAND, turns=0)])
    lines = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    (retrieved,) = [line for line in lines if line[2:3] == ["retrieval"]]
    assert retrieved[:6] == ["cascade", "0", "retrieval", "12.5", "37.5", "62.5"]
    (verified,) = [line for line in lines if line[2:3] == ["verification"]]
    assert verified[8] == "+0.0"
    assert verified[10:] == ["1", "1", "1.000"]
    (reranked,) = [line for line in lines if line[2:3] == ["reranking"]]
    assert reranked[8:] == ["+37.5", "+12.5 to +75.0", "3", "0", f"{mcnemar(3, 0):.3f}"]
    assert "gap skip %" in page.read_text()
    plain, _ = write_report([make_run("b", name="plain", rows=hand)])
    assert "Routing" not in plain
    assert "Stages" not in plain


def test_tables_hold_a_run_with_stages_and_leave_out_one_without(make_run: RunMaker, hand: list[Row]) -> None:
    runs = load_runs([make_run("a", name="x", rows=INTERACTIVE, n_sessions=3), make_run("b", name="y", rows=hand)])
    routing = routing_table(runs)
    assert [row[:3] for row in routing.rows] == [("x", "all", "4"), ("x", "0", "3"), ("x", "1", "1")]
    stages = stages_table(runs)
    assert [row[:3] for row in stages.rows] == [("x", str(turn), name) for turn in (0, 1) for name in NAMES]
    (record,) = [
        one for one in stages.records if (one["turn"], one["stage"], one["metric"]) == (1, "verification", "R@1")
    ]
    assert record["value"] == pytest.approx(200 / 3)
    assert record["gain"] == pytest.approx(100 / 3)
    assert record["low"] <= record["gain"] <= record["high"]


def test_the_dashboard_gets_stages_routing_and_seconds(make_run: RunMaker) -> None:
    folder = make_run("a", rows=INTERACTIVE, n_sessions=3)
    write_metrics(folder)
    _, _, points, summary = read_payload(folder)
    assert [point.get("stages/verification/R@1") for point in points] == pytest.approx([100 / 3, 200 / 3, None])
    assert [point.get("routing_by_turn/queries") for point in points] == [3, 1, None]
    assert summary["routing/expanded"] == 25.0
    assert summary["stage_seconds/reranking"] == 0.25
    assert summary["stages/verification/R@1_gain"] == pytest.approx(100 / 3)
    assert summary["stages/verification/R@1_gain_low"] <= 100 / 3
    assert read_rows(folder)["routing"].null_count == 0
