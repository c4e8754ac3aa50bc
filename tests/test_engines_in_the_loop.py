"""Engines in a run: declared once, lent by name, paid for in the rows."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from covr_lab.evaluate import evaluate, prepare
from covr_lab.results.reader import read_rows
from covr_lab.runner import SessionRunner
from covr_lab.simulators import ScriptedUser
from covr_lab.types import Refused
from tests.engines.toy import ToyEngine

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "recovr_words.yaml"
REASONERS = {
    "initial": "VLMInitialQuery",
    "intent": "VLMIntent",
    "reflection": "VLMReflector",
    "questioner": "VLMQuestion",
}


def overlay(folder: Path, *, user: str = "user_toy", **system: Any) -> Path:
    """Reasoners and user of the recipe by engine, over captions."""
    engines = {name: {"class_path": "tests.engines.toy.ToyEngine"} for name in ("system_toy", "user_toy")}
    slots = {
        slot: {"class_path": f"covr_lab.reasoning.{name}", "init_args": {"engine": "system_toy"}}
        for slot, name in REASONERS.items()
    }
    simulator = {"engine": user, "captions": "annotation", "frames": 0}
    document = {
        "engines": engines,
        "system": {"init_args": slots | system},
        "simulator": {"class_path": "covr_lab.simulators.VLMUser", "init_args": simulator},
    }
    path = folder / "engines.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def options(encoder: Path, *more: str) -> list[str]:
    small = ("--data.videos", "40", "--data.queries", "20", "--data.limit", "6", "--protocol.turns", "2")
    return ["--system.retrievers.captions.model", str(encoder), "--trainer.accelerator", "cpu", *small, *more]


def test_a_run_pays_for_every_module_in_its_rows(
    tiny_encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = evaluate([RECIPE, overlay(tmp_path)], options(tiny_encoder), run_dir=tmp_path / "run")
    assert outcome is not None
    rows = read_rows(outcome.folder).to_pylist()
    for row in rows:
        first = ["initial"] if row["turn"] == 1 else []
        asked = ["question", "user", *first, "intent", "reflection"] if row["turn"] else []
        assert [entry["module"] for entry in row["modules"]] == asked
        assert row["calls"] == len(asked) - ("user" in asked)  # the user's call is no cost of the system
        assert all(prompt["answer"] for prompt in row["prompts"])
    # six sessions, none of them solved: one call once, four a turn
    assert "at most 54 model calls; about" in capfd.readouterr().err
    said = subprocess.run(
        [sys.executable, "tools/show.py", str(outcome.folder), rows[0]["session_id"], "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.startswith(f"session {rows[0]['session_id']}, turn 1: 5 calls")
    for prompt in rows[1]["prompts"]:
        assert f"=== {prompt['module']}, attempt 1: the answer could be read" in said
        assert prompt["content"][0]["text"] in said


def test_umivr_pays_for_its_question_and_for_compression_where_words_do_not_fit(
    tiny_encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The estimate is of the dearest turn; a turn with room for all that was said compresses nothing."""
    init: dict[str, Any] = {"engine": "system_toy"}
    slots = {
        "intent": {"class_path": "covr_lab.reasoning.MergedQuery", "init_args": {**init, "max_words": 24}},
        "questioner": {"class_path": "covr_lab.reasoning.UncertaintyQuestion", "init_args": init},
    }
    recipes = [ROOT / "recipes" / "umivr_words.yaml", overlay(tmp_path, initial=None, reflection=None, **slots)]
    user = tmp_path / "user.yaml"
    user.write_text("simulator: {class_path: covr_lab.simulators.RuleUser, init_args: {words_per_turn: 2}}\n")
    outcome = evaluate([*recipes, user], [*options(tiny_encoder), "--protocol.turns", "4"], run_dir=tmp_path / "run")
    assert outcome is not None
    rows = read_rows(outcome.folder).to_pylist()
    compressed = 0
    for before, row in pairwise(rows):
        if not row["turn"]:
            continue
        said = dict(before["intent"] or ()).get("edit", "").split()
        narrow = before["turn"] > 0 and 24 - len(said) - 1 < max(10, len(row["feedback"].split()))
        assert [entry["module"] for entry in row["modules"]] == ["question_umivr"] + ["compress"] * narrow
        assert row["calls"] == 1 + narrow
        compressed += narrow
    assert 0 < compressed < sum(row["turn"] > 0 for row in rows)
    assert "at most 48 model calls; about" in capfd.readouterr().err  # six sessions, four turns, two calls


def test_no_session_costs_what_another_asks(tiny_encoder: Path, tmp_path: Path) -> None:
    """One list an engine and step: questions, then intents and reflections together."""
    _, data, runner = prepare([RECIPE, overlay(tmp_path)], options(tiny_encoder))
    runner.system.load()
    runner.bind(data)
    runner.play(data.queries(), data.targets())
    system = runner.engines["system_toy"]
    assert isinstance(system, ToyEngine)
    assert [[request.role for request in asked] for asked in system.asked] == [
        ["question"] * 6,
        ["initial"] * 6,
        ["intent"] * 6 + ["reflection"] * 6,
        ["question"] * 6,
        ["intent"] * 6 + ["reflection"] * 6,
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": "system_toy"}, "system and simulator both name engine 'system_toy'"),
        ({"user": "other"}, "simulator.engine names engine 'other', the recipe's `engines` are: system_toy, user_toy"),
        (
            {"intent": {"class_path": "covr_lab.reasoning.VLMIntent", "init_args": {"engine": "vlm"}}},
            "system.intent.engine names engine 'vlm'",
        ),
    ],
)
def test_engines_that_are_not_there(tiny_encoder: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        prepare([RECIPE, overlay(tmp_path, **change)], options(tiny_encoder))


def test_what_leads_to_no_turn_is_paid_by_the_last_one(tiny_encoder: Path, tmp_path: Path) -> None:
    _, data, runner = prepare([RECIPE, overlay(tmp_path)], options(tiny_encoder))
    query, target = data.queries()[0], data.targets()[0]
    again = SessionRunner(
        runner.system, ScriptedUser({query.session_id: ["add snow"]}), runner.protocol, runner.engines
    )
    again.system.load()
    again.bind(data)
    (session,) = again.play([query], [target])
    roles = [[call.request.role for call in turn.calls] for turn in session.turns]
    # the second question was asked, and then the user stopped
    assert roles == [[], ["question", "initial", "intent", "reflection", "question"]]
