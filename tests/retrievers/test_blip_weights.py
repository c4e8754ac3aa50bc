from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from covr_lab.retrievers.blip.weights import build_network, describe, infer_config, read_checkpoint, transformers_key
from covr_lab.types import Refused

HEADS = (4, 4)
Tensors = dict[str, Tensor]


def refused(match: str, path: Path, **settings: Any) -> None:
    """It is refused, in one line that names the file."""
    with pytest.raises(Refused, match=match) as error:
        read_checkpoint(path, **settings)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def saved(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


class CosineSchedule:
    """What CoVR's checkpoints carry beside the weights."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs


class Exploit:
    """Runs a command when it is unpickled without care."""

    def __init__(self, function: Any, argument: str) -> None:
        self.call = (function, (argument,))

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def test_a_folder_and_every_kind_of_file_give_the_same_network(
    tiny_blip: Path, lavis_tensors: Tensors, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    folder = read_checkpoint(tiny_blip)
    assert folder.summary == "BLIP 48 (2 layers, 32 wide)"
    assert folder.skipped == ()
    wrapped = {f"model.module.{key}": value for key, value in lavis_tensors.items()}
    training = {"optimizer": {"state": {0: torch.ones(9)}}, "scheduler": CosineSchedule(5), "epoch": 4}
    files = [
        saved({"model": lavis_tensors, **training}, tmp_path / "covr.ckpt"),
        saved({"state_dict": wrapped}, tmp_path / "lightning.ckpt"),
        saved(lavis_tensors, tmp_path / "plain.pth"),
        tmp_path / "lavis.safetensors",
    ]
    save_file(lavis_tensors, files[-1])
    torch.save(lavis_tensors, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for file in (*files, tmp_path / "old.pth"):
        loaded = read_checkpoint(file, heads=HEADS)
        assert loaded.sha256 == folder.sha256
        assert loaded.summary == folder.summary
        for mine, theirs in zip(_sizes(loaded.config), _sizes(folder.config), strict=True):
            assert mine == theirs
    assert {transformers_key(key) for key in lavis_tensors} == set(folder.tensors)


def test_a_folder_of_the_hub_is_read_like_one_of_today(tiny_blip: Path, tmp_path: Path) -> None:
    """Published folders hold a pickle, with a buffer that newer versions do not store."""
    from safetensors.torch import load_file

    folder = Path(shutil.copytree(tiny_blip, tmp_path / "hub"))
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    buffer = {"text_encoder.embeddings.position_ids": torch.arange(64)[None]}
    saved(tensors | buffer, folder / "pytorch_model.bin")
    loaded = read_checkpoint(folder)
    assert loaded.sha256 == read_checkpoint(tiny_blip).sha256
    assert loaded.skipped == tuple(buffer)


def _sizes(config: Any) -> list[dict[str, Any]]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "layer_norm_eps")
    more = ({"image_size", "patch_size"}, {"vocab_size", "max_position_embeddings", "is_decoder"})
    towers = (config.vision_config, config.text_config)
    return [{name: getattr(tower, name) for name in (*names, *own)} for tower, own in zip(towers, more, strict=True)]


def test_tensors_of_training_are_left_out_and_named(lavis_tensors: Tensors, tmp_path: Path) -> None:
    extra = {
        "visual_encoder_m.cls_token": torch.zeros(1),
        "text_proj_m.bias": torch.zeros(1),
        "temp": torch.zeros(()),
        "image_queue": torch.zeros(1),
        "idx_queue": torch.zeros(1),
        "ptr_queue": torch.zeros(1),
        "queue_ptr": torch.zeros(1),
        "text_encoder.embeddings.position_ids": torch.zeros(1),
        "text_decoder.cls.predictions.bias": torch.zeros(1),
    }
    loaded = read_checkpoint(saved({"model": lavis_tensors | extra}, tmp_path / "all.pth"), heads=HEADS)
    assert loaded.skipped == tuple(sorted(extra))


def test_no_code_of_a_checkpoint_is_run(lavis_tensors: Tensors, tmp_path: Path) -> None:
    import os

    trace = tmp_path / "trace"
    system = saved({"model": lavis_tensors, "x": Exploit(os.system, f"touch {trace}")}, tmp_path / "system.pth")
    refused("cannot be read", system, heads=HEADS)
    code = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    evaluated = saved({"model": lavis_tensors, "x": Exploit(eval, code)}, tmp_path / "eval.pth")
    read_checkpoint(evaluated, heads=HEADS)  # the object beside the weights is not made
    assert not trace.exists()


def test_a_checkpoint_without_a_matching_head_has_none(lavis_tensors: Tensors, tmp_path: Path) -> None:
    """CoVR's checkpoints: a random head would give plausible numbers (pitfall E2)."""
    without = {key: value for key, value in lavis_tensors.items() if not key.startswith("itm_head.")}
    network = build_network(read_checkpoint(saved(without, tmp_path / "covr.ckpt"), heads=HEADS))
    assert not hasattr(network, "itm_head")
    half = without | {"itm_head.bias": lavis_tensors["itm_head.bias"]}
    refused("lacks weights.*itm_head.weight", saved(half, tmp_path / "half.ckpt"), heads=HEADS)


@pytest.mark.parametrize("key", ["text_proj.weight", "visual_encoder.blocks.1.attn.qkv.bias", "vision_proj.weight"])
def test_a_missing_weight_is_refused(lavis_tensors: Tensors, tmp_path: Path, key: str) -> None:
    some = {name: value for name, value in lavis_tensors.items() if name != key}
    refused(transformers_key(key), saved({"model": some}, tmp_path / "some.pth"), heads=HEADS)


def test_an_unknown_weight_and_a_wrong_shape_are_refused(lavis_tensors: Tensors, tmp_path: Path) -> None:
    """BSE-CoVR's dense prompts among them."""
    more = lavis_tensors | {"prompt_proj.weight": torch.zeros(2)}
    refused(r"unknown weights \(1\): prompt_proj.weight", saved(more, tmp_path / "bse.pth"), heads=HEADS)
    other = lavis_tensors | {"text_proj.bias": torch.zeros(3)}
    refused(r"another shape \(1\): text_proj.bias", saved(other, tmp_path / "shape.pth"), heads=HEADS)


def test_another_architecture_is_refused(tiny_blip: Path, tmp_path: Path) -> None:
    blip2 = {"Qformer.bert.embeddings.LayerNorm.weight": torch.zeros(3), "query_tokens": torch.zeros(3)}
    refused("is BLIP-2, not BLIP", saved({"model": blip2}, tmp_path / "blip2.pth"))
    refused("is CLIP, not BLIP", saved({"visual.conv1.weight": torch.zeros(3)}, tmp_path / "clip.pth"))
    refused("no image-text BLIP", saved({"layer.weight": torch.zeros(3)}, tmp_path / "net.pth"))
    folder = _folder(tiny_blip, tmp_path / "clip", model_type="clip")
    refused("is a clip model", folder)


def _folder(source: Path, target: Path, text: dict[str, Any] | None = None, **config: Any) -> Path:
    shutil.copytree(source, target)
    settings = json.loads((target / "config.json").read_text())
    settings["text_config"] |= text or {}
    (target / "config.json").write_text(json.dumps(settings | config))
    return target


@pytest.mark.parametrize("content", [b"", b"no checkpoint", "cut", {"epoch": 3}])
def test_a_broken_file_is_refused(lavis_tensors: Tensors, tmp_path: Path, content: object) -> None:
    path = saved(lavis_tensors if content == "cut" else content, tmp_path / "broken.pth")
    if content == "cut":
        path.write_bytes(path.read_bytes()[:-4000])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    refused("holds no tensors" if isinstance(content, dict) else "cannot be read", path)
    path.rename(tmp_path / "broken.safetensors")
    refused("cannot be read", tmp_path / "broken.safetensors")


def test_a_broken_folder_is_refused(tiny_blip: Path, tmp_path: Path) -> None:
    refused("no such file or folder", tmp_path / "gone")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused("has no config.json", empty)
    (empty / "config.json").write_text("{")
    refused("config.json cannot be read", empty)
    folder = _folder(tiny_blip, tmp_path / "mute")
    (folder / "model.safetensors").unlink()
    refused("has no model.safetensors", folder)


def test_heads_are_64_wide_or_named(tiny_blip: Path, lavis_tensors: Tensors, tmp_path: Path) -> None:
    file = saved(lavis_tensors, tmp_path / "file.pth")
    refused("set heads", file)
    refused("no multiple of its heads", file, heads=(3, 4))
    refused(
        "8 text heads where BLIP has 12",
        _folder(tiny_blip, tmp_path / "old", {"hidden_size": 768, "num_attention_heads": 8}),
    )
    assert read_checkpoint(tiny_blip, heads=(2, 8)).config.text_config.num_attention_heads == 8


@pytest.mark.parametrize(("name", "layers", "width"), [("base", 12, 768), ("large", 24, 1024)])
def test_released_sizes_are_inferred(name: str, layers: int, width: int) -> None:
    """From shapes alone: the tensors of a BLIP of that size lie on no device."""
    from transformers import BlipConfig, BlipForImageTextRetrieval

    vision = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "intermediate_size": 4 * width,
        "num_attention_heads": 16,
    }
    with torch.device("meta"):
        tensors = BlipForImageTextRetrieval(BlipConfig(vision_config=vision)).state_dict()
    config = infer_config(Path("x.pth"), tensors, None)
    assert describe(config) == f"BLIP-{name} 384 ({layers} layers, {width} wide)"
    assert config.vision_config.num_attention_heads == width // 64
    assert config.text_config.num_attention_heads == 12
    assert config.text_config.vocab_size == 30524
    assert (config.vision_config.layer_norm_eps, config.text_config.layer_norm_eps) == (1e-6, 1e-12)


def test_position_embeddings_follow_the_image_size(tiny_blip: Path) -> None:
    original, loaded = read_checkpoint(tiny_blip), read_checkpoint(tiny_blip, image_size=80)
    pixels = torch.randn(1, 3, 80, 80, generator=torch.Generator().manual_seed(0))
    own, other = build_network(original).vision_model, build_network(loaded).vision_model
    expected = own(pixel_values=pixels, interpolate_pos_encoding=True).last_hidden_state
    actual = other(pixel_values=pixels).last_hidden_state
    torch.testing.assert_close(actual, expected)
    assert actual.shape == (1, 26, 32)
    assert loaded.summary == "BLIP 80 (2 layers, 32 wide), position embeddings from 48"
    assert loaded.sha256 != original.sha256
    with pytest.raises(Refused, match="image_size 50 is no multiple of the patch size 16"):
        read_checkpoint(tiny_blip, image_size=50)
