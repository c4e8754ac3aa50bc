"""The study files that come with the recipes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from covr_lab.recipe import build_parser, load, resolve
from covr_lab.study.spec import Study, read_study

STUDIES = sorted((Path(__file__).resolve().parents[2] / "recipes" / "studies").glob("*.yaml"))
NAMES = ("recovr_paper", "captions", "demo")


@pytest.fixture(scope="module", params=STUDIES, ids=lambda path: path.stem)
def study(request: pytest.FixtureRequest) -> Study:
    return read_study([request.param])


def test_the_runs_of_a_study_resolve(study: Study) -> None:
    """One run for each set of overlays and overridden keys, and one for each recipe."""
    parser, known = build_parser(), set()
    for run in study.plan():
        changes = (run.recipes[1:], run.overrides[::2]) if run.recipes[1:] or run.overrides else run.recipes
        if changes not in known:
            resolve(parser, run.recipes, run.overrides)
        known.add(changes)


def test_no_two_runs_of_a_study_are_one(study: Study) -> None:
    known: dict[str, str] = {}
    for run in study.plan():
        document = json.dumps([load(run.recipes), run.overrides], sort_keys=True)
        assert known.setdefault(document, str(run)) == str(run)


def test_every_system_and_condition_of_a_study_is_played(study: Study) -> None:
    pairs = study.pairs()
    assert {system for system, _ in pairs} == set(study.systems)
    assert {condition for _, condition in pairs} == set(study.conditions)


def test_a_study_in_words_states_what_has_to_hold() -> None:
    """The claims of the evaluation are in the layout, so in every study over it."""
    layout, captions, demo = (read_study([STUDIES[0].with_name(f"{name}.yaml")]) for name in NAMES)
    required = [claim for claim, form in layout.relations.items() if not form.get("report")]
    assert len(required) == 10
    assert set(required) <= set(captions.relations)
    assert set(required) <= set(demo.relations)
