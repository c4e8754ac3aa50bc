"""BLIP as a retriever: what its channels send, from clips on disk to rankings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from covr_lab.functional.sampling import middle, uniform
from covr_lab.gallery.build import index
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.ranking.retrieve import rank_gallery
from covr_lab.recipe import Machine
from covr_lab.retrievers import BlipRetriever
from covr_lab.retrievers.base import Ask
from covr_lab.retrievers.blip import Blip
from covr_lab.types import Refused, SessionError
from covr_lab.video import All, PyAVReader
from tests.gallery.toy import clip_file, store, write_clip

GALLERY = ["a/1", "a/2", "a/3", "broken"]
EDITS = {"a/1": "make it red", "a/3": "add a dog"}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> VideoStore:
    folder = tmp_path_factory.mktemp("clips")
    for number, video in enumerate(["a/1", "a/2", "a/3", "ref"]):
        write_clip(folder / f"{video}.mp4", number, frames=9, size=80)
    (folder / "broken.mp4").write_bytes(b"no video")
    return store(folder, ["ref"])


def make(folder: Path, videos: VideoStore, *, edits: bool = False, **options: object) -> BlipRetriever:
    retriever = BlipRetriever(blip=Blip(model=str(folder), max_length=32), frames=4, **options)  # type: ignore[arg-type]
    gallery = Gallery(tuple(GALLERY), {}, EDITS if edits else {})
    index(nn.ModuleDict({"blip": retriever}), gallery, videos, Machine("cpu"), workers=0)
    retriever.bind(gallery, videos)
    return retriever


@pytest.fixture(scope="module")
def retriever(tiny_blip: Path, videos: VideoStore) -> BlipRetriever:
    return make(tiny_blip, videos)


def frames(videos: VideoStore, video: str) -> np.ndarray:
    return videos.clip(video, All()).frames


def test_a_gallery_vector_is_the_mean_of_its_frames(retriever: BlipRetriever, videos: VideoStore) -> None:
    for video in ("a/1", "a/3"):
        chosen = frames(videos, video)[uniform(9, 4)]
        embeds, _ = retriever.blip.images(retriever.blip.pixels(chosen))
        expected = normalize(embeds.mean(0), dim=0)
        found = retriever.features[:, retriever.gallery.row[video]]
        assert torch.allclose(found, expected, atol=1e-6)


def test_a_channel_sends_descriptions_and_edits_over_the_middle_frame(
    retriever: BlipRetriever, videos: VideoStore
) -> None:
    texts, anchors = ["a red dog", "make it red", "make it red"], [None, "ref", "a/2"]
    found = retriever.encode_queries(texts, anchors)
    assert torch.equal(found[0], retriever.blip.texts(["a red dog"])[0])
    for row, video in ((1, "ref"), (2, "a/2")):
        _, tokens = retriever.blip.images(retriever.blip.pixels(frames(videos, video)[middle(9)]))
        assert torch.allclose(found[row], retriever.blip.composed(["make it red"], tokens)[0], atol=1e-6)
        assert torch.equal(found[row], retriever.encode_queries(texts[row:], anchors[row:])[0])  # alone as in a batch
    assert not torch.allclose(found[1], found[2], atol=1e-3)


def test_matching_scores_are_those_of_the_head(retriever: BlipRetriever, videos: VideoStore) -> None:
    texts, clips = ["a red dog", "a boat", "a red dog"], ["a/1", "a/1", "ref"]
    found = retriever.match(texts, clips)
    for row, (text, video) in enumerate(zip(texts, clips, strict=True)):
        _, tokens = retriever.blip.images(retriever.blip.pixels(frames(videos, video)[middle(9)]))
        assert torch.allclose(found[row], retriever.blip.match([text], tokens)[0, 1], atol=1e-5)


def test_an_unreadable_video_is_never_ranked_and_fails_as_an_anchor(retriever: BlipRetriever) -> None:
    assert list(retriever.unusable) == ["broken"]
    (ranking,) = rank_gallery(retriever, [Ask("a red dog")])
    assert sorted(ranking.rows.tolist()) == [0, 1, 2]
    with pytest.raises(SessionError, match=r"video 'broken' could not be read: .*broken.mp4 is no video"):
        retriever.encode_queries(["make it red"], ["broken"])


def test_query_pooling_weighs_frames_by_the_edit_of_the_row(tiny_blip: Path, videos: VideoStore) -> None:
    pooled = make(tiny_blip, videos, edits=True, pooling="query")
    plain = make(tiny_blip, videos)
    for video in GALLERY[:3]:
        row = plain.gallery.row[video]
        rows = plain.artifacts["gallery"].row(video)
        expected = normalize(rows.mean(0), dim=0)
        if video in EDITS:
            text = plain.blip.texts([EDITS[video]])[0]
            weights = torch.tensor([float(frame @ text) / 0.1 for frame in rows]).exp()
            expected = normalize((weights[:, None] * rows).sum(0), dim=0)
        assert torch.allclose(pooled.features[:, row], expected, atol=1e-5)
    with pytest.raises(Refused, match=r"data\.target_edits"):
        BlipRetriever(blip=Blip(model=str(tiny_blip)), pooling="query").bind(Gallery(("a/1",), {}), videos)


def test_texts_and_pooling_change_no_artifact(tiny_blip: Path, videos: VideoStore) -> None:
    gallery, places = Gallery(tuple(GALLERY), {}), []
    for options in ({}, {"max_words": 3}, {"max_length": 16}, {"storyboard": 2}):
        retriever = BlipRetriever(blip=Blip(model=str(tiny_blip), **{"max_length": 32, **options}), frames=4)
        retriever.load()
        places.append({name: address.folder for name, address in retriever.locate(gallery, videos).items()})
    assert places[0] == places[1] == places[2]
    assert places[0]["gallery"] != places[3]["gallery"]


def test_frames_must_fill_storyboards(tiny_blip: Path) -> None:
    with pytest.raises(ValueError, match="multiple of the storyboard's 4 cells, not 6"):
        BlipRetriever(blip=Blip(model=str(tiny_blip), storyboard=2), frames=6)


def test_a_reader_is_part_of_every_address(tiny_blip: Path, tmp_path: Path) -> None:
    write_clip(clip_file(tmp_path, "a"), 0)
    retriever = BlipRetriever(blip=Blip(model=str(tiny_blip), max_length=32), frames=4)
    retriever.load()
    strict = store(tmp_path, reader=PyAVReader(min_decodable=1.0))
    places = [retriever.locate(Gallery(("a",), {}), media)["gallery"].digest for media in (store(tmp_path), strict)]
    assert places[0] != places[1]
