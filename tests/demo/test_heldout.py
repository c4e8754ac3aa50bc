"""The numbers that the README tells, from decoded clips; about a minute on one core."""

from __future__ import annotations

import json

import pytest

from covr_lab.demo import heldout, model, world
from covr_lab.retrievers.blip import Blip

pytest.importorskip("av")


@pytest.fixture(scope="module")
def test_split():
    return world.make_world("test")


@pytest.fixture(scope="module")
def blip():
    made = Blip(model="demo", storyboard=2)
    made.load()
    return made


@pytest.fixture(scope="module")
def seen(blip, test_split, tmp_path_factory):
    return heldout.tiles(blip, test_split, tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="module")
def numbers(blip, test_split, seen):
    return heldout.recall(blip, test_split, seen) | heldout.matching(blip, test_split, seen)


def test_text_finds_its_clip(numbers):
    assert numbers["text R@1"] >= 30
    assert numbers["text R@10"] >= 80


def test_the_composed_query_leaves_room_and_beats_the_reference_alone(numbers):
    assert 30 <= numbers["composed R@1"] <= 75
    assert numbers["composed R@10"] >= 85
    assert numbers["composed R@1"] >= numbers["reference alone R@1"] + 8


@pytest.mark.parametrize("group", ["colour", "shape", "motion", "background", "light"])
def test_the_model_sees_what_the_texts_speak_of(numbers, group):
    assert numbers[f"tag {group}"] >= 90


def test_matching_keeps_the_best_in_front(numbers):
    assert numbers["after matching R@1"] >= 95


def test_an_untrained_copy_finds_nothing(test_split, seen, tmp_path):
    model.save(model.untrained(1), tmp_path)
    copy = Blip(model=str(tmp_path), storyboard=2)
    copy.load()
    numbers = heldout.recall(copy, test_split, seen)
    assert numbers["text R@1"] < 2
    assert numbers["composed R@1"] < 2


def test_the_stored_numbers_are_those_of_the_stored_weights(numbers):
    stored = json.loads((model.WEIGHTS / "training.json").read_text())["test"]
    assert stored.keys() == numbers.keys()
    for name, value in numbers.items():
        assert value == pytest.approx(stored[name], abs=1.0), name


def test_the_folder_is_small():
    assert sum(path.stat().st_size for path in model.WEIGHTS.iterdir()) < 6_000_000
