"""Views of videos for prompts and scorers, and what is kept of videos and answers.

Four families of caches lie under ``$COVR_CACHE``, addressed by everything that can change a value and written whole or
not at all; ``tools/eval.py --cold`` starts all of them empty.

- Embeddings: ``galleries/``, one artifact for each part of an encoder (:mod:`covr_lab.gallery.store`). Address:
  weights, preprocessing, frames, reader, media. One that is missing or damaged is refused, with the command that
  makes it.
- Probes and selections: ``probes.sqlite`` holds the novelty of every clip's probes, by their pixels and the embedder.
  The selection of a :class:`NoveltyView` is an artifact as above; its address also knows rates, size of the probes,
  number of frames, mixing and version of the rule, that of a :class:`QualityView` its choice and number of
  frames. A damaged entry of the former is a miss.
- Predictions: ``generations/`` (:class:`~covr_lab.engines.CachedEngine`) and ``scores/`` (``CachedScorer``). Address:
  model, prompt or pair, sampling, and of every video media, indices of the frames, size and stamps. A damaged entry
  is a miss.
- Frame bundles: clips as prompts show them, in memory within a bound and, if wanted, in ``frames/``
  (:mod:`covr_lab.gallery.bundles`). Address: media, reader, indices, size and stamps. A damaged file is a miss.
"""

from covr_lab.views.base import FrameEmbedder, FrameView
from covr_lab.views.blip import BlipFrameEmbedder
from covr_lab.views.novelty import NoveltyView
from covr_lab.views.quality import FrameChoice, QualityFrames, QualityView
from covr_lab.views.uniform import UniformView

__all__ = [
    "BlipFrameEmbedder",
    "FrameChoice",
    "FrameEmbedder",
    "FrameView",
    "NoveltyView",
    "QualityFrames",
    "QualityView",
    "UniformView",
]
