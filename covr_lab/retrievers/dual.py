"""CLIP and SigLIP 2: images and texts in one space, a composed query halfway between an edit and its anchor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from covr_lab.functional.pooling import pool_mean
from covr_lab.gallery.store import library_versions
from covr_lab.retrievers.backbone import Backbone, load_backbone, source_of
from covr_lab.retrievers.blip.model import full_precision
from covr_lab.retrievers.video import Part, VideoRetriever
from covr_lab.video.samplers import Uniform
from covr_lab.views.base import FrameEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable

    from covr_lab.video import Clip
    from covr_lab.video.base import Frames

# What the text tower reads. SigLIP was trained on padding that is attended: no mask, and always its full length.
TEXT_INPUTS = {"clip": ("input_ids", "attention_mask"), "siglip": ("input_ids",), "siglip2": ("input_ids",)}


class DualEncoder(FrameEmbedder):
    """An image and a text tower of transformers: CLIP (Radford et al., ICML 2021), SigLIP, SigLIP 2, in fp32.

    Every pass has a fixed shape: an image or text has the same bits alone, in any batch and in any order.

    Args:
        model: folder with a saved model and its processor, or OWNER/NAME on the Hub together with ``revision``.
        revision: commit on the Hub (40 digits); nothing is fetched without it, nor where ``model`` is a folder.
        tile: images or texts that go through the network together; costs memory, and pays on a GPU.

    Attributes:
        max_length: tokens read of a text.
        fingerprint: sha256 of weights, processor and libraries; there before :meth:`load`.
    """

    network: Any

    def __init__(self, *, model: str, revision: str | None = None, tile: int = 8) -> None:
        super().__init__()
        if tile < 1:
            raise ValueError(f"tile must be 1 or more, not {tile}")
        self.source, self.tile = source_of(model, revision, "float32", "sdpa"), tile
        self._loaded: Backbone | None = None

    @property
    def fingerprint(self) -> str:
        """sha256 of weights, processor and libraries."""
        how = ["dual", 1, self.source.identity, self.tile, library_versions()]
        return hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()

    def load(self) -> None:
        """Read weights and processor, once.

        Raises:
            Refused: see :func:`~covr_lab.retrievers.backbone.load_backbone`.
        """
        if self._loaded is not None:
            return
        loaded = load_backbone(self.source, TEXT_INPUTS, "a CLIP or SigLIP 2 model")
        self._loaded, self.network, self.processor = loaded, loaded.module, loaded.processor
        self.processor.tokenizer.padding_side = "right"  # both towers were trained so; not every tokenizer says it
        self.max_length = int(self.network.config.text_config.max_position_embeddings)
        self.freeze()

    def embed_frames(self, frames: Frames) -> Tensor:
        """Unit vectors float32 ``(F, D)``, on the CPU."""
        read = self.processor.image_processor(
            images=list(frames), input_data_format="channels_last", return_tensors="pt"
        )
        return self._tiled(self.network.get_image_features, read)

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors float32 ``(B, D)``, on the CPU; longer texts are cut to ``max_length`` tokens."""
        options: dict[str, Any] = {"padding": "max_length", "truncation": True, "max_length": self.max_length}
        read = self.processor.tokenizer(list(texts), return_attention_mask=True, return_tensors="pt", **options)
        names = TEXT_INPUTS[self.network.config.model_type]
        return self._tiled(self.network.get_text_features, {name: read[name] for name in names})

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts have more than ``max_length`` tokens."""
        return [len(self.processor.tokenizer(text).input_ids) > self.max_length for text in texts]

    @torch.inference_mode()
    def _tiled(self, tower: Callable[..., Any], read: Mapping[str, Tensor]) -> Tensor:
        """Unit outputs of a tower, the last tile filled with copies of its last row."""
        device, found = next(self.network.parameters()).device, list[Tensor]()
        count = len(next(iter(read.values())))
        for start in range(0, count, self.tile):
            rows = [min(row, count - 1) for row in range(start, start + self.tile)]
            with full_precision(device):
                outputs = tower(**{name: value[rows].to(device) for name, value in read.items()}).pooler_output
            found.append(normalize(outputs.float(), dim=-1).cpu())
        return torch.cat(found)[:count]


class DualEncoderRetriever(VideoRetriever):
    """Retrieval by CLIP or SigLIP 2: a video is the mean of its frames.

    A composed query is the unit sum of the edit's vector and the anchor's, weighted: the "avg" rows of the tables of
    composed video retrieval.

    Args:
        encoder: the model.
        frames: of a video, at uniform segment midpoints.
        text_weight: weight of the edit in a composed query, the anchor has the rest: 0 is the video alone, 1 the text.
    """

    def __init__(self, *, encoder: DualEncoder, frames: int = 15, text_weight: float = 0.5) -> None:
        super().__init__()
        if not 0 <= text_weight <= 1:
            raise ValueError(f"text_weight must be in [0, 1], not {text_weight}")
        self.encoder, self.text_weight = encoder, text_weight
        self.parts = {"gallery": Part("all", Uniform(frames))}  # with the references: their rows are their anchors

    def load(self) -> None:
        """Load the model."""
        self.encoder.load()

    @property
    def row_fingerprint(self) -> str:
        """That of the model."""
        return self.encoder.fingerprint

    @property
    def fingerprint(self) -> str:
        """That of the model and of the weight."""
        return hashlib.sha256(f"{self.encoder.fingerprint} {self.text_weight}".encode()).hexdigest()

    def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
        """Unit means ``(D,)`` of the frames."""
        del name
        return [pool_mean(self.encoder.embed_frames(clip.frames).unsqueeze(0))[0] for clip in clips]

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        """Unit vectors ``(B, D)``: descriptions where there is no anchor, composed queries where there is one."""
        said = self.encoder.texts(texts)
        rows = [  # one by one: a batch changes no bit
            vector if anchor is None else self._between(vector, self.encode_videos([anchor])[0])
            for vector, anchor in zip(said, anchors, strict=True)
        ]
        return (torch.stack(rows) if rows else said).to(next(self.encoder.network.parameters()).device)

    def _between(self, said: Tensor, seen: Tensor) -> Tensor:
        return normalize(self.text_weight * said + (1 - self.text_weight) * seen, dim=0)

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are longer than the model reads."""
        return self.encoder.truncated(texts)
