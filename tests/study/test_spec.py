"""Study files: how they are laid over each other, what they plan, and how a wrong one is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from covr_lab.study.checks import StudyError
from covr_lab.study.spec import read_study, slug

ROOT = Path(__file__).resolve().parents[2]
MINE = """
title: t
data: words
baseline: A
systems:
  A: ["recovr_{data}.yaml"]
  B: {recipes: ["ivr_{data}.yaml"], overrides: {system.fusion.k: 10}}
conditions:
  default: []
  1 word: {recipes: [over.yaml], overrides: {simulator.words_per_turn: 1}}
  elsewhere: {data: demo}
tables:
  main: {title: Main, kind: turns, systems: [A, B]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recipes folder with four recipes and a study."""
    for name in ("recovr_words", "ivr_words", "recovr_demo", "over"):
        (tmp_path / f"{name}.yaml").write_text("{}")
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.yaml").write_text(MINE)
    return tmp_path


def over(folder: Path, text: str, name: str = "studies/more.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_plan_has_what_tables_need_and_nothing_else(folder: Path) -> None:
    plan = read_study([folder / "studies/mine.yaml"]).plan()
    assert [str(run) for run in plan] == ["A · default", "B · default"]
    assert [run.folder for run in plan] == ["runs/a/default", "runs/b/default"]
    assert [path.resolve() for path in plan[0].recipes] == [folder / "recovr_words.yaml"]
    assert plan[1].overrides == ("--system.fusion.k", "10")


def test_every_mention_of_a_system_in_a_condition_is_a_run(folder: Path) -> None:
    more = over(
        folder,
        """
layout: mine.yaml
tables: {main: null, matrix: {title: M, kind: conditions, systems: [A], conditions: [default, elsewhere]}}
relations: {costs: {loses_more: B, loses_less: A, from: default, to: 1 word, metric: R@1, turns: [1]}}
published: {p: {value: 1, origin: derived, ours: {system: A, minus: B, metric: drift, condition: 1 word}}}
""",
    )
    plan = read_study([more]).plan()
    pairs = [(run.system, run.condition) for run in plan]
    assert pairs == [("A", "default"), ("B", "default"), ("A", "1 word"), ("B", "1 word"), ("A", "elsewhere")]
    assert [path.name for path in plan[2].recipes] == ["recovr_words.yaml", "over.yaml"]
    assert [path.name for path in plan[4].recipes] == ["recovr_demo.yaml"]


def test_what_a_system_or_condition_sets_wins_over_the_command_line(folder: Path) -> None:
    more = over(
        folder,
        "{layout: mine.yaml, overrides: {data.limit: 5}, tables: {main: {condition: 1 word}}}",
    )
    run = read_study([more]).plan(["--simulator.words_per_turn", "4", "--data.limit", "7"])[1]
    assert run.overrides == tuple(
        "--data.limit 5 --simulator.words_per_turn 4 --data.limit 7 --system.fusion.k 10 "
        "--simulator.words_per_turn 1".split()
    )


def test_null_takes_a_system_out_of_everything(folder: Path) -> None:
    more = over(
        folder,
        """
layout: mine.yaml
systems: {B: null}
tables: {both: {title: D, kind: agreement, systems: [B], conditions: [default, 1 word]}}
figures:
  f: {title: F, kind: sensitivity, metric: R@1, groups: {g: {A: 1, B: 2}}}
  g: {title: G, kind: sensitivity, metric: R@1, groups: {g: {B: 2}}}
relations:
  gone: {above: A, below: B, metric: R@1, turns: [1]}
  kept: {above: A, below: [A, B], metric: R@1, turns: [1]}
published: {gone: {value: 1, origin: derived, ours: {system: A, minus: B, metric: R@1}}}
""",
    )
    study = read_study([more])
    assert [(item.name, item.systems) for item in study.tables] == [("main", ("A",))]
    assert [item.name for item in study.figures] == ["f"]
    assert study.figures[0].options["groups"] == {"g": {"A": 1}}
    assert study.relations == {"kept": {"above": "A", "below": ["A"], "metric": "R@1", "turns": [1]}}
    assert study.published == {}
    assert study.pairs() == [("A", "default")]


def test_a_study_elsewhere_names_recipes_beside_itself(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("{}")
    more = over(folder, "{layout: studies/mine.yaml, systems: {B: [own.yaml]}}", "study.yaml")
    names = [path.resolve() for run in read_study([more]).plan() for path in run.recipes]
    assert names == [folder / "recovr_words.yaml", tmp_path / "own.yaml"]


def test_files_on_the_command_line_merge_left_to_right(folder: Path) -> None:
    more = over(folder, "{title: other}")
    study = read_study([folder / "studies/mine.yaml", more])
    assert (study.title, study.name) == ("other", "mine+more")


def table(**fields: Any) -> dict[str, Any]:
    return {"tables": {"x": {"title": "X", "kind": "turns"} | fields}}


def figure(**fields: Any) -> dict[str, Any]:
    return {"figures": {"x": {"title": "X", "kind": "sensitivity", "metric": "R@1"} | fields}}


def relation(**fields: Any) -> dict[str, Any]:
    return {"relations": {"x": {"metric": "R@1", "turns": [1]} | fields}}


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown key": ({"tabels": {}}, ("tabels", "tables")),
    "unknown system": (table(systems=["A", "Z"]), ("tables.x.systems", "'Z'", "A, B")),
    "unknown kind": (table(kind="pie"), ("tables.x.kind", "'pie'", "turns")),
    "unknown metric": (table(metrics=["R@3"]), ("tables.x.metrics", "'R@3'", "R@5")),
    "metric without bands": (
        {"figures": {"x": {"title": "X", "kind": "curves", "metrics": ["MRR"]}}},
        ("figures.x", "MRR"),
    ),
    "unknown condition": (table(condition="night"), ("tables.x.condition", "'night'", "default")),
    "key of another kind": (table(by="actions"), ("tables.x", "by")),
    "no title": ({"tables": {"x": {"kind": "turns"}}}, ("tables.x", "title")),
    "not a mapping": ({"tables": [1]}, ("tables", "mapping")),
    "unknown slice": (table(kind="slices", by="mood"), ("tables.x.by", "'mood'")),
    "one user of two": (table(kind="agreement", conditions=["default"]), ("tables.x", "2 conditions")),
    "sensitivity to nothing": (figure(), ("figures.x", "groups", "conditions")),
    "unknown system in a group": (figure(groups={"g": {"Z": 1}}), ("figures.x.groups.g", "'Z'")),
    "places missing": (figure(conditions=["default"]), ("figures.x.conditions", "mapping")),
    "relation of no form": (relation(), ("relations.x", "above", "within", "loses_more")),
    "relation to an unknown system": (relation(above="A", below="Z"), ("relations.x", "'Z'")),
    "relation without the other side": (relation(above="A"), ("relations.x", "below")),
    "turns in words": (relation(above="A", below="B", turns="all"), ("relations.x", "turns", "all")),
    "unknown origin": ({"published": {"x": {"value": 1, "origin": "heard"}}}, ("published.x", "origin", "heard")),
    "published for nobody": (
        {"published": {"x": {"value": 1, "origin": "derived", "ours": {"system": "Z", "metric": "R@1"}}}},
        ("published.x.ours.system", "'Z'"),
    ),
    "baseline": ({"baseline": "Z"}, ("baseline", "'Z'")),
    "two names of one folder": ({"systems": {"a": ["over.yaml"]}}, ("systems", "'A'", "'a'")),
    "a system of nothing": ({"systems": {"A": {"overrides": {}, "recipes": []}}}, ("systems.A", "recipe")),
    "recipes that are no list": ({"systems": {"A": {"recipes": "over.yaml"}}}, ("systems.A", "over.yaml", "list")),
    "recipe that does not exist": ({"data": "moon"}, ("systems.A", "default", "recovr_moon.yaml")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_study_is_refused_in_one_line(case: str, folder: Path) -> None:
    content, words = REFUSED[case]
    path = over(folder, yaml.safe_dump({"layout": "mine.yaml", **content}))
    with pytest.raises(StudyError) as refused:
        read_study([path]).plan()
    message = str(refused.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
    assert "more" in message


def test_a_wrong_study_ends_before_anything_heavy_is_imported(folder: Path) -> None:
    path = over(folder, "{layout: mine.yaml, baseline: Z}")
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); "
        f"main = runpy.run_path({str(ROOT / 'tools' / 'study.py')!r})['main']; "
        f"status = main([{str(path)!r}]); assert 'torch' not in sys.modules; sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_slugs_are_plain_file_names() -> None:
    assert [slug(name) for name in ("IVR + cap", "../x", "k = 10", "π")] == ["ivr-cap", "x", "k-10", "x"]
