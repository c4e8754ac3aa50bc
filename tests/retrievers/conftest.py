"""A random BLIP for all tests of retrievers, and the same weights as LAVIS stores them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch import Tensor

from tests.tiny_blip import make_tiny_blip


@pytest.fixture(scope="session")
def tiny_blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random BLIP with its tokenizer."""
    return make_tiny_blip(tmp_path_factory.mktemp("tiny_blip"))


@pytest.fixture(scope="session")
def lavis_tensors(tiny_blip: Path) -> dict[str, Tensor]:
    """The tensors of ``tiny_blip`` under LAVIS's names (written down here a second time, the other way round)."""
    from safetensors.torch import load_file

    names = {
        "vision_model.embeddings.class_embedding": "visual_encoder.cls_token",
        "vision_model.embeddings.position_embedding": "visual_encoder.pos_embed",
        "vision_model.embeddings.patch_embedding": "visual_encoder.patch_embed.proj",
        "vision_model.post_layernorm": "visual_encoder.norm",
        "vision_model.encoder.layers": "visual_encoder.blocks",
        "self_attn.projection": "attn.proj",
        "self_attn": "attn",
        "layer_norm": "norm",
    }
    pattern = re.compile("|".join(map(re.escape, names)))
    return {
        pattern.sub(lambda found: names[found[0]], key): value
        for key, value in load_file(tiny_blip / "model.safetensors").items()
    }
