"""CoVRAGE on small demo worlds: rules that read their words, and the recipe from clips to rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from covr_lab.demo.captioner import AROUND, THINGS, DemoCaptioner
from covr_lab.demo.reasoners import DemoDescriber, DemoVerifier, caption
from covr_lab.demo.world import BACKGROUNDS, World, make_world
from covr_lab.evaluate import evaluate
from covr_lab.reasoning.base import think
from covr_lab.results.reader import read_rows
from covr_lab.retrievers.blip import Blip
from covr_lab.scorers.oracle import scene_attributes
from covr_lab.types import Context, Query, Reflection, Session
from covr_lab.video.overlay import TIMESTAMP_NOTE
from tests.tiny_vlm import make_tiny_vlm, packaged_prompts

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "covrage_demo.yaml"
FAMILIES = 8
Row = dict[str, Any]


def seen(source: str, edit: str, candidate: str = "") -> Context:
    session = Session(Query("s", "source", edit))
    return Context(session, Reflection(), text=edit, source_caption=source, candidate_caption=candidate)


@pytest.fixture(scope="module")
def world() -> World:
    return make_world("test", families=30)


def test_descriptions_have_the_words_of_the_captioner() -> None:
    captioner = DemoCaptioner(blip=Blip(model="demo"))
    for thing in range(0, len(THINGS), 7):
        where, light = thing % len(BACKGROUNDS), thing % (len(AROUND) - len(BACKGROUNDS))
        text = captioner.caption(torch.tensor([float(thing), where, light]))
        (colour, shape, motion), around = THINGS[thing].things[0], AROUND[len(BACKGROUNDS) + light]
        values = {"colour": colour, "shape": shape, "motion": motion}
        assert caption({**values, "background": BACKGROUNDS[where], "light": around.light}) == text


def test_describer_names_the_one_clip_that_edit_and_reference_determine(world: World) -> None:
    """Half of the queries want it; the others want a clip that differs from it in one attribute."""
    jobs = [(DemoDescriber(), seen(world.captions[q.reference_id], q.edit)) for q in world.queries]
    said = {caption(scene_attributes(scene)): video for video, scene in world.clips.items() if video in world.gallery}
    found = [said[thought.answer] for thought in think(jobs, {})]
    wanted = [query.target_id for query in world.queries]
    assert sum(one == other for one, other in zip(found, wanted, strict=True)) == len(wanted) / 2


def test_strict_verifier_accepts_one_clip_and_the_lenient_one_its_family(world: World) -> None:
    for query in world.queries:
        now = [seen(world.captions[query.reference_id], query.edit, world.captions[video]) for video in world.gallery]
        strict = [thought.answer for thought in think([(DemoVerifier(), one) for one in now], {})]
        easy = [thought.answer for thought in think([(DemoVerifier(strict=False), one) for one in now], {})]
        assert sum(strict) == 1
        assert sum(easy) >= 4
        assert easy[world.gallery.index(query.target_id)]
        assert easy[strict.index(True)]


@pytest.mark.parametrize(
    ("source", "edit", "candidate", "description", "verdict"),
    [
        ("A red star", "paint it blue", "A blue star", "A blue star", True),
        ("A red star", "paint it blue", "A blue ring", "A blue star", False),
        ("A red star rising", "let it fade", "A blue star", "A red star rising as the light fades", False),
        ("", "paint it blue", "A blue ring", "", True),  # no source: nothing to describe, the edit alone decides
        ("A red star", "what a day", "A red star", "", None),
        ("A red star", "paint it blue", "what a day", "A blue star", None),
    ],
)
def test_what_is_not_understood_is_neither_described_nor_judged(
    source: str, edit: str, candidate: str, description: str, verdict: bool | None
) -> None:
    now = seen(source, edit, candidate)
    assert [thought.answer for thought in think([(DemoDescriber(), now), (DemoVerifier(), now)], {})] == [
        description,
        verdict,
    ]


@dataclass
class Runs:
    """Rows of the recipe with an overlay of system arguments."""

    folder: Path
    done: dict[str, list[Row]] = field(default_factory=dict)

    def rows(self, name: str, arguments: Mapping[str, Any] | None = None, *more: str) -> list[Row]:
        if name not in self.done:
            overlay = self.folder / f"{name}.yaml"
            overlay.write_text(yaml.safe_dump({"system": {"init_args": dict(arguments or {})}}))
            options = ["--trainer.accelerator", "cpu", "--data.families", str(FAMILIES), *more]
            outcome = evaluate([RECIPE, overlay], options, run_dir=self.folder / name, build=True)
            assert outcome is not None
            self.done[name] = read_rows(outcome.folder).to_pylist(maps_as_pydicts="strict")
        return self.done[name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("covrage_demo"))


def scorer(name: str, **options: Any) -> dict[str, Any]:
    part = {"class_path": f"covr_lab.scorers.{name}", "init_args": options}
    return {"stages": {"rerank": {"init_args": {"scorer": part}}}}


def oracle(error: float) -> dict[str, Any]:
    return scorer("OracleScorer", error=error, knows="wish")


def itm() -> dict[str, Any]:
    init = {"model": "demo", "storyboard": 2, "tile": 32}
    return scorer("ITMScorer", blip={"class_path": "covr_lab.retrievers.blip.Blip", "init_args": init})


def first(rows: list[Row], stage: str, rank: int = 1) -> int:
    return sum(row["stage_target_rank"][stage] <= rank for row in rows)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("attributes", {}), ("itm", itm()), ("oracle", oracle(0.1)), ("perfect", oracle(0))],
    ids=("attributes", "itm", "oracle", "perfect"),
)
def test_every_stage_runs_and_leaves_the_tail_alone(runs: Runs, name: str, arguments: dict[str, Any]) -> None:
    rows = runs.rows(name, arguments)
    assert len(rows) == 2 * FAMILIES
    for row in rows:
        ranks, routing = row["stage_target_rank"], row["routing"]
        assert list(ranks) == ["retrieval", "reranking", "verification"]
        assert row["target_rank"] == ranks["verification"]
        assert not row["error"]
        assert routing["failed"] == 0
        if ranks["retrieval"] > routing["pool"]:
            assert ranks["reranking"] == ranks["retrieval"]
        else:
            assert ranks["reranking"] <= routing["pool"]
    assert first(rows, "retrieval", 50) == first(rows, "reranking", 50) == first(rows, "verification", 50)


def test_what_retrieval_finds_does_not_depend_on_the_stages(runs: Runs) -> None:
    alone = runs.rows("alone", {"stages": {"rerank": None, "verify": None}})
    ranks = [row["target_rank"] for row in alone]
    assert all(not row["stage_target_rank"] for row in alone)
    for name, arguments in (("attributes", {}), ("oracle", oracle(0.1))):
        assert [row["stage_target_rank"]["retrieval"] for row in runs.rows(name, arguments)] == ranks


def test_a_perfect_scorer_brings_every_target_of_the_pool_to_the_front(runs: Runs) -> None:
    """It reads on until it finds the target: who wants one clip of a family gets it, and nobody is verified."""
    rows = runs.rows("perfect", oracle(0))
    assert first(rows, "reranking") == first(rows, "retrieval", 50)
    assert {row["routing"]["verify_entered"] for row in rows} == {0}


def test_an_oracle_that_errs_gains_and_says_that_it_is_one(runs: Runs) -> None:
    """Of 300 queries it brings 23 points R@1; these few leave room for chance."""
    rows = runs.rows("oracle", oracle(0.1))
    assert first(rows, "retrieval") < first(rows, "reranking") < first(runs.rows("perfect", oracle(0)), "reranking")
    record = (runs.folder / "oracle" / "run.json").read_text()
    assert "an oracle that reads the generator (wish) and errs on 10 % of pairs" in record


def test_describer_and_verifier_by_a_language_model(runs: Runs, tmp_path: Path) -> None:
    """Frames with their times in, free text out; the model is random and tiny, so that no verdict can be read."""
    vlm = make_tiny_vlm(tmp_path / "vlm", texts=packaged_prompts())
    engine = "--engines.system_vlm.engine"
    options = [f"{engine}.model", str(vlm), f"{engine}.revision", "null", f"{engine}.dtype", "float32"]
    options += ["--trainer.accelerator", "cpu", "--data.families", str(FAMILIES), "--data.limit", "3"]
    options += ["--system.stages.verify.gated", "false", "--system.stages.verify.head", "3"]
    outcome = evaluate(
        [RECIPE, RECIPE.parent / "engines" / "vlm_covrage.yaml"],
        options,
        run_dir=tmp_path / "run",
        build=True,
    )
    assert outcome is not None
    rows = read_rows(outcome.folder).to_pylist(maps_as_pydicts="strict")
    assert not any(row["error"] for row in rows)
    prompts = [prompt for row in rows for prompt in row["prompts"]]
    assert {prompt["module"] for prompt in prompts} == {"decompose", "verify"}
    for prompt in prompts:
        videos = [part["video"] for part in prompt["content"] if part["video"]]
        assert len(videos) == (1 if prompt["module"] == "decompose" else 2)
        assert any(TIMESTAMP_NOTE in part["text"] for part in prompt["content"] if part["text"])
    for row in rows:
        unclear = [event for event in row["events"] if event["kind"] == "verification_unclear"]
        assert len(unclear) == row["routing"]["verify_calls"] == row["routing"]["cluster"] == 3
        assert row["stage_target_rank"]["verification"] == row["stage_target_rank"]["reranking"]
