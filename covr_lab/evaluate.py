"""From a recipe to a finished run folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer

from covr_lab.estimate import CallEstimate
from covr_lab.gallery.build import index
from covr_lab.progress import SessionProgress
from covr_lab.recipe import Document, Machine, Wandb, build_parser, digest, explain, plain, resolve
from covr_lab.results.folder import RunFolder, RunRefused, free_folder, now
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import VERSION
from covr_lab.results.strips import pictured, write_strips
from covr_lab.results.summary import named, write_metrics
from covr_lab.results.wandb_log import log_run
from covr_lab.results.writer import RowWriter
from covr_lab.runner import SessionRunner
from covr_lab.simulators.degraded import DegradedUser
from covr_lab.trainer import predictor
from covr_lab.types import Refused

PACKAGES = ("covr_lab", "torch", "lightning", "transformers", "numpy")
FOLDER = "COVR_LAB_RUN_DIR"  # tells the processes that Lightning starts which folder the first one chose


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run.

    Attributes:
        folder: where it lies.
        sessions: how many it has.
        failed: session id -> reason, for those counted as misses.
        was_finished: nothing was left to do.
    """

    folder: Path
    sessions: int
    failed: dict[str, str]
    was_finished: bool = False


def evaluate(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    *,
    run_dir: Path | None = None,
    fresh: bool = False,
    build: bool = False,
) -> Outcome | None:
    """Run a recipe, or go on with a run that was interrupted.

    Args:
        paths: recipe, then overlays.
        overrides: ``--key value`` pairs.
        run_dir: folder of the run; by default ``runs/<recipe>-<hash>``.
        fresh: start a new folder instead of resuming.
        build: encode the videos that are not indexed yet first, in this process (several: ``tools/index.py``).

    Returns:
        The outcome; ``None`` in the helper processes of a multi-process run.

    Raises:
        Refused: recipe or data are wrong (no model was loaded), or the folder belongs to another run.
    """
    document, data, runner = prepare(paths, overrides)
    if not data.queries():
        kind = type(data).__name__
        raise Refused(f"{kind} has no annotated queries to evaluate: search it with tools/app.py or tools/chat.py")
    chosen = os.environ.get(FOLDER)
    if chosen is not None:  # a process that Lightning started: it plays its share, the first one does the rest
        _predict(runner, data, RunFolder(Path(chosen)), Machine(**document["trainer"]))
        return None
    name = "+".join(path.stem for path in paths)
    wanted = run_dir or Path("runs") / f"{name}-{digest(document)}"
    folder = RunFolder(free_folder(wanted) if fresh else wanted)
    folder.open(run_record(name, document, runner, data), data.user_gallery.captions)
    try:
        if build:
            machine = Machine(**{**document["trainer"], "devices": 1, "num_nodes": 1})
            index(runner.system, data.gallery, data.videos, machine)
        return _finish(document, runner, data, folder)
    finally:
        folder.close()


def _finish(document: Document, runner: SessionRunner, data: Any, folder: RunFolder) -> Outcome:
    """Play what is left of a run, and derive its numbers."""
    total = len(data.queries())
    missing = total - len(folder.finished_sessions())
    if folder.record["finished"] and not missing and (folder.path / "metrics.json").exists():
        return Outcome(folder.path, total, _failures(folder), was_finished=True)
    if missing:
        os.environ[FOLDER] = str(folder.path.resolve())
        try:
            _predict(runner, data, folder, Machine(**document["trainer"]))
        finally:
            del os.environ[FOLDER]
    write_metrics(folder.path)
    if data.videos is not None:
        write_strips(folder.path, data.videos, pictured(folder.path))
    folder.update(finished=now())
    log_run(folder.path, Wandb(**document["wandb"]))
    return Outcome(folder.path, total, _failures(folder))


def prepare(paths: Sequence[Path], overrides: Sequence[str]) -> tuple[Document, Any, SessionRunner]:
    """The resolved recipe, its data, read and checked, and the runner; loads no model.

    Raises:
        Refused: recipe or data are wrong.
    """
    parser = build_parser()
    config = resolve(parser, paths, overrides)
    try:
        parts = parser.instantiate(config)
        user = DegradedUser(parts.simulator, parts.degradations) if parts.degradations else parts.simulator
        runner = SessionRunner(parts.system, user, parts.protocol, parts.engines)
        parts.data.setup("predict")
    except (ValueError, OSError) as error:
        raise Refused(explain(str(error))) from error
    return plain(parser, config), parts.data, runner


def _predict(runner: SessionRunner, data: Any, folder: RunFolder, machine: Machine) -> None:
    """Play the sessions that are not on disk; more processes than sessions would crash the trainer."""
    data.skip = folder.finished_sessions()
    left = len(data.queries()) - len(data.skip)
    devices = min(machine.devices, left)
    progress = SessionProgress(runner.protocol.turns, left, len(data.gallery), named("R@1", data.terms))
    costs = CallEstimate(data.queries()[0], data.targets()[0], left, runner.protocol.turns)
    trainer = predictor(machine, devices, [ModelIdentity(folder), RowWriter(folder.turns), costs, progress])
    trainer.predict(runner, datamodule=data, return_predictions=False)
    trainer.strategy.barrier("rows written")


class ModelIdentity(Callback):
    """Rows of one run come from one set of weights and vectors: they are recorded, and compared on resume."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def on_predict_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record or compare, on rank 0, once the system is bound to its gallery."""
        if not trainer.is_global_zero or not isinstance(pl_module, SessionRunner):
            return
        found, known = pl_module.fingerprints, self.folder.record.get("models")
        if known not in (None, found):
            raise RunRefused(f"{self.folder.path}: the weights or videos behind this recipe have changed: use --fresh")
        system = pl_module.system
        failed = {"unreadable_videos": system.unreadable, "undescribed_videos": system.undescribed}
        self.folder.update(models=found, world_size=trainer.world_size, **failed)


def run_record(name: str, document: Document, runner: SessionRunner, data: Any) -> Document:
    """``run.json`` of a new run."""
    versions = {package: version(package) for package in PACKAGES}
    protocol = {
        **runner.protocol.as_dict(),
        "gallery": data.gallery_name,
        "n_gallery": len(data.gallery),
        "gallery_sha256": data.gallery.digest,
        "data_sha256": data.digest,
        **data.terms,
        "user": document["simulator"],
        **({"degradations": document["degradations"]} if document["degradations"] else {}),
    }
    return {
        "schema": VERSION,
        "name": name,
        "command": sys.argv,
        "identity": {
            "recipe": digest(document),
            "data": data.digest,
            "gallery": data.gallery.digest,
            "versions": versions,
        },
        "recipe": document,
        "protocol": protocol,
        "proxy": runner.system.proxy or data.proxy,
        "reader": None if data.videos is None else data.videos.reader.fingerprint,
        "versions": {**versions, "python": sys.version.split()[0], "git": _git_sha()},
        "n_sessions": len(data.queries()),
    }


def _git_sha() -> str | None:
    """Commit of the checkout this package runs from, ``None`` outside one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _failures(folder: RunFolder) -> dict[str, str]:
    """Session id -> reason of every session with a failed turn."""
    table = read_rows(folder.path).select(["session_id", "error"])
    return {row["session_id"]: row["error"] for row in table.to_pylist() if row["error"] is not None}
