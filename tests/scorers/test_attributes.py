"""Rules that read attributes off words, and the oracle, against the generator of the demo world."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from covr_lab.demo import wording
from covr_lab.demo.captioner import AROUND, THINGS
from covr_lab.demo.world import World, make_world
from covr_lab.gallery.gallery import Gallery
from covr_lab.scorers import AttributeScorer, OracleScorer, Pair, PairScorer
from covr_lab.scorers.attributes import CUES, agreement, attributes, named
from covr_lab.scorers.oracle import draws, scene_attributes
from covr_lab.types import Refused

RED_STAR = "A red star moving left in front of a striped curtain in steady light"


@cache
def world(families: int = 40, seed: int = 0) -> World:
    return make_world("test", families=families, seed=seed)


def bound(scorer: PairScorer, made: World | None = None, *, told: bool = True) -> PairScorer:
    made = made or world()
    scorer.load()
    scorer.bind(Gallery.of(made.gallery, made.captions if told else {}))
    return scorer


def all_pairs(made: World) -> list[Pair]:
    return [Pair(q.reference_id, q.edit, video, q.session_id) for q in made.queries for video in sorted(made.gallery)]


def test_every_true_caption_is_read_as_its_scene() -> None:
    made = world(150)
    assert all(attributes(made.captions[clip]) == scene_attributes(scene) for clip, scene in made.clips.items())


def test_every_phrase_of_the_captioner_is_read_as_its_tag() -> None:
    for claims in THINGS:
        ((colour, shape, motion),) = claims.things
        assert attributes(wording.phrase(claims)) == {"colour": colour, "shape": shape, "motion": motion}
    for claims in AROUND:
        wanted = {"background": claims.background, "light": claims.light}
        assert attributes(wording.phrase(claims)) == {kind: value for kind, value in wanted.items() if value}


def test_every_edit_names_what_it_changes_and_nothing_that_is_wrong() -> None:
    """The generator writes an edit for the clip that differs from the reference in what the edit says, and no more."""
    made = world(150)
    for query in made.queries:
        source, target = (scene_attributes(made.clips[clip]) for clip in (query.reference_id, query.target_id))
        said = named(query.edit)
        changed = {kind for kind in said if source[kind] != said[kind]}
        assert changed, query.edit
        assert all(target[kind] == said[kind] for kind in changed), query.edit


def test_what_an_edit_wants_gone_is_not_wanted() -> None:
    cases = {
        "replace the red cross with a violet hoop": {"colour": "purple", "shape": "ring"},
        "change the moon from pink to green": {"shape": "moon", "colour": "green"},
        "swap a dark room for bricks": {"background": "brick"},
        "show a box instead of the pink star and make it stand still": {"shape": "square", "motion": "still"},
        "the light should fade": {"light": "fading"},
        "have it move left": {"motion": "left"},
        "make it nicer, please": {},
        "": {},
        RED_STAR: attributes(RED_STAR),
    }
    assert {text: named(text) for text in cases} == cases


def test_a_word_of_two_values_gives_nothing_away() -> None:
    assert not {"wall", "moving", "light", "backdrop", "a"} & CUES.keys()
    assert CUES["cyan"] == ("colour", "turquoise")


def test_agreement_is_the_share_of_weights() -> None:
    wanted = {"colour": "red", "shape": "star", "motion": "left"}
    have = {"colour": "red", "shape": "ring", "light": "fading"}
    assert agreement(wanted, have, {}) == pytest.approx(1 / 3)
    assert agreement(wanted, have, {"colour": 2.0}) == pytest.approx(2 / 4)
    assert agreement(wanted, have, {"shape": 2.0}) == pytest.approx(1 / 4)
    assert math.isnan(agreement({}, have, {}))


def test_a_candidate_is_weighed_by_what_source_and_text_ask_for() -> None:
    captions = {
        "r": RED_STAR,
        "right": RED_STAR.replace("red", "blue"),
        "stray": RED_STAR.replace("red", "blue").replace("steady", "fading"),
        "same": RED_STAR,
        "none": "nothing that is known",
    }
    scorer = AttributeScorer()
    scorer.bind(Gallery.of(["right", "stray", "same", "none", "mute"], captions))
    pairs = [Pair("r", "make it blue", video) for video in ("right", "stray", "same", "none", "mute")]
    assert scorer.score(pairs)[:3] == pytest.approx([1.0, 5 / 6, 4 / 6])
    assert all(map(math.isnan, scorer.score(pairs)[3:]))
    described = [Pair("r", captions["stray"], "stray"), Pair(None, captions["stray"], "stray")]
    assert scorer.score(described) == [1.0, 1.0]
    assert scorer.score([Pair(None, "make it blue", "right"), Pair(None, "make it blue", "same")]) == [1.0, 0.0]
    assert math.isnan(scorer.score([Pair(None, "nicer", "right")])[0])
    with pytest.raises(ValueError, match="weight must be above 0"):
        AttributeScorer(weight=0.0)
    assert AttributeScorer(weight=3.0).fingerprint != scorer.fingerprint


def test_with_true_captions_the_clip_that_differs_in_the_edit_alone_comes_first() -> None:
    made, scorer = world(), bound(AttributeScorer())
    for query in made.queries:
        source = scene_attributes(made.clips[query.reference_id])
        wanted = {**source, **named(query.edit)}
        scores = scorer.score([Pair(query.reference_id, query.edit, video) for video in made.gallery])
        best = [video for video, score in zip(made.gallery, scores, strict=True) if score == max(scores)]
        assert [scene_attributes(made.clips[video]) for video in best] == [wanted]


@pytest.mark.parametrize("knows", ["edit", "wish"])
@pytest.mark.parametrize("error", [0.0, 0.1, 0.5])
def test_the_oracle_errs_at_its_rate(knows: str, error: float) -> None:
    made = world()
    scorer = bound(OracleScorer(error=error, knows=knows), told=False)  # type: ignore[arg-type]
    pairs, scores = all_pairs(made), list[float]()
    scores = scorer.score(pairs)
    targets = {query.session_id: scene_attributes(made.clips[query.target_id]) for query in made.queries}
    wrong = 0
    for pair, score in zip(pairs, scores, strict=True):
        assert 0 <= score < 0.25 or 0.75 <= score < 1
        source = scene_attributes(made.clips[str(pair.source)])
        wanted = targets[pair.session] if knows == "wish" else {**source, **named(pair.text)}
        wrong += (score >= 0.75) != (scene_attributes(made.clips[pair.candidate]) == wanted)
    bound_of = 4 * math.sqrt(error * (1 - error) / len(pairs))  # four standard deviations of the share
    assert wrong / len(pairs) == pytest.approx(error, abs=bound_of)


def test_the_oracle_depends_on_the_pair_alone() -> None:
    made, scorer = world(), bound(OracleScorer())
    pairs = all_pairs(made)[:2000]
    scores = scorer.score(pairs)
    assert bound(OracleScorer()).score(pairs[::-1])[::-1] == scores
    assert [scorer.score([pair])[0] for pair in pairs[:50]] == scores[:50]
    assert scorer.score([replace(pair, session="another", turn=4) for pair in pairs]) == scores
    assert bound(OracleScorer(seed=1)).score(pairs) != scores


def test_the_oracle_of_the_edit_cannot_tell_targets_that_nothing_was_said_of() -> None:
    """Of each family, one query asks for the clip that differs in the edit alone, the other for one that strays."""
    made, found = world(), {}
    for knows in ("edit", "wish"):
        scorer = bound(OracleScorer(error=0.0, knows=knows))  # type: ignore[arg-type]
        found[knows] = sum(
            scorer.score([Pair(q.reference_id, q.edit, q.target_id, q.session_id)])[0] >= 0.75 for q in made.queries
        )
    assert found == {"edit": 40, "wish": 80}


def test_the_oracle_is_labelled_and_knows_one_world() -> None:
    edit, wish = OracleScorer(), OracleScorer(knows="wish")
    assert edit.proxy == "an oracle that reads the generator (edit) and errs on 10 % of pairs"
    assert "wish" in str(wish.proxy)
    assert (edit.by_session, wish.by_session) == (False, True)
    with pytest.raises(Refused, match="not that of the demo world of world_seed 0"):
        edit.bind(Gallery.of([*world().gallery[1:], "another"], {}))
    with pytest.raises(Refused, match=r"set it to data\.seed"):
        bound(OracleScorer(world_seed=1))  # the same ids, other scenes
    edit, wish = bound(edit, world(39)), bound(wish)  # the size of the world is that of the gallery
    bound(OracleScorer(world_seed=1), told=False)  # nothing tells them apart
    with pytest.raises(ValueError, match="error is a share"):
        OracleScorer(error=1.5)
    assert len({edit.fingerprint, wish.fingerprint, OracleScorer(error=0.2).fingerprint}) == 3
    pair = Pair(None, "nicer", world().gallery[0], "a person at the keyboard")
    assert all(math.isnan(bound(scorer).score([pair])[0]) for scorer in (edit, wish))


def test_draws_are_uniform() -> None:
    values = [value for k in range(5000) for value in draws("x", k)]
    assert sum(values) / len(values) == pytest.approx(0.5, abs=4 * math.sqrt(1 / 12 / len(values)))
    assert all(0 <= value < 1 for value in values)
