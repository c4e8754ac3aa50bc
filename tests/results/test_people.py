from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covr_lab.results.compare import load_runs
from covr_lab.results.people import curves, feedback_table, has_people, same_instances, write_people

Rows = list[dict[str, Any]]
RunMaker = Callable[..., Path]
# Instance a was given to two people; ranks by turn.
HUMAN = {"a@p1": [3, 1, 1], "a@p2": [9, 9, 1], "b@p1": [2, 1], "c@p2": [40, 6, 8]}
SIMULATED = {"a": [3, 2, 1, 1], "b": [2, 2, 1, 1], "c": [40, 8, 1, 1], "d": [1, 1, 1, 1]}


def row(session: str, turn: int, rank: int, **more: Any) -> dict[str, Any]:
    name, _, person = session.partition("@")
    said: dict[str, Any] = {"action": "free" if person else "modify", "feedback": "make it red"} if turn else {}
    said |= {"source": "human" if person else "simulated"} if turn else {}
    links = {"instance": name, "participant": person} if person else {}
    ranks = {"target": f"target-{name}", "target_rank": rank, "target_ties": 0, "n_gallery": 100}
    shown = f"target-{name}" if rank == 1 else f"v{rank}"
    return {"session_id": session, "turn": turn, "edit": "x", "shown": shown, **ranks, **said, **links, **more}


def rows_of(ranks: dict[str, list[int]]) -> Rows:
    return [row(session, turn, rank) for session, own in ranks.items() for turn, rank in enumerate(own)]


@pytest.fixture
def human(make_run: RunMaker) -> Path:
    rows = rows_of(HUMAN)
    by = {(one["session_id"], one["turn"]): one for one in rows}
    by["a@p1", 1]["feedback"] = "one two three four five six"
    by["a@p1", 2] |= {"feedback": "", "rejected": ["v3"]}
    by["a@p2", 2] |= {"memory": {"keep": [], "require": ["red"], "avoid": [], "query": ""}}
    by["b@p1", 1] |= {"events": [{"kind": "found", "detail": "target-b"}]}
    by["c@p2", 2] |= {"action": "stop", "feedback": "v8"}
    folder = make_run("people", rows=rows, name="people", n_sessions=4)
    told = [{"session": "a@p1", "participant": "p1", "turn": 1, "shown": 1.0, "first_key": 3.0, "sent": 9.0}]
    told += [{"session": "a@p1", "participant": "p1", "turn": 2}]  # a browser that told nothing
    (folder / "people.json").write_text(json.dumps({"timings": told}), encoding="utf-8")
    return folder


@pytest.fixture
def simulated(make_run: RunMaker) -> Path:
    return make_run("simulated", rows=rows_of(SIMULATED), name="simulated", n_sessions=4, turns=3)


def test_curves_are_means_over_the_instances_of_the_people(human: Path, simulated: Path) -> None:
    runs, instances = same_instances(load_runs([human, simulated]))
    assert instances == ("a", "b", "c")
    people, others = (curves(run, instances) for run in runs)
    # Instance a counts once: the mean of its two people. Turn 2 is the last one that people had.
    np.testing.assert_allclose(people["R@1"].mean, [0, 50, 200 / 3], atol=1e-6)
    np.testing.assert_allclose(people["R@5"].mean, [50, 50, 200 / 3], atol=1e-6)
    np.testing.assert_allclose(others["R@1"].mean, [0, 0, 100], atol=1e-6)
    np.testing.assert_allclose(others["R@5"].mean, [200 / 3, 200 / 3, 100], atol=1e-6)
    values = np.array([50.0, 100.0, 0.0])  # R@1 of each instance at turn 1
    drawn = values[np.random.default_rng(0).integers(0, 3, (10_000, 3))].mean(axis=1)
    np.testing.assert_allclose(people["R@1"].low[1], np.percentile(drawn, 2.5), atol=1e-6)
    np.testing.assert_allclose(people["R@1"].high[1], np.percentile(drawn, 97.5), atol=1e-6)


def test_feedback_is_counted_as_it_was_given(human: Path, simulated: Path) -> None:
    runs, _ = same_instances(load_runs([human, simulated]))
    people, others = feedback_table(runs).records
    # Seven turns of people: six free ones (one of them no words), one stop.
    assert (people["sessions"], people["turns"]) == (4, 7)
    assert (people["words"], people["median words"]) == ((6 + 3 * 4) / 5, 3.0)
    shares = {name: round(people[name], 1) for name in ("free", "stop", "not this", "edited memory")}
    assert shares == {"free": 85.7, "stop": 14.3, "not this": 14.3, "edited memory": 14.3}
    assert (people["found"], people["found right"]) == (50.0, 50.0)
    assert (others["sessions"], others["turns"], others["modify"], others["found right"]) == (3, 6, 100.0, None)


def test_the_report_of_people(human: Path, simulated: Path, tmp_path: Path) -> None:
    assert (has_people(human), has_people(simulated)) == (True, False)
    text, (page, png, svg) = write_people([human, simulated], tmp_path / "out")
    lines = [line.split() for line in text.splitlines()]
    assert ["R@1", "people", "0.0", "(0.0", "to", "0.0)"] in [line[:6] for line in lines]
    assert [line[2:] for line in lines if line[:2] == ["people", "p1"]] == [["2", "2.0", "6.0"]]
    assert "People and others by turn" in page.read_text(encoding="utf-8")
    assert "3 instances, the same for all" in svg.read_text(encoding="utf-8")
    assert png.stat().st_size > 1000
    again = write_people([human, simulated], tmp_path / "again")[1]
    assert [path.read_bytes() for path in (png, svg)] == [path.read_bytes() for path in again[1:]]


def test_unlike_runs_are_refused(human: Path, simulated: Path, make_run: RunMaker, tmp_path: Path) -> None:
    fewer = make_run("fewer", rows=rows_of({"a": [1], "d": [1]}), n_sessions=2)
    with pytest.raises(ValueError, match=r"run toy lacks 2 of 3 instances of the people \(b, \.\.\.\)"):
        write_people([human, fewer], tmp_path / "out")
    elsewhere = make_run("elsewhere", rows=rows_of(SIMULATED), turns=3, gallery_sha256="1" * 64, proxy="captions")
    with pytest.raises(ValueError, match="runs differ in gallery_sha256, proxy"):
        write_people([human, elsewhere], tmp_path / "out")
    assert "WARNING: runs differ" in write_people([human, elsewhere], tmp_path / "out", force=True)[0]
    with pytest.raises(ValueError, match="no run has turns that a person said"):
        write_people([simulated], tmp_path / "out")
    another = make_run("another", rows=rows_of({"d@p1": [2, 1]}), name="another", n_sessions=1)
    with pytest.raises(ValueError, match="had no instance in common"):
        write_people([human, another], tmp_path / "out")
