"""LAVIS 1.0.2 under transformers 5: its two BLIP encoders, without the package files that import all of LAVIS."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from covr_lab.types import Refused

if TYPE_CHECKING:
    from transformers import BlipTextConfig, BlipVisionConfig


@contextmanager
def _bare_packages(root: Path) -> Iterator[None]:
    """LAVIS's packages as mere folders; afterwards nothing of LAVIS is left among the imported modules."""
    for name in ("lavis", "lavis.common", "lavis.models"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "lavis"]:
            del sys.modules[name]


@contextmanager
def _moved_helpers() -> Iterator[None]:
    """Functions where transformers 4 had them; the one that is gone prunes heads, which is never asked for."""
    from transformers import modeling_utils, pytorch_utils

    names = ("apply_chunking_to_forward", "prune_linear_layer", "find_pruneable_heads_and_indices")
    added = [name for name in names if not hasattr(modeling_utils, name)]
    for name in added:
        setattr(modeling_utils, name, getattr(pytorch_utils, name, None))
    level = logging.getLogger("transformers").level  # LAVIS silences it for everybody
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # old module names of timm
            yield
    finally:
        logging.getLogger("transformers").setLevel(level)
        for name in added:
            delattr(modeling_utils, name)


class _Gone:
    """What transformers 4 gave every model, LAVIS calls, and transformers 5 has no more."""

    def init_weights(self) -> None:
        """Nothing: every weight is loaded."""

    def get_head_mask(self, mask: None, layers: int) -> list[None]:
        """No head is masked."""
        del mask
        return [None] * layers

    def invert_attention_mask(self, mask: Tensor) -> Tensor:
        """What is added to attention scores: 0 where the mask ``(B, T)`` is 1, the least number where it is 0."""
        kept = mask[:, None, None, :].float()
        return (1.0 - kept) * torch.finfo(kept.dtype).min


@cache
def _classes() -> tuple[Any, Any]:
    found = find_spec("lavis")
    if found is None or not found.submodule_search_locations:
        raise Refused("the LAVIS backend needs salesforce-lavis: run `make lavis`, or take the retriever without it")
    try:
        with _bare_packages(Path(found.submodule_search_locations[0])), _moved_helpers():
            vision, text = import_module("lavis.models.vit"), import_module("lavis.models.med")
    except ImportError as error:
        raise Refused(f"LAVIS cannot be imported: {error} (run `make lavis`)") from error
    return vision.VisionTransformerEncoder, type("TextEncoder", (_Gone, text.XBertEncoder), {})


def vision_encoder(config: BlipVisionConfig) -> nn.Module:
    """LAVIS's vision transformer, random weights."""
    encoder: nn.Module = _classes()[0](
        img_size=config.image_size,
        patch_size=config.patch_size,
        embed_dim=config.hidden_size,
        depth=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        mlp_ratio=config.intermediate_size / config.hidden_size,
        norm_layer=partial(nn.LayerNorm, eps=config.layer_norm_eps),
    )
    return encoder


def text_encoder(config: BlipTextConfig, vision_width: int) -> nn.Module:
    """LAVIS's text encoder with cross-attention, random weights."""
    from transformers import BertConfig

    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "max_position_embeddings", "hidden_act", "layer_norm_eps",
    )  # fmt: skip
    sizes: dict[str, Any] = {name: getattr(config, name) for name in names}
    sizes |= {"encoder_width": vision_width, "add_cross_attention": True, "add_type_embeddings": False}
    encoder: nn.Module = _classes()[1](config=BertConfig(**sizes), add_pooling_layer=False)
    return encoder
