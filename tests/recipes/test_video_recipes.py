"""Every recipe that sees videos, run small: made-up clips in the layout of each data set, a random BLIP."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image

from covr_lab.evaluate import Outcome, evaluate
from covr_lab.recipe import load
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING
from tests.gallery.toy import write_clip
from tests.tiny_blip import make_tiny_blip
from tests.tiny_vlm import make_tiny_vlm, packaged_prompts

ROOT = Path(__file__).resolve().parents[2]
SETS = ("webvid", "dense_webvid", "finecvr", "covrr", "fashioniq")
ELSEWHERE = {"covr_blip_cirr", "covr_blip_egocvr", "umivr_msrvtt"}  # test_data_recipes.py, test_umivr_recipes.py
# System -> modules that ask a language model in every session.
MODULES = {
    "covr_blip": set[str](),
    "ivr": {"question_ivr"},
    "recovr": {"initial", "intent", "reflection", "question"},
    "umivr": {"question_umivr"},
    "merlin": {"question_merlin"},
    "history": {"history", "question"},
}
SYSTEMS = tuple(MODULES)
INTERACTIVE = SYSTEMS[1:]
RULES = {"ivr": "rules_ivr", "recovr": "rules_recovr", "umivr": "rules_umivr", "history": "rules_history"}
DEMO = tuple(f"{system}_demo" for system in (*INTERACTIVE, "text"))
MEMORY = ("channel_top_ids", "channel_target_rank")  # what a system remembers of turn 0, by its own channels

CAPTIONS = (
    "a red boat on the sea",
    "a blue boat on the sea at night",
    "two small dogs on a beach",
    "a man eating in a street",
    "a woman eating in a white house",
    "three white cats in the snow",
)
PAIRS = ((0, 1, "make it blue"), (1, 2, "two dogs in the place of the boat"), (3, 4, "a woman"), (4, 5, "add cats"))


@dataclass(frozen=True)
class Release:
    """A data set on disk: ids of the clips of :data:`CAPTIONS`, and the options that name its files."""

    ids: tuple[str, ...]
    options: list[str]


def rows(ids: tuple[str, ...], *columns: str) -> list[dict[str, str]]:
    """Annotation rows with reference, target, edit and the two captions under the names of a release."""
    values = ((ids[a], ids[b], edit, CAPTIONS[a], CAPTIONS[b]) for a, b, edit in PAIRS)
    return [dict(zip(columns, row, strict=False)) for row in values]


def webvid(folder: Path) -> Release:
    """WebVid-CoVR and Dense-WebVid-CoVR share columns and layout."""
    ids = tuple(f"{number % 2:03}/10{number}" for number in range(6))
    for number, video in enumerate(ids):
        write_clip(folder / "train" / f"{video}.mp4", number)
    table = rows(ids, "pth1", "pth2", "edit", "txt1", "txt2")
    with (folder / "test.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)
    return Release(ids, ["--data.annotations", str(folder / "test.csv"), "--data.videos_dir", str(folder / "train")])


def finecvr(folder: Path) -> Release:
    """Folders of eight frames."""
    ids = tuple(f"set{number % 2}/clip_{number}" for number in range(6))
    for number, video in enumerate(ids):
        (folder / "frames" / video).mkdir(parents=True)
        for frame in range(8):
            image = np.full((40, 60, 3), (30 * number, 200 - 30 * number, 10 * frame), np.uint8)
            Image.fromarray(image).save(folder / "frames" / video / f"{frame}.jpg")
    (folder / "test.json").write_text(json.dumps(rows(ids, "source", "target", "instruct")))
    return Release(ids, ["--data.annotations", str(folder / "test.json"), "--data.videos_dir", str(folder / "frames")])


def write_webm(path: Path, seed: int) -> None:
    colour = np.random.default_rng(seed).uniform(20, 180, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libvpx", rate=12)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for number in range(6):
            image = np.full((64, 64, 3), colour + 10 * number).astype(np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, "rgb24")))
        file.mux(stream.encode())


def covrr(folder: Path) -> Release:
    """Two parts in one file: ids of WebVid with an extension, numbers of Something-Something."""
    ids = ("005/100.mp4", "005/101.mp4", "006/102.mp4", "78683", "78684", "78685")
    for number, video in enumerate(ids[:3]):
        write_clip(folder / "train" / video, number)
    for number, video in enumerate(ids[3:], start=3):
        write_webm(folder / "ss2" / f"{video}.webm", number)
    entries = [
        {"id": number, **row, "reasoning": "never read"}
        for number, row in enumerate(rows(ids, "video_source", "video_target", "modification_text"))
    ]
    (folder / "merged.json").write_text(json.dumps([{"webvid": entries[:2]}, {"ss2": entries[2:]}]))
    places = {"annotations": "merged.json", "webvid_dir": "train", "ss2_dir": "ss2"}
    return Release(ids, [part for key, name in places.items() for part in (f"--data.{key}", str(folder / name))])


def fashioniq(folder: Path) -> Release:
    """Pictures, two captions a pair, and a split file that is the gallery."""
    ids = tuple(f"B00{number}" for number in range(6))
    for number, picture in enumerate(ids):
        image = np.full((40, 60, 3), (30 * number, 200 - 30 * number, 60), np.uint8)
        Image.fromarray(image).save(folder / f"{picture}.jpg")
    pairs = [{"candidate": ids[a], "target": ids[b], "captions": [edit, "is new"]} for a, b, edit in PAIRS]
    (folder / "cap.dress.json").write_text(json.dumps(pairs))
    (folder / "split.dress.json").write_text(json.dumps(ids))
    files = {"annotations": "cap.{category}.json", "split_file": "split.{category}.json", "videos_dir": "."}
    return Release(ids, [part for key, name in files.items() for part in (f"--data.{key}", str(folder / name))])


MAKERS: dict[str, Callable[[Path], Release]] = {
    "webvid": webvid,
    "dense_webvid": webvid,
    "finecvr": finecvr,
    "covrr": covrr,
    "fashioniq": fashioniq,
}


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    made = {make: make(tmp_path_factory.mktemp(make.__name__)) for make in dict.fromkeys(MAKERS.values())}
    return {name: made[make] for name, make in MAKERS.items()}


@pytest.fixture(scope="module")
def run(releases: dict[str, Release], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """Run a recipe on its small data set; the same call a second time gives the first run."""
    folder = tmp_path_factory.mktemp("runs")
    blip, vlm = make_tiny_blip(folder / "tiny_blip"), make_tiny_vlm(folder / "tiny_vlm", texts=packaged_prompts())
    done: dict[tuple[str, ...], Outcome] = {}

    def play(stem: str, data_set: str, *more: str, overlay: str = "") -> Outcome:
        recipes = [ROOT / "recipes" / f"{name}.yaml" for name in filter(None, (stem, overlay))]
        release, document = releases[data_set], load(recipes)
        options = ["--trainer.accelerator", "cpu", *release.options]
        for name in document.get("engines", {}) if "rules" not in overlay else ():
            options += [f"--engines.{name}.engine.model", str(vlm), f"--engines.{name}.engine.dtype", "float32"]
        for key, value in {"model": blip, "tokenizer": blip, "max_length": 64}.items():
            options += [f"--system.retrievers.blip.blip.{key}", str(value)]
        if "rules" in overlay:
            captions = folder / f"{data_set}.jsonl"
            said = zip(release.ids, CAPTIONS, strict=True)
            captions.write_text("".join(json.dumps({"video": v, "caption": c}) + "\n" for v, c in said))
            options += ["--data.captions_file", str(captions)]
        call = (stem, overlay, *more)
        if call not in done:
            outcome = evaluate(recipes, [*options, *more], run_dir=folder / f"run-{len(done)}", build=True)
            assert outcome is not None
            done[call] = outcome
        return done[call]

    return play


def test_no_recipe_is_left_out() -> None:
    """Whatever sees videos is run here, stages by test_covrage_recipes and test_xcot_recipes, rest by test_recipes.

    ``my_videos`` has no queries: tests/data/test_folder.py searches with it.
    """
    left = ("covrage_", "my_videos", "xcot_")
    files = [path for path in ROOT.glob("recipes/*.yaml") if not path.stem.startswith(left)]
    files = [path for path in files if "StatementHistory" not in path.read_text()]  # test_ivr_recipes.py
    sees = {path.stem for path in files if "BlipRetriever" in path.read_text()}
    assert sees == {*(f"{system}_{data_set}" for system in SYSTEMS for data_set in SETS), *DEMO, *ELSEWHERE}


@pytest.mark.parametrize("data_set", SETS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_runs(system: str, data_set: str, run: Callable[..., Outcome], releases: dict[str, Release]) -> None:
    """With a random language model behind every module: where its answer cannot be read, the module falls back."""
    outcome = run(f"{system}_{data_set}", data_set)
    if system != "covr_blip":
        modules = json.loads((outcome.folder / "metrics.json").read_text())["modules"]
        assert modules.keys() - {"compress"} == {*MODULES[system], "user", "user_caption"}
        assert system == "umivr" or "compress" not in modules
        for module in MODULES[system] & {"intent", "reflection", "history"}:  # decoded under a grammar
            assert modules[module]["valid"] == modules[module]["asked"] > 0
    assert (outcome.sessions, outcome.failed) == (4, {})
    played = read_rows(outcome.folder).to_pylist()
    turns = {row["turn"] for row in played}
    assert turns == {0} if system == "covr_blip" else {0, 1} <= turns <= set(range(6))
    assert all(row["feedback"] for row in played if row["turn"])
    assert all(row["target_rank"] <= row["n_gallery"] for row in played if row["turn"] == 0)
    targets = {releases[data_set].ids[target] for _, target, _ in PAIRS}
    known = set(releases[data_set].ids) if data_set in ("finecvr", "fashioniq") else targets
    assert {row["n_gallery"] for row in played} == {len(known)}
    assert all(set(row["top_ids"]) <= known - {row["reference"]} for row in played if row["turn"] == 0)
    metrics = json.loads((outcome.folder / "metrics.json").read_text())
    assert (metrics["n"], metrics["proxy"]) == (4, None)
    record = json.loads((outcome.folder / "run.json").read_text())
    assert record["unreadable_videos"] == {}
    assert {"retrievers.blip", "retrievers.blip.gallery", "retrievers.blip.anchors"} <= record["models"].keys()


def first(outcome: Outcome) -> pa.Table:
    """Turn 0, without what each system remembers of it."""
    table = read_rows(outcome.folder)
    return table.filter(pc.equal(table["turn"], 0)).drop_columns([*TIMING, *MEMORY])


@pytest.mark.parametrize("data_set", SETS)
@pytest.mark.parametrize("system", INTERACTIVE)
def test_runs_without_a_language_model(system: str, data_set: str, run: Callable[..., Outcome]) -> None:
    ruled = run(f"{system}_{data_set}", data_set, overlay=f"engines/{RULES.get(system, 'rules_ivr')}")
    assert (ruled.sessions, ruled.failed) == (4, {})
    played = read_rows(ruled.folder)
    assert pc.sum(played["calls"]).as_py() == 0
    assert played["modules"].to_pylist() == [[]] * len(played)
    assert first(ruled).equals(first(run(f"{system}_{data_set}", data_set)))


@pytest.mark.parametrize("data_set", SETS)
def test_all_systems_share_turn_zero(data_set: str, run: Callable[..., Outcome]) -> None:
    """The single-turn baseline, with the pooling of the others, is turn 0 of all interactive systems."""
    pooling = ("--system.retrievers.blip.pooling", "mean") if data_set == "webvid" else ()
    single = first(run(f"covr_blip_{data_set}", data_set, *pooling))
    assert len(single) == 4
    assert single["top_scores"].null_count == 0
    for system in INTERACTIVE:
        assert single.equals(first(run(f"{system}_{data_set}", data_set)))


def test_query_pooling_moves_the_gallery(run: Callable[..., Outcome]) -> None:
    pooled, mean = run("covr_blip_webvid", "webvid"), run("ivr_webvid", "webvid")
    scores = [read_rows(outcome.folder).slice(0, 1)["top_scores"].to_pylist()[0] for outcome in (pooled, mean)]
    assert scores[0] != scores[1]


def test_the_demo_runs_on_the_packaged_weights(tmp_path: Path) -> None:
    options = ["--data.families", "4", "--data.limit", "4", "--trainer.accelerator", "cpu"]
    zero = []
    for stem in DEMO:
        outcome = evaluate([ROOT / "recipes" / f"{stem}.yaml"], options, run_dir=tmp_path / stem, build=True)
        assert outcome is not None
        assert (outcome.sessions, outcome.failed) == (4, {})
        played = read_rows(outcome.folder).to_pylist()
        assert {row["n_gallery"] for row in played} == {16}
        assert {row["turn"] for row in played} > {0}
        label = json.loads((outcome.folder / "metrics.json").read_text())["proxy"]
        assert label.startswith("demo world: generated clips")
        zero.append(first(outcome))
    assert len(zero[0]) == 4
    assert all(table.equals(zero[0]) for table in zero)


def test_the_demo_runs_with_a_language_model_in_every_role(tmp_path: Path) -> None:
    """Frames of mp4 clips in, JSON that fits its schema out, five turns long; the model is random and tiny."""
    vlm = make_tiny_vlm(tmp_path / "vlm", texts=packaged_prompts())
    options = ["--data.families", "4", "--data.limit", "4", "--trainer.accelerator", "cpu"]
    for name in ("system_vlm", "user_vlm"):
        options += [f"--engines.{name}.engine.model", str(vlm), f"--engines.{name}.engine.dtype", "float32"]
    recipes = [ROOT / "recipes" / "recovr_demo.yaml", ROOT / "recipes" / "engines" / "vlm.yaml"]
    outcome = evaluate(recipes, options, run_dir=tmp_path / "run", build=True)
    assert outcome is not None
    assert (outcome.sessions, outcome.failed) == (4, {})
    played = read_rows(outcome.folder).to_pylist()
    assert {row["turn"] for row in played} == set(range(6))
    modules = json.loads((outcome.folder / "metrics.json").read_text())["modules"]
    assert modules.keys() == {"initial", "intent", "reflection", "question", "user", "user_caption"}
    for module in modules.keys() - {"question"}:  # a question is free text
        read = modules[module]["valid"] + modules[module]["repaired"]  # a text of blanks alone is repaired
        assert read == modules[module]["asked"] > 0, module
    shown = {part["frames"] for row in played for call in row["prompts"] for part in call["content"] if part["video"]}
    assert shown == {8}
    assert json.loads((outcome.folder / "run.json").read_text())["undescribed_videos"] == {}
