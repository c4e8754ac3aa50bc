"""Runs that were never played: stored rows with chosen ranks, and a study over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from covr_lab.results.schema import SCHEMA, VERSION
from covr_lab.study.spec import Study, build

Ranks = Sequence[Sequence[int]]
RunMaker = Callable[..., Path]
StudyMaker = Callable[..., Study]
GALLERY = 50


@pytest.fixture(scope="session")
def make_run() -> RunMaker:
    """Write a run folder with the given target ranks, a row of them a session."""

    def make(folder: Path, ranks: Ranks, protocol: Mapping[str, Any] | None = None, **fields: Any) -> Path:
        rows = [
            {
                "session_id": f"s{number:03}",
                "turn": turn,
                "edit": "make it <b>red</b> & slow",
                "target": f"v{number}",
                "target_rank": int(rank),
                "target_ties": 0,
                "n_gallery": GALLERY,
                "action": "modify" if turn else None,
                "shown": f"v{(number + turn) % GALLERY}",
                "calls": turn,
                "tokens_in": 0,
                "tokens_out": 0,
                "seconds": 0.25,
            }
            for number, line in enumerate(ranks)
            for turn, rank in enumerate(line)
        ]
        (folder / "turns").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "turns" / "part-0.parquet")
        base = {"turns": len(ranks[0]) - 1, "gallery": "targets", "n_gallery": GALLERY, "gallery_sha256": "ab" * 32}
        user = {"class_path": "RuleUser", "init_args": {"words_per_turn": 2}}
        run = {
            "schema": VERSION,
            "name": folder.name,
            "command": ["eval.py"],
            "protocol": base | {"user": user} | dict(protocol or {}),
            "proxy": "words for videos",
            "n_sessions": len(ranks),
        }
        (folder / "run.json").write_text(json.dumps(run | fields))
        (folder / "metrics.json").write_text("{}")
        return folder

    return make


@pytest.fixture(scope="session")
def make_study(tmp_path_factory: pytest.TempPathFactory) -> StudyMaker:
    """A study of systems A, B and C, whose recipe nobody reads."""
    recipe = tmp_path_factory.mktemp("recipes") / "recipe.yaml"
    recipe.write_text("{}")

    def make(**sections: Any) -> Study:
        part = {"recipes": [str(recipe)]}
        document = {
            "title": "Made up",
            "data": "none",
            "baseline": "A",
            "systems": {name: dict(part) for name in ("A", "B", "C")},
            "conditions": {"default": {}, "other": {}},
        }
        return build(document | sections, "made.yaml", "made")

    return make


@pytest.fixture(scope="session")
def random_ranks() -> Callable[[int], npt.NDArray[np.int64]]:
    """Ranks of 40 sessions and turns 0 to 3 by seed; turn 0 is the same for every seed."""

    def make(seed: int) -> npt.NDArray[np.int64]:
        opening = np.random.default_rng(99).integers(2, 20, (40, 1))
        later = np.random.default_rng(seed).integers(1, 2 + 4 * seed, (40, 3))
        return np.hstack([opening, later])

    return make
