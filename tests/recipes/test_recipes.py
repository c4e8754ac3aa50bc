"""Recipes: how files merge, that all of them resolve and run, and that a wrong one ends before a model loads."""

from __future__ import annotations

import copy
import csv
import json
import runpy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from covr_lab.data.words import world
from covr_lab.evaluate import evaluate
from covr_lab.recipe import RecipeError, build_parser, digest, load, merge, plain, resolve
from covr_lab.results.reader import read_rows
from covr_lab.retrievers.blip import Blip
from covr_lab.retrievers.sentence import SentenceEncoder
from tests.tiny_vlm import make_tiny_lm, packaged_prompts

ROOT = Path(__file__).resolve().parents[2]
RECOVR = ROOT / "recipes" / "recovr_words.yaml"
COVR = ROOT / "recipes" / "covr_blip_webvid.yaml"
BASES = sorted(ROOT.glob("recipes/*.yaml"))
# Recipes that see videos: test_video_recipes.py, test_covrage_recipes.py, test_xcot_recipes.py.
SEEING = ("BlipRetriever", "QwenVLRetriever", "DualEncoderRetriever")
OTHERS = (*SEEING, "MSVDCaptions")  # of which the latter has files of its own: test_umivr_recipes.py
WORDS = [base for base in BASES if not any(name in base.read_text() for name in OTHERS)]
ABLATIONS = sorted(ROOT.glob("recipes/ablations/*.yaml"))
XCOT = [path for path in ABLATIONS if "xcot" in path.stem]  # of comparisons: test_xcot_recipes.py
IVR = [path for path in ABLATIONS if path.stem.startswith("ivr_")]  # of rounds of questions: test_ivr_recipes.py
CASCADE = [
    path
    for path in ABLATIONS
    if path not in (*IVR, *XCOT) and any(key in path.read_text() for key in ("stages:", "stage_turns:", "qwen:"))
]
ENGINES = sorted(ROOT.glob("recipes/engines/*.yaml"))
USERS = sorted(ROOT.glob("recipes/users/*.yaml"))
OVERLAYS = [*ABLATIONS, *ENGINES, *USERS]
LLM = ROOT / "recipes" / "recovr_webvid_captions_llm.yaml"
REFLECTION = ROOT / "recipes/ablations/with_reflection.yaml"  # for UMIVR with a model: test_umivr_recipes.py
PROMPTS = [path for path in ABLATIONS if path.stem.startswith("prompts_")]  # for recipes with a language model
UNLIKE = {  # overlay -> what it is for
    "history_dynamic_anchor": "history_words",
    "transplant_rank_cap": "umivr_words",
}
PAIRS = [
    [LLM if path in PROMPTS else ROOT / "recipes" / f"{UNLIKE.get(path.stem, 'recovr_words')}.yaml", path]
    for path in ABLATIONS
    if path not in (*CASCADE, *IVR, *XCOT, REFLECTION)
]
WORLD = world(20, 10, seed=0)
NAMES = ("reference", "target", "reference_caption", "target_caption")
Key = tuple[str | int, ...]
CLASS = {"class_path": "A", "init_args": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("base", "overlay", "merged"),
    [
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"x": 3}}, {"a": {"x": 3, "y": 2}}, id="other entries stay"),
        pytest.param({"a": {"x": {"p": 1}}}, {"a": {"z": {}}}, {"a": {"x": {"p": 1}, "z": {}}}, id="new entry"),
        pytest.param({"a": CLASS}, {"a": {"class_path": "B"}}, {"a": {"class_path": "B"}}, id="swap drops arguments"),
        pytest.param(
            {"a": CLASS},
            {"a": {"class_path": "A", "init_args": {"y": 3}}},
            {"a": {"class_path": "A", "init_args": {"x": 1, "y": 3}}},
            id="same class keeps arguments",
        ),
        pytest.param(
            {"a": CLASS},
            {"a": {"init_args": {"x": 3}}},
            {"a": {"class_path": "A", "init_args": {"x": 3, "y": 2}}},
            id="no class means the same",
        ),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="a list replaces"),
        pytest.param({"a": [1, 2]}, {"a": []}, {"a": []}, id="an empty list replaces"),
        pytest.param({"a": {"x": CLASS}}, {"a": {"x": None}}, {"a": {"x": None}}, id="null switches off"),
        pytest.param({"a": None}, {"a": CLASS}, {"a": CLASS}, id="a node in the place of null"),
        pytest.param({"a": {"x": 1}}, {"a": 2}, {"a": 2}, id="a scalar in the place of a mapping"),
    ],
)
def test_merge(base: dict[str, Any], overlay: dict[str, Any], merged: dict[str, Any]) -> None:
    before = copy.deepcopy((base, overlay))
    assert merge(base, overlay) == merged
    assert (base, overlay) == before


def leaves(node: Any, at: Key = (), *, into_lists: bool = True) -> Iterator[tuple[Key, Any]]:
    """(path, value) of everything in a document that holds nothing itself."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, (*at, key), into_lists=into_lists)
    elif isinstance(node, list) and node and into_lists:
        for number, value in enumerate(node):
            yield from leaves(value, (*at, number))
    else:
        yield at, node


def touched(base: Any, overlay: Any, at: Key = ()) -> Iterator[Key]:
    """Paths that an overlay may change; a node whose class it names anew counts as a whole."""
    nodes = isinstance(base, Mapping) and isinstance(overlay, Mapping)
    if nodes and overlay.get("class_path", base.get("class_path")) == base.get("class_path"):
        for key, value in overlay.items():
            yield from touched(base.get(key), value, (*at, key))
    else:
        yield at


@pytest.fixture(scope="module")
def resolved() -> dict[Path, dict[str, Any]]:
    """Every recipe, resolved on its own."""
    parser = build_parser()
    return {base: plain(parser, resolve(parser, [base])) for base in BASES}


def slot(path: Key) -> Key:
    """What a key belongs to: a slot of the system, or a section."""
    return path[:3] if path[0] == "system" else path[:1]


def shape(document: dict[str, Any], overlay: dict[str, Any]) -> frozenset[tuple[Key, Any]]:
    """Keys and classes of the slots that an overlay touches, without numbers and files.

    An overlay does the same to recipes of one shape.
    """
    slots = {slot(path) for path in touched(document, overlay)}
    found = (entry for entry in leaves(document) if slot(entry[0]) in slots)
    return frozenset((path, value if path[-1] == "class_path" else None) for path, value in found)


def fits_stages(text: str, overlay: Path) -> bool:
    """Whether a recipe has the retriever, the views or the stages that an overlay changes."""
    said = overlay.read_text()
    if overlay.stem in ("with_cascade", "with_cascade_model", "covrage_opening", "verify_none"):
        return True
    needed = {"qwen:": "QwenVLRetriever", "view:": "NoveltyView"}
    return all(name in text for key, name in needed.items() if key in said) and "GatedRerank" in text


def fits(base: Path, overlay: Path) -> bool:
    """Whether an overlay has something to change in a recipe: a composed channel, a language model, its engine."""
    text = base.read_text()
    if overlay in IVR:
        return "StatementHistory" in text
    if overlay in XCOT:
        models = {"xcot_soft": "ModelJudge", "xcot_no_reasons": "ModelJudge"}
        needed = {"xcot_perturbed": "Annotator", "xcot_still": "DemoAnnotator", **models}
        return needed.get(overlay.stem, "PairwiseRank") in text
    if overlay in CASCADE:
        return fits_stages(text, overlay)
    if overlay.stem in ("anchor_reference", "history_dynamic_anchor", "covr_only_model"):
        return "covr:" in text
    if overlay.stem.startswith("recency_"):
        return "TimeWeightedRRF" in text
    if overlay in PROMPTS:
        return "VLMInitialQuery" in text
    needed = {"server": "user_vlm:", "internvl": "system_vlm:"}
    if overlay.stem.endswith("_covrage"):  # engines/
        return "GatedRerank" in text
    return needed.get(overlay.stem, "") in text


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.stem)
def test_an_overlay_changes_what_it_names_and_nothing_else(overlay: Path, resolved: dict[Path, dict[str, Any]]) -> None:
    parser, changes, said = build_parser(), 0, load([overlay])
    for base in {shape(document, said): base for base, document in resolved.items()}.values():
        document = resolved[base]
        try:
            overlaid = plain(parser, resolve(parser, [base, overlay]))
        except RecipeError:
            assert not fits(base, overlay), base
            continue
        old, new = (dict(leaves(each, into_lists=False)) for each in (document, overlaid))
        changed = {key for key in old | new if old.get(key, "absent") != new.get(key, "absent")}
        allowed = list(touched(load([base]), said))
        stray = [key for key in changed if not any(key[: len(start)] == start for start in allowed)]
        assert not stray, f"{overlay.stem} on {base.stem} changes {stray}"
        changes += len(changed)
    assert changes, f"{overlay.stem} changes no recipe"


@pytest.fixture(scope="module")
def tiny_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random language model that reads text only."""
    return make_tiny_lm(tmp_path_factory.mktemp("tiny_lm"), texts=packaged_prompts())


@pytest.fixture(scope="module")
def triplets_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One triplet file under the column names of all data sets."""
    path = tmp_path_factory.mktemp("triplets") / "triplets.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("pth1", "pth2", "edit", "txt1", "txt2", *NAMES))
        for row in WORLD:
            videos, captions = (row.reference, row.target), (row.reference_caption, row.target_caption)
            writer.writerow((*videos, row.edit, *captions, *videos, *captions))
    return path


def data_options(recipe: Path, annotations: Path) -> list[str]:
    """Options that put a small file in the place of the one that the recipe names."""
    kind = load([recipe])["data"]["class_path"].rsplit(".", 1)[-1]
    options = [] if kind == "WordWorld" else ["--data.annotations", str(annotations)]
    return [*options, "--data.captions", "dense"] if kind == "DenseWebVidCoVR" else options


@pytest.mark.parametrize(
    "paths",
    [[base] for base in WORDS if "ImportedFeatures" not in base.read_text()] + PAIRS,
    ids=lambda paths: "+".join(path.stem for path in paths),
)
def test_runs(paths: Sequence[Path], triplets_csv: Path, tiny_encoder: Path, tiny_lm: Path, tmp_path: Path) -> None:
    options = ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu"]
    options += ["--data.limit", "4", *data_options(paths[0], triplets_csv)]
    for name in load([paths[0]]).get("engines", ()):
        options += [f"--engines.{name}.engine.model", str(tiny_lm), f"--engines.{name}.engine.dtype", "float32"]
    outcome = evaluate(list(paths), options, run_dir=tmp_path / "run")
    assert outcome is not None
    assert (outcome.sessions, outcome.failed) == (4, {})
    rows = read_rows(outcome.folder).to_pylist()
    assert {row["turn"] for row in rows} == set(range(6))
    assert all(row["target_rank"] <= row["n_gallery"] for row in rows if row["turn"] == 0)
    metrics = json.loads((outcome.folder / "metrics.json").read_text())
    assert metrics["n"] == 4
    assert metrics["proxy"] is not None


def played(stem: str, overlay: str, encoder: Path, folder: Path) -> list[dict[str, Any]]:
    """Rows of a recipe of the generated world under an overlay."""
    options = ["--system.retrievers.captions.model", str(encoder), "--trainer.accelerator", "cpu", "--data.limit", "12"]
    paths = [ROOT / "recipes" / f"{stem}_words.yaml", ROOT / "recipes" / "ablations" / f"{overlay}.yaml"]
    outcome = evaluate(paths, options, run_dir=folder / stem)
    assert outcome is not None
    return read_rows(outcome.folder).to_pylist()


@pytest.mark.parametrize("stem", ["recovr", "umivr"])
def test_without_interaction_the_ranking_of_turn_zero_stays(stem: str, tiny_encoder: Path, tmp_path: Path) -> None:
    rows = played(stem, "no_interaction", tiny_encoder, tmp_path)
    opening = {row["session_id"]: (row["top_ids"], row["target_rank"]) for row in rows if row["turn"] == 0}
    assert {row["turn"] for row in rows} == set(range(6))
    for row in rows:
        assert (row["top_ids"], row["target_rank"]) == opening[row["session_id"]]
        assert row["question"] is None


@pytest.mark.parametrize("stem", ["ivr", "umivr", "history", "merlin"])
def test_a_transplanted_rank_cap_is_signalled_by_the_action(stem: str, tiny_encoder: Path, tmp_path: Path) -> None:
    rows = [row for row in played(stem, "transplant_rank_cap", tiny_encoder, tmp_path) if row["turn"]]
    signals = {"rewrite": "negative", "answer": "negative", "modify": "neutral"}
    assert {row["action"] for row in rows} == set(signals)
    assert all(row["satisfaction"] == signals[row["action"]] for row in rows)


# What is refused: files to write, command line, and words that the one line must have.


def recipe_with(change: Callable[[dict[str, Any]], None]) -> str:
    document = load([RECOVR])
    change(document)
    return yaml.safe_dump(document)


def misspelt(document: dict[str, Any]) -> None:
    fusion = document["system"]["init_args"]["fusion"]["init_args"]
    fusion["windw"] = fusion.pop("window")


HEADER = "id,reference,target,edit,caption,wanted\n"
GOOD = f"{HEADER}a,v1,v2,make it red,a blue kite,a red kite\nb,v1,v3,make it green,a blue kite,a green kite\n"
COLUMNS = "reference: reference, target: target, edit: edit, session_id: id, reference_caption: caption"
FILE = (
    "data: {class_path: covr_lab.data.TripletFile, init_args: "
    f"{{annotations: t.csv, columns: {{{COLUMNS}, target_caption: wanted}}}}}}\n"
)
ON_FILE = [str(RECOVR), "file.yaml"]
REFUSED: dict[str, tuple[dict[str, str], list[str], tuple[str, ...]]] = {
    "key of the recipe": ({"r.yaml": recipe_with(misspelt)}, ["r.yaml"], ("r.yaml", "system.fusion", "windw")),
    "section of the recipe": ({"r.yaml": RECOVR.read_text() + "sytem: {rm0: none}\n"}, ["r.yaml"], ("r.yaml", "sytem")),
    "key of an overlay": (
        {"o.yaml": "system: {init_args: {chanels: {t2v: null}}}\n"},
        [str(RECOVR), "o.yaml"],
        ("o.yaml", "system", "chanels"),
    ),
    "key of an override": ({}, [str(RECOVR), "--system.fusion.windw", "3"], ("windw",)),
    "section of an override": ({}, [str(RECOVR), "--sytem.rm0", "none"], ("sytem",)),
    "type in the recipe": (
        {"r.yaml": recipe_with(lambda document: document["protocol"].update(turns="many"))},
        ["r.yaml"],
        ("r.yaml", "protocol.turns", "many"),
    ),
    "type of an override": ({}, [str(RECOVR), "--data.limit", "few"], ("data.limit", "int")),
    "choice": ({}, [str(RECOVR), "--protocol.ties", "lucky"], ("protocol.ties", "lucky")),
    "wrong class in a slot": (
        {"o.yaml": "system: {init_args: {fusion: {class_path: covr_lab.reasoning.ConcatHistory}}}\n"},
        [str(RECOVR), "o.yaml"],
        ("system.fusion", "ConcatHistory"),
    ),
    "no such class": (
        {"o.yaml": "system: {init_args: {fusion: {class_path: covr_lab.ranking.NoFusion}}}\n"},
        [str(RECOVR), "o.yaml"],
        ("system.fusion", "NoFusion"),
    ),
    "no data": ({"r.yaml": "protocol: {turns: 1}\n"}, ["r.yaml"], ("r.yaml", "data")),
    "recipe that is not YAML": ({"r.yaml": "data: [1\n"}, ["r.yaml"], ("r.yaml", "YAML")),
    "no recipe": ({}, ["nowhere.yaml"], ("nowhere.yaml",)),
    "no channel": (
        {"o.yaml": "system: {init_args: {channels: {t2v: null, covr: null}}}\n"},
        [str(RECOVR), "o.yaml"],
        ("system.channels",),
    ),
    "captioner that nobody would ask": (
        {"o.yaml": "system: {init_args: {captions: null}}\n"},
        [str(ROOT / "recipes" / "recovr_demo.yaml"), "o.yaml", "--data.families", "1"],
        ("system.captioner", "system.captions"),
    ),
    "unknown retriever": ({}, [str(RECOVR), "--system.opening", "blip"], ("system.opening", "blip", "captions")),
    "number out of range": ({}, [str(RECOVR), "--protocol.turns", "-1"], ("protocol.turns", "-1")),
    "no annotation file": ({"file.yaml": FILE}, ON_FILE, ("t.csv", "data.annotations")),
    "no column": ({"file.yaml": FILE, "t.csv": "id,target\na,v2\n"}, ON_FILE, ("t.csv:2", "reference")),
    "session id used twice": (
        {"file.yaml": FILE, "t.csv": GOOD + "a,v4,v2,make it loud,a quiet kite,a red kite\n"},
        ON_FILE,
        ("t.csv:4", "'a'", "t.csv:2"),
    ),
    "empty edit": (
        {"file.yaml": FILE, "t.csv": GOOD.replace("make it green", " ")},
        ON_FILE,
        ("t.csv:3", "edit", "data.empty_edit"),
    ),
    "no folder of videos": (
        {"t.csv": "pth1,pth2,edit,txt1,txt2\nv1,v2,make it red,a blue kite,a red kite\n"},
        [str(COVR), "--data.annotations", "t.csv", "--data.videos_dir", "clips"],
        ("clips", "data.videos_dir"),
    ),
    "frames that fill no storyboard": (
        {},
        [str(COVR), "--system.retrievers.blip.blip.storyboard", "2"],
        ("frames", "storyboard", "4 cells", "15"),
    ),
    "time limit of a reader": (
        {},
        [str(COVR), "--data.reader", "covr_lab.video.PyAVReader", "--data.reader.timeout", "0"],
        ("timeout", "0"),
    ),
    "target outside the gallery": (
        {"file.yaml": FILE, "t.csv": GOOD, "ids.txt": "v1\nv2\n"},
        [*ON_FILE, "--data.gallery_file", "ids.txt"],
        ("ids.txt", "v3", "data.allow_missing"),
    ),
}


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(self: SentenceEncoder | Blip) -> None:
        raise AssertionError("a model was loaded")

    for model in (SentenceEncoder, Blip):
        monkeypatch.setattr(model, "load", loaded)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_before_a_model_loads(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    files, argv, words = REFUSED[case]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    main = runpy.run_path(str(ROOT / "tools" / "eval.py"))["main"]
    assert main([*argv, "--run_dir", "run"]) == 1
    printed = capfd.readouterr()
    lines = printed.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert all(word in lines[0] for word in words), lines[0]
    assert printed.out == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_model")
def test_a_good_file_gets_as_far_as_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusals above are about what they name: their common part is sound."""
    (tmp_path / "file.yaml").write_text(FILE)
    (tmp_path / "t.csv").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="a model was loaded"):
        evaluate([RECOVR, Path("file.yaml")], ["--trainer.accelerator", "cpu"], run_dir=Path("run"))


@pytest.mark.parametrize("base", BASES, ids=lambda path: path.stem)
def test_digest_is_about_everything_that_changes_a_row(base: Path, resolved: dict[Path, dict[str, Any]]) -> None:
    document = resolved[base]
    expected, ignored = digest(document), []
    for path, value in leaves(document):
        changed = copy.deepcopy(document)
        *parents, last = path
        node: Any = changed
        for key in parents:
            node = node[key]
        node[last] = {"other than": value}
        if digest(changed) == expected:
            ignored.append(path)
    machine = {(section, key) for section in ("trainer", "wandb") for key in document[section]}
    data = document["data"]["init_args"].keys() & {"batch_size", "bundles"}
    assert set(ignored) == machine | {("data", "init_args", key) for key in data}


def test_a_file_and_an_override_that_say_the_same_are_one_run(tmp_path: Path) -> None:
    parser, overlay = build_parser(), tmp_path / "o.yaml"
    overlay.write_text("system: {init_args: {fusion: {init_args: {window: 3}}}}\nprotocol: {turns: 2}\n")
    options = ["--system.fusion.window", "3", "--protocol.turns", "2", "--data.batch_size", "5"]
    first, second = resolve(parser, [RECOVR, overlay]), resolve(parser, [RECOVR], options)
    assert digest(plain(parser, first)) == digest(plain(parser, second))
    assert digest(plain(parser, first)) != digest(plain(parser, resolve(parser, [RECOVR])))
