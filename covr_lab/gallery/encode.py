"""Clips in, rows out: the data set, the module and the callbacks that encode videos under ``trainer.predict``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm

from covr_lab.gallery.store import DTYPES, Address, is_finished, outcomes, write_shard
from covr_lab.gallery.videos import VideoStore
from covr_lab.retrievers.video import VideoEncoder
from covr_lab.types import SessionError
from covr_lab.video import Clip


@dataclass(frozen=True)
class Job:
    """One artifact to make: a part of an encoder."""

    name: str
    encoder: VideoEncoder
    part: str
    address: Address

    def left(self) -> list[str]:
        """Videos of which nothing is known yet."""
        if is_finished(self.address):
            return []
        known = outcomes(self.address.folder)
        return [video for video in self.address.ids if video not in known]


@dataclass
class Seconds:
    """Time spent on videos: read and prepared in all workers together, encoded in this process, ``wall`` clock."""

    read: float = 0.0
    prepared: float = 0.0
    encoded: float = 0.0
    wall: float = 0.0

    def add(self, other: Seconds) -> None:
        """Sum up."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True)
class Decoded:
    """One video on its way to an encoder: its clip, or the reason why there is none."""

    job: int
    video: str
    clip: Clip | None = None
    reason: str = ""
    seconds: Seconds = field(default_factory=Seconds)


class ClipBatch:
    """Videos of one batch, a plain class with its own ``to`` (Lightning refuses frozen dataclasses inside a batch)."""

    def __init__(self, items: list[Decoded]) -> None:
        self.items = items

    def to(self, device: object) -> ClipBatch:
        """This batch: encoders move what they need."""
        del device
        return self


class Clips(Dataset[Decoded]):
    """Videos read when they are needed, in the worker that was asked for them; a failure is a value."""

    def __init__(self, work: Sequence[tuple[int, str]], jobs: Sequence[Job], videos: VideoStore) -> None:
        self.work, self.jobs, self.videos = work, jobs, videos

    def __len__(self) -> int:
        return len(self.work)

    def __getitem__(self, index: int) -> Decoded:
        number, video = self.work[index]
        job, start = self.jobs[number], time.perf_counter()
        try:
            clip = self.videos.clip(video, job.encoder.parts[job.part].sampler)
            read = time.perf_counter()
            clip = job.encoder.prepare(job.part, clip)
        except (SessionError, OSError) as error:
            return Decoded(number, video, None, str(error), Seconds(time.perf_counter() - start))
        return Decoded(number, video, clip, "", Seconds(read - start, time.perf_counter() - read))


@dataclass(frozen=True)
class Encoded:
    """Rows and failures of one job in one batch."""

    job: int
    rows: dict[str, Tensor]
    failed: dict[str, str]
    seconds: Seconds


class GalleryEncoder(LightningModule):
    """Encodes clips under ``trainer.predict``; no collective happens inside."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__()
        self.jobs = jobs
        self.encoders = nn.ModuleList(dict.fromkeys(job.encoder for job in jobs))

    def predict_step(self, batch: ClipBatch, batch_idx: int = 0) -> list[Encoded]:
        """What became of each video, job by job."""
        numbers = dict.fromkeys(item.job for item in batch.items)
        return [self._encode(number, [item for item in batch.items if item.job == number]) for number in numbers]

    def _encode(self, number: int, items: Sequence[Decoded]) -> Encoded:
        job, start = self.jobs[number], time.perf_counter()
        clips = {item.video: item.clip for item in items if item.clip is not None}
        found = job.encoder.encode_clips(job.part, clips) if clips else {}
        failed = {item.video: item.reason for item in items if item.clip is None}
        rows = dict[str, Tensor]()
        for video, row in found.items():
            if isinstance(row, str):
                failed[video] = row
            elif row.dtype not in DTYPES:
                raise TypeError(f"{job.name} gave {row.dtype} for video '{video}', not float32 or uint8")
            elif not bool(row.isfinite().all()):
                failed[video] = f"{job.name} made NaN or infinity of it"
            else:
                rows[video] = row.cpu()
        seconds = Seconds(encoded=time.perf_counter() - start)
        for item in items:
            seconds.add(item.seconds)
        return Encoded(number, rows, failed, seconds)


class ShardWriter(BasePredictionWriter):
    """Writes every batch as it comes; each process writes its own."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__("batch")
        self.jobs = jobs

    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        prediction: list[Encoded],
        batch_indices: Sequence[int] | None,
        batch: object,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Write what became of one batch."""
        for part in prediction:
            write_shard(self.jobs[part.job].address.folder, part.rows, part.failed)


class IndexProgress(Callback):
    """One bar, on rank 0; under several processes it counts that rank's clips.

    Args:
        jobs: what is made.
        clips: how many clips all processes encode.
    """

    def __init__(self, jobs: Sequence[Job], clips: int) -> None:
        self.jobs, self.clips, self.failed = jobs, clips, 0
        self.seconds = [Seconds() for _ in jobs]
        self.bar: Any = tqdm(disable=True)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar."""
        share = -(-self.clips // trainer.world_size)
        every = 0.5 if sys.stderr.isatty() else 10.0  # a log file needs few lines
        hidden = not trainer.is_global_zero
        self.bar = tqdm(total=share, unit=" clips", disable=hidden, dynamic_ncols=True, mininterval=every)
        self.last = time.perf_counter()

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: list[Encoded], *args: object
    ) -> None:
        """Count the batch."""
        now = time.perf_counter()
        for part in outputs:
            self.seconds[part.job].add(part.seconds)
            self.seconds[part.job].wall += (now - self.last) / len(outputs)
            self.failed += len(part.failed)
            self.bar.update(len(part.rows) + len(part.failed))
        self.last = now
        self.bar.set_postfix_str(f"{self.jobs[outputs[-1].job].name}, {self.failed} failed", refresh=False)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar."""
        self.bar.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Close the bar."""
        self.bar.close()
