"""The small BLIP of the demo world: its sizes, its vocabulary, and the folder where its weights lie."""

from __future__ import annotations

import copy
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from covr_lab.demo import wording
from covr_lab.retrievers.blip.images import DEVIATION, MEAN

if TYPE_CHECKING:
    from transformers import BlipConfig, BlipForImageTextRetrieval, PreTrainedTokenizerBase

WEIGHTS: Final = Path(str(resources.files("covr_lab.demo") / "weights"))
GRID: Final = 2  # a tile holds GRID x GRID frames in reading order
CELL: Final = 64  # pixels
LENGTH: Final = 64  # tokens of a text
WIDTH: Final = 128  # of both towers and of the embeddings
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary() -> list[str]:
    """All words that the texts of the demo world use, after the special tokens."""
    found: set[str] = set()
    for table in (wording.COLOUR, wording.SHAPE, wording.MOTION, wording.VERB, wording.BACKGROUND, wording.LIGHT):
        for texts in table.values():
            found.update(word for text in texts for word in re.findall(r"\w+", text))
    found.update(re.findall(r"\w+", re.sub(r"{\w+}", " ", " ".join(wording.templates()))))
    return [*SPECIAL, *",.;:'-!?", *sorted(found)]


def config(words: int) -> BlipConfig:
    """Sizes of the model for a vocabulary of ``words`` words; [DEC] and [ENC] follow the vocabulary."""
    from transformers import BlipConfig

    sizes = {"hidden_size": WIDTH, "num_attention_heads": 4, "projection_dim": WIDTH, "intermediate_size": 3 * WIDTH}
    vision = sizes | {
        "num_hidden_layers": 4,
        "image_size": GRID * CELL,
        "patch_size": 16,
        "layer_norm_eps": 1e-6,
        "initializer_range": 0.02,
    }
    text = sizes | {
        "num_hidden_layers": 3,
        "vocab_size": words + 2,
        "max_position_embeddings": LENGTH,
        "bos_token_id": words,
        "pad_token_id": 0,
        "sep_token_id": SPECIAL.index("[SEP]"),
        "eos_token_id": SPECIAL.index("[SEP]"),
        "is_decoder": True,
        "use_cache": False,
    }
    return BlipConfig(text_config=text, vision_config=vision, image_text_hidden_size=WIDTH, projection_dim=WIDTH)


def untrained(seed: int) -> BlipForImageTextRetrieval:
    """The model with random weights."""
    from transformers import BlipForImageTextRetrieval

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BlipForImageTextRetrieval(config(len(vocabulary())))
    model.train(False)
    return model


def make_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Write the vocabulary to ``folder`` and make the tokenizer of it."""
    from transformers import BertTokenizer

    (folder / "vocab.txt").write_text("\n".join(vocabulary()) + "\n", encoding="utf-8")
    made: PreTrainedTokenizerBase = BertTokenizer(
        str(folder / "vocab.txt"), do_lower_case=True, model_max_length=LENGTH
    )
    return made


def save(model: BlipForImageTextRetrieval, folder: Path) -> None:
    """Store ``model`` in fp16 with its tokenizer and its picture settings, as transformers reads them."""
    from transformers import BlipImageProcessor

    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder).save_pretrained(folder)
    half: Any = copy.deepcopy(model)
    half.to(torch.float16).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    size = {"height": GRID * CELL, "width": GRID * CELL}
    BlipImageProcessor(size=size, image_mean=MEAN, image_std=DEVIATION).save_pretrained(folder)
