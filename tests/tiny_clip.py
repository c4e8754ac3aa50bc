"""Random CLIP and SigLIP 2 models with their processors, small enough to build, save and run at once on a CPU."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

SIDE = 48  # pixels of an input; patches of 16
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 24,
}
SIGLIP_IDS = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
VISION = {**{key: TEXT[key] for key in TEXT if key != "max_position_embeddings"}, "patch_size": 16}


def make_tiny_clip(folder: Path, seed: int = 0) -> Path:
    """A random CLIP: inputs of 48 pixels, 24 tokens, embeddings of 16."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

    tokenizer = byte_tokenizer()
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0}
    config = CLIPConfig(
        text_config={**TEXT, **ids, "vocab_size": len(tokenizer)},
        vision_config={**VISION, "image_size": SIDE},
        projection_dim=16,
    )
    images = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return save(CLIPModel(config), CLIPProcessor(images, tokenizer), folder, seed)


def make_tiny_siglip(folder: Path, seed: int = 0) -> Path:
    """A random SigLIP 2 of fixed resolution, which transformers calls SigLIP: inputs of 48 pixels, 24 tokens."""
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipProcessor

    tokenizer = letter_tokenizer()
    text = {**TEXT, **SIGLIP_IDS, "vocab_size": len(tokenizer), "projection_size": 32}
    config = SiglipConfig(text_config=text, vision_config={**VISION, "image_size": SIDE})
    images = SiglipImageProcessor(size={"height": SIDE, "width": SIDE})
    return save(SiglipModel(config), SiglipProcessor(images, tokenizer), folder, seed)


def make_tiny_siglip2(folder: Path, seed: int = 0) -> Path:
    """A random SigLIP 2 of variable resolution (NaFlex): at most 16 patches, 24 tokens, embeddings of 32."""
    from transformers import Siglip2Config, Siglip2ImageProcessor, Siglip2Model, Siglip2Processor

    tokenizer = letter_tokenizer()
    text = {**TEXT, **SIGLIP_IDS, "vocab_size": len(tokenizer), "projection_size": 32}
    config = Siglip2Config(text_config=text, vision_config={**VISION, "num_patches": 16})
    images = Siglip2ImageProcessor(patch_size=16, max_num_patches=16)
    return save(Siglip2Model(config), Siglip2Processor(images, tokenizer), folder, seed)


def letter_tokenizer() -> Any:
    """That of SigLIP 2, one token a letter, <eos> at the end; it pads on the left, as its class says."""
    from transformers import Siglip2Tokenizer

    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\u2581"]
    vocabulary = {piece: index for index, piece in enumerate([*special, *string.ascii_lowercase, *string.digits])}
    return Siglip2Tokenizer(vocab=vocabulary, merges=[], add_eos_token=True)


def byte_tokenizer() -> Any:
    """One token a byte between <bos> and <eos>; it pads on the left, as some saved ones say."""
    from transformers import PreTrainedTokenizerFast

    letters = ["<pad>", "<bos>", "<eos>", *sorted(ByteLevel.alphabet())]
    model = Tokenizer(BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    model.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    model.post_processor = TemplateProcessing(single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", padding_side="left"
    )


def save(model: Any, processor: Any, folder: Path, seed: int) -> Path:
    """Random weights large enough that all inputs differ."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
