"""The saved view on Weights & Biases, checked as a specification against what a study logs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from covr_lab.recipe import Wandb
from covr_lab.results import workspace
from covr_lab.results.plots import colour
from covr_lab.results.wandb_study import log_study
from covr_lab.types import Refused
from tests.results.test_wandb import KEY, closed_port, home, items, summary_of
from tests.results.test_wandb_study import offline, study

pytest.importorskip("wandb_workspaces", reason="the extra `dashboards` is not installed")
__all__ = ["home", "study"]
TOOL = Path(__file__).parents[2] / "tools" / "wandb_workspace.py"


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *map(str, arguments)], capture_output=True, text=True)


def panels(view: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for section in view["spec"]["section"]["panelBankConfig"]["sections"]:
        for panel in section["panels"]:
            yield panel["viewType"], panel["config"]


def table_key(panel: dict[str, Any]) -> str:
    key: str = panel["panel2Config"]["exp"]["fromOp"]["inputs"]["key"]["val"]
    return key


def test_every_panel_shows_what_a_study_logs(study: Path) -> None:
    log_study(study, Wandb(mode="offline"))
    runs = offline(study)
    done = call(study)
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    found = list(panels(view))
    history = {
        name: {key for r in records if r.HasField("history") for key in items(r.history.item)}
        for name, records in runs.items()
    }
    lines = [config for kind, config in found if kind == "Run History Line Plot"]
    drawn = [metric for config in lines for metric in config["metrics"]]
    assert {"R@1", "R@5", "R@10", "BRI", "MRR", "cost/calls"} <= set(drawn)
    assert {config["xAxis"] for config in lines} == {"turn"}
    for name in runs.keys() - {"study"}:
        assert {"turn", *drawn} <= history[name]
    bars = [metric for kind, config in found if kind == "Bar Chart" for metric in config["metrics"]]
    assert {"transitions/drift", "transitions/recovery", "difference/R@1"} <= set(bars)
    assert set(bars) <= set(summary_of(runs["B · default"]))
    shown = [table_key(config) for kind, config in found if kind == "Weave"]
    assert len(shown) == 4
    assert {f"{key}/path" for key in shown} <= history["study"]
    assert len(found) == len(lines) + len(bars) + len(shown)


def test_the_view_holds_one_group_and_one_colour_a_system(study: Path) -> None:
    view = json.loads(call(study).stdout)
    section = view["spec"]["section"]
    (runs,) = section["runSets"]
    (condition,) = runs["filters"]["filters"]
    assert (condition["key"]["name"], condition["op"], condition["value"]) == ("group", "=", "toy-study")
    assert [key["name"] for key in runs["grouping"]] == ["system.value", "condition.value"]
    colours = {re.search(r"A, ours|B", unquote(key))[0]: value for key, value in section["customRunColors"].items()}  # type: ignore[index]
    assert colours == {"A, ours": colour(0), "B": colour(1)}
    assert section["settings"]["xAxis"] == "turn"


def test_a_group_alone_is_enough_and_its_name_is_taken_as_it_is(tmp_path: Path) -> None:
    group = "study 1.5, words_2 · ü"
    done = call("--group", group, "--project", "p", "--entity", "e", "--out", tmp_path / "spec.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "spec.json")]
    view = json.loads((tmp_path / "spec.json").read_text(encoding="utf-8"))
    (condition,) = view["spec"]["section"]["runSets"][0]["filters"]["filters"]
    assert condition["value"] == group
    assert (view["entity"], view["project"]) == ("e", "p")
    assert [table_key(config) for kind, config in panels(view) if kind == "Weave"] == [
        "tables/failure-modes",
        "tables/example-dialogues",
    ]


@pytest.mark.parametrize("group", ["k = 60", "it's", "it's k = 60 ·", "a < b"])
def test_a_group_that_the_package_would_garble_is_refused(group: str) -> None:
    with pytest.raises(Refused, match=f"^group '{group}'") as refused:
        workspace.study_workspace(group, "p")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", [True, False], ids=["no network", "no key"])
def test_saving_without_key_or_network_is_refused_in_one_line(
    key: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if key:
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{closed_port()}")
    done = call("--group", "g", "--save")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert ("127.0.0.1 cannot be reached" if key else "no API key") in done.stderr


def test_a_view_that_is_saved_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    class Service:
        default_entity = "me"

    sent: list[Any] = []
    import wandb
    from wandb_workspaces.workspaces import interface

    def upsert(view: Any) -> dict[str, Any]:
        sent.append(view)
        return {"upsertView": {"view": {"name": "nw-abc-v", "id": "1"}}}

    monkeypatch.setattr(workspace, "obstacle", lambda: "")
    monkeypatch.setattr(wandb, "Api", Service)
    monkeypatch.setattr(interface.internal, "upsert_view2", upsert)
    monkeypatch.setattr(interface, "get_app_url", lambda api: "https://wandb.example")
    assert workspace.save(workspace.study_workspace("g", "p")) == "https://wandb.example/me/p?nw=abc"
    assert (sent[0].entity, sent[0].project) == ("me", "p")
    monkeypatch.setattr(interface.internal, "upsert_view2", lambda view: 1 / 0)
    with pytest.raises(Refused, match="the view was not saved: division by zero"):
        workspace.save(workspace.study_workspace("g", "p"))


def test_a_missing_package_or_study_is_one_line(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = call(tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "study.json is missing" in done.stderr
    monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
    with pytest.raises(Refused, match="covr_lab\\[dashboards\\]"):
        workspace.study_workspace("g", "p")
