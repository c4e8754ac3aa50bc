"""An encoder that sees colours and nothing else, and clips for it; ``python -m tests.gallery.toy`` indexes them."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from covr_lab.gallery.build import Indexed, index
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.recipe import Machine
from covr_lab.retrievers.video import Part, VideoRetriever
from covr_lab.video import Clip, Middle, PyAVReader, Uniform, VideoReader

TILE = 4  # clips encoded together


class MeanColour(VideoRetriever):
    """Mean colour of each frame through a fixed random projection.

    Args:
        seed: of the projection.
        pause: seconds that every clip takes.
    """

    def __init__(self, *, seed: int = 0, pause: float = 0.0) -> None:
        super().__init__()
        self.parts = {"gallery": Part("gallery", Uniform(3)), "anchors": Part("all", Middle())}
        self.seed, self.pause = seed, pause
        self.seen: list[int] = []  # clips of each call

    def load(self) -> None:
        weights = torch.randn(3, 8, generator=torch.Generator().manual_seed(self.seed))
        self.projection = nn.Parameter(weights)

    @property
    def fingerprint(self) -> str:
        return f"mean colour {self.projection.detach().numpy().tobytes().hex()}"

    def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
        self.seen.append(len(clips))
        time.sleep(self.pause * len(clips))
        colours = torch.stack([torch.from_numpy(clip.frames).float().mean((1, 2)) / 255 for clip in clips])
        rows: list[Tensor] = []
        for part in colours.split(TILE):
            tile = torch.zeros(TILE, *part.shape[1:])
            tile[: len(part)] = part
            rows += normalize(tile @ self.projection, dim=2)[: len(part)]
        return rows if name == "gallery" else [row[0] for row in rows]

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        return torch.cat([self.artifacts["anchors"].rows([anchor]) for anchor in anchors if anchor is not None])


def write_clip(path: Path, seed: int, frames: int = 6, size: int = 64) -> Path:
    """A clip of one colour a seed, brighter from frame to frame."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = np.random.default_rng(seed).uniform(20, 180, 3)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=5, options={"crf": "18"})
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        for number in range(frames):
            image = np.full((size, size, 3), colour + 10 * number).astype(np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, "rgb24")))
        file.mux(stream.encode())
    return path


def world(folder: Path, gallery: int = 8, references: int = 3) -> tuple[list[str], list[str]]:
    """Clips of gallery and reference videos; returns their ids."""
    ids = [f"{number % 2}/{number:03d}{'r' * (number >= gallery)}" for number in range(gallery + references)]
    for number, video in enumerate(ids):
        write_clip(folder / f"{video}.mp4", number)
    return known(folder)


def clip_file(folder: Path, video: str) -> Path:
    return folder / f"{video}.mp4"


def store(folder: Path, references: Sequence[str] = (), reader: VideoReader | None = None) -> VideoStore:
    return VideoStore(partial(clip_file, folder), reader or PyAVReader(), references)


def run(retriever: VideoRetriever, ids: Sequence[str], videos: VideoStore, **options: Any) -> list[Indexed] | None:
    """Index in this process, or on ``devices`` of them."""
    machine = Machine(accelerator="cpu", devices=options.pop("devices", 1))
    options = {"batch_size": 3, "workers": 0, **options}
    return index(nn.ModuleDict({"colour": retriever}), Gallery.of(ids, {}), videos, machine, **options)


def known(folder: Path) -> tuple[list[str], list[str]]:
    """Ids of gallery and references, as :func:`world` wrote them."""
    ids = sorted(path.relative_to(folder).as_posix().removesuffix(".mp4") for path in folder.rglob("*.mp4"))
    return [video for video in ids if not video.endswith("r")], [video for video in ids if video.endswith("r")]


def index_known(folder: Path, cache: Path, devices: int = 1, pause: float = 0.0) -> None:
    """What ``tools/index.py`` does, for these clips."""
    os.environ["COVR_CACHE"] = str(cache)
    gallery, references = known(folder)
    for report in run(MeanColour(pause=pause), gallery, store(folder, references), devices=devices) or ():
        print(report)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--devices", type=int)
    index_known(**vars(parser.parse_args()))
