"""Users who answer, from recipe to rows."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from covr_lab.evaluate import evaluate
from covr_lab.results.reader import read_rows

ROOT = Path(__file__).resolve().parents[2]
CAPTIONS = {"A1": "a man sits on a bed", "A2": "a dog runs in snow", "A3": "a woman cooks soup"}


def test_human_dialogue(tiny_encoder: Path, tmp_path: Path) -> None:
    """The answers of the record, one a turn, pile up behind the caption; a clip without a record fails alone."""
    rows = [{"clip_name": clip, "caption": text, "retrieval_key": f"k{clip}"} for clip, text in CAPTIONS.items()]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    rounds = {"A1": ["is he alone? yes", "is it day? no, it is night"], "A2": ["what colour? brown"]}
    said = [{"img": clip, "dialog": ["a caption", *lines]} for clip, lines in rounds.items()]
    (tmp_path / "dialogues.json").write_text(json.dumps(said))
    lines = [json.dumps({"video": clip, "caption": f"some clip {clip}"}) for clip in CAPTIONS]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    files = {"annotations": str(tmp_path / "rows.jsonl"), "dialogues": str(tmp_path / "dialogues.json")}
    files["captions_file"] = str(tmp_path / "captions.jsonl")
    overlay = {"data": {"class_path": "covr_lab.data.AVSD", "init_args": files}}
    (tmp_path / "avsd.yaml").write_text(yaml.safe_dump(overlay))
    recipes = [ROOT / "recipes" / "text_words.yaml", tmp_path / "avsd.yaml", ROOT / "recipes/users/human_dialogue.yaml"]
    options = ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu"]
    outcome = evaluate(recipes, options, run_dir=tmp_path / "run")
    assert outcome is not None
    table = read_rows(outcome.folder).to_pylist()
    found = {(row["target"], row["turn"]): row for row in table}
    assert sorted(found) == [("A1", 0), ("A1", 1), ("A1", 2), ("A2", 0), ("A2", 1), ("A3", 0), ("A3", 1)]
    searched = [dict(found["A1", turn]["intent"])["search"] for turn in (1, 2)]
    assert searched == ["a man sits on a bed [SEP] yes", "a man sits on a bed [SEP] yes [SEP] no, it is night"]
    assert [found["A1", turn]["question"] for turn in (1, 2)] == [None, None]
    assert outcome.failed == {found["A3", 1]["session_id"]: found["A3", 1]["error"]}
    assert "video A3: no dialogue about it" in found["A3", 1]["error"]
