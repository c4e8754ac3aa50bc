"""What one browser, or program, may do with a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from covr_lab.app.desk import Search, Searches
from covr_lab.app.limits import check_owner
from covr_lab.app.media import NOT_FOUND, Media
from covr_lab.app.state import Service
from covr_lab.app.study import Study, Task
from covr_lab.app.uploads import PREFIX, Incoming
from covr_lab.app.view import View, session_view
from covr_lab.chat import find_videos
from covr_lab.types import Reflection, Refused, SessionError

PAGE: Final = 40  # videos of a list


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
        self.service.make_room(self.token)
        return self.service.uploads.begin(self.token, size)

    def keep(self, incoming: Incoming) -> View:
        """Check an upload that has arrived and let it be a reference; a new one that cannot be used is deleted."""
        upload = incoming.finish()
        try:
            self.service.admit(self.token, upload.video)
        except (Refused, SessionError):
            if incoming.fresh:
                upload.path.unlink(missing_ok=True)
            raise
        return {**self.service.names.card(upload.video), "name": "your upload"}

    def media(self, video: str) -> Media:
        """Where a video lies that this browser may see."""
        if video.startswith(PREFIX):
            return self.service.guests(self.token)
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

    def task_found(self, participant: str, instance: str, video: str, **keys: Any) -> View:
        """*Found It* (:meth:`covr_lab.app.study.Study.found`); returns the next instance."""
        return self._task(self._study.found(self.token, participant, instance, video, **keys))

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
