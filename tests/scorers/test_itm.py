"""Image-text matching as relevance: against the head itself, and where nothing can be read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from covr_lab.gallery.build import index, plan
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.recipe import Machine
from covr_lab.retrievers.blip import Blip
from covr_lab.retrievers.composed import BlipRetriever
from covr_lab.scorers import ITMScorer, Pair
from covr_lab.types import Refused
from covr_lab.video import Middle, PyAVReader, Uniform
from tests.gallery.toy import write_clip
from tests.tiny_blip import make_tiny_blip

GALLERY = Gallery.of("abcd", {})
TEXTS = ("a red car", "make it night and add a dog on the beach", "two people walking in the street at sunset", "snow")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_blip(tmp_path_factory.mktemp("blip")))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VideoStore]:
    folder = tmp_path_factory.mktemp("videos")
    for seed, video in enumerate("abcr"):
        write_clip(folder / f"{video}.mp4", seed)
    (folder / "d.mp4").write_text("<html>")
    reader = PyAVReader(timeout=60)
    yield VideoStore(lambda video: folder / f"{video}.mp4", reader, references="r")
    reader.close()


def bound(scorer: ITMScorer, videos: VideoStore) -> ITMScorer:
    scorer.load()
    index(nn.ModuleDict({"scorer": scorer}), GALLERY, videos, Machine(accelerator="cpu"), workers=0)
    scorer.bind(GALLERY, videos)
    return scorer


@pytest.fixture(scope="module")
def matching(model: str, videos: VideoStore) -> ITMScorer:
    return bound(ITMScorer(blip=Blip(model=model)), videos)


def pairs() -> list[Pair]:
    return [Pair("r", text, video) for text in TEXTS for video in "abc"]


def test_a_score_is_the_probability_of_the_matching_head(matching: ITMScorer, videos: VideoStore) -> None:
    wanted = []
    for pair in pairs():
        pixels = matching.blip.pixels(videos.clip(pair.candidate, Middle()).frames)
        logits = matching.blip.match([pair.text], matching.blip.images(pixels)[1])
        wanted.append(logits.double().softmax(1)[0, 1].item())
    scores = matching.score(pairs())
    assert scores == pytest.approx(wanted, abs=1e-6)
    assert all(0 <= score <= 1 for score in scores)
    assert len(set(scores)) == len(scores)


def test_a_score_has_the_same_bits_alone_and_in_any_batch(model: str, matching: ITMScorer, videos: VideoStore) -> None:
    together = matching.score(pairs())
    assert [matching.score([pair])[0] for pair in pairs()] == together
    assert matching.score(pairs()[::-1])[::-1] == together
    assert bound(ITMScorer(blip=Blip(model=model), batch=5), videos).score(pairs()) == together
    assert matching.score([]) == []


def test_the_source_plays_no_part(matching: ITMScorer) -> None:
    assert matching.score([Pair(None, "snow", "a")]) == matching.score([Pair("r", "snow", "a")])


def test_a_candidate_that_could_not_be_read_has_no_score(matching: ITMScorer) -> None:
    scores = matching.score([Pair("r", "snow", "a"), Pair("r", "snow", "d"), Pair("r", "snow", "b")])
    assert [math.isnan(score) for score in scores] == [False, True, False]
    assert [scores[0], scores[2]] == matching.score([Pair("r", "snow", "a"), Pair("r", "snow", "b")])
    assert all(map(math.isnan, matching.score([Pair("r", "snow", "d")])))


def test_tokens_of_several_images_are_read_one_after_the_other(model: str, videos: VideoStore) -> None:
    scorer = bound(ITMScorer(blip=Blip(model=model), images=3), videos)
    (score,) = scorer.score([Pair("r", "snow", "a")])
    pixels = scorer.blip.pixels(videos.clip("a", Uniform(3)).frames)
    tokens = scorer.blip.images(pixels)[1].flatten(0, 1).unsqueeze(0)
    assert tokens.shape == (1, 30, 32)
    assert score == pytest.approx(scorer.blip.match(["snow"], tokens).double().softmax(1)[0, 1].item(), abs=1e-6)


def test_a_storyboard_is_one_image(model: str, videos: VideoStore) -> None:
    scorer = ITMScorer(blip=Blip(model=model, storyboard=3))
    assert scorer.parts["anchors"].sampler == Uniform(9)
    assert len(bound(scorer, videos).score(pairs())) == 12


def test_tokens_are_indexed_once_for_retriever_and_scorer(model: str, videos: VideoStore) -> None:
    system = nn.ModuleDict({"one": BlipRetriever(blip=Blip(model=model)), "two": ITMScorer(blip=Blip(model=model))})
    assert sorted(job.name for job in plan(system, GALLERY, videos)) == ["one.anchors", "one.gallery"]


def test_what_is_read_follows_media_and_frames(model: str, matching: ITMScorer, videos: VideoStore) -> None:
    more = bound(ITMScorer(blip=Blip(model=model), images=3), videos)
    assert len({matching.reads("a"), matching.reads("b"), more.reads("a")}) == 3
    assert matching.fingerprint == more.fingerprint


def test_a_checkpoint_without_a_matching_head_is_refused(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blip = Blip(model=model)
    blip.load()
    monkeypatch.setattr(Blip, "load", lambda self: setattr(self, "can_match", False))
    with pytest.raises(Refused, match="no matching head"):
        ITMScorer(blip=blip).load()


def test_settings_and_missing_videos_are_refused(model: str) -> None:
    with pytest.raises(ValueError, match="images must be 1 or more"):
        ITMScorer(blip=Blip(model=model), images=0)
    with pytest.raises(Refused, match="needs videos"):
        ITMScorer(blip=Blip(model=model)).bind(GALLERY, None)


def test_the_packaged_model_prefers_the_caption_that_is_true(tmp_path: Path) -> None:
    """Of the demo world: with the right picture the matching head is nearly sure."""
    from covr_lab.demo.render import write_clip as render
    from covr_lab.demo.world import Scene, Thing

    render(Scene((Thing("red", "star", "left"),), "striped", "steady"), tmp_path / "a.mp4")
    reader = PyAVReader(timeout=60)
    videos = VideoStore(lambda video: tmp_path / f"{video}.mp4", reader)
    scorer = ITMScorer(blip=Blip(model="demo", storyboard=2))
    scorer.load()
    gallery = Gallery.of("a", {})
    index(nn.ModuleDict({"scorer": scorer}), gallery, videos, Machine(accelerator="cpu"), workers=0)
    scorer.bind(gallery, videos)
    reader.close()
    texts = ("a red star moving left", "a blue ring rising")
    right, wrong = scorer.score([Pair(None, text, "a") for text in texts])
    assert right > 0.5 > wrong
