"""Caption proxies: a sentence embedding plus seeded noise stands for a video that is not there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from covr_lab.retrievers.base import Retriever
from covr_lab.retrievers.sentence import PACKAGED, SentenceEncoder
from covr_lab.types import SessionError


def seeded_noise(video: str, width: int, seed: int) -> Tensor:
    """Standard normal float32 ``(width,)`` that depends on the video id and the seed only.

    >>> bool(torch.equal(seeded_noise("a/1", 4, 0), seeded_noise("a/1", 4, 0)))
    True
    """
    digest = hashlib.sha256(f"{seed}|{video}".encode()).digest()
    return torch.from_numpy(np.random.default_rng(int.from_bytes(digest[:8])).standard_normal(width, dtype=np.float32))


class CaptionProxy(Retriever):
    """Retrieval over captions of an annotation file (dossier, section 9); no video is seen.

    A video is ``normalise(e + noise * n / sqrt(D))`` with ``e`` the embedding of its caption and ``n`` one seeded
    normal draw. A composed query is the normalised weighted sum of the anchor's vector and the embedding of the text.
    Where a video has several captions, one a line, ``e`` may be the unit mean of their embeddings.

    Args:
        model: sentence encoder: ``packaged-minilm``, a folder, or a hub name.
        max_length: tokens read of a text; longer ones are cut and recorded.
        noise: relative norm of the noise; 1.6 puts turn 0 of WebVid-CoVR-Test where frozen BLIP has it.
        noise_seed: which draw.
        anchor_weight: share of the anchor in a composed query.
        lines: a caption of several lines is ``one`` text, or each line is a caption and the video their ``mean``.
    """

    proxy = "caption proxies: captions with seeded noise stand for videos, no video was seen"

    def __init__(
        self,
        *,
        model: str = PACKAGED,
        max_length: int = 256,
        noise: float = 1.6,
        noise_seed: int = 0,
        anchor_weight: float = 0.5,
        lines: Literal["one", "mean"] = "one",
    ) -> None:
        super().__init__()
        if not noise:
            self.proxy = "caption proxies: captions stand for videos, no video was seen"
        self.encoder = SentenceEncoder(model, max_length)
        self.noise, self.noise_seed, self.anchor_weight, self.lines = noise, noise_seed, anchor_weight, lines

    def load(self) -> None:
        """Load the sentence encoder."""
        self.encoder.load()

    @property
    def fingerprint(self) -> str:
        """That of the sentence encoder."""
        return self.encoder.cache.fingerprint

    def encode_videos(self, videos: Sequence[str]) -> Tensor:
        """Unit vectors ``(B, D)``; a video without a caption is a :class:`SessionError`."""
        for video in videos:
            if not self.gallery.caption(video).strip():
                raise SessionError(f"video '{video}' has no caption: name its caption column in `data`")
        clean = self._described([self.gallery.caption(video) for video in videos])
        if not self.noise or not len(clean):
            return clean
        noise = torch.stack([seeded_noise(video, clean.shape[1], self.noise_seed) for video in videos])
        return normalize(clean + self.noise / clean.shape[1] ** 0.5 * noise.to(clean.device), dim=1)

    def _described(self, captions: Sequence[str]) -> Tensor:
        """Unit vectors ``(B, D)`` of captions that are not empty."""
        if self.lines == "one":
            whole: Tensor = self.encoder(captions)
            return whole
        lines = [[line for line in caption.split("\n") if line.strip()] for caption in captions]
        vectors: Tensor = self.encoder([line for each in lines for line in each])
        means = [part.mean(0) for part in torch.split(vectors, [len(each) for each in lines])]
        return normalize(torch.stack(means), dim=1) if means else vectors

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        """Unit vectors ``(B, D)``: the text, or the weighted sum of anchor and text; an empty text adds nothing."""
        vectors: Tensor = self.encoder(texts)
        videos = list(dict.fromkeys(anchor for anchor in anchors if anchor is not None))
        anchored = dict(zip(videos, self.encode_videos(videos), strict=True))
        for row, (text, anchor) in enumerate(zip(texts, anchors, strict=True)):
            if anchor is not None:
                share = self.anchor_weight if text else 1.0
                vectors[row] = normalize(share * anchored[anchor] + (1 - share) * vectors[row], dim=0)
        return vectors

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are longer than the encoder reads."""
        return self.encoder.truncated(texts)
