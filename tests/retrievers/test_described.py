"""Retrieval over descriptions: text against text, and nothing else of a video."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from covr_lab.gallery.gallery import Gallery
from covr_lab.retrievers import DescribedVideos, DualEncoder, DualEncoderRetriever
from covr_lab.types import Refused, SessionError
from tests.tiny_clip import make_tiny_clip


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> DescribedVideos:
    folder: Path = make_tiny_clip(tmp_path_factory.mktemp("clip") / "model")
    found = DescribedVideos(retriever=DualEncoderRetriever(encoder=DualEncoder(model=str(folder))))
    found.load()
    return found


def test_a_video_is_the_text_of_its_description(retriever: DescribedVideos) -> None:
    texts = {"a": "a dog runs", "c": "snow falls"}
    retriever.bind(Gallery.of(["a", "b", "c"], texts))
    queries = retriever.encode_queries(["snow falls", "a dog runs"], [None, None])
    scores = retriever.score(queries)
    assert torch.allclose(scores[[0, 1], [2, 0]], torch.ones(2), atol=1e-5)
    assert retriever.unusable_rows == (1,)  # never ranked: nothing is known of it
    assert torch.equal(retriever.encode_videos(["c"])[0], queries[0])


def test_what_it_cannot_do_is_refused(retriever: DescribedVideos) -> None:
    with pytest.raises(Refused, match=r"no gallery video has a description: set system\.captions"):
        retriever.bind(Gallery.of(["a"], {}))
    retriever.bind(Gallery.of(["a", "b"], {"a": "a dog"}))
    with pytest.raises(SessionError, match="'b' has no description"):
        retriever.encode_videos(["a", "b"])
    with pytest.raises(SessionError, match="composes no query with a video"):
        retriever.encode_queries(["x"], ["a"])
