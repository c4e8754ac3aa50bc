"""Systems are compared on their turns with feedback, so all of them start from the same turn 0."""

from __future__ import annotations

import csv
from itertools import combinations
from pathlib import Path

import pyarrow.compute as pc
import pytest

from covr_lab.data.words import world
from covr_lab.evaluate import evaluate
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SYSTEMS = ("recovr", "ivr", "text", "umivr", "merlin", "history")
MEMORY = ("channel_top_ids", "channel_target_rank")  # what a system remembers of turn 0, by its own channels


@pytest.fixture(scope="module")
def triplets_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("webvid") / "webvid.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("txt1", "txt2", "pth1", "pth2", "edit"))
        for row in world(40, 30, seed=1):
            writer.writerow((row.reference_caption, row.target_caption, row.reference, row.target, row.edit))
    return path


def test_all_systems_share_turn_zero(triplets_csv: Path, tiny_encoder: Path, tmp_path: Path) -> None:
    pytest.importorskip("HanTa", reason="umivr needs the extra `tagger`")
    tables = {}
    for name in SYSTEMS:
        options = {
            "data.annotations": triplets_csv,
            "system.retrievers.captions.model": tiny_encoder,
            "trainer.accelerator": "cpu",
            "protocol.turns": 1,
        }
        overrides = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        outcome = evaluate([RECIPES / f"{name}_webvid_captions.yaml"], overrides, run_dir=tmp_path / name)
        assert outcome is not None
        tables[name] = read_rows(outcome.folder)
    first = {
        name: table.filter(pc.equal(table["turn"], 0)).drop_columns([*TIMING, *MEMORY])
        for name, table in tables.items()
    }
    assert len(first["recovr"]) == 30
    assert first["recovr"]["top_scores"].null_count == 0
    assert all(rows.equals(first["recovr"]) for rows in first.values())
    later = [table.filter(pc.equal(table["turn"], 1))["top_ids"].to_pylist() for table in tables.values()]
    assert all(one != other for one, other in combinations(later, 2))
