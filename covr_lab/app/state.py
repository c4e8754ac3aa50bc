"""What a server holds: one system for all, and what each browser may do with it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from covr_lab.app.batching import KEPT, Batcher
from covr_lab.app.desk import Search, Searches
from covr_lab.app.journal import Journal
from covr_lab.app.limits import check_owner
from covr_lab.app.media import NOT_FOUND, Media
from covr_lab.app.study import Study, Task, drawn
from covr_lab.app.uploads import PREFIX, Incoming, Upload, Uploads, admit
from covr_lab.app.view import Names, Shares, View, channel_shares, session_view
from covr_lab.chat import Desk, desk_of, find_videos
from covr_lab.evaluate import prepare
from covr_lab.gallery.build import index
from covr_lab.gallery.videos import VideoStore
from covr_lab.modular import ModularSystem
from covr_lab.recipe import Machine, digest
from covr_lab.retrievers.video import VideoEncoder
from covr_lab.types import Reflection, Refused, SessionError

SMALL: Final = 200  # videos that are indexed when the server starts; of more, tools/index.py shows how far it is
PAGE: Final = 40  # videos of a list
LIMIT: Final = 200 << 20  # bytes of an upload


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
        desk: loaded and bound.
        folder: where it is kept.
        plan: of a study, ``None`` for free searches.
        uploads: where the files of people lie, by default below ``folder``.
        held: searches that stay in memory.
        lock: of ``folder`` (:func:`claimed`), let go at the end.

    Attributes:
        outside: seconds that requests took beside the model, the newest last.
    """

    def __init__(
        self,
        desk: Desk,
        folder: Path,
        *,
        plan: StudyPlan | None = None,
        uploads: Uploads | None = None,
        held: int = 256,
        lock: IO[str] | None = None,
    ) -> None:
        self.desk, self.folder, self.plan, self.lock = desk, folder, plan, lock
        self.verbs = Batcher(desk.system)
        self.uploads = uploads or Uploads(folder / "uploads")
        self.outside: deque[float] = deque(maxlen=KEPT)
        self.admitted: set[str] = set()  # guests that the system knows
        self.ready: set[str] = set()  # searches whose reference the system knows
        self._admitting = threading.Lock()
        pairs = drawn(desk.pairs, plan.instances, plan.seed) if plan else []
        targets = {query.session_id: target for query, target in pairs}
        self.searches = Searches(
            self.verbs, desk.gallery, Journal(folder / "searches"), targets=targets, known=self.knows, held=held
        )
        self.study: Study | None = None
        if plan:
            journal = Journal(folder / "study")
            self.study = Study(self.searches, pairs, journal, each=plan.each, turns=plan.turns, seed=plan.seed)

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
        with self._admitting:
            if video in self.admitted:
                return
            with self.verbs.alone:
                admit(self.desk.system, self.desk.gallery, Upload(video, path))
            self.admitted.add(video)

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


@dataclass(frozen=True, slots=True)
class Client:
    """What the browser, or program, with the secret ``token`` may do; every answer is plain values.

    All methods raise :class:`~covr_lab.types.SessionError` and :class:`~covr_lab.types.Refused`, whose texts are
    sentences for people.

    Attributes:
        service: the one of all.
        token: secret of the browser.
    """

    service: Service
    token: str

    def view(self, search: Search) -> View:
        """A search as people see it."""
        names = self.service.names
        shown = session_view(search, names, self.service.shares)
        reference = shown["reference"]
        if reference and reference["id"].startswith(PREFIX):
            reference["name"] = "your upload"
        return shown

    def start(self, reference: str | None, text: str) -> View:
        """A new search."""
        self._guest(reference)
        return self.view(self.service.searches.start(self.token, reference, text))

    def show(self, name: str) -> View:
        """A search as it stands."""
        return self.view(self._at(name).get(self.token, name))

    def say(
        self,
        name: str,
        text: str,
        *,
        rejected: Sequence[str] = (),
        memory: Reflection | None = None,
        turn: int | None = None,
        timing: Mapping[str, float] | None = None,
    ) -> View:
        """One turn later (:meth:`covr_lab.app.desk.Searches.say`)."""
        keys: dict[str, Any] = {"rejected": rejected, "memory": memory, "turn": turn, "timing": timing}
        return self.view(self._at(name).say(self.token, name, text, **keys))

    def not_this(self, name: str, video: str, *, turn: int | None = None) -> View:
        """One turn later, after "not this" about a result."""
        return self.view(self._at(name).not_this(self.token, name, video, turn=turn))

    def more_like(self, name: str, video: str, text: str = "") -> View:
        """A new search that starts from a result."""
        self._guest(video)
        return self.view(self._at(name).more_like(self.token, name, video, text))

    def undo(self, name: str, *, turn: int | None = None) -> View:
        """One turn earlier."""
        return self.view(self._at(name).undo(self.token, name, turn=turn))

    def found(self, name: str, video: str, *, turn: int | None = None) -> View:
        """The end: ``video`` is it."""
        return self.view(self._at(name).found(self.token, name, video, turn=turn))

    def mine(self) -> list[str]:
        """Ids of this browser's searches, the oldest first."""
        return self.service.searches.mine(self.token)

    def videos(self, words: str = "", page: int = 0) -> View:
        """Videos to start from: those with all ``words`` in name or caption, else those that share words with them."""
        service = self.service
        wanted, names = words.casefold().split(), service.names
        found: Sequence[str] = [
            video
            for video in service.ids
            if all(word in f"{names.of(video)} {names.gallery.caption(video)}".casefold() for word in wanted)
        ]
        if not found:
            known = {video: names.gallery.caption(video) for video in service.ids}
            found = find_videos(words, known, len(known))
        cards = [names.card(video) for video in found[page * PAGE : (page + 1) * PAGE]]
        return {"total": len(found), "page": page, "pages": -(-len(found) // PAGE), "videos": cards}

    def incoming(self, size: int | None) -> Incoming:
        """A file to write an upload to."""
        return self.service.uploads.begin(self.token, size)

    def keep(self, incoming: Incoming) -> View:
        """Check an upload that has arrived and let it be a reference; what cannot be used is deleted."""
        upload = incoming.finish()
        try:
            self.service.admit(self.token, upload.video)
        except (Refused, SessionError):
            upload.path.unlink(missing_ok=True)
            raise
        return {**self.service.names.card(upload.video), "name": "your upload"}

    def media(self, video: str) -> Media:
        """Where a video lies that this browser may see."""
        if video.startswith(PREFIX):
            held = self.service.uploads.held(self.token)
            store = VideoStore(held.__getitem__, self.service.uploads.reader)
            return Media(store, held, [self.service.uploads.place(self.token)])
        if self.service.media is None:
            raise SessionError(NOT_FOUND)
        return self.service.media

    def consent(self, participant: str) -> View:
        """A participant agrees, in this browser; returns what they are at."""
        self._study.consent(self.token, participant)
        return self.task(participant)

    def task(self, participant: str) -> View:
        """What a participant is at, also after a pause."""
        return self._task(self._study.task(self.token, participant))

    def task_say(self, participant: str, instance: str, text: str, **keys: Any) -> View:
        """One turn later (:meth:`covr_lab.app.study.Study.say`)."""
        return self._task(self._study.say(self.token, participant, instance, text, **keys))

    def task_found(
        self, participant: str, instance: str, video: str, timing: Mapping[str, float] | None = None
    ) -> View:
        """*Found It*; returns the next instance."""
        return self._task(self._study.found(self.token, participant, instance, video, timing=timing))

    def task_leave(self, participant: str, instance: str) -> View:
        """End an instance whose video was not found; returns the next one."""
        return self._task(self._study.leave(self.token, participant, instance))

    @property
    def _study(self) -> Study:
        if self.service.study is None:
            raise Refused("there is no study here: start the server with --study")
        return self.service.study

    def _task(self, task: Task | None) -> View:
        """A task as its participant sees it, the wanted video included."""
        if task is None:
            return {"done": True}
        target = self.service.names.card(task.target)
        numbers = {"number": task.number, "of": min(self._study.each, len(self._study.pairs)), "left": task.left}
        return {"done": False, "instance": task.instance, **numbers, "target": target, "search": self.view(task.search)}

    def _guest(self, video: str | None) -> None:
        if video is not None and video.startswith(PREFIX):
            self.service.admit(self.token, video)

    def _at(self, name: str) -> Searches:
        """The searches, where an upload that ``name`` starts from is known, also after a restart."""
        service = self.service
        if service.study is not None and "@" in name:
            raise Refused("this search is one of the study: go on with it there")
        if name not in service.ready and (entries := service.searches.journal.read(name)):
            check_owner(self.token, entries[0]["owner"], name)
            self._guest(entries[0]["row"]["reference"])
            service.ready.add(name)
        return service.searches


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
    lock = claimed(folder)
    if plan and not data.queries():
        raise Refused("a study needs queries with targets, and these data have none: name a recipe with annotations")
    seeing = any(isinstance(module, VideoEncoder) for module in runner.system.modules())
    if seeing and len(data.gallery) <= SMALL:
        machine = Machine(**{**document["trainer"], "devices": 1, "num_nodes": 1})
        reports = index(runner.system, data.gallery, data.videos, machine)
        data.indexed([report.folder for report in reports or []])
    # What was recorded with other videos or another recipe keeps its own record.
    parts = json.dumps([digest(document), data.digest, data.gallery.digest])
    run = folder / f"run-{hashlib.sha256(parts.encode()).hexdigest()[:8]}"
    desk = desk_of((document, data, runner), name, run, kind="app")
    uploads = Uploads(folder / "uploads", limit=upload_limit)
    return Service(desk, folder, plan=plan, uploads=uploads, lock=lock)


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
