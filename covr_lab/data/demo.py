"""The demo world: generated clips of moving shapes, rendered to mp4 files on first use."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from covr_lab.data.base import Triplet, TripletDataModule
from covr_lab.demo import wording
from covr_lab.demo.render import RENDERER, write_clip
from covr_lab.demo.world import World, make_world
from covr_lab.gallery.cache import cache_dir


def rendered(world: World) -> Path:
    """Where the clips of ``world`` lie by default: another scene, renderer or encoder is another folder."""
    made = hashlib.sha256(repr((RENDERER, version("av"), sorted(world.clips.items()))).encode()).hexdigest()[:16]
    return cache_dir() / "demo" / made


class DemoWorld(TripletDataModule):
    """The test split of the demo world: families of near-duplicate clips, references beside the gallery.

    Its captions are true, so they are for the simulated user alone: a system knows of a clip what a model sees in it.

    Args:
        families: each has four gallery clips, and two queries with a reference.
        seed: another seed is another world.
        folder: where the clips are rendered, by default below the cache folder; files that are there are kept.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    proxy = "demo world: generated clips and a toy model, to compare systems with each other and with nothing published"

    def __init__(self, *, families: int = 150, seed: int = 0, folder: str | None = None, **options: Any) -> None:
        if not 1 <= families <= 1000:
            raise ValueError(f"data.families must be from 1 to 1000, not {families}")
        self.world = make_world("test", families=families, seed=seed)
        super().__init__(videos_dir=folder or str(rendered(self.world)), system_captions=False, **options)

    @property
    def gallery_name(self) -> str:
        """Which videos are searched, for the record."""
        return "all test clips"

    @property
    def captions(self) -> dict[str, str]:
        """Video id -> true caption, of every clip."""
        return self.world.captions

    def gallery_ids(self) -> set[str]:
        """Every clip of the gallery; half of them are targets."""
        return set(self.world.gallery)

    def read(self) -> list[Triplet]:
        """The queries of the world."""
        captions = self.world.captions
        return [
            Triplet(q.session_id, q.reference_id, q.target_id, q.edit, captions[q.reference_id], captions[q.target_id])
            for q in self.world.queries
        ]

    def setup(self, stage: str) -> None:
        """Render the clips that are not there, then check everything."""
        assert self.videos_dir is not None
        left = [video for video in self.world.clips if not self.media_path(video).exists()]
        seconds = 0.5 if sys.stderr.isatty() else 10.0  # a log file needs few lines
        for video in tqdm(left, desc="rendering", unit=" clips", disable=len(left) < 50, mininterval=seconds):
            path = self.media_path(video)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.stem}.{os.getpid()}.mp4")
            write_clip(self.world.clips[video], part)
            part.replace(path)
        super().setup(stage)


class DemoText(DemoWorld):
    """The same world asked in words alone: each query describes a target, there is no reference.

    Args:
        share: how likely a query names each attribute of its target; at 1 it names all of them.
        options: see :class:`DemoWorld`.
    """

    def __init__(self, *, share: float = 1.0, **options: Any) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"data.share must be above 0 and at most 1, not {share}")
        super().__init__(**options)
        self.share = share

    def read(self) -> list[Triplet]:
        """A query for each target, in words of its own."""
        return [self._described(query.session_id, query.target_id) for query in self.world.queries]

    def _described(self, session: str, target: str) -> Triplet:
        rng = random.Random(f"{session} {target} {self.share}")
        said = wording.say(rng, wording.part(rng, wording.whole(self.world.clips[target]), self.share))
        return Triplet(session, None, target, said, target_caption=self.world.captions[target])
