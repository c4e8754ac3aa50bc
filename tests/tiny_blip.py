"""A random BLIP small enough for tests, saved as a folder that the retrievers load.

Import it as ``from tests.tiny_blip import make_tiny_blip``.
"""

from __future__ import annotations

import string
from pathlib import Path

WORDS = (
    "a an the of in on at with and not is are man woman dog cat bird boat car tree house sea beach city street night "
    "day snow rain fire red blue green black white yellow small large fast slow left right up down make it turn add "
    "remove replace change more less walking running playing eating standing two three people view aerial sunset"
).split()
SIZES = {"width": 32, "layers": 2, "heads": 4, "image_size": 48, "patch_size": 16, "projection": 16}


def vocabulary(words: list[str] | None = None) -> list[str]:
    """Whole words, then letters and digits as word pieces: no ASCII word is unknown."""
    letters = [*string.ascii_lowercase, *string.digits]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation, *letters]
    return list(dict.fromkeys([*pieces, *("##" + x for x in letters), *(words or WORDS)]))


def make_tiny_blip(folder: Path, seed: int = 0) -> Path:
    """Save a random ``BlipForImageTextRetrieval`` with its tokenizer ([DEC], then [ENC], after the vocabulary).

    Image 48, patch 16 (10 tokens), width 32, 2 layers, 4 heads, embeddings of 16; a few milliseconds a pass.
    """
    import torch
    from transformers import BertTokenizer, BlipConfig, BlipForImageTextRetrieval

    folder.mkdir(parents=True, exist_ok=True)
    pieces = vocabulary()
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    BertTokenizer(str(folder / "vocab.txt"), do_lower_case=True, model_max_length=64).save_pretrained(folder)
    sizes = {
        "hidden_size": SIZES["width"],
        "intermediate_size": 2 * SIZES["width"],
        "num_hidden_layers": SIZES["layers"],
        "num_attention_heads": SIZES["heads"],
    }
    vision = {**sizes, "image_size": SIZES["image_size"], "patch_size": SIZES["patch_size"], "layer_norm_eps": 1e-6}
    text = {**sizes, "vocab_size": len(pieces) + 2, "max_position_embeddings": 64, "bos_token_id": len(pieces)}
    text |= {"pad_token_id": 0, "sep_token_id": 3, "eos_token_id": 3}
    config = BlipConfig(text_config=text, vision_config=vision, image_text_hidden_size=SIZES["projection"])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BlipForImageTextRetrieval(config)
        for parameter in model.parameters():  # the default vision weights are nearly zero: all images would be equal
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder)
    return folder
