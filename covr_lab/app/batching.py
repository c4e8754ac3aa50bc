"""Requests of several people, gathered into one call of the system."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from covr_lab.ranking.stages import isolated, reason
from covr_lab.system import System
from covr_lab.types import Feedback, Query, Question, Refused, Session, SessionError, Turn

log = logging.getLogger(__name__)
Verb = Literal["start", "ask", "step"]
KEPT: Final = 10_000  # measured requests that the percentiles are of


class Overloaded(Refused):
    """More people ask than can be answered; nothing was done."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One request: the verb, what it takes for one session, and where its result goes."""

    verb: Verb
    arguments: tuple[Any, ...]
    done: Future[Any] = field(default_factory=Future)


class Batcher:
    """The verbs of a system for many threads: what comes in together is asked together, on a thread of its own.

    A session that fails, fails alone; results are those of asking alone.

    Args:
        system: loaded and bound; nobody else may use it in the meantime.
        size: most requests of a call.
        wait: seconds after the first request in which others may join it.
        waiting: requests that may wait, fewer than the server has threads; one more is refused.
    """

    def __init__(self, system: System, *, size: int = 32, wait: float = 0.005, waiting: int = 64) -> None:
        if size < 1 or waiting < 1 or wait < 0:
            raise ValueError(f"size and waiting must be 1 or more, wait 0 or more, not {size}, {waiting} and {wait}")
        self.system, self.size, self.wait = system, size, wait
        self.sizes: Counter[int] = Counter()  # requests of a call -> how many calls were that large
        self.clock = ModelClock()
        self.alone = threading.Lock()  # held while the system works; whoever changes it (a guest comes) holds it, too
        self._queue: queue.Queue[Job | None] = queue.Queue(waiting)
        self._closing = threading.Lock()  # held while something is put, so that nothing comes after the end
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="covr_lab batches", daemon=True)
        self._thread.start()

    def start(self, queries: Sequence[Query], /) -> list[Turn]:
        """Turn 0 of each query (:meth:`covr_lab.system.System.start`).

        Raises:
            SessionError: a query cannot be answered.
            Overloaded: too many requests wait, or the server stops.
        """
        return self._all("start", [(query,) for query in queries])

    def ask(self, sessions: Sequence[Session], /) -> list[Question | None]:
        """One question to each user, ``None`` where nothing is asked; raises as :meth:`start`."""
        return self._all("ask", [(session,) for session in sessions])

    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[Question | None], /
    ) -> list[Turn]:
        """The next turn of each session; raises as :meth:`start`."""
        return self._all("step", list(zip(sessions, feedback, questions, strict=True)))

    def close(self) -> None:
        """Answer what waits, then stop; later requests are refused. Calling it again does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._queue.put(None)
        self._thread.join()

    @property
    def batches(self) -> int:
        """Calls so far."""
        return sum(self.sizes.values())

    def _all(self, verb: Verb, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        jobs = [Job(verb, one) for one in arguments]
        for job in jobs:
            self._put(job)
        return [job.done.result() for job in jobs]

    def _put(self, job: Job) -> None:
        with self._closing:
            if self._closed:
                raise Overloaded("the server is stopping: try again when it is back")
            try:
                self._queue.put_nowait(job)
            except queue.Full:
                raise Overloaded("too many people are searching at this moment: try again in some seconds") from None

    def _work(self) -> None:
        """Take what is there, until the end."""
        while (first := self._queue.get()) is not None:
            jobs, ended = self._gathered(first)
            for verb in ("start", "step", "ask"):
                if some := [job for job in jobs if job.verb == verb]:
                    self._answer(verb, some)
            if ended:
                return

    def _gathered(self, first: Job) -> tuple[list[Job], bool]:
        jobs, until = [first], time.monotonic() + self.wait
        while len(jobs) < self.size:
            try:
                job = self._queue.get(timeout=max(until - time.monotonic(), 0.0))
            except queue.Empty:
                break
            if job is None:
                return jobs, True
            jobs.append(job)
        return jobs, False

    def _answer(self, verb: str, jobs: Sequence[Job]) -> None:
        call = getattr(self.system, verb)

        def together(some: Sequence[Job]) -> list[Any]:
            with self.alone, self.clock.running():
                self.sizes[len(some)] += 1
                return list(call(*map(list, zip(*(job.arguments for job in some), strict=True))))

        try:
            results = isolated(together, jobs)
        except Refused as error:  # nothing can be answered now (an engine is gone); it may come back
            results = [error] * len(jobs)
        for job, found in zip(jobs, results, strict=True):
            if isinstance(found, Exception):
                job.done.set_exception(_told(found))
            else:
                job.done.set_result(found)


def _told(error: Exception) -> Exception:
    """The error as one of a session: a server outlives its mistakes, and says in its log what they were."""
    if isinstance(error, SessionError | Refused):
        return error
    log.error("a call of the system failed", exc_info=error)
    return SessionError(f"this could not be answered ({reason(error)})")


class ModelClock:
    """How long the system was busy, and how long requests took beside that.

    A request waits for the calls of others, too; what is measured of it is the time in which no call ran.
    """

    def __init__(self) -> None:
        self.outside: deque[float] = deque(maxlen=KEPT)  # seconds a request, the newest last
        self._lock = threading.Lock()
        self._busy, self._since = 0.0, float("nan")  # NaN: no call is running

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the system is busy; one call at a time."""
        with self._lock:
            self._since = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._busy += time.perf_counter() - self._since
                self._since = float("nan")

    @contextmanager
    def request(self) -> Iterator[None]:
        """While one request is answered, from the first to the last thing that is done for it."""
        begun, busy = time.perf_counter(), self.busy
        try:
            yield
        finally:
            self.outside.append(time.perf_counter() - begun - (self.busy - busy))

    @property
    def busy(self) -> float:
        """Seconds that the system has been busy, a running call included."""
        with self._lock:
            running = time.perf_counter() - self._since
            return self._busy + (running if running == running else 0.0)

    def percentile(self, share: float) -> float:
        """Seconds beside the model that ``share`` percent of the requests stayed below; NaN before the first."""
        return float(np.percentile(list(self.outside), share)) if self.outside else float("nan")
