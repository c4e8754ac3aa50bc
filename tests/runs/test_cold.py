"""``tools/eval.py --cold``: every cache starts empty, and none is left."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest

import covr_lab.console
import covr_lab.evaluate
from covr_lab.evaluate import FOLDER, Outcome
from covr_lab.gallery.cache import cache_dir
from covr_lab.types import Refused

TOOL = Path(__file__).parents[2] / "tools" / "eval.py"


class Played:
    """Stands for a run: notes where caches lie, leaves something there, and makes a run folder."""

    def __init__(self, folder: Path, error: Exception | None = None, helper: bool = False) -> None:
        self.folder, self.error, self.helper = folder, error, helper
        self.cache, self.empty, self.options = Path(), False, dict[str, Any]()

    def __call__(self, paths: list[Path], overrides: list[str], **options: Any) -> Outcome | None:
        self.cache, self.options = cache_dir(), options
        self.empty = self.cache.is_dir() and not any(self.cache.iterdir())
        (self.cache / "galleries").mkdir(parents=True, exist_ok=True)
        if self.error is not None:
            raise self.error
        if self.helper:
            return None
        self.folder.mkdir()
        (self.folder / "run.json").write_text('{"name": "x"}')
        return Outcome(self.folder, 1, {})


def play(played: Played, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(covr_lab.evaluate, "evaluate", played)
    monkeypatch.setattr(covr_lab.console, "summary_table", lambda outcome: "")
    status: int = runpy.run_path(str(TOOL))["main"](["recipe.yaml", *options])
    return status


@pytest.fixture(autouse=True)
def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "warm"
    (folder / "galleries").mkdir(parents=True)
    monkeypatch.setenv("COVR_CACHE", str(folder))
    return folder


def test_a_cold_run_has_an_empty_cache_of_its_own(tmp_path: Path, warm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(tmp_path / "run")
    assert play(played, monkeypatch, "--cold", "--build") == 0
    assert played.empty
    assert played.cache != warm
    assert not played.cache.exists()
    assert played.options["fresh"]  # half of a warm run would not be cold
    assert played.options["build"]
    assert json.loads((played.folder / "run.json").read_text()) == {"name": "x", "cold": True}
    assert cache_dir() == warm
    assert [path.name for path in warm.iterdir()] == ["galleries"]


def test_a_warm_run_says_nothing_of_it(tmp_path: Path, warm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(tmp_path / "run")
    assert play(played, monkeypatch) == 0
    assert (played.cache, played.options["fresh"]) == (warm, False)
    assert json.loads((played.folder / "run.json").read_text()) == {"name": "x"}


@pytest.mark.parametrize("error", [Refused("no"), KeyboardInterrupt(), RuntimeError("broken")])
def test_a_cold_run_that_ends_early_leaves_nothing(
    error: Exception, tmp_path: Path, warm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path / "run", error)
    if isinstance(error, RuntimeError):
        with pytest.raises(RuntimeError):
            play(played, monkeypatch, "--cold")
    else:
        assert play(played, monkeypatch, "--cold") in (1, 130)
    assert played.empty
    assert not played.cache.exists()
    assert os.environ["COVR_CACHE"] == str(warm)


def test_processes_of_one_cold_run_share_its_cache(tmp_path: Path, warm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning starts the same command again; the first process has set up the folder."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "run"))
    played = Played(tmp_path / "run", helper=True)
    assert play(played, monkeypatch, "--cold") == 0
    assert played.cache == warm
    assert warm.exists()
