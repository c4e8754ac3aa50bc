"""Sharp frames that differ from each other (UMIVR's TQFS; dossier, section 5): for galleries, captions and prompts."""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch

from covr_lab.frozen import Frozen
from covr_lab.functional.quality import SELECTOR, best_of_clusters, candidates, evenly, sharpness
from covr_lab.functional.sampling import Indices, uniform
from covr_lab.retrievers.video import Part
from covr_lab.types import Refused, SessionError
from covr_lab.video.overlay import fit
from covr_lab.video.samplers import FrameSampler, Probes
from covr_lab.views.base import FrameEmbedder
from covr_lab.views.selection import SelectionView
from covr_lab.views.uniform import check_look

if TYPE_CHECKING:
    from covr_lab.video import Clip

_log = logging.getLogger(__name__)


class FrameChoice(Frozen, ABC):
    """Which frames of a clip a model reads, by what they show; no query changes them.

    Attributes:
        sampler: the frames to choose from.
    """

    sampler: FrameSampler

    @abstractmethod
    def load(self) -> None:
        """Bring weights into memory."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256 of the weights and of the rule, without the sampler."""

    @abstractmethod
    def choose(self, video: str, clip: Clip, count: int) -> Indices:
        """Places in the clip that ``sampler`` read: int64 ``(at most count,)``, strictly ascending, one at least."""

    def pick(self, video: str, clip: Clip, count: int) -> Clip:
        """The chosen frames as a clip."""
        return _only(clip, self.choose(video, clip, count))

    def fill(self, video: str, clip: Clip, count: int) -> Clip:
        """Exactly ``count`` chosen frames: where there are fewer they repeat, in order, as those of a short clip do."""
        places = self.choose(video, clip, count)
        return _only(clip, places[uniform(len(places), count)])


def _only(clip: Clip, places: Indices) -> Clip:
    seconds = None if clip.seconds is None else clip.seconds[places]
    return replace(clip, frames=clip.frames[places], indices=clip.indices[places], seconds=seconds)


class QualityFrames(FrameChoice):
    """The sharpest frame of each time bin, then of each cluster of those; needs the extra ``quality``.

    Where nothing can be clustered (a clip with one candidate alone, frames that cannot be embedded), frames are taken
    evenly, as UMIVR does, and a warning names video and reason.

    Args:
        embedder: sees the sharpest frame of each bin. In the paper CLIP.
        rate: frames a second to look at; of a clip without a clock all.
        side: pixels of the longer side above which frames are scaled down before anything looks at them, for the sake
            of memory; UMIVR does not.
    """

    def __init__(self, *, embedder: FrameEmbedder, rate: float = 5.0, side: int = 640) -> None:
        super().__init__()
        check_look(1, side)
        if find_spec("sklearn") is None:
            raise Refused("QualityFrames needs the extra `quality`: pip install 'covr_lab[quality]'")
        self.embedder = embedder
        self.sampler = Probes(((0.0, rate),), side)

    def load(self) -> None:
        """Load the embedder."""
        self.embedder.load()

    @property
    def fingerprint(self) -> str:
        """sha256 of embedder and rule."""
        return hashlib.sha256(json.dumps(["quality", SELECTOR, self.embedder.fingerprint]).encode()).hexdigest()

    def choose(self, video: str, clip: Clip, count: int) -> Indices:
        """See :class:`FrameChoice`; several places of one native frame, in a damaged clip, count as one."""
        _, places = np.unique(clip.indices, return_index=True)
        times = (clip.indices.astype(np.float64) if clip.seconds is None else clip.seconds)[places]
        seen = fit(clip.frames[places], self.sampler.side)  # also from a reader that does not scale
        quality = sharpness(seen)
        best = candidates(quality, times, count)
        why = f"only {len(best)} of its {len(places)} can be chosen" if len(best) < 2 else ""
        try:
            if not why:
                vectors = self.embedder.embed_frames(seen[best]).float().cpu().numpy()
                return places[best[best_of_clusters(quality[best], vectors, min(count, len(best)))]]
        except torch.cuda.OutOfMemoryError:
            why = "they do not fit into memory: lower side"
        except (SessionError, ValueError) as error:
            why = f"they cannot be told apart: {error}"
        if len(places) > 1:
            _log.warning("video '%s': frames are taken evenly, not by quality: %s", video, why)
        return places[evenly(len(places), count)]


class QualityView(SelectionView):
    """Frames of a :class:`FrameChoice` for prompts, chosen once for each video by ``tools/index.py``.

    Args:
        choice: which frames.
        frames: how many to show at most.
        side: pixels that the longer side may have in the prompt, ``None`` for any.
        timestamps: print the time of each frame into it.
    """

    def __init__(
        self, *, choice: FrameChoice, frames: int = 8, side: int | None = 512, timestamps: bool = False
    ) -> None:
        super().__init__()
        check_look(frames, side)
        self.choice, self.frames, self.side, self.timestamps = choice, frames, side, timestamps
        self.parts = {"selection": Part("all", choice.sampler)}

    def load(self) -> None:
        """Load what the choice needs."""
        self.choice.load()

    @property
    def fingerprint(self) -> str:
        """sha256 of the choice and of how frames are shown."""
        shown = [self.row_fingerprint, self.choice.sampler.describe(), self.side, self.timestamps]
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()

    @property
    def row_fingerprint(self) -> str:
        """sha256 of the choice; the frames that it looks at stand in the artifact's address."""
        return hashlib.sha256(json.dumps([self.choice.fingerprint, self.frames]).encode()).hexdigest()

    def choose(self, video: str, clip: Clip) -> Indices | str:
        """Native indices of the chosen frames."""
        return clip.indices[self.choice.choose(video, clip, self.frames)]
