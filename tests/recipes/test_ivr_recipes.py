"""IVR's recipes, run small: made-up clips, a random BLIP that matches, another one that answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from covr_lab.evaluate import Outcome, evaluate
from covr_lab.recipe import load
from covr_lab.results.reader import read_rows
from tests.gallery.toy import write_clip
from tests.tiny_blip import make_tiny_blip
from tests.tiny_vlm import make_tiny_vlm, packaged_prompts
from tests.tiny_vqa import make_tiny_writer

ROOT = Path(__file__).resolve().parents[2]
OVERLAYS = sorted(path.stem for path in ROOT.glob("recipes/ablations/ivr_*.yaml"))
UNMATCHED = {"ivr_no_matching", "ivr_rank_aggregation", "ivr_similarity_aggregation"}  # without the matching head
ROUNDS = 3  # of the recipes that have ten
OVER = {"ivr_auto_text_vid": ["ivr_auto_text"]}  # overlay -> what it comes on top of
CAPTIONS = (
    "a man walking in a street",
    "two dogs on a beach at night",
    "a red car turning left",
    "people dancing in a large house with a white cat and a black bird and yellow boats and snow and rain and more "
    "snow and a small tree and a green fire",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """The recipe under some overlays, on four clips; the same call a second time gives the first run."""
    folder = tmp_path_factory.mktemp("ivr")
    lines = [{"clip_id": f"video{number}", "text": text} for number, text in enumerate(CAPTIONS)]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for number in range(len(CAPTIONS)):
        write_clip(folder / f"clips/video{number}.mp4", number)
    blip, writer = make_tiny_blip(folder / "blip"), make_tiny_writer(folder / "vqa")
    vlm = make_tiny_vlm(folder / "vlm", texts=packaged_prompts())
    done: dict[tuple[str, ...], Outcome] = {}

    def play(*overlays: str) -> Outcome:
        names = [*(below for overlay in overlays for below in OVER.get(overlay, ())), *overlays]
        recipes = [ROOT / "recipes/ivr_msrvtt.yaml", *(ROOT / f"recipes/ablations/{name}.yaml" for name in names)]
        options = ["--trainer.accelerator", "cpu", "--data.annotations", str(folder / "test.jsonl")]
        options += ["--data.videos_dir", str(folder / "clips"), "--system.retrievers.blip.blip.model", str(blip)]
        options += ["--simulator.model", str(writer), "--simulator.revision", "null"]
        if not UNMATCHED.intersection(overlays):
            options += ["--system.stages.matching.scorer.blip.model", str(blip)]
        document = load(recipes)
        assert document["protocol"]["turns"] == (10 if any("auto" in overlay for overlay in overlays) else 1)
        options += ["--protocol.turns", str(min(ROUNDS, document["protocol"]["turns"]))]
        for name in document.get("engines", {}):
            options += [f"--engines.{name}.engine.model", str(vlm), f"--engines.{name}.engine.dtype", "float32"]
        if overlays not in done:
            outcome = evaluate(recipes, options, run_dir=folder / f"run-{len(done)}", build=True)
            assert outcome is not None
            done[overlays] = outcome
        return done[overlays]

    return play


def rows(outcome: Outcome, turn: int) -> list[dict[str, Any]]:
    """Rows of a turn, in the order of the queries."""
    table = read_rows(outcome.folder)
    assert (outcome.sessions, outcome.failed) == (len(CAPTIONS), {})
    found = table.filter(pc.equal(table["turn"], turn)).to_pylist(maps_as_pydicts="strict")
    return sorted(found, key=lambda row: CAPTIONS.index(row["edit"]))


def asked(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Part and question of a round."""
    return [(exchange["part"], exchange["question"]) for exchange in row["exchanges"]]


@pytest.mark.parametrize("overlay", ["", *OVERLAYS])
def test_runs(overlay: str, run: Callable[..., Outcome]) -> None:
    """Every turn searches the first query and the round's answers, whatever the random model answers."""
    outcome = run(*filter(None, [overlay]))
    rounds = ROUNDS if "auto" in overlay else 1
    assert pc.max(read_rows(outcome.folder)["turn"]).as_py() == rounds
    between = " and " if overlay == "ivr_and_separator" else " [SEP] "
    for caption, row in zip(CAPTIONS, rows(outcome, rounds), strict=True):
        assert row["intent"]["search"].startswith(caption)
        assert between in row["intent"]["search"]
        assert set(row["stage_target_rank"]) == (set() if overlay in UNMATCHED else {"retrieval", "matching"})
        assert 1 <= row["target_rank"] <= row["n_gallery"] == len(CAPTIONS)
        assert row["exchanges"]


def test_a_round_asks_what_the_query_calls_for(run: Callable[..., Outcome]) -> None:
    man, dogs, *_ = rows(run(), 1)
    assert man["question"] == "What is the man doing?"
    assert len(asked(man)) == 12
    assert asked(man)[:5] == [
        ("whole", "What is the man doing?"),
        ("first half", "What is the man doing?"),
        ("first half", "What is the object?"),
        ("second half", "What is the man doing?"),
        ("second half", "What is the object?"),
    ]
    assert man["intent"]["search"].count(" [SEP] ") <= 5
    assert dogs["question"] == "Is this cartoon?"
    assert {len(asked(row)) for row in rows(run("ivr_no_objects"), 1)[:1]} == {6}
    assert {len(asked(row)) for row in rows(run("ivr_no_segments"), 1)[:1]} == {8}


def test_what_the_encoder_does_not_read_is_on_record(run: Callable[..., Outcome]) -> None:
    """35 tokens: the long query is cut at turn 0, and so is what came to it."""
    for turn in (0, 1):
        kinds = [{event["kind"] for event in row["events"]} for row in rows(run(), turn)]
        assert "truncated" in kinds[-1]
    assert not any("truncated" in {event["kind"] for event in row["events"]} for row in rows(run(), 0)[:-1])


def test_a_language_model_asks_at_every_round(run: Callable[..., Outcome]) -> None:
    """A random one: what it says is no question, and the list stands in, but it is asked with all that was said."""
    for overlay, module in (("ivr_auto_text", "question_auto"), ("ivr_auto_text_vid", "question_auto_vid")):
        modules = json.loads((run(overlay).folder / "metrics.json").read_text())["modules"]
        assert modules[module]["asked"] == ROUNDS * len(CAPTIONS)
        (prompt,) = [call for call in rows(run(overlay), ROUNDS)[0]["prompts"] if call["module"] == module][:1]
        text = " ".join(part["text"] or "" for part in prompt["content"])
        assert rows(run(overlay), ROUNDS - 1)[0]["intent"]["search"].replace(" [SEP] ", ", ") in text


def test_all_generators_share_turn_zero(run: Callable[..., Outcome]) -> None:
    first = [(row["top_ids"], row["target_rank"]) for row in rows(run(), 0)]
    for overlay in set(OVERLAYS) - UNMATCHED:
        assert [(row["top_ids"], row["target_rank"]) for row in rows(run(overlay), 0)] == first


def test_answers_find_targets_in_the_demo(tmp_path: Path) -> None:
    """Of queries that name half of what their target shows; the packaged model asks, looks and answers."""
    options = ["--data.families", "8", "--trainer.accelerator", "cpu"]
    outcome = evaluate([ROOT / "recipes/ivr_qa_demo.yaml"], options, run_dir=tmp_path / "run", build=True)
    assert outcome is not None
    recall = json.loads((outcome.folder / "metrics.json").read_text())["per_turn"]["R@1"]
    assert recall[1] > recall[0] + 20
    table = read_rows(outcome.folder)
    assert len(table) == 2 * 16
    assert "triangle" in " ".join(text or "" for text in table["feedback"].to_pylist())
