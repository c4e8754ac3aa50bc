"""Frames that show something new, chosen once for each video (CoVRAGE, equation 6; dossier, section 2.6)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from covr_lab.functional.novelty import RATES, SELECTOR, Rates, Steps, novelty, select
from covr_lab.functional.sampling import Indices
from covr_lab.gallery.cache import VectorCache, cache_dir
from covr_lab.gallery.store import library_versions
from covr_lab.retrievers.video import Part
from covr_lab.types import SessionError
from covr_lab.video.overlay import fit
from covr_lab.video.samplers import Probes
from covr_lab.views.base import FrameEmbedder
from covr_lab.views.selection import SelectionView
from covr_lab.views.uniform import check_look

if TYPE_CHECKING:
    from covr_lab.video import Clip
    from covr_lab.video.base import Frames

PROBED: Final = 1  # another number: other values of the same vectors


class NoveltyView(SelectionView):
    """Frames at the quantiles of a clip's novelty; no query changes them, and ``tools/index.py`` computes them.

    Views that differ in ``side`` and ``timestamps`` alone share one artifact. An embedder that is also a retriever is
    indexed as one: with the settings of the recipe's retriever nothing is computed twice.

    Args:
        embedder: sees the probes, single frames without stamps.
        frames: how many to show; a clip with fewer probes shows all of them.
        side: pixels that the longer side may have in the prompt, ``None`` for any.
        timestamps: print the time of each frame into it.
        mixing: share of the weights that novelty has (lambda); the rest is equal for all probes.
        rates: pairs (from this many seconds on, probes a second), ascending from 0; a clip without a clock is probed at
            every frame.
        probe_side: pixels that the longer side of a probe may have.
    """

    def __init__(
        self,
        *,
        embedder: FrameEmbedder,
        frames: int = 15,
        side: int | None = 256,
        timestamps: bool = False,
        mixing: float = 1.0,
        rates: Rates = RATES,
        probe_side: int = 256,
    ) -> None:
        super().__init__()
        check_look(frames, side)
        check_look(frames, probe_side)
        if not 0 <= mixing <= 1:
            raise ValueError(f"mixing is a share between 0 and 1, not {mixing}")
        self.embedder, self.frames, self.mixing = embedder, frames, mixing
        self.side, self.timestamps = side, timestamps
        self.parts = {"selection": Part("all", Probes(rates, probe_side))}

    def load(self) -> None:
        """Load the embedder; what is known of probes lies in a cache, for views that show more frames or others."""
        self.embedder.load()
        versions = library_versions()
        self.cache = VectorCache(cache_dir() / "probes.sqlite", _digest(PROBED, self.embedder.fingerprint, versions), 0)

    @property
    def fingerprint(self) -> str:
        """sha256 of embedder, rule and how frames are shown."""
        return _digest(self.row_fingerprint, self.parts["selection"].sampler.describe(), self.side, self.timestamps)

    @property
    def row_fingerprint(self) -> str:
        """sha256 of embedder and rule; how often and how large is probed stands in the artifact's address."""
        return _digest("novelty", SELECTOR, self.embedder.fingerprint, self.frames, self.mixing)

    def prepare(self, name: str, clip: Clip) -> Clip:
        """Probes at their size, also from a reader that does not scale."""
        return replace(clip, frames=fit(clip.frames, self.parts[name].sampler.side))

    def choose(self, video: str, clip: Clip) -> Indices | str:
        """Native indices of the frames that show something new, or why the probes cannot be embedded."""
        del video
        # In a damaged clip one frame may stand for several probes: it is one probe.
        positions, places = np.unique(clip.indices, return_index=True)
        try:
            return select(self._novelty(clip.frames[places]), positions, self.frames, self.mixing)
        except (SessionError, ValueError) as error:
            return f"its probes cannot be embedded: {error}"
        except torch.cuda.OutOfMemoryError:
            return f"its {len(positions)} probes do not fit into memory: lower rates or probe_side"

    def _novelty(self, probes: Frames) -> Steps:
        """Novelty float32 ``(M,)`` of probes uint8 ``(M, H, W, 3)``, embedded unless these very pixels were before."""
        key = hashlib.sha256(f"{probes.shape} ".encode() + probes.tobytes()).hexdigest()
        self.cache.width = len(probes)  # one table for clips of all lengths
        known = self.cache.get([key]).get(key)
        if known is not None and ((known >= 0) & (known < 3)).all():  # what no cosine gives is malformed
            return known
        found = novelty(self.embedder.embed_frames(probes).float().cpu().numpy())
        self.cache.put({key: found})
        return found


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
