"""Vectors from elsewhere through the command's own path: ranks are those of a plain matrix product."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from covr_lab.evaluate import evaluate
from covr_lab.results.reader import read_rows

RECIPE = Path(__file__).parents[2] / "recipes" / "covr_features_webvid.yaml"


def test_imported_vectors_are_scored(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    gallery = {f"v/{number}": torch.from_numpy(draw.standard_normal(8)).float() for number in range(12)}
    queries = {str(number): torch.from_numpy(draw.standard_normal(8)).float() for number in range(12) if number != 5}
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("pth1", "pth2", "edit", "txt1", "txt2"))
        # Row 3 has its reference in the gallery: it is masked. Row 5 has no query vector: a miss.
        writer.writerows(
            [
                (
                    "v/0" if n == 3 else f"r/{n}",
                    f"v/{n}",
                    "make it red",
                    "target 0" if n == 3 else f"reference {n}",
                    f"target {n}",
                )
                for n in range(12)
            ]
        )
    save_file(gallery, tmp_path / "gallery.safetensors")
    save_file(queries, tmp_path / "queries.safetensors")
    options = ["--data.annotations", str(tmp_path / "rows.csv"), "--trainer.accelerator", "cpu"]
    for name in ("gallery", "queries"):
        options += [f"--system.retrievers.features.{name}", str(tmp_path / f"{name}.safetensors")]
    outcome = evaluate([RECIPE], options, run_dir=tmp_path / "run")
    assert outcome is not None
    assert list(outcome.failed) == ["5"]
    ranks = {row["session_id"]: row["target_rank"] for row in read_rows(outcome.folder).to_pylist()}
    for number in range(12):
        if number == 5:
            assert ranks["5"] == 13
            continue
        query = queries[str(number)]
        cosine = {v: float(query @ x / (query.norm() * x.norm())) for v, x in gallery.items()}
        better = [v for v, s in cosine.items() if s > cosine[f"v/{number}"] and not (number == 3 and v == "v/0")]
        assert ranks[str(number)] == 1 + len(better)
    metrics = json.loads((outcome.folder / "metrics.json").read_text())["per_turn"]
    assert metrics["R@1"] == pytest.approx([100 * sum(rank == 1 for rank in ranks.values()) / 12])
    assert metrics["coverage"] == pytest.approx([100 * 11 / 12])
