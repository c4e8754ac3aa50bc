from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest

from covr_lab.demo import wording, world
from covr_lab.functional.text import content_words
from covr_lab.reasoning.language import parse_feedback

SIZES = {"test": 150, "train": 40}


@pytest.fixture(scope="module", params=("test", "train"))
def made(request: pytest.FixtureRequest) -> tuple[str, world.World]:
    return request.param, world.make_world(request.param, families=SIZES[request.param])


def test_sizes_and_ids_of_the_test_split():
    test = world.make_world()
    assert (len(test.gallery), len(test.queries), len(test.clips)) == (600, 300, 900)
    assert test.gallery == [f"demo/{number:04d}" for number in range(600)]
    assert set(test.captions) == set(test.clips)


def test_held_out_things_are_disjoint_from_training(made):
    split, found = made
    seen = {(thing.colour, thing.shape, thing.motion) for scene in found.clips.values() for thing in scene.things}
    every = set(product(world.COLOURS, world.SHAPES, world.MOTIONS))
    parts = {name: {thing for thing in every if world.belongs(name, *thing)} for name in SIZES}
    assert seen <= parts[split]
    assert parts["train"] == every - parts["test"]
    for two in ((0, 1), (0, 2), (1, 2)):  # no two attributes alone tell the splits apart
        met = {name: {tuple(thing[k] for k in two) for thing in things} for name, things in parts.items()}
        assert met["train"] == met["test"]


def test_same_seed_same_world_other_seed_another():
    assert world.make_world(families=5) == world.make_world(families=5)
    assert world.make_world(families=5) != world.make_world(families=5, seed=1)


def test_references_stand_beside_the_gallery_and_targets_in_it(made):
    _, found = made
    gallery = set(found.gallery)
    for query in found.queries:
        assert query.target_id in gallery
        assert query.reference_id not in gallery
    assert len({query.session_id for query in found.queries}) == len(found.queries)


def test_no_two_gallery_clips_are_described_alike(made):
    _, found = made
    scenes = [found.clips[clip].attributes for clip in found.gallery]
    assert len(set(scenes)) == len(scenes)
    references = {found.clips[query.reference_id].attributes for query in found.queries}
    assert not references & set(scenes)


def differences(old: world.Scene, new: world.Scene) -> int:
    shown, wanted = ([(t.colour, t.shape, t.motion) for t in scene.things] for scene in (old, new))
    found = (old.background != new.background) + (old.light != new.light)
    if len(shown) != len(wanted):
        left, rest = (shown, wanted) if len(shown) > len(wanted) else (wanted, shown)
        return found + 1 + min(sum(a != b for a, b in zip(thing, rest[0], strict=True)) for thing in left)
    orders = (wanted, wanted[::-1])
    return found + min(
        sum(a != b for x, y in zip(shown, order, strict=True) for a, b in zip(x, y, strict=True)) for order in orders
    )


def test_a_target_differs_from_its_reference_in_a_few_attributes(made):
    _, found = made
    counts = Counter(
        differences(found.clips[query.reference_id], found.clips[query.target_id]) for query in found.queries
    )
    assert set(counts) == {1, 2, 3}
    assert counts[3] < counts[1] < counts[2]


def test_captions_name_every_attribute_and_vary(made):
    _, found = made
    tables = (wording.COLOUR, wording.SHAPE, wording.MOTION)
    for clip, scene in found.clips.items():
        text = found.captions[clip].lower()
        assert any(words in text for words in wording.BACKGROUND[scene.background]), text
        assert any(words in text for words in wording.LIGHT[scene.light]), text
        for thing in scene.things:
            for table, value in zip(tables, (thing.colour, thing.shape, thing.motion), strict=True):
                assert any(words in text for words in table[value]), text
    captions = Counter(found.captions[clip] for clip in found.gallery)
    assert len(captions) == len(found.gallery)


def test_things_stay_in_the_frame_and_seldom_overlap():
    rng = random.Random(0)
    clashes = []
    for _ in range(300):
        scene = world.placed(rng, world.scene(rng, "train", 2))
        clashes.append(world._clash(scene.things))
        for thing in scene.things:
            for time in (0.0, 0.5, 1.0):
                x, y, _ = thing.at(time)
                assert 0.15 < x < 0.85
                assert 0.15 < y < 0.85
    assert max(clashes) < 0.2
    assert sum(clash > 0.05 for clash in clashes) < 75


def test_claims_know_what_is_true():
    things = (world.Thing("red", "star", "left"), world.Thing("blue", "ring", "still"))
    scene = world.Scene(things, "brick", "steady")
    assert wording.whole(scene).true_of(scene)
    assert wording.Claims((("blue", "", "still"), ("", "star", ""))).true_of(scene)
    assert not wording.Claims((("red", "ring", ""),)).true_of(scene)
    assert not wording.Claims((("red", "", ""), ("", "star", ""))).true_of(scene)
    assert not wording.Claims((), "wavy").true_of(scene)


def test_the_rule_parser_reads_the_edits():
    rng, read, total = random.Random(0), 0, 0
    tables = {"colour": wording.COLOUR, "shape": wording.SHAPE, "background": wording.BACKGROUND}
    while total < 400:
        _, change = world.changed(rng, world.scene(rng, "test"), "test")
        text = wording.edit(rng, [change])
        wanted = parse_feedback(text)
        total += 1
        if change.kind == "remove":
            read += bool(wanted.avoid) and not wanted.require
        elif change.kind in tables:
            told = {word for words in tables[change.kind][change.new] for word in content_words(words)}
            read += bool(told & set(wanted.require))
        else:
            read += bool(wanted.require)
    assert read / total > 0.97


def test_the_vocabulary_knows_every_word():
    from covr_lab.demo.model import vocabulary

    known, test = set(vocabulary()), world.make_world()
    texts = [*test.captions.values(), *(query.edit for query in test.queries)]
    words = {word for text in texts for token in content_words(text) for word in token.split("'")}
    assert words <= known
