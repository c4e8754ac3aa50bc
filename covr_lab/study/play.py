"""The runs of a study, played in worker processes that each serve many runs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from covr_lab.study.spec import Played

THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one run.

    Attributes:
        run: what was to be played.
        error: why there are no numbers, ``None`` when there are.
        sessions: how many it has.
        failed: how many of them failed and count as misses.
        seconds: that this took.
        was_finished: nothing was left to play.
    """

    run: Played
    error: str | None = None
    sessions: int = 0
    failed: int = 0
    seconds: float = 0.0
    was_finished: bool = False


def play(runs: Sequence[Played], out: Path, jobs: int = 1) -> Iterator[Result]:
    """Play ``runs``, or go on with them; a result each, in the order in which they end.

    A run that fails, or takes its process with it, is a result with a reason, and the rest goes on. When this process
    ends in any way, its workers end too, and what they had finished is on disk.

    Args:
        runs: what to play.
        out: folder of the study.
        jobs: processes, each with its share of the cores.
    """
    (out / "runs").mkdir(parents=True, exist_ok=True)
    waiting = list(reversed(runs))
    busy: dict[Connection, Played] = {}
    workers: dict[Connection, BaseProcess] = {}
    try:
        with _threads(max(1, (os.cpu_count() or 1) // jobs)):
            while waiting or busy:
                missing = min(jobs, len(waiting) + len(busy)) - len(workers)
                for pipe in [_worker(workers, out) for _ in range(missing)]:
                    _hand(pipe, waiting, busy)
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    run = busy.pop(ready)
                    try:
                        yield ready.recv()
                        _hand(ready, waiting, busy)
                    except EOFError:
                        process = workers.pop(ready)
                        process.join()
                        yield Result(run, f"its process ended with status {process.exitcode} (memory?)")
        _dismiss(workers)
    finally:
        for process in workers.values():
            process.kill()


def _worker(workers: dict[Connection, BaseProcess], out: Path) -> Connection:
    context = get_context("spawn")  # a forked child would share locks and threads of torch
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, out))  # no daemon: those may not start decoders
    process.start()
    theirs.close()
    workers[ours] = process
    return ours


def _hand(pipe: Connection, waiting: list[Played], busy: dict[Connection, Played]) -> None:
    if waiting:
        busy[pipe] = waiting.pop()
        pipe.send(busy[pipe])


def _dismiss(workers: dict[Connection, BaseProcess]) -> None:
    """Let workers end by themselves: one that is killed leaves semaphores behind."""
    for pipe, process in workers.items():
        pipe.close()
        process.join(timeout=10)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Workers inherit the environment, and libraries count their threads when they are loaded."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(min(number, int(before or number)))
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


def _serve(pipe: Connection, out: Path) -> None:
    """Life of a worker."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    os.environ["WANDB_MODE"] = "disabled"  # the study logs its runs itself
    log = (out / "runs" / "log.txt").open("a", encoding="utf-8")
    os.dup2(log.fileno(), sys.stdout.fileno())
    os.dup2(log.fileno(), sys.stderr.fileno())  # progress bars and what libraries say
    from covr_lab.console import quiet

    quiet()
    while True:
        try:
            run: Played = pipe.recv()
        except EOFError:
            return
        pipe.send(play_one(run, out))


def _follow_parent() -> None:
    """End when the study ends, however it ended: a run that goes on would hold its folder."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def play_one(run: Played, out: Path) -> Result:
    """Play ``run`` in this process; whatever stops it is a reason."""
    from covr_lab.evaluate import evaluate

    start = time.monotonic()
    folder, overrides = out / run.folder, [*run.overrides, "--trainer.devices", "1"]
    try:
        if not (folder / "metrics.json").exists():
            _index(run.recipes, overrides, out)
        outcome = evaluate(run.recipes, overrides, run_dir=folder)
    except Exception as error:  # one run of many: the others go on
        reason = " ".join(str(error).split()) or type(error).__name__
        return Result(run, reason, seconds=time.monotonic() - start)
    assert outcome is not None
    spent = time.monotonic() - start
    return Result(run, None, outcome.sessions, len(outcome.failed), spent, outcome.was_finished)


def _index(recipes: Sequence[Path], overrides: Sequence[str], out: Path) -> None:
    """Make and encode videos that are not yet; one worker at a time, for systems share what they index."""
    import fcntl

    from covr_lab.evaluate import prepare
    from covr_lab.gallery.build import index
    from covr_lab.recipe import Machine
    from covr_lab.retrievers.video import VideoEncoder

    (out / "runs").mkdir(parents=True, exist_ok=True)
    with (out / "runs" / ".index.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        document, data, runner = prepare(recipes, overrides)
        if data.videos is not None and any(isinstance(part, VideoEncoder) for part in runner.system.modules()):
            index(runner.system, data.gallery, data.videos, Machine(**document["trainer"]))
