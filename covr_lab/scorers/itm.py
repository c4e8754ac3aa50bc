"""Image-text matching by BLIP as a pair scorer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from covr_lab.functional.pooling import pool_mean
from covr_lab.gallery.gallery import Gallery
from covr_lab.retrievers.blip.encoder import BlipEncoder
from covr_lab.retrievers.blip.model import Blip
from covr_lab.retrievers.video import Part
from covr_lab.scorers.base import Pair, PairScorer
from covr_lab.types import Refused
from covr_lab.video.samplers import Middle, Uniform

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video import Clip

PART = "anchors"  # the name that BlipRetriever gives to tokens of one image: at one image both read one artifact


class ITMScorer(BlipEncoder, PairScorer):
    """Probability of BLIP's matching head that the text says what the candidate shows (dossier, section 3.2).

    The head reads a text over the visual tokens of one video, so the source of a pair plays no part: a description of
    the wanted video suits it better than an edit. Of several images all tokens are read, one image after the other.

    Args:
        blip: the model; it must have a matching head.
        images: images of a candidate (storyboards where BLIP has them); 1 is the middle frame, or one storyboard.
        batch: pairs whose tokens are in memory at once; changes no score.
    """

    def __init__(self, *, blip: Blip, images: int = 1, batch: int = 64) -> None:
        super().__init__()
        for key, value in {"images": images, "batch": batch}.items():
            if value < 1:
                raise ValueError(f"{key} must be 1 or more, not {value}")
        self.blip, self.images, self.batch = blip, images, batch
        cells = blip.storyboard**2
        single = images == 1 and cells == 1
        self.parts = {PART: Part("all", Middle() if single else Uniform(images * cells))}

    def load(self) -> None:
        """Load BLIP.

        Raises:
            Refused: its checkpoint has no matching head.
        """
        super().load()
        if not self.blip.can_match:
            raise Refused(f"model '{self.blip.model}' has no matching head (itm_head): name a checkpoint that has one")

    def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
        """Visual tokens ``(images * T, W)`` of each clip."""
        del name
        _, tokens = self.blip.images(torch.cat([self.blip.pixels(clip.frames) for clip in clips]))
        return list(tokens.reshape(len(clips), -1, tokens.shape[-1]).cpu())

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Open the visual tokens.

        Raises:
            Refused: they were not indexed, or there are no videos.
        """
        super().bind(gallery, videos)
        self.open(gallery, videos)
        self.videos = videos

    def reads(self, video: str) -> str:
        """Digest of the media and of the choice of frames."""
        assert self.videos is not None  # open() refuses it
        sampler = self.parts[PART].sampler.describe()
        return json.dumps([self.videos.digest([video]), sampler, self.videos.reader.fingerprint])

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Matching probabilities; NaN for a candidate that could not be read."""
        scores = [float("nan")] * len(pairs)
        for places, tokens in self._batches(pairs):
            logits = self.blip.match([pairs[place].text for place in places], tokens)
            matched = torch.sigmoid(logits[:, 1] - logits[:, 0])  # the softmax of two
            for place, value in zip(places, matched.tolist(), strict=True):
                scores[place] = value
        return scores

    def logits_and_similarities(self, pairs: Sequence[Pair]) -> list[tuple[float, float]]:
        """Logit of the matching class, and inner product of the text and the mean of the candidate's images.

        The second one is what :class:`~covr_lab.retrievers.composed.BlipRetriever` sorts descriptions by, on as many
        images of the same model. NaN for a candidate that could not be read.
        """
        found, known = [(float("nan"), float("nan"))] * len(pairs), dict[str, Tensor]()
        texts = list(dict.fromkeys(pair.text for pair in pairs))
        known.update(zip(texts, self.blip.texts(texts), strict=True))
        for places, tokens in self._batches(pairs):
            logits = self.blip.match([pairs[place].text for place in places], tokens)[:, 1]
            first = tokens.reshape(len(places), self.images, -1, tokens.shape[-1])[:, :, 0]
            videos = pool_mean(self.blip.embeddings(first))
            for place, logit, video in zip(places, logits.tolist(), videos, strict=True):
                found[place] = logit, float((known[pairs[place].text] * video).sum())
        return found

    def _batches(self, pairs: Sequence[Pair]) -> Iterator[tuple[list[int], Tensor]]:
        """Places of the pairs whose candidate could be read, a batch at a time, and tokens ``(B, images * T, W)``."""
        artifact = self.artifacts[PART]
        known = [place for place, pair in enumerate(pairs) if pair.candidate not in artifact.failed]
        for start in range(0, len(known), self.batch):
            places = known[start : start + self.batch]
            yield places, artifact.rows([pairs[place].candidate for place in places])
