"""What a server holds: one system for all, and what people left behind."""

from __future__ import annotations

import fcntl
import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Final

import numpy as np

from covr_lab.app.batching import KEPT, Batcher
from covr_lab.app.desk import Searches
from covr_lab.app.journal import Journal
from covr_lab.app.media import Media
from covr_lab.app.study import Study, drawn
from covr_lab.app.uploads import Upload, Uploads, admit, dismiss
from covr_lab.app.view import Names, Shares, View, channel_shares
from covr_lab.chat import Desk, desk_of
from covr_lab.evaluate import prepare
from covr_lab.gallery.build import index
from covr_lab.gallery.videos import VideoStore
from covr_lab.modular import ModularSystem
from covr_lab.recipe import Machine, digest
from covr_lab.retrievers.video import VideoEncoder
from covr_lab.types import Refused

SMALL: Final = 200  # videos that are indexed when the server starts; of more, tools/index.py shows how far it is
LIMIT: Final = 200 << 20  # bytes of an upload
SEARCHES: Final = "searches"  # folders of the journals
STUDY: Final = "study"
PLACES: Final = 256  # browsers whose uploads are kept in mind


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """What a study asks of people (ReCoVR, appendix D.3).

    Attributes:
        instances: queries of the data that are given to them, drawn; all when there are fewer.
        each: most instances of a participant.
        turns: feedback turns of an instance.
        seed: of the draw and of the assignment.
    """

    instances: int = 50
    each: int = 20
    turns: int = 3
    seed: int = 0


class Service:
    """A bound system with all that people left behind: searches, uploads, a study.

    Args:
        desk: loaded and bound; what people do is kept in its folder.
        uploads: where the files of people lie.
        plan: of a study, ``None`` for free searches alone.
        held: searches that stay in memory.
        lock: of ``folder`` (:func:`claimed`), let go at the end.

    Attributes:
        outside: seconds that requests took beside the model, the newest last.
    """

    def __init__(
        self,
        desk: Desk,
        uploads: Uploads,
        *,
        plan: StudyPlan | None = None,
        held: int = 256,
        lock: IO[str] | None = None,
    ) -> None:
        self.desk, self.uploads, self.plan, self.lock = desk, uploads, plan, lock
        self.folder = desk.folder.path
        self.verbs = Batcher(desk.system)
        self.outside: deque[float] = deque(maxlen=KEPT)
        self.admitted: set[str] = set()  # guests that the system knows
        self.ready: set[str] = set()  # searches whose reference the system knows
        self._admitting = threading.Lock()
        self._shown: dict[Path, Media] = {}  # place -> its uploads, those asked for last at the end
        self._showing = threading.Lock()
        pairs = drawn(desk.pairs, plan.instances, plan.seed) if plan else []
        targets = {query.session_id: target for query, target in pairs}
        self.searches = Searches(
            self.verbs, desk.gallery, Journal(self.folder / SEARCHES), targets=targets, known=self.knows, held=held
        )
        self.study: Study | None = None
        if plan:
            self._note(plan)
            journal = Journal(self.folder / STUDY)
            self.study = Study(self.searches, pairs, journal, each=plan.each, turns=plan.turns, seed=plan.seed)

    def _note(self, plan: StudyPlan) -> None:
        """Keep the plan beside the study, for its report.

        Raises:
            Refused: the study that lies there has another one.
        """
        known = self.desk.folder.record.get("study")
        if known not in (None, asdict(plan)):
            raise Refused(
                f"{self.folder}: its study has {known}: use the same numbers, or give --data_dir a new folder"
            )
        self.desk.folder.update(study=asdict(plan))

    @property
    def notes(self) -> list[str]:
        """What people should know about the results, one sentence each."""
        system = self.desk.system
        limits = (getattr(module, "limits", "") for module in system.modules())
        failed = len(system.unreadable)
        unreadable = f"{failed} videos could not be read and are in no result" if failed else ""
        return list(dict.fromkeys(filter(None, (self.desk.folder.record["proxy"], *limits, unreadable))))

    @cached_property
    def media(self) -> Media | None:
        """The files of the data, ``None`` for data in words alone."""
        data = self.desk.data
        return None if data is None or data.videos is None else Media.of(data)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Videos that people may start from, sorted by name."""
        return tuple(
            sorted({*self.desk.gallery.ids, *self.desk.references}, key=lambda video: (self.names.of(video), video))
        )

    @cached_property
    def names(self) -> Names:
        """What people see of videos."""
        data = self.desk.data
        return Names(self.desk.gallery, data.names if data else {}, media=self.media is not None)

    @cached_property
    def shares(self) -> Shares | None:
        """What the channels did, where the system has some."""
        system = self.desk.system
        if not isinstance(system, ModularSystem):
            return None
        channels = list(system.channels)
        return partial(channel_shares, fusion=system.fusion, channels=channels, opening=system.rm0 != "none")

    def knows(self, video: str) -> bool:
        """Whether a video may be a reference; whose upload it is has been checked before."""
        return video in self._known or video in self.admitted

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.ids)

    def admit(self, token: str, video: str) -> None:
        """Let the system see an upload of this browser, also one from before a restart.

        Raises:
            SessionError: it is not this browser's, or it cannot be encoded.
            Refused: the system sees no videos.
        """
        path = self.uploads.find(token, video)
        if video in self.admitted:
            return
        with self._admitting:
            if video in self.admitted:
                return
            upload, reader = Upload(video, path), self.uploads.reader
            admit(self.desk.system, self.desk.gallery, upload, alone=self.verbs.alone, reader=reader)
            self.admitted.add(video)

    def guests(self, token: str) -> Media:
        """The uploads of this browser; what was found out about them is kept while few others are looked at."""
        uploads = self.uploads
        place, held = uploads.place(token), uploads.held(token)
        with self._showing:
            shown = self._shown.pop(place, None)
            if shown is None:
                shown = Media(VideoStore(partial(uploads.find, token), uploads.reader), (), [place])
            self._shown[place] = shown
            while len(self._shown) > PLACES:
                self._shown.pop(next(iter(self._shown)))
            shown.known = frozenset(held)
        return shown

    def make_room(self, token: str) -> None:
        """Where an upload of this browser would find no room, forget one that no search started from, the oldest."""
        with self._admitting:
            if not (crowd := self.uploads.crowd(token)):
                return
            used = {first["row"]["reference"] for first in self.searches.journal.firsts() if "row" in first}
            for video, file in crowd.items():
                if video not in used:
                    file.unlink(missing_ok=True)
                    with self.verbs.alone:
                        dismiss(self.desk.system, self.desk.gallery, video)
                    self.admitted.discard(video)
                    if not self.uploads.crowd(token):
                        return

    def close(self) -> None:
        """Answer what waits and let go of the folder."""
        self.verbs.close()
        self.desk.folder.close()
        if self.lock is not None:
            self.lock.close()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """While one request is answered: what it takes beside the model goes to ``outside``."""
        begun, busy = time.perf_counter(), self.verbs.clock.busy
        yield
        self.outside.append(time.perf_counter() - begun - (self.verbs.clock.busy - busy))

    def stats(self) -> View:
        """What the server did so far; nothing about anybody."""
        sizes = self.verbs.sizes
        times = [round(1000 * float(value), 2) for value in np.percentile(list(self.outside) or [0.0], (50, 95))]
        return {
            "videos": len(self.desk.gallery),
            "requests": len(self.outside),
            "outside_ms": {"p50": times[0], "p95": times[1]},
            "calls": sum(sizes.values()),
            "batches": {str(size): sizes[size] for size in sorted(sizes)},
        }


def open_service(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    *,
    folder: Path | None = None,
    plan: StudyPlan | None = None,
    upload_limit: int = LIMIT,
) -> Service:
    """The service of a recipe; a small gallery is indexed where it is not yet.

    Args:
        paths: recipe, then overlays.
        overrides: ``--key value`` pairs.
        folder: of what people leave behind, by default ``runs/app-<recipe>``.
        plan: of a study.
        upload_limit: bytes of an upload.

    Raises:
        Refused: recipe or data are wrong, the gallery is not indexed, or another server uses the folder.
        SessionError: a gallery video cannot be encoded.
    """
    name = f"app-{'+'.join(path.stem for path in paths)}"
    folder = folder or Path("runs") / name
    document, data, runner = prepare(paths, overrides)
    if plan and not data.queries():
        raise Refused("a study needs queries with targets, and these data have none: name a recipe with annotations")
    lock = claimed(folder)
    seeing = any(isinstance(module, VideoEncoder) for module in runner.system.modules())
    if seeing and len(data.gallery) <= SMALL:
        machine = Machine(**{**document["trainer"], "devices": 1, "num_nodes": 1})
        reports = index(runner.system, data.gallery, data.videos, machine)
        data.indexed([report.folder for report in reports or []])
    # What was said about other videos, or to another recipe, stays in a folder of its own.
    parts = json.dumps([digest(document), data.digest, data.gallery.digest])
    run = folder / f"run-{hashlib.sha256(parts.encode()).hexdigest()[:8]}"
    desk = desk_of((document, data, runner), name, run, kind="app")
    uploads = Uploads(folder / "uploads", limit=upload_limit)
    uploads.sweep()
    return Service(desk, uploads, plan=plan, lock=lock)


def claimed(folder: Path) -> IO[str]:
    """The lock of a folder that one server uses; it is held until the file is closed.

    Raises:
        Refused: another server uses it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror} (give --data_dir a folder that can be written)") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Refused(f"{folder}: another server uses it: stop that one, or give --data_dir another folder") from error
    return lock
