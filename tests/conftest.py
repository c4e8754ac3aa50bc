"""Shared by all tests: no test reads or writes the user's caches, and a sentence encoder that needs no download."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

# Peers that compile: that takes a minute, what tests ask of them some milliseconds. Numba reads it when it is imported.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")


@pytest.fixture(scope="session", autouse=True)
def covr_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty cache folder for the whole session, also for fixtures of module scope; a test may set its own."""
    folder = tmp_path_factory.mktemp("covr_cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVR_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random BERT (2 layers, width 32). Its word pieces are characters: no ASCII word is unknown."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("tiny_encoder")
    letters = string.ascii_lowercase + string.digits
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation, *letters, *("##" + x for x in letters)]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    BertTokenizer(str(vocabulary), do_lower_case=True, model_max_length=512).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder
