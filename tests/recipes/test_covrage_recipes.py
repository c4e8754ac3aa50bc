"""Every recipe and overlay of the cascade, run small: made-up clips, a random model in the place of released ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from covr_lab.engines import HFEngine
from covr_lab.evaluate import Outcome, evaluate
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING
from covr_lab.retrievers import QwenVLEmbedder
from covr_lab.scorers import QwenReranker
from covr_lab.scorers.qwen import INSTRUCTION, SYSTEM
from tests.recipes.test_recipes import CASCADE
from tests.recipes.test_video_recipes import MAKERS, PAIRS, Release
from tests.tiny_blip import make_tiny_blip
from tests.tiny_vlm import make_tiny_vlm, packaged_prompts

ROOT = Path(__file__).resolve().parents[2] / "recipes"
SETS = ("webvid", "dense_webvid", "covrr")
STAGES = ["retrieval", "reranking", "verification"]
# Overlays that change other things, laid over one recipe together; what takes a component out comes last.
TOGETHER = (
    ("query_late", "no_gap_gate", "pool_fixed", "describe_all", "verify_lenient", "uniform_frames"),
    ("query_text", "shared_instruction", "pool_full", "describe_concise", "verify_all", "novelty_reasoning"),
    ("query_video", "describe_ambiguous", "mixing_80", "verify_none"),
    ("mixing_90", "no_timestamps", "frames_8", "describe_none"),
)
INTERACTIVE = ("with_cascade", "with_cascade_model", "covrage_opening")
Row = dict[str, Any]


def small(model: Path) -> dict[str, Any]:
    """Overlay: the random model in every place, few small frames."""
    source = {"model": str(model), "dtype": "float32"}
    embedder = {"embedder": {"init_args": source}}
    view = {"view": {"init_args": {**embedder, "frames": 3, "side": 64}}}
    scorer = {"scorer": {"init_args": {"scorer": {"init_args": {**source, **view}}}}}
    rerank = {**scorer, "describer": {"init_args": view}}
    return {
        "engines": {"system_vlm": {"init_args": {"engine": {"init_args": source}}}},
        "system": {
            "init_args": {
                "stages": {
                    "rerank": {"init_args": rerank},
                    "verify": {"init_args": {"verifier": {"init_args": view}}},
                }
            }
        },
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``stages.yaml`` puts a random model into the stages, ``all.yaml`` into the retriever, too."""
    folder = tmp_path_factory.mktemp("covrage")
    texts = [*packaged_prompts(), *["yes", "no", SYSTEM, INSTRUCTION] * 3]
    content = small(make_tiny_vlm(folder / "model", texts=texts))
    (folder / "stages.yaml").write_text(yaml.safe_dump(content))
    source = {"embedder": {"init_args": {"model": str(folder / "model"), "dtype": "float32"}}, "frames": 3, "side": 64}
    content["system"]["init_args"]["retrievers"] = {"qwen": {"init_args": source}}
    (folder / "all.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    return {name: MAKERS[name](tmp_path_factory.mktemp(name)) for name in SETS}


@pytest.fixture(scope="module")
def run(releases: dict[str, Release], folder: Path) -> Callable[..., Outcome]:
    def play(data_set: str, *overlays: str) -> Outcome:
        recipes = [ROOT / f"covrage_{data_set}.yaml", folder / "all.yaml"]
        recipes += [ROOT / "ablations" / f"{name}.yaml" for name in overlays]
        options = ["--trainer.accelerator", "cpu", *releases[data_set].options]
        place = folder / "-".join((data_set, *overlays))
        outcome = evaluate(recipes, options, run_dir=place, build=True)
        assert outcome is not None
        return outcome

    return play


def rows_of(outcome: Outcome) -> list[Row]:
    assert outcome.failed == {}
    return read_rows(outcome.folder).to_pylist(maps_as_pydicts="strict")


def test_no_overlay_is_left_out() -> None:
    played = [name for names in (*TOGETHER, INTERACTIVE) for name in names]
    assert sorted(played) == sorted(path.stem for path in CASCADE)


@pytest.mark.parametrize("data_set", SETS)
def test_a_cascade_runs(data_set: str, run: Callable[..., Outcome], releases: dict[str, Release]) -> None:
    """Frames through embedder, reranker, describer and verifier; every query has the order after every stage."""
    outcome = run(data_set)
    rows = rows_of(outcome)
    assert [row["turn"] for row in rows] == [0] * len(PAIRS)
    for row in rows:
        assert list(row["stage_target_rank"]) == STAGES
        assert row["stage_target_rank"]["verification"] == row["target_rank"] <= row["n_gallery"]
        assert set(row["top_ids"]) <= set(releases[data_set].ids) - {row["reference"]}
        assert row["routing"]["failed"] == 0
        assert row["routing"]["gap_skip"] or row["routing"]["pairs_scored"] >= min(3, row["n_gallery"] - 1)
        assert set(row["stage_timing"]) == {*STAGES, *(["scoring"] if row["routing"]["pairs_scored"] else [])}
    metrics = json.loads((outcome.folder / "metrics.json").read_text())
    assert metrics["stages"]["verification"]["R@1"] == metrics["per_turn"]["R@1"]
    assert metrics["routing"]["all"]["queries"] == len(PAIRS)
    assert metrics["proxy"] is None
    models = json.loads((outcome.folder / "run.json").read_text())["models"]
    assert {"retrievers.qwen", "retrievers.qwen.gallery", "stages.rerank.scorer"} <= models.keys()


def test_a_second_run_asks_no_model(
    run: Callable[..., Outcome], releases: dict[str, Release], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors, selections, scores and answers are kept: the same rows without a forward pass."""
    first = rows_of(run("webvid"))

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a model was asked")

    for place in (QwenVLEmbedder, "embed"), (QwenReranker, "score"), (HFEngine, "generate"):
        monkeypatch.setattr(*place, refuse)
    recipes = [ROOT / "covrage_webvid.yaml", folder / "all.yaml"]
    options = ["--trainer.accelerator", "cpu", *releases["webvid"].options]
    second = evaluate(recipes, options, run_dir=folder / "again", build=True)
    assert second is not None
    assert [without(row) for row in rows_of(second)] == [without(row) for row in first]


def without(row: Row) -> Row:
    """``row`` without its times."""
    return {name: value for name, value in row.items() if name not in TIMING}


def described_at_once(row: Row) -> None:
    assert not row["routing"]["gap_skip"]
    assert row["routing"]["early_description"] or any(e["kind"] == "description_failed" for e in row["events"])
    assert row["routing"]["pool"] <= 5


def verified_always(row: Row) -> None:
    """Everybody is verified, also where nothing was scored."""
    assert row["routing"]["verify_entered"] == 1
    assert not row["routing"]["late_description"]
    assert {call["module"] for call in row["prompts"]} <= {"decompose", "verify"}


def not_verified(row: Row) -> None:
    assert list(row["stage_target_rank"]) == STAGES[:2]
    assert not row["routing"]["early_description"]


def never_described(row: Row) -> None:
    assert not row["routing"]["early_description"] + row["routing"]["late_description"]
    shown = {part["frames"] for call in row["prompts"] for part in call["content"] if part["video"]}
    assert not shown or max(shown) > 3


@pytest.mark.parametrize(
    ("overlays", "check"),
    list(zip(TOGETHER, (described_at_once, verified_always, not_verified, never_described), strict=True)),
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_overlays_run_and_do_what_they_say(
    overlays: tuple[str, ...], check: Callable[[Row], None], run: Callable[..., Outcome]
) -> None:
    for row in rows_of(run("webvid", *overlays)):
        assert row["routing"]["failed"] == 0
        check(row)


DEMO = ["--data.families", "4", "--data.limit", "4", "--trainer.accelerator", "cpu"]


def demo(folder: Path, *overlays: str) -> list[Row]:
    recipes = [ROOT / "recovr_demo.yaml", *(ROOT / "ablations" / f"{name}.yaml" for name in overlays)]
    outcome = evaluate(recipes, DEMO, run_dir=folder / ("-".join(overlays) or "plain"), build=True)
    assert outcome is not None
    return rows_of(outcome)


def test_stages_refine_every_turn_of_an_interactive_system_or_its_opening_alone(tmp_path: Path) -> None:
    plain, every = demo(tmp_path), demo(tmp_path, "with_cascade")
    opening = demo(tmp_path, "with_cascade", "covrage_opening")
    assert [list(row["stage_target_rank"]) for row in every] == [STAGES] * len(every)
    assert {row["turn"] for row in opening if row["stage_target_rank"]} == {0}
    assert not any(row["stage_target_rank"] for row in plain)
    first = {row["session_id"]: row["target_rank"] for row in plain if row["turn"] == 0}
    for rows in (every, opening):  # turn 0 before the stages is that of the system without them
        found = {row["session_id"]: row["stage_target_rank"]["retrieval"] for row in rows if row["turn"] == 0}
        assert found == first


def test_the_cascade_serves_a_system_with_a_language_model(
    folder: Path, releases: dict[str, Release], tmp_path: Path
) -> None:
    blip, model = make_tiny_blip(tmp_path / "blip"), folder / "model"
    recipes = [ROOT / "recovr_webvid.yaml", ROOT / "ablations" / "with_cascade_model.yaml", folder / "stages.yaml"]
    options = ["--trainer.accelerator", "cpu", "--protocol.turns", "1", *releases["webvid"].options]
    for name in ("system_vlm", "user_vlm"):
        options += [f"--engines.{name}.engine.model", str(model), f"--engines.{name}.engine.dtype", "float32"]
    for key, value in {"model": blip, "tokenizer": blip, "max_length": 64}.items():
        options += [f"--system.retrievers.blip.blip.{key}", str(value)]
    outcome = evaluate(recipes, options, run_dir=tmp_path / "run", build=True)
    assert outcome is not None
    rows = rows_of(outcome)
    assert {row["turn"] for row in rows} == {0, 1}
    assert all(list(row["stage_target_rank"]) == STAGES for row in rows if row["turn"] == 0)
    assert any(row["stage_target_rank"] for row in rows if row["turn"] == 1)
