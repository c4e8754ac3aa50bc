"""CLIP and SigLIP 2 against transformers itself, from frames to rankings."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from covr_lab.gallery.build import index
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.ranking.retrieve import rank_gallery
from covr_lab.recipe import Machine
from covr_lab.retrievers import DualEncoder, DualEncoderRetriever
from covr_lab.retrievers.base import Ask
from covr_lab.types import Refused, SessionError
from covr_lab.video import Uniform
from tests.gallery.toy import store, write_clip
from tests.tiny_clip import make_tiny_clip, make_tiny_siglip, make_tiny_siglip2
from tests.tiny_vlm import make_tiny_vlm

MAKERS: dict[str, Callable[[Path], Path]] = {
    "clip": make_tiny_clip,
    "siglip": make_tiny_siglip,
    "siglip2": make_tiny_siglip2,
}
GALLERY = ("a/1", "a/2", "broken")
TEXTS = ["a dog", "make it red", "one that is much longer than what is read"]


@pytest.fixture(scope="module", params=sorted(MAKERS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> DualEncoder:
    encoder = DualEncoder(model=str(folder), tile=4)
    encoder.load()
    return encoder


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> VideoStore:
    clips = tmp_path_factory.mktemp("clips")
    for number, video in enumerate(["a/1", "a/2", "ref"]):
        write_clip(clips / f"{video}.mp4", number, frames=9, size=80)
    (clips / "broken.mp4").write_bytes(b"no video")
    return store(clips, ["ref"])


def make(encoder: DualEncoder, videos: VideoStore, **options: Any) -> DualEncoderRetriever:
    retriever = DualEncoderRetriever(encoder=encoder, frames=3, **options)
    gallery = Gallery(GALLERY, {})
    index(nn.ModuleDict({"dual": retriever}), gallery, videos, Machine("cpu"), workers=0)
    retriever.bind(gallery, videos)
    return retriever


def direct(folder: Path, name: str, **inputs: Any) -> Tensor:
    """Unit outputs of transformers' own model."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        found: Tensor = getattr(model, name)(**inputs).pooler_output
    return normalize(found, dim=-1)


def noise(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (count, 60, 90, 3)).astype(np.uint8)


def test_images_are_those_of_transformers_own_model(encoder: DualEncoder, folder: Path) -> None:
    from PIL import Image
    from transformers import AutoImageProcessor

    seen = noise(6)
    read = AutoImageProcessor.from_pretrained(folder)([Image.fromarray(frame) for frame in seen], return_tensors="pt")
    expected = direct(folder, "get_image_features", **read)
    assert torch.allclose(encoder.embed_frames(seen), expected, atol=1e-5)
    assert (expected @ expected.T).fill_diagonal_(0).max() < 0.9999


def test_texts_are_padded_on_the_right_to_the_full_length(encoder: DualEncoder, folder: Path) -> None:
    # Ids by hand: a letter a token, <bos> and <eos> around it for CLIP, <eos> behind it for SigLIP 2; 24 are read.
    from transformers import AutoTokenizer

    clip = encoder.network.config.model_type == "clip"
    letter = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids
    rows = []
    for text in TEXTS:
        letters = [letter(("Ġ" if clip else "▁") if char == " " else char) for char in text]
        ids = [1, *letters[:22], 2] if clip else [*letters[:23], 1]
        rows.append([*ids, *[0] * (24 - len(ids))])
    inputs = {"input_ids": torch.tensor(rows)}
    if clip:  # SigLIP attends to its padding
        inputs["attention_mask"] = (inputs["input_ids"] != 0).long()
    expected = direct(folder, "get_text_features", **inputs)
    assert torch.allclose(encoder.texts(TEXTS), expected, atol=1e-5)
    assert encoder.truncated(TEXTS) == [False, False, True]


def test_a_vector_does_not_depend_on_what_else_is_encoded(encoder: DualEncoder) -> None:
    seen = noise(7)
    whole = encoder.embed_frames(seen)
    assert torch.equal(whole[5:], encoder.embed_frames(seen[5:]))
    assert torch.equal(whole.flip(0), encoder.embed_frames(seen[::-1]))
    texts = encoder.texts([*TEXTS, "more", "and more"])
    assert torch.equal(texts[:3].flip(0), encoder.texts(TEXTS[::-1]))
    assert torch.equal(texts[4], encoder.texts(["and more"])[0])


def test_a_composed_query_lies_between_the_edit_and_the_mean_of_its_anchor(
    encoder: DualEncoder, videos: VideoStore
) -> None:
    clip = videos.clip("ref", Uniform(3))
    seen = normalize(encoder.embed_frames(clip.frames).mean(0), dim=0)
    said = encoder.texts(["make it red"])[0]
    places = set()
    for weight in (0.0, 0.25, 1.0):
        retriever = make(encoder, videos, text_weight=weight)
        found = retriever.encode_queries(["make it red", "make it red"], ["ref", None])
        assert torch.allclose(found[0], normalize(weight * said + (1 - weight) * seen, dim=0), atol=1e-6)
        assert torch.equal(found[1], said)
        places.add((retriever.artifacts["gallery"].folder, retriever.row_fingerprint))
    assert len(places) == 1


def test_an_unreadable_video_is_never_ranked_and_fails_as_an_anchor(encoder: DualEncoder, videos: VideoStore) -> None:
    retriever = make(encoder, videos)
    (ranking,) = rank_gallery(retriever, [Ask("make it red", "ref")])
    assert sorted(ranking.rows.tolist()) == [0, 1]
    with pytest.raises(SessionError, match="video 'broken' could not be read"):
        retriever.encode_queries(["make it red"], ["broken"])


def test_a_checkpoint_that_is_not_whole_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "model"))
    tensors = load_file(copy / "model.safetensors")
    del tensors["text_model.embeddings.token_embedding.weight"]
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(Refused, match=r"missing weights \(1\): text_model.embeddings.token_embedding.weight"):
        DualEncoder(model=str(copy)).load()


def test_another_kind_of_model_and_weights_out_of_range_are_refused(encoder: DualEncoder, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is a qwen3_vl model: name a CLIP or SigLIP 2 model"):
        DualEncoder(model=str(make_tiny_vlm(tmp_path))).load()
    with pytest.raises(ValueError, match=r"text_weight must be in \[0, 1\], not 1.5"):
        DualEncoderRetriever(encoder=encoder, text_weight=1.5)
