"""The world in words with a tiny encoder: a bound system, and what people say to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from covr_lab.app.batching import Batcher
from covr_lab.app.desk import Searches
from covr_lab.app.journal import Journal
from covr_lab.chat import Desk, open_desk

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "recovr_words.yaml"
WORLD = ["--data.videos", "60", "--data.queries", "30", "--data.gallery", "union", "--trainer.accelerator", "cpu"]


@pytest.fixture(scope="session")
def keys(tiny_encoder: Path) -> list[str]:
    """What makes of any recipe of the words world a small one that needs no download."""
    return [*WORLD, "--system.retrievers.captions.model", str(tiny_encoder)]


@pytest.fixture(scope="session")
def words(keys: list[str], tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """The bound system, shared: it keeps no state."""
    return open_desk([RECIPE], keys, run_dir=tmp_path_factory.mktemp("people") / "run", kind="app")


@pytest.fixture
def batcher(words: Desk) -> Iterator[Batcher]:
    batcher = Batcher(words.system)
    yield batcher
    batcher.close()


@pytest.fixture
def searches(words: Desk, batcher: Batcher, tmp_path: Path) -> Searches:
    targets = {query.session_id: target for query, target in words.pairs}
    return Searches(batcher, words.gallery, Journal(tmp_path / "journal"), targets=targets)
