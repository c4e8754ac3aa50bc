"""Recipes and overlays of comparisons, run small: made-up clips, random models in the place of released ones."""

from __future__ import annotations

import csv
import json
import runpy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from covr_lab.evaluate import Outcome, evaluate
from covr_lab.results.reader import read_rows
from covr_lab.types import Refused
from tests.gallery.toy import write_clip
from tests.recipes.test_recipes import XCOT
from tests.tiny_clip import make_tiny_clip
from tests.tiny_vlm import make_tiny_lm, make_tiny_vlm, packaged_prompts

ROOT = Path(__file__).resolve().parents[2] / "recipes"
SAID = (
    "a red boat on the sea",
    "two small dogs on a beach",
    "a man eating in a street",
    "three white cats in the snow",
)
# Overlays of the recipe with models that change other things, laid over it together.
MODELS = (
    ("xcot_no_reasons", "xcot_perturbed", "xcot_order"),
    ("xcot_soft", "xcot_merge", "xcot_prior", "xcot_ties_keep"),
    ("xcot_direct",),
    ("xcot_annotations_as_text",),
)
Row = dict[str, Any]
# Overlays of the demo recipe -> the stage that its rows have, if any; ("xcot_oracle",) has tests of its own.
DEMO: dict[tuple[str, ...], list[str]] = {
    ("xcot_still", "xcot_unique"): ["pairwise"],
    ("xcot_direct_demo",): ["direct"],
    ("xcot_annotations_as_text_demo", "xcot_none"): [],
}
INTERACTIVE = ("with_xcot", "with_xcot_model")
FAMILIES = ["--data.families", "6", "--data.limit", "5", "--trainer.accelerator", "cpu"]


def rows_of(outcome: Outcome | None) -> list[Row]:
    assert outcome is not None
    assert outcome.failed == {}
    return read_rows(outcome.folder).to_pylist(maps_as_pydicts="strict")


def test_no_overlay_is_left_out() -> None:
    played = [*(name for names in (*MODELS, *DEMO) for name in names), *INTERACTIVE, "xcot_oracle"]
    assert sorted(played) == sorted(path.stem for path in XCOT)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome | None]:
    """Plays the recipe with models on four clips."""
    folder = tmp_path_factory.mktemp("xcot")
    clip, vlm = make_tiny_clip(folder / "clip"), make_tiny_vlm(folder / "vlm", texts=[*packaged_prompts(), "A", "B"])
    for number in range(len(SAID)):
        write_clip(folder / "videos" / f"video{number}.mp4", number, frames=12)
    lines = [json.dumps({"clip_id": f"video{number}", "text": text}) for number, text in enumerate(SAID)]
    (folder / "test.jsonl").write_text("\n".join(lines))

    def play(*overlays: str) -> Outcome | None:
        options = ["--trainer.accelerator", "cpu", "--data.annotations", str(folder / "test.jsonl")]
        options += ["--data.videos_dir", str(folder / "videos")]
        places = ["system.retrievers.clip.encoder", "system.captioner.embedder"]
        places += ["system.retrievers.text.retriever.encoder"] * ("xcot_annotations_as_text" in overlays)
        for place in places:
            options += [f"--{place}.model", str(clip)]
        for engine in ("captioner_vlm", "system_llm"):
            for key, value in {"model": vlm, "dtype": "float32"}.items():
                options += [f"--engines.{engine}.engine.{key}", str(value)]
        paths = [ROOT / "xcot_msrvtt.yaml", *(ROOT / "ablations" / f"{name}.yaml" for name in overlays)]
        return evaluate(paths, options, run_dir=folder / "-".join(("run", *overlays)), build=True)

    return play


def test_frames_become_annotations_that_are_compared(models: Callable[..., Outcome | None]) -> None:
    """Frames through embedder and captioner, annotations through the judge; all have both orders."""
    outcome = models()
    for row in rows_of(outcome):
        assert list(row["stage_target_rank"]) == ["retrieval", "pairwise"]
        assert row["stage_target_rank"]["pairwise"] == row["target_rank"] <= row["n_gallery"] == len(SAID)
        assert {one["outcome"] for one in row["comparisons"]} <= {"first", "second", "tie", "unparseable"}
        assert row["routing"]["comparisons"] == len(row["comparisons"]) == 10 * 3  # odd-even: 3 of 4 videos a pass
        asked = ["".join(part["text"] or "" for part in call["content"]) for call in row["prompts"]]
        assert asked
        assert all(row["edit"] in text for text in asked)
        assert any("1. " in text for text in asked)  # a numbered summary: the annotation
    assert outcome is not None
    run = json.loads((outcome.folder / "run.json").read_text())
    assert {"captioner", "captioner.annotations", "retrievers.clip.gallery"} <= run["models"].keys()
    assert json.loads((outcome.folder / "metrics.json").read_text())["proxy"] is None


@pytest.mark.parametrize("overlays", MODELS, ids=lambda names: names[0])
def test_overlays_run_with_models(overlays: tuple[str, ...], models: Callable[..., Outcome | None]) -> None:
    for row in rows_of(models(*overlays)):
        modules = {call["module"] for call in row["prompts"] or ()}
        stage = list(row["stage_target_rank"])[1:]
        if "xcot_direct" in overlays:
            assert (stage, modules) == (["direct"], {"direct"})
            assert not row["comparisons"]
        elif "xcot_annotations_as_text" in overlays:
            assert (stage, modules) == ([], set())
        else:
            assert stage == ["pairwise"]
            assert not any(one["reason"] for one in row["comparisons"])
            soft = {one["probability"] for one in row["comparisons"]} - {0.0, 0.5, 1.0}
            assert bool(soft) == ("xcot_soft" in overlays)


def demo(folder: Path, *overlays: str, recipe: str = "xcot_demo", options: tuple[str, ...] = ()) -> list[Row]:
    paths = [ROOT / f"{recipe}.yaml", *(ROOT / "ablations" / f"{name}.yaml" for name in overlays)]
    place = folder / "-".join((recipe, *overlays))
    return rows_of(evaluate(paths, [*FAMILIES, *options], run_dir=place, build=True))


@pytest.mark.parametrize("overlays", DEMO, ids=lambda names: names[0])
def test_overlays_of_the_demo_run_and_do_what_they_say(overlays: tuple[str, ...], tmp_path: Path) -> None:
    rows = demo(tmp_path, *overlays)
    assert len(rows) == 5
    for row in rows:
        assert list(row["stage_target_rank"])[1:] == DEMO[overlays]
        assert bool(row["comparisons"]) == (DEMO[overlays] == ["pairwise"])
        assert "xcot_unique" not in overlays or row["routing"]["passes"] == 10


def test_true_annotations_put_every_target_of_the_pool_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Full descriptions, and true annotations that no two clips share: the target beats whom it meets."""
    rows = demo(tmp_path, "xcot_oracle")
    for row in rows:
        before = row["stage_target_rank"]["retrieval"]
        assert row["target_rank"] == (1 if before <= 20 else before)
    main = runpy.run_path(str(ROOT.parent / "tools" / "explanations.py"))["main"]
    run = str(tmp_path / "xcot_demo-xcot_oracle")
    said = {}
    for name, more in {"run": [], "session": [rows[0]["session_id"]], "similarity": ["--similarity"]}.items():
        capsys.readouterr()
        assert main([run, *more]) == 0
        said[name] = capsys.readouterr().out
    assert "Comparisons" in said["run"]
    assert said["session"].count("turn 0: ") == 4  # neighbours of the best five
    assert "5 of 5 turns 0: explanation" in said["similarity"]
    assert main([run, "nobody"]) == 1
    assert "no session 'nobody'" in capsys.readouterr().err


def test_an_oracle_of_another_world_is_refused(tmp_path: Path) -> None:
    paths = [ROOT / "xcot_demo.yaml", ROOT / "ablations" / "xcot_oracle.yaml"]
    with pytest.raises(Refused, match=r"another world .* data\.seed"):
        evaluate(paths, [*FAMILIES, "--system.captioner.seed", "1"], run_dir=tmp_path / "run", build=True)


def test_comparisons_refine_every_turn_of_an_interactive_system(tmp_path: Path) -> None:
    short = ("--protocol.turns", "1")
    plain, compared = (demo(tmp_path, *names, recipe="recovr_demo", options=short) for names in ((), ("with_xcot",)))
    assert {row["turn"] for row in compared} == {0, 1}
    assert all(list(row["stage_target_rank"]) == ["retrieval", "pairwise"] for row in compared)
    first = {row["session_id"]: row["target_rank"] for row in plain if row["turn"] == 0}
    found = {row["session_id"]: row["stage_target_rank"]["retrieval"] for row in compared if row["turn"] == 0}
    assert found == first


def test_a_language_model_compares_on_every_turn(tiny_encoder: Path, tmp_path: Path) -> None:
    """The judge of an interactive system with a language model; here its engine has another name."""
    model = make_tiny_lm(tmp_path / "lm", texts=packaged_prompts())
    captions = (f"a {colour} kite over the sea" for colour in ("red", "blue", "green", "white"))
    videos = [(f"v{number}", caption) for number, caption in enumerate(captions)]
    with (tmp_path / "test.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("pth1", "pth2", "edit", "txt1", "txt2"))
        writer.writerows((a, b, "another colour", said, wanted) for (a, said), (b, wanted) in pairwise(videos))
    options = ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu"]
    options += ["--data.annotations", str(tmp_path / "test.csv"), "--protocol.turns", "1"]
    options += ["--system.stages.pairwise.judge.engine", "system_llm", "--system.stages.pairwise.passes", "1"]
    for name in ("system_llm", "user_llm"):
        options += [f"--engines.{name}.engine.model", str(model), f"--engines.{name}.engine.dtype", "float32"]
    paths = [ROOT / "recovr_webvid_captions_llm.yaml", ROOT / "ablations" / "with_xcot_model.yaml"]
    rows = rows_of(evaluate(paths, options, run_dir=tmp_path / "run"))
    assert {row["turn"] for row in rows} == {0, 1}
    assert all("compare" in {call["module"] for call in row["prompts"]} for row in rows if row["action"] != "stop")
