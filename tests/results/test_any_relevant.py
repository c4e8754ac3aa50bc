"""Several targets and subsets: ranks by brute force, names by the protocol, subset recall, and what is compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covr_lab.gallery.gallery import Gallery
from covr_lab.results.compare import curves, load_runs, objections
from covr_lab.results.reader import read_rows, read_run
from covr_lab.results.rows import turn_row
from covr_lab.results.summary import named, summarise, write_metrics
from covr_lab.results.tables import Table, named_table, turn_table
from covr_lab.results.trec import export_trec
from covr_lab.results.wandb_log import payload
from covr_lab.types import Query, RankedList, Session, Target, Turn
from tests.results.conftest import hand_rows

RunMaker = Callable[..., Path]
IDS = [f"v{number}" for number in range(8)]
GALLERY = Gallery.of(IDS, {})


def row_of(order: list[int], scores: list[float] | None, target: Target, **turn: Any) -> dict[str, Any]:
    ranking = RankedList(
        np.array(order, dtype=np.int32), None if scores is None else np.array(scores, dtype=np.float32)
    )
    played = Turn(0, ranking, **turn)
    return turn_row(Session(Query("q", None, "x"), (played,)), played, GALLERY, target, "optimistic")


@given(
    st.permutations(range(8)),
    st.integers(0, 8),
    st.lists(st.sampled_from([*IDS, "absent"]), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=8, max_size=8),
    st.booleans(),
)
def test_the_rank_is_that_of_whichever_target_comes_first(
    order: list[int], length: int, targets: list[str], levels: list[float], scored: bool
) -> None:
    scores = sorted(levels[:length], reverse=True) if scored else None
    row = row_of(order[:length], scores, Target("q", targets[0], tuple(targets[1:])))
    ranked = [IDS[number] for number in order[:length]]
    places = [1 + ranked.index(target) for target in targets if target in ranked]
    if scores is not None:  # optimistic: only better scores count
        places = [1 + sum(score > scores[place - 1] for score in scores) for place in places]
    assert row["target_rank"] == min(places, default=9)
    assert (row["target"], row["other_targets"]) == (targets[0], targets[1:])


@given(
    st.permutations(range(8)),
    st.integers(0, 8),
    st.lists(st.sampled_from(IDS), min_size=1, max_size=5, unique=True),
    st.integers(0, 4),
)
def test_the_subset_rank_counts_members_alone(order: list[int], length: int, subset: list[str], at: int) -> None:
    target = subset[at % len(subset)]
    row = row_of(order[:length], None, Target("q", target, (), tuple(subset)))
    members = [IDS[number] for number in order[:length] if IDS[number] in subset]
    assert row["subset_rank"] == (1 + members.index(target) if target in members else len(subset) + 1)


def test_stages_and_channels_have_the_best_target_of_their_own_order() -> None:
    """What a stage did is told from the rank before it, whichever target that was."""
    target = Target("q", "v0", ("v1",))
    orders = {"retrieval": [2, 1, 0], "rerank": [0, 2, 1], "t2v": [3, 2, 1], "covr": [3]}
    lists = {name: RankedList(np.array(order, np.int32)) for name, order in orders.items()}
    stages = {name: lists[name] for name in ("retrieval", "rerank")}
    channels = {name: lists[name] for name in ("t2v", "covr")}
    row = row_of([0, 2, 1], None, target, stages=stages, channels=channels)
    assert row["stage_target_rank"] == {"retrieval": 2, "rerank": 1}
    assert row["channel_target_rank"] == {"t2v": 3}
    nobody = row_of([0, 2, 1], None, target, stages=stages)
    assert nobody["subset_rank"] is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("R@10", "R@10 (any relevant)"),
        ("R@K in percent, gain in R@1", "R@K (any relevant) in percent, gain in R@1 (any relevant)"),
        ("Hits@1", "Hits@1 (any relevant)"),
        ("MeanR3 and MRR", "MeanR3 (any relevant) and MRR (any relevant)"),
        ("BRI@5", "BRI (any relevant)@5"),
        ("R@1 (any relevant)", "R@1 (any relevant)"),
        ("coverage, HR@1 of MRRs", "coverage, HR@1 of MRRs"),
    ],
)
def test_named(text: str, shown: str) -> None:
    assert named(text, {"relevant": "any"}) == shown
    assert named(shown, {"relevant": "any"}) == shown
    assert named(text, {"turns": 5}) == text


def test_subset_recall_is_over_the_sessions_that_have_a_subset(make_run: RunMaker) -> None:
    ranks: dict[str, list[int | None]] = {"s1": [1], "s2": [4, 2], "s3": [3, 2, 1], "s4": [6, 6, 6]}
    rows = [{**row, "subset_rank": (ranks.get(row["session_id"]) or [None] * 3)[row["turn"]]} for row in hand_rows()]
    folder = make_run("run", rows)
    found = summarise(read_rows(folder), read_run(folder))["per_turn"]
    assert found["Rs@1"] == [25.0, 25.0, 50.0]
    assert found["Rs@2"] == [25.0, 75.0, 75.0]
    assert found["Rs@3"] == [50.0, 75.0, 75.0]
    runs = load_runs([folder])
    table = turn_table(runs, [curves(runs[0])])
    assert ("Rs@2", runs[0].name, "25.0", "75.0", "75.0") in table.rows
    assert table.note.endswith("Rs@K: recall within the subset of the query")
    plain = make_run("plain")
    assert not [name for name in summarise(read_rows(plain), read_run(plain))["per_turn"] if name.startswith("Rs")]


def test_stored_and_logged_names(make_run: RunMaker) -> None:
    bare, folder = make_run("bare"), make_run("run", relevant="any", recalls=[1, 2, 3])
    stored, plain = (json.loads(write_metrics(one).read_text()) for one in (folder, bare))
    values = {f"{name} (any relevant)": value for name, value in plain["per_turn"].items()}
    same = {name: value for name, value in stored["per_turn"].items() if name in values}
    assert same == {name: values[name] for name in same}
    assert set(values) - set(same) == {"coverage (any relevant)", "ties (any relevant)"}
    assert set(stored["per_turn"]) - set(same) == {"coverage", "ties", "R@2 (any relevant)", "R@3 (any relevant)"}
    points = payload(json.loads((folder / "run.json").read_text()), stored)[1]
    assert points[0]["R@1 (any relevant)"] == plain["per_turn"]["R@1"][0]
    assert "R@1" not in points[0]


def test_runs_with_one_and_with_several_targets_do_not_share_a_table(make_run: RunMaker) -> None:
    runs = load_runs([make_run("one"), make_run("several", relevant="any")])
    assert objections(runs, runs[0])[0] == "runs differ in protocol.relevant: they do not share a protocol"


def test_a_table_names_metrics_and_leaves_names_of_runs(make_run: RunMaker) -> None:
    runs = load_runs([make_run("run", relevant="any")])
    records = ({"metric": "R@1", "run": "my R@1 run", "R@1 gain": 3.0},)
    table = Table("R@1 by turn", "of BRI", ("metric", "run", "R@1"), (("R@1", "my R@1 run", "R@1"),), 2, records)
    shown = named_table(table, runs)
    assert (shown.title, shown.note) == ("R@1 (any relevant) by turn", "of BRI (any relevant)")
    assert shown.head == ("metric", "run", "R@1 (any relevant)")
    assert shown.rows == (("R@1 (any relevant)", "my R@1 run", "R@1"),)
    assert shown.records == ({"metric": "R@1 (any relevant)", "run": "my R@1 run", "R@1 (any relevant) gain": 3.0},)
    assert named_table(table, load_runs([make_run("one")])) is table


def test_every_target_is_exported_and_the_first_stands_at_its_rank(make_run: RunMaker) -> None:
    ids = [f"v{number}" for number in range(100)]
    rows = [{**row, "other_targets": ["v0", "v3"], "top_ids": ids, "target_rank": 4} for row in hand_rows()]
    rows = [{**row, "target_rank": 1} if row["session_id"] == "s1" else row for row in rows]
    found = export_trec(make_run("run", rows, relevant="any"))
    relevant = [line.split() for line in found.qrels.read_text().splitlines()]
    assert [line[2] for line in relevant if line[0] == "s2"] == ["target-s2", "v0", "v3"]
    ranked = [line.split() for line in found.runs[0].read_text().splitlines()]
    for session, rank in (("s1", 1), ("s2", 4)):
        order = [line[2] for line in ranked if line[0] == session]
        assert (order.index("v0"), len(order)) == (rank - 1, 100)
