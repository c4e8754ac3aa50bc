"""Annotations: near duplicates dropped, clean tags, one text, bounded rows, tags disturbed; by engine and by rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from covr_lab.captioners import Annotator
from covr_lab.captioners.annotations import WIDTH, pack, read_annotation, unpack
from covr_lab.captioners.tags import KINDS, Annotation, annotation_text, clean_tags, cleaned, perturbed
from covr_lab.demo import wording
from covr_lab.demo.annotations import OracleAnnotator, annotated
from covr_lab.demo.world import make_world
from covr_lab.engines.base import Engine
from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Media, Request, Response
from covr_lab.engines.schema import grammar
from covr_lab.functional.duplicates import distinct
from covr_lab.gallery.build import Indexed, index
from covr_lab.gallery.gallery import Gallery
from covr_lab.prompts import SUITES, load_prompt
from covr_lab.recipe import Machine
from covr_lab.scorers.attributes import attributes
from covr_lab.types import Refused
from covr_lab.video.base import Frames
from covr_lab.video.samplers import PerSecond
from covr_lab.views.base import FrameEmbedder
from tests.gallery.toy import known, store, write_clip


def words(**changes: Any) -> Annotation:
    base = {
        "summary": ["A dog runs.", "It chases a ball", "All on a beach."],
        "objects": ["dog", "ball"],
        "actions": ["runs"],
        "scenes": ["beach"],
        "frame_captions": ["a dog", "a dog and a ball"],
    }
    return Annotation(**{**base, **changes})


# Near duplicates


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.floats(0.1, 0.99))
def test_a_frame_is_kept_iff_no_kept_one_is_like_it(places: list[int], threshold: float) -> None:
    vectors = np.random.default_rng(0).standard_normal((6, 4))[places]
    kept = distinct(vectors, threshold)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = np.round(units @ units.T, 12)
    brute = list[int]()
    for place in range(len(places)):
        if all(cosines[place, other] < threshold for other in brute):
            brute.append(place)
    assert kept.tolist() == brute


def test_a_scene_that_comes_back_is_not_kept_twice() -> None:
    a, b = [1.0, 0.0], [0.0, 1.0]
    assert distinct(np.array([a, b, a, b])).tolist() == [0, 1]
    with pytest.raises(ValueError, match="finite and not zero"):
        distinct(np.zeros((2, 3)))


def test_frames_come_once_a_second_within_a_bound() -> None:
    assert len(PerSecond(1.0, 32).choose(240, 8.0)) == 8
    assert len(PerSecond(1.0, 32).choose(9000, 300.0)) == 32
    assert PerSecond(1.0, 32).choose(3, None).tolist() == [0, 1, 2]
    assert PerSecond(1.0, 32).choose(5, 0.2).tolist() == [2]


# Tags and text


@pytest.mark.parametrize(
    ("tags", "said", "expected"),
    [
        (["Dog", "dogs", " the  dog ", "DOG."], (), ["dog"]),
        (["", "of the", "a very long tag of five words", "x" * 41], (), []),
        (["red car", "spaceship", "red cars"], ["A red car passes."], ["red car"]),
        (["women", "leaves", "vases"], ["A woman with a leaf and a vase"], ["women", "leaves", "vases"]),
        (["surfing", "chasing", "sleeping"], ["A man surfs.", "The dog chased a ball."], ["surfing", "chasing"]),
    ],
)
def test_clean_tags(tags: list[str], said: Sequence[str], expected: list[str]) -> None:
    assert clean_tags(tags, said) == expected


def test_actions_keep_their_form_and_all_tags_are_proofed() -> None:
    found = cleaned(words(objects=["Dogs", "cat"], actions=["runs", "sleeps"], scenes=["the beach", "moon"]))
    assert (found.objects, found.actions, found.scenes) == (["dogs"], ["runs"], ["beach"])


def test_the_text_has_the_order_of_the_paper() -> None:
    assert annotation_text(words()) == (
        "1. A dog runs. 2. It chases a ball. 3. All on a beach. Objects: dog, ball. Actions: runs. Scenes: beach. "
        "Frames: a dog; a dog and a ball."
    )
    assert annotation_text(words(objects=[], actions=[], scenes=[], frame_captions=[])).endswith("3. All on a beach.")


# Rows

TEXT = st.text(st.characters(codec="utf-8"), max_size=120) | st.text('\0\x1f"\\\U0010ffffİ', min_size=100, max_size=120)
TAGS = st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXT, min_size=3, max_size=3), TAGS, TAGS, TAGS, st.lists(TEXT, max_size=32))
def test_whatever_an_engine_may_write_fits_a_row_once_it_is_clean(
    summary: list[str], objects: list[str], actions: list[str], scenes: list[str], captions: list[str]
) -> None:
    raw = words(summary=summary, objects=objects, actions=actions, scenes=scenes, frame_captions=captions)
    clean = cleaned(raw)
    row = pack(clean)
    assert (row.dtype, row.shape) == (torch.uint8, (WIDTH,))
    assert unpack(row) == clean
    assert cleaned(clean).summary == clean.summary
    assert annotation_text(clean).isprintable()


def test_the_widest_record_fits() -> None:
    widest = {kind: ["\U0010ffff" * 40] * size for kind, size in zip(KINDS, (10, 8, 5), strict=True)}
    found = words(summary=['"' * 240, "\\" * 240, "\U0001f600" * 240], frame_captions=["\u2028" * 120] * 32, **widest)
    assert unpack(pack(found)) == found


def test_answers_are_read_strictly() -> None:
    assert grammar(Annotation).startswith("root ::=")  # every field has a bound
    assert read_annotation(f"Sure: {words().model_dump_json()}", 2) == words()
    with pytest.raises(ParseError, match="frame_captions: 2 for 1 frames"):
        read_annotation(words().model_dump_json(), 1)
    with pytest.raises(ParseError, match="summary: is blank"):
        read_annotation(words(summary=[" ", "\t", ""]).model_dump_json(), 2)
    with pytest.raises(ParseError, match="summary"):
        read_annotation(json.dumps({**words().model_dump(), "summary": ["one"]}), 2)


@pytest.mark.parametrize("suite", SUITES)
def test_each_suite_asks_for_every_key(suite: str) -> None:
    prompt = load_prompt(suite, "annotate", {"video": "video"}, required=("video",))
    assert all(key in prompt.user for key in Annotation.model_fields)


# Disturbed


def gallery_of(size: int) -> dict[str, Annotation]:
    return {
        f"v{number:03}": words(objects=[f"o{number}", f"p{number}"], actions=[f"a{number}"], scenes=[f"s{number % 3}"])
        for number in range(size)
    }


def test_a_share_of_the_tags_is_replaced_by_those_of_other_videos_whatever_the_order() -> None:
    before = gallery_of(300)
    after = perturbed(before, 0.2, seed=1)
    assert perturbed(dict(reversed(before.items())), 0.2, seed=1) == after
    assert perturbed(before, 0.2, seed=2) != after
    assert perturbed(before, 0.0) == before
    pools = {kind: {tag for one in before.values() for tag in getattr(one, kind)} for kind in KINDS}
    changed = total = 0
    for video, one in after.items():
        assert one.sentences == before[video].sentences
        for kind in KINDS:
            old, new = getattr(before[video], kind), getattr(one, kind)
            assert set(new) <= pools[kind]
            changed, total = changed + len(set(old) - set(new)), total + len(old)
    assert total == 1200
    assert 0.15 < changed / total < 0.25
    everything = perturbed(before, 1.0)
    assert all(not {*everything[video].objects} & {*one.objects} for video, one in before.items())
    with pytest.raises(ValueError, match="between 0 and 1, not 2"):
        perturbed({}, 2)


# From an engine


class Colour(FrameEmbedder):
    """The mean colour of a frame, in steps that hide small changes."""

    @property
    def fingerprint(self) -> str:
        return "colour"

    def load(self) -> None:
        return

    def embed_frames(self, frames: Frames) -> Tensor:
        means = torch.from_numpy(frames).float().mean((1, 2))
        return nn.functional.normalize((means / 16).round() + 1e-3, dim=1)


class Writer(Engine):
    """Says how many frames it was shown; ``bad`` videos get an answer that cannot be read."""

    def __init__(self, bad: str = "") -> None:
        super().__init__()
        self.bad, self.asked = bad, list[Request]()

    @property
    def fingerprint(self) -> str:
        return "writer"

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.asked += requests
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Response:
        if request.session_id == self.bad:
            return Response("no idea")
        shown = media_of(request)
        captions = [f"frame {number}" for number in range(shown.frames)]
        return Response(words(summary=[request.session_id, "A dog.", "x"], frame_captions=captions).model_dump_json())


def media_of(request: Request) -> Media:
    (media,) = (part for part in request.content if isinstance(part, Media))
    return media


def annotator(engine: Engine, **options: Any) -> Annotator:
    found = Annotator(engine="vlm", embedder=Colour(), **options)
    found.connect(engine)
    return found


def indexed(captioner: Annotator, folder: Path, **options: Any) -> list[Indexed]:
    gallery, references = known(folder)
    system = nn.ModuleDict({"captioner": captioner})
    options = {"batch_size": 2, "workers": 0, **options}
    found = index(system, Gallery.of(gallery, {}), store(folder, references), Machine(accelerator="cpu"), **options)
    assert found is not None
    return found


@pytest.fixture
def media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    for number, video in enumerate("abc"):  # 5 frames a second: 4 s
        write_clip(tmp_path / "media" / f"{video}.mp4", number, frames=20)
    return tmp_path / "media"


def test_one_request_a_video_shows_the_kept_frames_as_they_would_be_read_later(media: Path) -> None:
    engine = Writer(bad="b")
    captioner = annotator(engine, threshold=0.999, side=32)
    (report,) = indexed(captioner, media)
    assert list(dict(report.failed)) == ["b"]
    assert [request.session_id for request in engine.asked] == ["a", "b", "b", "c"]  # "b" is asked twice
    videos = store(media)
    for request in engine.asked:
        shown = media_of(request)
        assert (request.role, request.schema, request.turn) == ("annotate", Annotation, 0)
        assert 1 < shown.frames <= 4
        lazy = Media(shown.video, shown.frames, videos, sampler=shown.sampler, side=32)
        assert shown.digest == lazy.digest
        np.testing.assert_array_equal(shown.clip().frames, lazy.clip().frames)
    gallery = Gallery.of(known(media)[0], {})
    texts = captioner.describe(gallery, videos)
    assert sorted(texts) == ["a", "c"]
    assert texts["a"].startswith("1. a. 2. A dog. 3. x. Objects: dog. Frames: frame 0; frame 1")
    assert captioner.unusable.keys() == {"b"}


def test_duplicates_are_not_shown_and_batches_change_nothing(media: Path, tmp_path: Path) -> None:
    few, many = Writer(), Writer()
    indexed(annotator(few, threshold=0.01), media)
    assert {media_of(request).frames for request in few.asked} == {1}
    texts = []
    for size in (1, 3):
        captioner = annotator(many, threshold=0.999)
        indexed(captioner, media, batch_size=size)
        texts.append(captioner.describe(Gallery.of(known(media)[0], {}), store(media)))
    assert texts[0] == texts[1]
    assert len(many.asked) == 3  # the second time everything is there


def test_what_can_change_an_annotation_changes_the_address_and_disturbing_does_not(media: Path) -> None:
    def address(**options: Any) -> str:
        found = annotator(Writer(), **options).locate(Gallery.of(known(media)[0], {}), store(media))
        return found["annotations"].digest

    changes: list[dict[str, Any]] = [{}, {"threshold": 0.9}, {"side": 100}, {"rate": 2.0}, {"prompts": "variant_a"}]
    assert len({address(**options) for options in changes}) == len(changes)
    assert address(perturb=0.2, seed=3) == address()


def test_bad_settings_name_themselves() -> None:
    with pytest.raises(ValueError, match=r"Annotator\.frames must be from 1 to 32, not 33"):
        Annotator(engine="vlm", embedder=Colour(), frames=33)
    with pytest.raises(ValueError, match=r"perturb is a share between 0 and 1, not 1\.5"):
        Annotator(engine="vlm", embedder=Colour(), perturb=1.5)


# The demo world


def test_annotations_of_the_demo_world_name_every_attribute_and_nothing_else() -> None:
    """What a judge reads off the text is what the generator drew; a single frame has neither motion nor light."""
    world = make_world("test", families=20)
    for scene in world.clips.values():
        (thing,) = scene.things
        drawn = {"colour": thing.colour, "shape": thing.shape, "motion": thing.motion}
        drawn |= {"background": scene.background, "light": scene.light}
        found = annotated(wording.whole(scene))
        assert attributes(annotation_text(found)) == drawn
        assert cleaned(found).objects == found.objects
        assert attributes(found.frame_captions[0]).keys() == {"colour", "shape", "background"}


def test_an_oracle_needs_the_world_of_the_data(tmp_path: Path) -> None:
    world = make_world("test", families=2)
    for videos in (None, store(tmp_path)):
        with pytest.raises(Refused, match=r"another world .* data\.seed"):
            OracleAnnotator().describe(Gallery.of(world.gallery, {}), videos)
