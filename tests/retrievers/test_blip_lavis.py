"""LAVIS's own code gives what our network gives, on the same checkpoint."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from covr_lab.retrievers.blip.model import Blip
from covr_lab.retrievers.lavis import compat
from covr_lab.retrievers.lavis.model import LavisBlip
from covr_lab.types import Refused

TEXTS = ["a dog", "make it night", "", "remove the red car and add two people " * 3, "a yellow boat"]
needs_lavis = pytest.mark.skipif(find_spec("lavis") is None, reason="salesforce-lavis is not installed (make lavis)")
needs_fixtures = pytest.mark.skipif(
    "COVR_FIXTURES" not in os.environ, reason="COVR_FIXTURES is not set: outputs that LAVIS computed itself"
)


def load(kind: type[Blip], model: Path, **settings: Any) -> Blip:
    blip = kind(model=str(model), tile=4, **settings)
    blip.load()
    return blip


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


@needs_lavis
@pytest.mark.parametrize("settings", [{}, {"image_size": 80}, {"vision_eps": 1e-3}, {"heads": (2, 8)}])
def test_both_backends_agree(tiny_blip: Path, settings: dict[str, Any]) -> None:
    ours, lavis = load(Blip, tiny_blip, **settings), load(LavisBlip, tiny_blip, **settings)
    pixels = ours.pixels(np.random.default_rng(0).integers(0, 256, (5, 30, 40, 3), dtype=np.uint8))
    embeds, tokens = ours.images(pixels)
    for found, expected in zip(lavis.images(pixels), (embeds, tokens), strict=True):
        close(found, expected)
    close(lavis.texts(TEXTS), ours.texts(TEXTS))
    close(lavis.composed(TEXTS, tokens), ours.composed(TEXTS, tokens))
    close(lavis.match(TEXTS, tokens), ours.match(TEXTS, tokens))
    assert lavis.fingerprint != ours.fingerprint
    assert lavis.summary == ours.summary
    back = [4, 3, 2, 1, 0]
    assert torch.equal(lavis.images(pixels[back])[1], lavis.images(pixels)[1][back])
    assert torch.equal(lavis.composed(TEXTS[::-1], tokens[back]), lavis.composed(TEXTS, tokens)[back])


@needs_lavis
def test_a_checkpoint_without_a_matching_head_has_none(
    tiny_blip: Path, lavis_tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    file = tmp_path / "covr.ckpt"
    torch.save({"model": {key: value for key, value in lavis_tensors.items() if "itm_head" not in key}}, file)
    lavis = load(LavisBlip, file, tokenizer=str(tiny_blip), heads=(4, 4))
    assert not lavis.can_match
    assert torch.equal(lavis.texts(TEXTS), load(LavisBlip, tiny_blip).texts(TEXTS))


@needs_lavis
@needs_fixtures
def test_outputs_equal_those_of_lavis_in_its_own_environment() -> None:
    from safetensors.torch import load_file

    folder = Path(os.environ["COVR_FIXTURES"]) / "lavis_blip"
    lavis = load(LavisBlip, folder / "checkpoint.pth", tokenizer=str(folder / "vocab.txt"), heads=(4, 4))
    reference = load_file(folder / "reference.safetensors")
    embeds, tokens = lavis.images(reference["pixel_values"])
    close(embeds, reference["image_embed"])
    captions = ["a man is walking", "the dog is not red"]
    close(lavis.texts(captions), reference["text_embed"][:2])
    close(lavis.match(captions, tokens[:2]), reference["itm_logits"][:2])


@needs_lavis
def test_nothing_of_lavis_stays_behind(tiny_blip: Path) -> None:
    from transformers import modeling_utils

    load(LavisBlip, tiny_blip)
    assert not [name for name in sys.modules if name.split(".")[0] == "lavis"]
    assert not hasattr(modeling_utils, "prune_linear_layer")


def test_without_lavis_the_mend_is_named(monkeypatch: pytest.MonkeyPatch, tiny_blip: Path) -> None:
    monkeypatch.setattr(compat, "find_spec", lambda name: None)
    compat._classes.cache_clear()
    with pytest.raises(Refused, match="make lavis"):
        load(LavisBlip, tiny_blip)
    compat._classes.cache_clear()
