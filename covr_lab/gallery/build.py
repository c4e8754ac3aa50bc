"""Artifacts of a system: every part of every encoder that sees videos, shared out over processes.

Each batch is a shard on disk as soon as it is encoded, so an interrupted run goes on where it stopped; the first
process makes the artifacts of the shards.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lightning import Trainer
from lightning.fabric.utilities.rank_zero import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader

from covr_lab.gallery.encode import ClipBatch, Clips, GalleryEncoder, IndexProgress, Job, Seconds, ShardWriter
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.reuse import take_over
from covr_lab.gallery.store import Artifact, begin, finish, forget_failures, is_finished
from covr_lab.gallery.videos import VideoStore
from covr_lab.recipe import Machine
from covr_lab.retrievers.video import VideoEncoder
from covr_lab.trainer import predictor
from covr_lab.types import Refused


@dataclass(frozen=True)
class Indexed:
    """What became of one artifact.

    Attributes:
        name: encoder and part.
        folder: where it lies.
        clips: how many videos it is of.
        encoded: how many of them this run tried.
        failed: video id -> reason, also of earlier runs.
        seconds: of this run, in this process.
        taken: how many rows this run took over from other artifacts.
    """

    name: str
    folder: Path
    clips: int
    encoded: int
    failed: Mapping[str, str]
    seconds: Seconds
    taken: int = 0

    def __str__(self) -> str:
        line = f"{self.name}: {self.clips} clips, {self.encoded} encoded now"
        if self.seconds.wall:
            spent = {"reading": self.seconds.read, "preparing": self.seconds.prepared, "model": self.seconds.encoded}
            shares = ", ".join(f"{key} {value / sum(spent.values()):.0%}" for key, value in spent.items())
            line += f" at {self.encoded / self.seconds.wall:.1f} clips/s ({shares} of the work)"
        lines = [line + f", {self.taken} taken over from earlier galleries" * bool(self.taken)]
        if self.failed:
            first = "; ".join(f"{video}: {reason}" for video, reason in list(self.failed.items())[:5])
            lines.append(f"  {len(self.failed)} failed, see failed.tsv there: {first}")
        return "\n".join([*lines, f"  {self.folder}"])


def index(
    system: nn.Module,
    gallery: Gallery,
    videos: VideoStore | None,
    machine: Machine,
    *,
    batch_size: int = 8,
    workers: int | None = None,
    retry: bool = False,
) -> list[Indexed] | None:
    """Make the artifacts of all video encoders in ``system``, or what is left to do of them.

    Args:
        system: holds the encoders; their weights are loaded here.
        gallery: what is searched.
        videos: the media.
        machine: where to encode.
        batch_size: clips a batch.
        workers: processes that decode, for each that encodes; by default as many as there are cores, at most eight.
        retry: read the videos again that failed before.

    Returns:
        One report an artifact; ``None`` in the helper processes of a multi-process run.

    Raises:
        Refused: there is nothing to encode with or of, another process makes the same artifact, or the disk is full.
    """
    jobs = plan(system, gallery, videos)
    assert videos is not None  # plan refuses it
    leader = rank_zero_only.rank == 0  # type: ignore[attr-defined]  # known before there is a trainer
    try:
        with ExitStack() as locks:
            for job in jobs if leader else ():
                finished = is_finished(job.address)
                again = retry and finished and bool(Artifact.open(job.address).failed)
                if again or not finished:
                    locks.enter_context(claim(job.address.folder))
                    begin(job.address)
                if again:
                    forget_failures(job.address)
            taken = [len(take_over(job.address, job.left(), videos)) if leader else 0 for job in jobs]
            left = [job.left() for job in jobs]
            clips = Clips([(number, video) for number, of_job in enumerate(left) for video in of_job], jobs, videos)
            progress = IndexProgress(jobs, len(clips))
            trainer = _encode(clips, progress, machine, batch_size, workers) if len(clips) else None
            for job in jobs if leader else ():
                if not is_finished(job.address):
                    finish(job.address)
            if trainer is not None:
                trainer.strategy.barrier("artifacts made")
    except OSError as error:
        place = error.filename or jobs[0].address.folder
        raise Refused(
            f"{place}: {error.strerror} (set COVR_CACHE to a folder with room that can be written)"
        ) from error
    if not leader:
        return None
    made = [(job, Artifact.open(job.address)) for job in jobs]
    return [
        Indexed(job.name, artifact.folder, len(job.address.ids), len(of_job), artifact.failed, spent, rows)
        for (job, artifact), of_job, spent, rows in zip(made, left, progress.seconds, taken, strict=True)
    ]


def plan(system: nn.Module, gallery: Gallery, videos: VideoStore | None) -> list[Job]:
    """The artifacts that ``system`` needs, each once; loads the encoders, whose weights are part of the addresses.

    Raises:
        Refused: it has no encoder that sees videos, or there are none.
    """
    encoders = {name: module for name, module in system.named_modules() if isinstance(module, VideoEncoder)}
    if not encoders:
        raise Refused("no retriever of this recipe sees videos: there is nothing to index")
    if videos is None:
        raise Refused("this recipe names no videos: set data.videos_dir")
    jobs: dict[str, Job] = {}
    for name, encoder in encoders.items():
        encoder.load()
        encoder.freeze()
        for part, address in encoder.locate(gallery, videos).items():
            jobs.setdefault(address.digest, Job(f"{name}.{part}", encoder, part, address))
    return list(jobs.values())


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Work on an artifact alone.

    Raises:
        Refused: another process does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused(f"{folder}: another process is indexing these videos: wait for it") from error
        for leftover in folder.rglob("*.tmp"):
            leftover.unlink()
        yield


def _encode(clips: Clips, progress: IndexProgress, machine: Machine, batch_size: int, workers: int | None) -> Trainer:
    """Encode on as many processes as there are clips at most; returns when every process has written its shards."""
    devices = min(machine.devices, len(clips))
    if workers is None:
        workers = max(1, min(8, (os.cpu_count() or 1) // devices))
    trainer = predictor(machine, devices, [ShardWriter(clips.jobs), progress])
    loader = DataLoader(
        clips,
        batch_size=batch_size,
        num_workers=workers,
        prefetch_factor=1 if workers else None,  # a batch of long clips at full size is large
        collate_fn=ClipBatch,
        worker_init_fn=_deaf,
    )
    try:
        trainer.predict(GalleryEncoder(clips.jobs), loader, return_predictions=False)
    except RuntimeError as error:
        if "DataLoader worker (pid" not in str(error):
            raise
        raise Refused(
            f"a process that reads videos died ({' '.join(str(error).split())}): too little memory, or a file that "
            "crashes the reader (fewer --workers, a smaller --batch, or another reader; the same command goes on)"
        ) from error
    trainer.strategy.barrier("shards written")
    return trainer


def _deaf(worker: int) -> None:
    """Ctrl-C is for the process that waits for this one."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
