from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covr_lab.retrievers.blip.model import Blip
from covr_lab.retrievers.blip.presets import PRESETS, TOKENIZERS
from covr_lab.types import Refused
from tests.tiny_blip import vocabulary

TEXTS = ["a dog", "make it night", "", "remove the red car and add two people " * 3, "snow", "a yellow boat"]
ENC = len(vocabulary()) + 1
needs_fixtures = pytest.mark.skipif(
    "COVR_FIXTURES" not in os.environ, reason="COVR_FIXTURES is not set: outputs that LAVIS computed itself"
)


def load(model: Path | str, **settings: Any) -> Blip:
    blip = Blip(model=str(model), **settings)
    blip.load()
    return blip


@pytest.fixture(scope="module")
def blip(tiny_blip: Path) -> Blip:
    return load(tiny_blip, tile=4)


@pytest.fixture(scope="module")
def pixels(blip: Blip) -> Tensor:
    frames = np.random.default_rng(0).integers(0, 256, (6, 30, 40, 3), dtype=np.uint8)
    return blip.pixels(frames)


@pytest.fixture(scope="module")
def plain(tiny_blip: Path) -> Callable[[str, Tensor | None], dict[str, Tensor]]:
    """transformers' own classes, one item at a time and without padding."""
    from transformers import AutoTokenizer, BlipForImageTextRetrieval

    tokenizer, network = AutoTokenizer.from_pretrained(tiny_blip), BlipForImageTextRetrieval.from_pretrained(tiny_blip)
    network.eval()

    @torch.no_grad()
    def run(text: str, image: Tensor | None) -> dict[str, Tensor]:
        ids = tokenizer(text, truncation=True, max_length=64, return_tensors="pt").input_ids
        if image is None:
            state = network.text_encoder(ids).last_hidden_state[0, 0]
            return {"text": unit(network.text_proj(state))}
        ids[:, 0] = ENC
        seen = network.vision_model(image[None]).last_hidden_state
        state = network.text_encoder(ids, encoder_hidden_states=seen).last_hidden_state[0, 0]
        match = network(ids, image[None]).itm_score[0]
        return {
            "image": unit(network.vision_proj(seen[0, 0])),
            "composed": unit(network.text_proj(state)),
            "itm": match,
        }

    return run


def unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()


def close(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def test_every_pass_equals_transformers(blip: Blip, pixels: Tensor, plain: Any) -> None:
    embeds, tokens = blip.images(pixels)
    assert tokens.shape == (6, 10, 32)
    assert blip.width == 16
    texts, composed, match = blip.texts(TEXTS), blip.composed(TEXTS, tokens), blip.match(TEXTS, tokens)
    for row, text in enumerate(TEXTS):
        grounded = plain(text, pixels[row])
        close(texts[row], plain(text, None)["text"])
        close(embeds[row], grounded["image"])
        close(composed[row], grounded["composed"])
        close(match[row], grounded["itm"])
    assert float((composed @ composed.T - torch.eye(6)).max()) < 0.999  # the texts and images differ


def test_an_item_has_the_same_bits_alone_and_in_any_batch(blip: Blip, pixels: Tensor) -> None:
    """Pitfall E7, and a trainer's bf16 autocast (A3)."""
    embeds, tokens = blip.images(pixels)
    together = [embeds, tokens, blip.texts(TEXTS), blip.composed(TEXTS, tokens), blip.match(TEXTS, tokens)]

    def passes(order: list[int]) -> list[Tensor]:
        some, seen = blip.images(pixels[order])
        texts = [TEXTS[row] for row in order]
        return [some, seen, blip.texts(texts), blip.composed(texts, seen), blip.match(texts, seen)]

    for order in ([5, 4, 3, 2, 1, 0], [2], [4, 0, 4, 4, 4], [0, 1, 2, 3, 4, 5] * 2):
        for found, expected in zip(passes(order), together, strict=True):
            assert torch.equal(found, expected[order])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for found, expected in zip(passes([0, 1, 2, 3, 4, 5]), together, strict=True):
            assert torch.equal(found, expected)
    assert [len(part) for part in passes([])] == [0] * 5
    assert blip.images(pixels[:0])[1].shape == (0, 10, 32)


def test_frames_are_read_as_one_row_of_tokens(blip: Blip, pixels: Tensor) -> None:
    _, tokens = blip.images(pixels)
    two = blip.composed(["snow"], tokens[:2].reshape(1, 20, 32))
    ids = torch.tensor([[ENC, *blip.reader.ids(["snow"], False)[0][1:]]])
    with torch.no_grad():
        state = blip.network.text_encoder(ids, encoder_hidden_states=tokens[:2].reshape(1, 20, 32)).last_hidden_state
        close(two[0], unit(blip.network.text_proj(state[0, 0])))
    assert (two[0] - blip.composed(["snow"], tokens[:1])[0]).abs().max() > 1e-3


def test_resizing_first_changes_nothing(tiny_blip: Path) -> None:
    frames = np.random.default_rng(1).integers(0, 256, (4, 30, 40, 3), dtype=np.uint8)
    for storyboard in (1, 2):
        blip = load(tiny_blip, storyboard=storyboard)
        small = blip.resized(frames)
        assert small.shape == (4, 48 // storyboard, 48 // storyboard, 3)
        assert torch.equal(blip.pixels(small), blip.pixels(frames))


def test_long_texts_differ_as_far_as_they_are_read(tiny_blip: Path) -> None:
    red, blue = ("a car " * 20 + colour for colour in ("red", "blue"))
    full, short = load(tiny_blip), load(tiny_blip, max_words=30)
    assert not torch.equal(*full.texts([red, blue]))
    assert full.truncated([red, blue]) == [False, False]
    assert torch.equal(*short.texts([red, blue]))
    assert short.truncated([red, "a car", blue]) == [True, False, True]


def test_without_a_matching_head_matching_is_refused(
    tiny_blip: Path, lavis_tensors: dict[str, Tensor], tmp_path: Path, blip: Blip, pixels: Tensor
) -> None:
    file = tmp_path / "covr.ckpt"
    torch.save({"model": {key: value for key, value in lavis_tensors.items() if "itm_head" not in key}}, file)
    covr = load(file, tokenizer=str(tiny_blip / "vocab.txt"), heads=(4, 4), tile=4)
    assert (blip.can_match, covr.can_match) == (True, False)
    embeds, tokens = covr.images(pixels)
    assert torch.equal(embeds, blip.images(pixels)[0])
    assert torch.equal(covr.composed(TEXTS, tokens), blip.composed(TEXTS, tokens))
    with pytest.raises(Refused, match="has no matching head"):
        covr.match(TEXTS, tokens)
    with pytest.raises(Refused, match="set tokenizer"):
        load(file, heads=(4, 4))


def test_what_can_change_an_output_changes_the_fingerprint(tiny_blip: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    first = load(tiny_blip).fingerprint
    assert load(shutil.copytree(tiny_blip, tmp_path / "moved")).fingerprint == first
    changes: list[dict[str, Any]] = [
        {"image_size": 64}, {"storyboard": 2}, {"max_words": 30}, {"max_length": 35}, {"heads": (2, 4)},
        {"vision_eps": 1e-5}, {"tile": 2}, {"separators": True},
    ]  # fmt: skip
    found = [load(tiny_blip, **change).fingerprint for change in changes]
    weights = shutil.copytree(tiny_blip, tmp_path / "weights")
    tensors = load_file(weights / "model.safetensors")
    tensors["text_proj.bias"][3] += 1e-3
    save_file(tensors, weights / "model.safetensors", metadata={"format": "pt"})
    words = tmp_path / "vocab.txt"
    words.write_text("\n".join([*vocabulary()[:-2], *vocabulary()[:-3:-1]]) + "\n", encoding="utf-8")
    found += [load(weights).fingerprint, load(tiny_blip, tokenizer=str(words)).fingerprint]
    assert len({first, *found}) == len(changes) + 3


def test_nothing_learns(blip: Blip, pixels: Tensor) -> None:
    nn.ModuleList([blip]).train()
    assert not any(module.training for module in blip.modules())
    assert not any(parameter.requires_grad for parameter in blip.parameters())
    assert not blip.images(pixels)[0].requires_grad


@pytest.mark.parametrize("setting", [{"max_length": 600}, {"storyboard": 0}, {"tile": 0}, {"max_words": -1}])
def test_impossible_settings_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        Blip(model="blip-base-coco", **setting)


def test_a_model_that_reads_less_is_refused(tiny_blip: Path) -> None:
    with pytest.raises(Refused, match="reads 64 tokens"):
        load(tiny_blip, max_length=128)


def test_released_models_are_pinned_to_a_commit() -> None:
    names = [preset.model for name, preset in PRESETS.items() if name != "demo"] + list(TOKENIZERS.values())
    for name in names:
        revision = name.removeprefix("hf://").split("@")[1].split("/")[0]
        assert len(revision) == 40
    assert Blip(model="blip-large-coco").vision_eps == 1e-6
    assert Blip(model="blip-large-coco", vision_eps=1e-5).vision_eps == 1e-5


@needs_fixtures
@pytest.mark.parametrize("file", ["checkpoint.pth", "checkpoint.safetensors"])
def test_outputs_equal_those_that_lavis_computed(file: str) -> None:
    from safetensors.torch import load_file

    folder = Path(os.environ["COVR_FIXTURES"]) / "lavis_blip"
    blip = load(folder / file, tokenizer=str(folder / "vocab.txt"), heads=(4, 4))
    reference = load_file(folder / "reference.safetensors")
    captions = ["a man is walking", "the dog is not red"]  # the third ends in a full stop, which cleaning takes off
    embeds, tokens = blip.images(reference["pixel_values"])
    close(embeds, reference["image_embed"])
    close(blip.texts(captions), reference["text_embed"][:2])
    close(blip.match(captions, tokens[:2]), reference["itm_logits"][:2])
