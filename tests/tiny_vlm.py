"""Random models of the kinds that reason, small enough to build, save and run in a second on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
# Endings: a random string would run to its limit. Characters that end a string, a list or an object come early.
ENDINGS = {'"': 7.0, "]": 7.0, "}": 7.0, "<|im_end|>": 8.0, "<|endoftext|>": 8.0}
TEMPLATE = """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif part.type == 'video' %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- else %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""".strip()


def packaged_prompts() -> list[str]:
    """The texts that most prompts are made of."""
    folder = Path(str(resources.files("covr_lab") / "prompts"))
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*/*.yaml"))]


def make_tiny_vlm(folder: Path, seed: int = 0, *, texts: Sequence[str] = ()) -> Path:
    """A random Qwen3-VL of 0.3 M parameters with its processor; ``texts``: see :func:`make_tokenizer`."""
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    tokenizer = make_tokenizer(template=True, texts=texts)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in (*CONTROL, *VISION)}
    config = Qwen3VLConfig(
        text_config=sizes(len(tokenizer))
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}},
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 16,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1, 2],
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            patch_size=16, merge_size=2, size={"shortest_edge": 32 * 32, "longest_edge": 1 << 20}
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size={"shortest_edge": 32 * 32, "longest_edge": 1 << 22}),
        chat_template=TEMPLATE,
    )
    save(Qwen3VLForConditionalGeneration, config, tokenizer, folder, seed)
    processor.save_pretrained(folder)
    return folder


def make_tiny_lm(folder: Path, seed: int = 0, *, chat: bool = True, texts: Sequence[str] = ()) -> Path:
    """A random Qwen3 that reads text only; without ``chat`` it has no chat template, like a base model."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = make_tokenizer(template=chat, texts=texts)
    save(Qwen3ForCausalLM, Qwen3Config(**sizes(len(tokenizer))), tokenizer, folder, seed)
    tokenizer.save_pretrained(folder)
    return folder


def make_tiny_internvl(folder: Path, seed: int = 0) -> Path:
    """A random InternVL with its processor; a frame is a square of 56 pixels and 4 tokens."""
    from transformers import (
        GotOcr2ImageProcessor,
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
        InternVLVideoProcessor,
    )

    names = ("start_image_token", "end_image_token", "context_image_token", "video_token")
    special = dict(zip(names, ("<img>", "</img>", "<IMG_CONTEXT>", "<video>"), strict=True))
    tokenizer = make_tokenizer(template=False, special=special)
    text = sizes(len(tokenizer)) | {"model_type": "qwen3"}
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": [56, 56],
    }
    context = tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>")
    config = InternVLConfig(text_config=text, vision_config=vision, image_token_id=context, image_seq_length=4)
    side = {"height": 56, "width": 56}
    template = TEMPLATE.replace("<|vision_start|><|image_pad|><|vision_end|>", "<IMG_CONTEXT>\\n")
    processor = InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=side, crop_to_patches=True),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=side),
        image_seq_length=4,
        chat_template=template.replace("<|vision_start|><|video_pad|><|vision_end|>", "<video>\\n"),
    )
    save(InternVLForConditionalGeneration, config, tokenizer, folder, seed)
    processor.save_pretrained(folder)
    return folder


def make_tokenizer(*, template: bool, special: dict[str, str] | None = None, texts: Sequence[str] = ()) -> Any:
    """One token a byte, and special tokens (of Qwen3-VL); a text that holds one of those is read as it.

    With ``texts`` it also learns their words: prompts become about four times shorter, and whole runs quick.
    """
    from transformers import PreTrainedTokenizerFast

    letters = sorted(ByteLevel.alphabet())
    model = Tokenizer(BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    model.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=bool(texts))
    if texts:
        model.train_from_iterator(texts, BpeTrainer(vocab_size=2000, initial_alphabet=letters, show_progress=False))
    model.decoder = ByteDecoder()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=special or [*CONTROL, *VISION],
        model_max_length=32768,
    )
    if template:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


def sizes(vocabulary: int) -> dict[str, Any]:
    """Of the language model."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 32768,
        "initializer_range": 0.5,  # else all tokens are nearly alike, and the prompt does not matter
        "tie_word_embeddings": True,
    }


def save(network: type, config: Any, tokenizer: Any, folder: Path, seed: int) -> None:
    """Random weights, and how to generate with them."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = network(config)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in (*CONTROL, *ENDINGS)}
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    model.generation_config.sequence_bias = [[[ids[token]], bias] for token, bias in ENDINGS.items()]
    model.save_pretrained(folder)
