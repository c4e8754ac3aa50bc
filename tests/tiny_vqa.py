"""Random BLIPs with a decoder, small enough for tests, saved as folders: one answers questions, one describes.

Import it as ``from tests.tiny_vqa import make_tiny_writer``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny_blip import SIZES, vocabulary


def make_tiny_writer(folder: Path, kind: str = "BlipForQuestionAnswering", seed: int = 0) -> Path:
    """Save a random BLIP of a ``kind`` with its tokenizer; a few milliseconds a text.

    Its sizes are those of :func:`tests.tiny_blip.make_tiny_blip`; the decoder has the same ones.
    """
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    pieces = vocabulary()
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=True, model_max_length=64)
    tokenizer.save_pretrained(folder)
    sizes = {
        "hidden_size": SIZES["width"],
        "intermediate_size": 2 * SIZES["width"],
        "num_hidden_layers": SIZES["layers"],
        "num_attention_heads": SIZES["heads"],
    }
    vision = {**sizes, "image_size": SIZES["image_size"], "patch_size": SIZES["patch_size"], "layer_norm_eps": 1e-6}
    text = {**sizes, "vocab_size": len(pieces) + 2, "max_position_embeddings": 64, "is_decoder": True}
    text |= {"bos_token_id": len(pieces), "pad_token_id": 0, "sep_token_id": 3, "eos_token_id": 3}
    text["encoder_hidden_size"] = SIZES["width"]
    config = transformers.BlipConfig(text_config=text, vision_config=vision)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        maker: Any = getattr(transformers, kind)
        model = maker(config)
        for name, parameter in model.named_parameters():
            norm, weight = "norm" in name.lower(), name.endswith("weight")
            # Answers that differ by image and question: large weights, the largest where one looks at the other.
            std = 0.3 if "embedding" in name else 2.0 if "crossattention" in name else 1.0
            if norm or name.endswith("bias"):
                torch.nn.init.constant_(parameter, float(norm and weight))
            else:
                torch.nn.init.normal_(parameter, std=std)
        model.save_pretrained(folder)
    return folder
