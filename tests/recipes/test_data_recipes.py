"""Overlays that name a data set, and the single-turn recipes of sets with subsets or several targets, run small."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from covr_lab.evaluate import Outcome, evaluate
from covr_lab.recipe import build_parser, load, plain, resolve
from covr_lab.results.reader import read_rows
from tests.gallery.toy import write_clip
from tests.tiny_blip import make_tiny_blip

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "recipes" / "umivr_msrvtt.yaml"
OVERLAYS = sorted(ROOT.glob("recipes/data/*.yaml"))
SIZES: dict[str, tuple[int, dict[str, str]]] = {  # overlay -> queries, and what of the protocol the set adds
    "msrvtt": (1000, {}),
    "msvd": (670, {}),
    "avsd_ivr": (1000, {}),
    "avsd_umivr": (1000, {}),
    "lsmdc": (1000, {}),
    "didemo": (1004, {}),
    "activitynet_first": (4917, {"queries": "first_sentence"}),
    "activitynet_paragraph": (4917, {"queries": "paragraph"}),
}


def test_every_overlay_is_known() -> None:
    assert {path.stem for path in OVERLAYS} == set(SIZES)
    assert all(path.read_text().startswith("# Data set: ") for path in OVERLAYS)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.stem)
def test_an_overlay_replaces_the_data_and_nothing_else(overlay: Path) -> None:
    parser = build_parser()
    base, overlaid = (plain(parser, resolve(parser, paths)) for paths in ([BASE], [BASE, overlay]))
    said = load([overlay])
    assert said.keys() == {"data"}
    assert overlaid["data"]["class_path"] == said["data"]["class_path"]
    given = said["data"]["init_args"]
    assert {key: overlaid["data"]["init_args"][key] for key in given} == given
    assert {**overlaid, "data": None} == {**base, "data": None}


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.stem)
def test_an_overlay_names_its_released_file(overlay: Path) -> None:
    if "COVR_DATA" not in os.environ:
        pytest.skip("COVR_DATA is not set (folder of the public annotation files)")
    name = load([overlay])["data"]["init_args"]["annotations"]
    file = next(Path(os.environ["COVR_DATA"]).rglob(name))
    parser = build_parser()
    options = ["--data.annotations", str(file), "--data.videos_dir", "null"]
    data = parser.instantiate(resolve(parser, [BASE, overlay], options)).data
    data.setup("predict")
    assert (len(data.queries()), data.terms) == SIZES[overlay.stem]
    assert len(data.gallery) == len(data.queries())
    assert data.gallery.captions == {}


def picture(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = np.full((40, 60, 3), (40 * number, 240 - 40 * number, 90), np.uint8)
    Image.fromarray(colour).save(path)


def cirr(folder: Path) -> list[str]:
    ids = [f"dev-{number}-img0" for number in range(6)]
    for number, name in enumerate(ids):
        picture(folder / "dev" / f"{name}.png", number)
    rows = [
        {
            "pairid": 10 + at,
            "reference": ids[at],
            "target_hard": ids[at + 1],
            "caption": "add a dog",
            "img_set": {"members": ids[: 4 + at]},
        }
        for at in range(3)
    ]
    (folder / "cap.json").write_text(json.dumps(rows))
    (folder / "split.json").write_text(json.dumps({name: f"./dev/{name}.png" for name in ids}))
    return ["--data.annotations", str(folder / "cap.json"), "--data.split_file", str(folder / "split.json")]


def egocvr(folder: Path) -> list[str]:
    ids = [f"film{number // 4}_{number}0_{number}9" for number in range(8)]
    for number, clip in enumerate(ids):
        write_clip(folder / clip.split("_")[0] / f"{clip}.mp4", number)
    columns = "video_clip_id,target_clip_ids,video_clip_narration,target_clip_narration,instruction,modified_captions"
    rows = [f"{ids[0]},\"['{ids[1]}', '{ids[2]}']\",a,b,Shake it.,c", f"{ids[5]},['{ids[5]}'],a,b,Hold it.,c"]
    (folder / "annotations.csv").write_text("\n".join([columns, *rows]))
    listed = [f"{clip},#C C does it,{clip.split('_')[0]}" for clip in ids]
    (folder / "data.csv").write_text("\n".join(["clip_name,narration_text,video_uid", *listed]))
    return ["--data.annotations", str(folder / "annotations.csv"), "--data.clips", str(folder / "data.csv")]


def run(stem: str, folder: Path, options: list[str], *more: str) -> Outcome:
    blip = make_tiny_blip(folder / "tiny_blip")
    options = [*options, "--data.videos_dir", str(folder), "--trainer.accelerator", "cpu", *more]
    for key, value in {"model": blip, "tokenizer": blip, "max_length": 64}.items():
        options += [f"--system.retrievers.blip.blip.{key}", str(value)]
    outcome = evaluate([ROOT / "recipes" / f"covr_blip_{stem}.yaml"], options, run_dir=folder / "run", build=True)
    assert outcome is not None
    assert outcome.failed == {}
    return outcome


def test_cirr_has_a_rank_among_the_pair_set(tmp_path: Path) -> None:
    outcome = run("cirr", tmp_path, cirr(tmp_path))
    rows = read_rows(outcome.folder).to_pylist()
    subsets = [[f"dev-{number}-img0" for number in range(4 + at) if number != at] for at in range(3)]
    for row, subset in zip(rows, subsets, strict=True):
        kept = [name for name in row["top_ids"] if name in subset]
        assert len(row["top_ids"]) == 5
        assert row["subset_rank"] == 1 + kept.index(row["target"])
    per_turn = json.loads((outcome.folder / "metrics.json").read_text())["per_turn"]
    for k in (1, 2, 3):
        assert per_turn[f"Rs@{k}"] == [100 * np.mean([row["subset_rank"] <= k for row in rows])]


@pytest.mark.parametrize("protocol", ["global", "local"])
def test_egocvr_takes_whichever_target_comes_first(protocol: str, tmp_path: Path) -> None:
    outcome = run("egocvr", tmp_path, egocvr(tmp_path), "--data.protocol", protocol)
    first, lost = read_rows(outcome.folder).to_pylist()
    assert len(first["top_ids"]) == {"global": 7, "local": 3}[protocol]
    targets: set[Any] = {first["target"], *first["other_targets"]}
    assert first["target_rank"] == 1 + min(first["top_ids"].index(target) for target in targets)
    assert lost["target_rank"] == 9
    per_turn = json.loads((outcome.folder / "metrics.json").read_text())["per_turn"]
    assert per_turn["R@50 (any relevant)"] == [50.0]
    assert ("R@2 (any relevant)" in per_turn) == (protocol == "local")
