"""A study on Weights & Biases: what the offline run files of a group hold."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covr_lab.recipe import Wandb
from covr_lab.results import wandb_study
from covr_lab.results.compare import load_runs
from covr_lab.results.reader import densify, read_rows
from covr_lab.results.summary import write_metrics
from covr_lab.results.wandb_study import EXAMPLES, MODES, capped, log_study
from tests.results.test_wandb import KEY, curve_steps, home, items, records_of, summary_of

__all__ = ["home"]
RunMaker = Callable[..., Path]
TABLE = {
    "name": "main",
    "title": "Main comparison",
    "note": "percent",
    "head": ["system", "turn 2"],
    "rows": [["A", "37.5"]],
}


def write_study(out: str, make_run: RunMaker, hand: list[Any]) -> Path:
    """Two systems and two conditions; B solves s4 at the last turn."""
    better = [row | ({"target_rank": 1} if (row["session_id"], row["turn"]) == ("s4", 2) else {}) for row in hand]
    entries = []
    for system, rows in (("A, ours", hand), ("B", better)):
        for condition in ("default", "1 word"):
            folder = f"runs/{system[0].lower()}/{condition[0]}"
            path = make_run(f"{out}/{folder}", rows=rows)
            record = json.loads((path / "run.json").read_text())
            (path / "run.json").write_text(json.dumps(record | {"recipe": {"annotations": "secret.csv"}}))
            write_metrics(path)
            entries.append({"system": system, "condition": condition, "folder": folder, "seconds": 1.0})
    study = {
        "schema": 1,
        "title": "Two systems",
        "name": "toy-study",
        "command": ["tools/study.py", "/secret/study.yaml"],
        "spec": {"baseline": "A, ours"},
        "runs": entries,
        "tables": [TABLE | {"labels": 1, "records": []}, TABLE | {"name": "failure_modes"}],
    }
    path = path.parents[2]
    (path / "study.json").write_text(json.dumps(study), encoding="utf-8")
    return path


@pytest.fixture
def study(home: Path, make_run: RunMaker, hand: list[Any]) -> Path:
    return write_study(f"{home.name}/study", make_run, hand)


def offline(study: Path) -> dict[str, list[Any]]:
    """Display name of a run -> its records."""
    found = [records_of(path) for path in study.glob("wandb/offline-run-*/*.wandb")]
    return {next(r.run.display_name for r in some if r.HasField("run")): some for some in found}


def header(found: list[Any]) -> Any:
    return next(record.run for record in found if record.HasField("run"))


def test_a_group_has_a_run_for_every_system_and_condition(study: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_study(study, Wandb(mode="offline", project="p"))
    assert not caplog.records
    runs = offline(study)
    names = {f"{system} · {condition}" for system in ("A, ours", "B") for condition in ("default", "1 word")}
    assert set(runs) == {*names, "study"}
    assert {(header(found).project, header(found).run_group) for found in runs.values()} == {("p", "toy-study")}
    assert header(runs["B · 1 word"]).job_type == "1 word"
    config = items(header(runs["B · 1 word"]).config.update)
    assert (config["system"], config["condition"]) == ("B", "1 word")
    metrics = json.loads((study / "runs/b/1/metrics.json").read_text())
    points = [items(record.history.item) for record in runs["B · 1 word"] if record.HasField("history")]
    assert [point["turn"] for point in points] == [0, 1, 2]
    assert [point["R@1"] for point in points] == metrics["per_turn"]["R@1"]
    assert [point.get("BRI") for point in points] == metrics["per_turn"]["BRI"]
    assert curve_steps(runs["B · 1 word"]) == {"*": "turn"}
    summary = summary_of(runs["B · 1 word"])
    assert summary["transitions/improved"] == metrics["transitions"]["improved"]
    assert (summary["difference/R@1"], summary["difference/R@1_low"]) == (12.5, 0.0)
    # s4: its best rank so far is 3, 3, 1 and not 3, 3, 3; a session of eight, half of the second of two steps
    assert summary["difference/BRI"] == pytest.approx(-np.log(3) / 4 / 8)
    assert not [key for key in summary_of(runs["A, ours · default"]) if key.startswith("difference/")]


def sent_tables(study: Path, found: list[Any]) -> dict[str, dict[str, Any]]:
    """Key -> content of the table files that the run refers to."""
    entries = {key: value for r in found if r.HasField("history") for key, value in items(r.history.item).items()}
    (folder,) = study.glob(f"wandb/offline-run-*-{header(found).run_id}/files")
    paths = {key.removesuffix("/path"): folder / path for key, path in entries.items() if key.endswith("/path")}
    return {key: json.loads(path.read_text(encoding="utf-8")) for key, path in paths.items()}


def test_the_study_run_has_the_tables_and_the_dialogues(study: Path) -> None:
    log_study(study, Wandb(mode="offline", group="mine"))
    found = offline(study)["study"]
    assert header(found).run_group == "mine"
    assert items(header(found).config.update)["systems"] == ["A, ours", "B"]
    tables = sent_tables(study, found)
    assert set(tables) == {MODES, EXAMPLES, "tables/main", "tables/failure-modes-2"}
    assert tables["tables/main"]["data"] == TABLE["rows"]
    (run,) = load_runs([study / "runs/a/d"])
    modes = tables[MODES]
    assert modes["columns"][:2] == ["system", "condition"]
    assert dict(zip(modes["columns"][2:], modes["data"][0][2:], strict=True)) == run.summary["transitions"]
    dialogues = [dict(zip(tables[EXAMPLES]["columns"], row, strict=True)) for row in tables[EXAMPLES]["data"]]
    late = [row for row in dialogues if (row["system"], row["kind"]) == ("A, ours", "Solved late")]
    assert [(row["session"], row["turn"], row["target_rank"]) for row in late] == [
        ("s3", 0, 8), ("s3", 1, 2), ("s3", 2, 1), ("s2", 0, 4), ("s2", 1, 1)
    ]  # fmt: skip
    assert late[1]["feedback"].startswith("no, ")
    assert {row["system"] for row in dialogues} == {"A, ours", "B"}
    assert summary_of(found)["notes/main"] == "percent"


def test_no_path_and_no_key_leaves(study: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    log_study(study, Wandb(mode="offline"))
    runs = offline(study)
    assert len(runs) == 5
    sent = [path.read_bytes() for path in study.glob("wandb/offline-run-*/files/**/*") if path.is_file()]
    assert len(sent) == 4
    for record in (record for found in runs.values() for record in found):
        for entry in record.artifact.manifest.contents:
            entry.local_path = ""  # where this machine uploads a table from; no part of what the service is told
        sent.append(record.SerializeToString())
    secrets = [KEY.encode(), bytes(home), b"secret.csv", b"/secret/", b"runs/a/"]
    assert not [secret for secret in secrets if any(secret in content for content in sent)]


def test_large_tables_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_study, "MAX_ROWS", 2)
    table = capped(["a", "b"], [["x" * 600, 1], ["y", None], ["z", 3]], "percent")
    assert table.rows == [["x" * 499 + "…", 1], ["y", None]]
    assert table.note == "percent; first 2 of 3 rows; 1 text cut to 500 characters"


def test_a_study_logged_twice_keeps_every_value(study: Path) -> None:
    """No explicit step: nothing is dropped because a step went back."""
    for _ in range(2):
        log_study(study, Wandb(mode="offline"))
    found = [records_of(path) for path in study.glob("wandb/offline-run-*/*.wandb")]
    turns = [
        [items(r.history.item)["turn"] for r in some if r.HasField("history")]
        for some in found
        if header(some).job_type != "study"
    ]
    assert turns == [[0, 1, 2]] * 8


@pytest.mark.parametrize("fault", ["server", "missing", "rows"])
def test_a_failure_is_a_warning(
    fault: str, study: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    def fail(*args: object, **kwargs: object) -> None:
        raise wandb.errors.CommError("the server said no")

    if fault == "server":
        monkeypatch.setattr(wandb, "init", fail)
    elif fault == "missing":
        (study / "study.json").unlink()
    else:
        next((study / "runs/b/d/turns").iterdir()).write_bytes(b"nothing")
    with caplog.at_level(logging.WARNING):
        log_study(study, Wandb(mode="offline"))
    assert len(caplog.records) == 1
    assert "was not logged to its end" in caplog.records[0].message


def test_disabled_does_nothing(study: Path) -> None:
    before = sorted(study.rglob("*"))
    log_study(study, Wandb())
    assert sorted(study.rglob("*")) == before


def test_a_run_over_other_sessions_has_no_difference(study: Path) -> None:
    runs = load_runs([study / "runs/a/d", study / "runs/b/d"])
    entries = [{"system": "A", "condition": "c"}, {"system": "B", "condition": "c"}]
    assert wandb_study.differences(entries, runs, "A")[1]["difference/R@1"] == 12.5
    table = read_rows(runs[1].folder)
    fewer = table.filter(np.asarray(table["session_id"].to_pylist()) != "s8")
    other = replace(runs[1], outcomes=densify(fewer, 2))
    assert wandb_study.differences(entries, [runs[0], other], "A") == [{}, {}]
    assert wandb_study.differences(entries, runs, None) == [{}, {}]
