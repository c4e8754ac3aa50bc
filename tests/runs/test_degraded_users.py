"""Recipes with degraded users: what is recorded, compared, resumed and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from covr_lab.evaluate import evaluate, prepare
from covr_lab.recipe import build_parser, digest, load, plain, resolve
from covr_lab.results.compare import load_runs, objections
from covr_lab.results.folder import RunRefused
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING
from covr_lab.simulators import DegradedUser
from covr_lab.types import Refused

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "recovr_words.yaml"
OVERLAYS = sorted(ROOT.glob("recipes/users/*.yaml"))
# Those that swap the user are played by tests/recipes/test_user_recipes.py.
USERS = {path.stem: path for path in OVERLAYS if "degradations:" in path.read_text()}
BASES = sorted(ROOT.glob("recipes/*.yaml"))
NOISY = [USERS[name] for name in ("no_answers", "drop_constraints", "character_noise")]


@pytest.fixture(scope="module")
def options(tiny_encoder: Path) -> list[str]:
    small = ["--data.videos", "40", "--data.queries", "20", "--data.limit", "12", "--data.batch_size", "4"]
    encoder = ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu"]
    return [*encoder, *small, "--protocol.turns", "2"]


@pytest.fixture(scope="module")
def clean(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean") / "run"
    evaluate([RECIPE], options, run_dir=folder)
    return folder


@pytest.fixture(scope="module")
def noisy(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noisy") / "run"
    evaluate([RECIPE, *NOISY], options, run_dir=folder)
    return folder


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def meant(row: dict[str, Any]) -> list[str]:
    return [event["detail"] for event in row["events"] if event["kind"] == "clean_feedback"]


def test_rows_keep_what_was_heard_and_what_was_meant(clean: Path, noisy: Path) -> None:
    rows = [row for row in read_rows(noisy).to_pylist() if row["turn"]]
    spoilt = [row for row in rows if meant(row)]
    assert 0 < len(spoilt) < len(rows)
    assert all(meant(row) != [row["feedback"]] and len(meant(row)) == 1 for row in spoilt)
    assert {row["action"] for row in rows} == {"modify", "rewrite"}
    assert all(row["question"] for row in rows)  # the system goes on asking
    assert not any(meant(row) for row in read_rows(clean).to_pylist())


def test_the_protocol_names_the_degradations_in_their_order(clean: Path, noisy: Path) -> None:
    assert "degradations" not in record(clean)["protocol"]
    known = record(noisy)["protocol"]["degradations"]
    assert list(known) == ["no_answers", "drop_constraints", "character_noise"]
    assert known["drop_constraints"] == {
        "class_path": "covr_lab.simulators.DropConstraints",
        "init_args": {"rate": 0.3, "seed": 0},
    }
    assert record(noisy)["protocol"]["user"] == record(clean)["protocol"]["user"]


def test_runs_with_different_users_are_not_compared(clean: Path, noisy: Path) -> None:
    runs = load_runs([clean, noisy])
    assert objections(runs, runs[0]) == [
        "runs differ in protocol.degradations: they do not share a protocol",
    ]
    again = load_runs([noisy])
    assert objections(again, again[0]) == []


def test_an_interrupted_run_goes_on_with_the_same_words(noisy: Path, options: list[str], tmp_path: Path) -> None:
    whole, folder = read_rows(noisy).drop_columns(list(TIMING)), tmp_path / "run"
    evaluate([RECIPE, *NOISY], [*options, "--data.batch_size", "1"], run_dir=folder)
    parts = sorted(folder.glob("turns/*.parquet"))
    assert len(parts) == 12
    for part in parts[::2]:
        part.unlink()
    outcome = evaluate([RECIPE, *NOISY], [*options, "--data.batch_size", "5"], run_dir=folder)
    assert outcome is not None
    assert not outcome.was_finished
    assert read_rows(folder).drop_columns(list(TIMING)).equals(whole)
    for other in ([RECIPE], [RECIPE, *NOISY[::-1]]):  # another user, and the same degradations in another order
        with pytest.raises(RunRefused, match="recipe"):
            evaluate(other, options, run_dir=folder)


def test_every_overlay_is_one_degradation_of_its_own_name_and_fits_every_user() -> None:
    assert set(USERS) == {
        *("character_noise", "word_noise", "drop_constraints", "modify_only", "rewrite_only", "no_answers"),
        *("inconsistent", "terse", "verbose"),
    }
    parser = build_parser()
    for base in {load([base])["simulator"]["class_path"]: base for base in BASES}.values():
        alone = plain(parser, resolve(parser, [base]))
        together = plain(parser, resolve(parser, [base, *USERS.values()]))
        assert alone["degradations"] == {}
        assert list(together["degradations"]) == list(USERS)
        assert {**together, "degradations": {}} == alone
        assert digest(together) != digest(alone)


@pytest.mark.parametrize("name", USERS)
def test_an_overlay_lays_its_degradation_around_the_user(name: str, options: list[str]) -> None:
    _, _, runner = prepare([RECIPE, USERS[name]], options)
    assert isinstance(runner.simulator, DegradedUser)
    assert runner.simulator.names == (name,)
    assert USERS[name].read_text().startswith("# A user who ")


def test_degradations_that_do_not_fit_are_refused_in_one_line(options: list[str]) -> None:
    with pytest.raises(Refused, match=r"^degradations modify_only, rewrite_only leave the user no action"):
        prepare([RECIPE, USERS["modify_only"], USERS["rewrite_only"]], options)
    with pytest.raises(Refused, match=r"rate must lie in \[0, 1\], not 2"):
        prepare([RECIPE, USERS["word_noise"]], [*options, "--degradations.word_noise.init_args.rate", "2"])
