"""The frozen BLIP: images, texts, and texts read together with an image."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from covr_lab.frozen import Frozen
from covr_lab.hub import local_path
from covr_lab.retrievers.blip.images import Frames, preprocess, squash
from covr_lab.retrievers.blip.presets import PRESETS, TOKENIZERS
from covr_lab.retrievers.blip.tokens import LENGTHS, TextReader, load_tokenizer, tiles
from covr_lab.retrievers.blip.weights import Checkpoint, build_network, read_checkpoint, towers
from covr_lab.types import Refused


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Fp32 whatever the trainer asks for: no autocast, no TF32 in the patch embedding's convolution."""
    exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
    with torch.autocast(device.type, enabled=False), exact:
        yield


def filled(part: Tensor, rows: int) -> Tensor:
    """``part`` with zero rows up to ``rows``: one shape for a full tile and for the last one."""
    tile = part.new_zeros(rows, *part.shape[1:])
    tile[: len(part)] = part
    return tile


def rowwise(head: nn.Linear, states: Tensor) -> Tensor:
    """A linear layer, each row by itself: a matrix product with two outputs rounds a row by its place in the batch.

    Args:
        head: ``W`` inputs, ``N`` outputs.
        states: ``(B, W)``.

    Returns:
        ``(B, N)``.
    """
    return (states.unsqueeze(1) * head.weight).sum(-1) + head.bias


class Blip(Frozen):
    """BLIP's image-text retrieval model (Li et al., ICML 2022), as CoVR (Ventura et al., AAAI 2024) uses it.

    Every pass has a fixed shape and runs in fp32: an item has the same bits alone, in any batch and in any order. A
    composed query is the text encoder's first state over the tokens of the reference image, with [ENC] in front; it is
    compared with the image embeddings of the gallery. A description is the same encoder's first state without an
    image, with [CLS] in front.

    Args:
        model: ``demo`` (in the package), ``blip-base-coco``, ``blip-large-coco``, a transformers folder, a checkpoint
            file of LAVIS, BLIP or CoVR (.pth, .ckpt, .safetensors), or one of these on the Hub
            (``hf://OWNER/NAME@REVISION/...``).
        tokenizer: ``bert-base-uncased``, a folder or a ``vocab.txt``, here or on the Hub; by default what lies in the
            model's folder.
        image_size: pixels of an input side; by default that of the checkpoint.
        storyboard: n; n * n consecutive frames are one image of n x n cells.
        max_words: words read of a text (CoVR's evaluator: 30), ``None`` for no such limit.
        max_length: tokens read of a text, [CLS] and [SEP] among them (IVR: 35); it is padded to the next of
            :data:`~covr_lab.retrievers.blip.tokens.LENGTHS`.
        separators: read "[SEP]" between the pieces of a text as BERT's separator token, as IVR does; else as its
            letters.
        heads: attention heads of the vision and the text tower; by default what the checkpoint says.
        vision_eps: epsilon of the vision layer norms; by default what the checkpoint says, for a file 1e-6.
        tile: images or texts that go through the network together; costs memory, and pays on a GPU.

    Attributes:
        width: entries of an embedding, D.
        side: pixels of an input side, S.
        summary: architecture in words.
        skipped: tensors of the checkpoint that only training needs.
        limits: what the weights are no good for, in words for people; "" for a release.
        can_match: whether the checkpoint has a matching head.
        fingerprint: sha256 of all that can change an output.
        image_fingerprint: sha256 of all that can change what is computed of images alone.
        libraries: those whose versions are part of it.
    """

    libraries: tuple[str, ...] = ("torch", "transformers", "pillow")
    network: Any

    def __init__(
        self,
        *,
        model: str,
        tokenizer: str | None = None,
        image_size: int | None = None,
        storyboard: int = 1,
        max_words: int | None = None,
        max_length: int = 64,
        separators: bool = False,
        heads: tuple[int, int] | None = None,
        vision_eps: float | None = None,
        tile: int = 8,
    ) -> None:
        super().__init__()
        if not 3 <= max_length <= LENGTHS[-1]:
            raise ValueError(f"max_length must be from 3 to {LENGTHS[-1]}, not {max_length}")
        for name, value in {"storyboard": storyboard, "tile": tile, "max_words": max_words or 1}.items():
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        preset = PRESETS.get(model)
        self.model, self.tokenizer = preset.model if preset else model, TOKENIZERS.get(tokenizer or "", tokenizer)
        self.limits = preset.limits if preset else ""
        self.vision_eps = preset.vision_eps if preset and vision_eps is None else vision_eps
        self.image_size, self.heads, self.separators = image_size, heads, separators
        self.storyboard, self.max_words, self.max_length, self.tile = storyboard, max_words, max_length, tile

    def load(self) -> None:
        """Read tokenizer and weights.

        Raises:
            Refused: see :func:`~covr_lab.retrievers.blip.weights.read_checkpoint` and
                :func:`~covr_lab.retrievers.blip.tokens.load_tokenizer`.
        """
        path = local_path(self.model)
        read = read_checkpoint(path, image_size=self.image_size, heads=self.heads, vision_eps=self.vision_eps)
        vision, text = towers(read.config)
        if self.tokenizer is None and not path.is_dir():
            raise Refused(f"model '{self.model}' has no tokenizer beside it: set tokenizer (BLIP: bert-base-uncased)")
        if text.max_position_embeddings < next(length for length in LENGTHS if length >= self.max_length):
            raise Refused(f"model '{self.model}' reads {text.max_position_embeddings} tokens: set max_length lower")
        tokenizer, enc_token = load_tokenizer(local_path(self.tokenizer) if self.tokenizer else path, text.vocab_size)
        self.reader = TextReader(tokenizer, enc_token, self.max_words, self.max_length, self.separators)
        self.network = self._build(read)
        self.width, self.side = int(self.network.vision_proj.out_features), cast("int", vision.image_size)
        self.can_match = hasattr(self.network, "itm_head")
        self.summary, self.skipped = read.summary, read.skipped
        self.image_fingerprint = self._fingerprint(read)
        texts = [self.image_fingerprint, self.reader.enc_token, self.max_words, self.max_length]
        texts += ["separators"] * self.separators
        words = self.reader.tokenizer.backend_tokenizer.to_str()
        self.fingerprint = hashlib.sha256(json.dumps([*texts, words]).encode()).hexdigest()
        self.freeze()

    def _fingerprint(self, read: Checkpoint) -> str:
        """sha256 of weights, sizes, preprocessing and libraries."""
        sizes = {key: value for key, value in read.config.to_dict().items() if key != "_name_or_path"}
        seen = ["pillow bicubic, squashed", self.storyboard]
        libraries = [version(name) for name in self.libraries]
        how = [type(self).__name__, 1, read.sha256, sizes, seen, self.tile, libraries]
        return hashlib.sha256(json.dumps(how, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def device(self) -> torch.device:
        """Where the network lies."""
        return cast("torch.device", self.network.vision_proj.weight.device)

    def resized(self, frames: Frames) -> Frames:
        """Frames uint8 ``(F, H, W, 3)`` at the size of a storyboard's cell; :meth:`pixels` of both are the same."""
        return squash(frames, self.side // self.storyboard)

    def pixels(self, frames: Frames) -> Tensor:
        """Input of :meth:`images`, float32 ``(M, 3, S, S)``, of M * storyboard² frames uint8 ``(F, H, W, 3)``."""
        return preprocess(frames, self.side, self.storyboard)

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are longer than the encoder reads."""
        return self.reader.truncated(texts)

    @torch.inference_mode()
    def images(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors float32 ``(M, D)`` and visual tokens float32 ``(M, T, W)`` of images ``(M, 3, S, S)``."""
        embeds, tokens = [], []
        for start in range(0, max(len(pixels), 1), self.tile):
            part = pixels[start : start + self.tile].to(self.device, torch.float32)
            with full_precision(self.device):
                states = self._see(filled(part, self.tile))
                embeds.append(rowwise(self.network.vision_proj, states[: len(part), 0]))
            tokens.append(states[: len(part)])
        return normalize(torch.cat(embeds), dim=-1), torch.cat(tokens)

    @torch.inference_mode()
    def embeddings(self, states: Tensor) -> Tensor:
        """Unit vectors float32 ``(..., D)`` of first visual tokens ``(..., W)``: those that :meth:`images` gives."""
        flat = states.reshape(-1, states.shape[-1]).to(self.device, torch.float32)
        with full_precision(self.device):
            found = normalize(rowwise(self.network.vision_proj, flat), dim=-1)
        return found.reshape(*states.shape[:-1], -1)

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors float32 ``(B, D)`` of descriptions."""
        return normalize(self._first_states(texts, self.network.text_proj, None), dim=-1)

    def composed(self, texts: Sequence[str], tokens: Tensor) -> Tensor:
        """Unit vectors float32 ``(B, D)`` of edits, each read over the visual tokens of its reference.

        Args:
            texts: B edits.
            tokens: ``(B, T, W)`` of :meth:`images`; for several frames their tokens one after another. All are read:
                transformers 5.24 drops the mask of BLIP's cross-attention, so references with fewer tokens go in a call
                of their own.
        """
        return normalize(self._first_states(texts, self.network.text_proj, tokens), dim=-1)

    def match(self, texts: Sequence[str], tokens: Tensor) -> Tensor:
        """Logits float32 ``(B, 2)`` of the matching head; column 1 says that text and image belong together.

        Raises:
            Refused: the checkpoint has no matching head.
        """
        if not self.can_match:
            raise Refused(f"model '{self.model}' has no matching head (itm_head): name a checkpoint that has one")
        return self._first_states(texts, self.network.itm_head, tokens)

    @torch.inference_mode()
    def _first_states(self, texts: Sequence[str], head: nn.Linear, tokens: Tensor | None) -> Tensor:
        """``head`` of the text encoder's first state, float32 ``(B, N)``."""
        found = torch.empty(len(texts), head.out_features, device=self.device)
        ids = self.reader.ids(texts, grounded=tokens is not None)
        for places, padded, attended in tiles(ids, self.tile, self.reader.pad):
            seen = None
            if tokens is not None:
                seen = filled(tokens[places].to(self.device, torch.float32), self.tile)
            with full_precision(self.device):
                states = self._read(padded.to(self.device), attended.to(self.device), seen)
                found[places] = rowwise(head, states[: len(places), 0])
        return found

    def _build(self, read: Checkpoint) -> nn.Module:
        """The network: two encoders, ``vision_proj``, ``text_proj``, and ``itm_head`` where the checkpoint has one."""
        return build_network(read)

    def _see(self, pixels: Tensor) -> Tensor:
        """Visual tokens ``(tile, T, W)`` after the last norm."""
        states: Tensor = self.network.vision_model(pixel_values=pixels).last_hidden_state
        return states

    def _read(self, ids: Tensor, attended: Tensor, tokens: Tensor | None) -> Tensor:
        """States of the text encoder ``(tile, L, W)``, with cross-attention where there are visual tokens."""
        states: Tensor = self.network.text_encoder(
            input_ids=ids, attention_mask=attended, encoder_hidden_states=tokens
        ).last_hidden_state
        return states
