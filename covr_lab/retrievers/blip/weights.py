"""BLIP checkpoints of transformers, LAVIS, BLIP and CoVR, read into one network, strictly."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from covr_lab.types import Refused

if TYPE_CHECKING:
    from transformers import BlipConfig, BlipForImageTextRetrieval, BlipTextConfig, BlipVisionConfig

POSITIONS = "vision_model.embeddings.position_embedding"
HEAD_WIDTH = 64  # of every released BLIP; the tensors do not tell it
VISION_EPS, TEXT_EPS = 1e-6, 1e-12
WRAPPERS = ("module.", "model.", "_forward_module.")
# Momentum encoders, queues, temperature, decoder, and a buffer that newer versions do not store.
TRAINING_ONLY = re.compile(
    r"(visual_encoder|text_encoder|vision_proj|text_proj)_m\.|(image|text|idx|ptr)_queue$|queue_ptr$|temp$|"
    r"text_decoder\.|text_encoder\.embeddings\.position_ids$"
)
RENAMED = (
    (r"^visual_encoder\.", "vision_model."),
    (r"^vision_model\.cls_token$", "vision_model.embeddings.class_embedding"),
    (r"^vision_model\.pos_embed$", "vision_model.embeddings.position_embedding"),
    (r"^vision_model\.patch_embed\.proj\.", "vision_model.embeddings.patch_embedding."),
    (r"^vision_model\.norm\.", "vision_model.post_layernorm."),
    (r"^vision_model\.blocks\.(\d+)\.", r"vision_model.encoder.layers.\1."),
    (r"^(vision_model\..*)\.attn\.qkv\.", r"\1.self_attn.qkv."),
    (r"^(vision_model\..*)\.attn\.proj\.", r"\1.self_attn.projection."),
    (r"^(vision_model\..*)\.norm([12])\.", r"\1.layer_norm\2."),
)
FOREIGN = {"Qformer.": "BLIP-2", "qformer.": "BLIP-2", "visual.": "CLIP", "language_model.": "a language model"}


@dataclass(frozen=True)
class Checkpoint:
    """What a network needs, checked.

    Attributes:
        tensors: all weights and no others, fp32, by transformers' names; without ``itm_head`` where the file has none.
        config: sizes, as inferred from the tensors or told by ``config.json``.
        summary: architecture in words.
        skipped: tensors of training that were left out, in name order.
    """

    tensors: dict[str, Tensor]
    config: BlipConfig
    summary: str
    skipped: tuple[str, ...]

    @cached_property
    def sha256(self) -> str:
        """Of the tensors, in name order."""
        found = hashlib.sha256()
        for name, value in sorted(self.tensors.items()):
            found.update(f"{name} {tuple(value.shape)}".encode())
            found.update(value.contiguous().numpy().data)
        return found.hexdigest()


def read_checkpoint(
    path: Path,
    *,
    image_size: int | None = None,
    heads: tuple[int, int] | None = None,
    vision_eps: float | None = None,
) -> Checkpoint:
    """Read a transformers folder, or a checkpoint file of LAVIS, BLIP or CoVR.

    Args:
        path: folder with ``config.json`` and ``model.safetensors`` or ``pytorch_model.bin``; or a ``.pth``, ``.ckpt``
            or ``.safetensors`` file.
        image_size: pixels of an input side; position embeddings of another size are interpolated (bicubic).
        heads: attention heads of the vision and the text tower; by default those of ``config.json``, for a file 64
            wide ones.
        vision_eps: epsilon of the vision layer norms; by default that of ``config.json``, for a file 1e-6.

    Raises:
        Refused: anything but a whole image-text BLIP: a weight missing, unknown or of a wrong shape.
    """
    if not path.exists():
        raise Refused(f"model '{path}': no such file or folder (a model on the Hub is hf://OWNER/NAME@REVISION/)")
    tensors, config = _folder(path) if path.is_dir() else (read_tensors(path), None)
    skipped = tuple(sorted(key for key in tensors if TRAINING_ONLY.match(key)))
    kept = {transformers_key(key): value for key, value in tensors.items() if key not in set(skipped)}
    config = config or infer_config(path, kept, heads)
    vision, text = towers(config)
    if heads is not None:
        vision.num_attention_heads, text.num_attention_heads = heads
    if vision_eps is not None:
        vision.layer_norm_eps = vision_eps
    check_heads(path, vision, text, named=heads is not None)
    _check_tensors(path, config, kept)
    kept = {key: value.to(torch.float32, copy=True) for key, value in kept.items()}
    summary = describe(config)
    if image_size not in (None, vision.image_size):
        kept[POSITIONS] = resized_positions(kept[POSITIONS], _grid(image_size, vision))
        summary = f"{describe(config)}, position embeddings from {summary.split()[1]}"
    return Checkpoint(kept, config, summary, skipped)


def build_network(checkpoint: Checkpoint) -> BlipForImageTextRetrieval:
    """The network of transformers with the weights of a checkpoint."""
    network = _empty_network(checkpoint.config, checkpoint.tensors)
    network.load_state_dict(checkpoint.tensors, assign=True)
    positions = torch.arange(towers(checkpoint.config)[1].max_position_embeddings).expand((1, -1))
    network.text_encoder.embeddings.position_ids = nn.Buffer(positions, persistent=False)  # the one that is not stored
    return network


def towers(config: BlipConfig) -> tuple[BlipVisionConfig, BlipTextConfig]:
    """Configurations of the two encoders."""
    return cast("BlipVisionConfig", config.vision_config), cast("BlipTextConfig", config.text_config)


def transformers_key(key: str) -> str:
    """Name of a LAVIS or BLIP tensor in transformers.

    >>> transformers_key("visual_encoder.blocks.3.attn.proj.bias")
    'vision_model.encoder.layers.3.self_attn.projection.bias'
    >>> transformers_key("text_encoder.encoder.layer.0.crossattention.self.key.weight")
    'text_encoder.encoder.layer.0.crossattention.self.key.weight'
    """
    for pattern, name in RENAMED:
        key = re.sub(pattern, name, key)
    return key


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a file by name, without the names of wrappers; no code of the file is run.

    Raises:
        Refused: the file cannot be read, or holds no tensors.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: dict[str, Any] = dict(load_file(path))
        else:
            found = _unpickled(path)
    except Exception as error:  # two libraries and the operating system, without a common base
        reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
        raise Refused(f"model '{path}' cannot be read: {reason} (fetch it again, or name another file)") from error
    for key in ("model", "state_dict"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    tensors = {key: value for key, value in dict(found).items() if isinstance(value, Tensor)}
    if not tensors:
        raise Refused(f"model '{path}' holds no tensors: name a checkpoint (.pth, .ckpt, .safetensors)")
    while wrapper := next((name for name in WRAPPERS if all(key.startswith(name) for key in tensors)), None):
        tensors = {key.removeprefix(wrapper): value for key, value in tensors.items()}
    return tensors


class _Inert:
    """Stands for an object that a checkpoint carries beside its tensors (CoVR: its scheduler); does nothing."""

    def __init__(self, *args: object) -> None:
        del args

    def __setstate__(self, state: object) -> None:
        del state


def _unpickled(path: Path) -> dict[str, Any]:
    zipped = zipfile.is_zipfile(path)  # not so in files of torch before 1.6
    foreign = torch.serialization.get_unsafe_globals_in_checkpoint(path) if zipped else []
    with torch.serialization.safe_globals([(_Inert, name) for name in foreign]):
        # Mapped: the optimizer's state in the same file is never read.
        return dict(torch.load(path, map_location="cpu", weights_only=True, mmap=zipped))


def _folder(folder: Path) -> tuple[dict[str, Tensor], BlipConfig]:
    from transformers import AutoConfig, BlipConfig

    if not (folder / "config.json").is_file():
        raise Refused(f"model '{folder}' has no config.json: name a transformers folder, or a checkpoint file")
    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise Refused(f"model '{folder}': config.json cannot be read: {reason} (fetch it again)") from error
    if not isinstance(config, BlipConfig):
        raise Refused(f"model '{folder}' is a {config.model_type} model: name a BLIP image-text retrieval model")
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            towers(config)[1].is_decoder = True  # else there is no cross-attention
            return read_tensors(folder / name), config
    raise Refused(f"model '{folder}' has no model.safetensors or pytorch_model.bin: fetch the whole folder")


def infer_config(path: Path, tensors: Mapping[str, Tensor], heads: tuple[int, int] | None) -> BlipConfig:
    """Sizes of the network, read off its tensors (transformers names)."""
    from transformers import BlipConfig

    text, vision = "text_encoder.encoder.layer", "vision_model.encoder.layers"
    names = {
        "patch": "vision_model.embeddings.patch_embedding.weight",
        "positions": POSITIONS,
        "vision_mlp": f"{vision}.0.mlp.fc1.weight",
        "words": "text_encoder.embeddings.word_embeddings.weight",
        "text_positions": "text_encoder.embeddings.position_embeddings.weight",
        "text_mlp": f"{text}.0.intermediate.dense.weight",
        "projection": "vision_proj.weight",
    }
    missing = [name for name in names.values() if name not in tensors]
    if missing:
        kind = next((kind for start, kind in FOREIGN.items() if any(key.startswith(start) for key in tensors)), None)
        what = f"is {kind}, not BLIP" if kind else f"is no image-text BLIP: it lacks {missing[:3]}"
        raise Refused(f"model '{path}' {what} (name a BLIP retrieval checkpoint, or a transformers folder)")
    shape = {key: tuple(tensors[name].shape) for key, name in names.items()}
    vision_width, patch, text_width = shape["patch"][0], shape["patch"][-1], shape["words"][1]
    if heads is None and (vision_width % HEAD_WIDTH or text_width % HEAD_WIDTH):
        raise Refused(f"model '{path}': {vision_width} and {text_width} are no multiples of {HEAD_WIDTH}: set heads")
    vision_heads, text_heads = heads or (vision_width // HEAD_WIDTH, text_width // HEAD_WIDTH)
    return BlipConfig(
        vision_config={
            "hidden_size": vision_width,
            "intermediate_size": shape["vision_mlp"][0],
            "num_hidden_layers": _layers(tensors, vision),
            "num_attention_heads": vision_heads,
            "image_size": isqrt(shape["positions"][1] - 1) * patch,
            "patch_size": patch,
            "layer_norm_eps": VISION_EPS,
        },
        text_config={
            "vocab_size": shape["words"][0],
            "hidden_size": text_width,
            "intermediate_size": shape["text_mlp"][0],
            "num_hidden_layers": _layers(tensors, text),
            "num_attention_heads": text_heads,
            "max_position_embeddings": shape["text_positions"][0],
            "layer_norm_eps": TEXT_EPS,
            "is_decoder": True,
            "bos_token_id": shape["words"][0] - 2,
            "sep_token_id": None,
        },
        image_text_hidden_size=shape["projection"][0],
    )


def _layers(tensors: Mapping[str, Tensor], start: str) -> int:
    return 1 + max(int(key.removeprefix(start + ".").split(".")[0]) for key in tensors if key.startswith(start + "."))


def check_heads(path: Path, vision: BlipVisionConfig, text: BlipTextConfig, named: bool) -> None:
    """Refuse widths that the heads do not divide, and heads that published folders got wrong.

    Args:
        path: of the checkpoint.
        vision: its vision tower.
        text: its text tower.
        named: whether the user named the heads.

    Raises:
        Refused: see above.
    """
    for name, tower in {"vision": vision, "text": text}.items():
        if tower.hidden_size % tower.num_attention_heads:
            raise Refused(f"model '{path}': {name} width {tower.hidden_size} is no multiple of its heads: set heads")
    # transformers issue 22625: published folders said 8 text heads for weights trained with 12.
    if not named and (text.hidden_size, text.num_attention_heads) == (768, 8):
        raise Refused(
            f"model '{path}': config.json says 8 text heads where BLIP has 12, outputs would be wrong: take a newer "
            "revision, or set heads"
        )


def _empty_network(config: BlipConfig, tensors: Mapping[str, Tensor]) -> BlipForImageTextRetrieval:
    from transformers import BlipForImageTextRetrieval

    with torch.device("meta"):
        network = BlipForImageTextRetrieval(config)
    if not any(key.startswith("itm_head.") for key in tensors):
        del network.itm_head  # CoVR checkpoints have none: absent, never random
    return network


def _check_tensors(path: Path, config: BlipConfig, tensors: Mapping[str, Tensor]) -> None:
    expected = {key: value.shape for key, value in _empty_network(config, tensors).state_dict().items()}
    other = [key for key in expected.keys() & tensors.keys() if tensors[key].shape != expected[key]]
    faults = {
        "lacks weights": sorted(expected.keys() - tensors.keys()),
        "has unknown weights": sorted(tensors.keys() - expected.keys()),
        "has weights of another shape": sorted(other),
    }
    for fault, keys in faults.items():
        if keys:
            raise Refused(
                f"model '{path}' {fault} ({len(keys)}): {', '.join(keys[:3])} (name a checkpoint of {describe(config)})"
            )


def describe(config: BlipConfig) -> str:
    """Architecture in words: ``BLIP-large 384 (24 layers, 1024 wide)``."""
    vision = towers(config)[0]
    size = {(12, 768): "-base", (24, 1024): "-large"}.get((vision.num_hidden_layers, vision.hidden_size), "")
    return f"BLIP{size} {vision.image_size} ({vision.num_hidden_layers} layers, {vision.hidden_size} wide)"


def _grid(image_size: int | None, vision: BlipVisionConfig) -> int:
    """Patches of an input side; the configuration takes the new size."""
    patch = cast("int", vision.patch_size)
    if not image_size or image_size % patch:
        raise Refused(f"image_size {image_size} is no multiple of the patch size {patch}: change it")
    vision.image_size = image_size
    return image_size // patch


def resized_positions(positions: Tensor, grid: int) -> Tensor:
    """Position embeddings ``(1, 1 + g * g, W)`` for a grid of another side, bicubic; [CLS] keeps its own.

    >>> resized_positions(torch.zeros(1, 1 + 3 * 3, 8), 5).shape
    torch.Size([1, 26, 8])
    """
    first, patches = positions[:, :1], positions[:, 1:]
    side = isqrt(patches.shape[1])
    square = patches.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    square = nn.functional.interpolate(square, size=(grid, grid), mode="bicubic", align_corners=False)
    return torch.cat((first, square.permute(0, 2, 3, 1).flatten(1, 2)), dim=1)
