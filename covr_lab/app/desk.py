"""What a person or a program may do with searches: each action is on the disk before its result is given back."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from covr_lab.app.batching import Batcher
from covr_lab.app.journal import Entry, Journal
from covr_lab.app.limits import check_owner, seal
from covr_lab.app.restore import restored
from covr_lab.chat import Conversation
from covr_lab.gallery.gallery import Gallery
from covr_lab.protocol import Ties
from covr_lab.results.folder import now
from covr_lab.results.rows import turn_row
from covr_lab.types import Query, Reflection, Refused, SessionError, Target

LONGEST: Final = 2000  # characters of a text
TURNS: Final = 200  # of a search; each costs memory and time, and nobody needs more


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One search of one person: the dialogue, and what is recorded of it.

    Attributes:
        talk: the dialogue.
        owner: :func:`~covr_lab.app.limits.seal` of the browser's token.
        participant: id of the person, in a study.
        parent: search that it was started from ("more like this").
        instance: session of the data that a study's participant was given.
    """

    talk: Conversation
    owner: str
    participant: str | None = None
    parent: str | None = None
    instance: str | None = None

    @property
    def name(self) -> str:
        """Id of the session."""
        return self.talk.session.query.session_id

    @property
    def turn(self) -> int:
        """Index of the newest turn."""
        return len(self.talk.session.turns) - 1

    @property
    def over(self) -> bool:
        """Whether the video was found."""
        said = self.talk.session.turns[-1].feedback
        return said is not None and said.action == "stop"


class Searches:
    """The searches of all people, for many threads at once; those of one search wait for each other.

    Every method takes the secret ``token`` of the browser and acts on its own searches alone. What is not in memory is
    read from the journal and played again.

    Args:
        verbs: the system, with batching.
        gallery: what is searched.
        journal: one key a session.
        targets: session of the data -> its answer, for a study; the system never sees it.
        ties: tie rule of target ranks.
        known: whether a video id may be a reference; by default those of the gallery. Say yes to the references of the
            data that are no gallery videos, and to uploads.
        held: searches that stay in memory.
    """

    def __init__(
        self,
        verbs: Batcher,
        gallery: Gallery,
        journal: Journal,
        *,
        targets: Mapping[str, Target] | None = None,
        ties: Ties = "optimistic",
        known: Callable[[str], bool] | None = None,
        held: int = 256,
    ) -> None:
        self.verbs, self.gallery, self.journal = verbs, gallery, journal
        self.targets, self.ties, self.held = targets or {}, ties, held
        self.known = known or gallery.row.__contains__
        self._held: OrderedDict[str, Search] = OrderedDict()
        self._locks: dict[str, list[Any]] = {}  # session -> [its lock, threads that hold or want it]
        self._lock = threading.Lock()

    def start(self, token: str, reference: str | None, text: str, *, participant: str | None = None) -> Search:
        """A new search: the ``text`` of what should change in the ``reference``, or one of them.

        Raises:
            SessionError: it cannot be answered.
            Refused: too many people ask at once.
        """
        name = secrets.token_hex(8)
        return self.begin(token, Query(name, self._reference(name, reference), clean(text)), participant=participant)

    def begin(
        self,
        token: str,
        query: Query,
        *,
        participant: str | None = None,
        parent: str | None = None,
        instance: str | None = None,
    ) -> Search:
        """A new search of a whole ``query``, whose id nobody has used; raises as :meth:`start`."""
        with self.alone(query.session_id), self.verbs.clock.request():
            if self.journal.read(query.session_id):
                raise SessionError(f"search {query.session_id!r} has begun before: take another id")
            talk = Conversation.start(self.verbs, query)
            search = Search(talk, seal(token), participant, parent, instance)
            links = {"owner": search.owner, "participant": participant, "parent": parent, "instance": instance}
            self._record(search, {"verb": "start", "session": search.name, **links})
            return self._hold(search)

    def get(self, token: str, name: str) -> Search:
        """A search as it stands.

        Raises:
            Unknown: it is another's, or nobody's.
        """
        with self.alone(name):
            return self._own(token, name)

    def say(
        self,
        token: str,
        name: str,
        text: str,
        *,
        rejected: Sequence[str] = (),
        memory: Reflection | None = None,
        turn: int | None = None,
        timing: Mapping[str, float] | None = None,
    ) -> Search:
        """One turn later (:meth:`covr_lab.chat.Conversation.say`).

        Args:
            token: secret of the browser.
            name: the search.
            text: what the person wrote.
            rejected: results that the person said no to.
            memory: the constraints, where the person edited them.
            turn: turn that the person saw; another one means that the page was old. ``None`` checks nothing.
            timing: what is known of when they read and wrote it, seconds.

        Raises:
            SessionError: it cannot be answered; the search stands as it was.
            Unknown: it is another's, or nobody's.
        """
        with self._turn(token, name, turn) as search:
            if search.turn >= TURNS:
                raise SessionError(f"this search has {TURNS} turns: start another one from what it shows")
            words, edited = clean(text), None if memory is None else _clean_memory(memory)
            try:
                talk = search.talk.say(words, rejected=rejected, memory=edited)
            except SessionError as error:
                failed = {"verb": "failed", "text": words, "error": str(error)}
                self.journal.append(name, {**failed, "rejected": list(rejected), "at": now()})
                raise
            later = replace(search, talk=talk)
            self._record(later, {"verb": "say", "timing": dict(timing or {})})
            return self._hold(later)

    def not_this(self, token: str, name: str, video: str, *, turn: int | None = None) -> Search:
        """One turn later, after no more than "not this" about any result; raises as :meth:`say`."""
        return self.say(token, name, "", rejected=(video,), turn=turn)

    def more_like(self, token: str, name: str, video: str, text: str = "") -> Search:
        """A new search that starts from a result, linked to this one; raises as :meth:`start`."""
        parent = self.get(token, name)
        child = secrets.token_hex(8)
        query = Query(child, self._reference(child, video), clean(text))
        return self.begin(token, query, participant=parent.participant, parent=name)

    def undo(self, token: str, name: str, *, turn: int | None = None) -> Search:
        """One turn earlier; the turn that is taken back stays in the journal and is in no exported row."""
        with self._turn(token, name, turn, over=True) as search:
            if search.talk.before is None:
                raise SessionError("there is nothing to take back: this is the first result")
            self.journal.append(name, {"verb": "undo", "at": now()})
            return self._hold(replace(search, talk=search.talk.before))

    def found(
        self,
        token: str,
        name: str,
        video: str,
        *,
        turn: int | None = None,
        timing: Mapping[str, float] | None = None,
    ) -> Search:
        """The end: ``video`` is it.

        Raises:
            SessionError: the video is not in the gallery.
            Unknown: the search is another's, or nobody's.
        """
        with self._turn(token, name, turn) as search:
            if video not in self.gallery.row:
                raise SessionError(f"video {video!r} is not in the gallery: name one of the results")
            ended = replace(search, talk=replace(search.talk.found(video), before=search.talk))
            self._record(ended, {"verb": "found", "timing": dict(timing or {})})
            return self._hold(ended)

    def mine(self, token: str) -> list[str]:
        """Ids of the searches of this browser, the oldest first; a journal that is damaged is logged and left out."""
        firsts = [first for first in self.journal.firsts() if "session" in first]
        own = sorted((first["at"], first["session"]) for first in firsts if first["owner"] == seal(token))
        return [name for _, name in own]

    def _record(self, search: Search, entry: Entry) -> None:
        """Write the newest turn down, before anybody sees it."""
        session, question = search.talk.session, search.talk.question
        target = None if search.instance is None else self.targets.get(search.instance)
        links = {"participant": search.participant, "parent": search.parent, "instance": search.instance}
        row = turn_row(session, session.turns[-1], self.gallery, target, self.ties, **links)
        events = [[event.kind, event.detail] for event in question.events] if question else []
        asked = {"text": question.text, "events": events} if question else None
        self.journal.append(search.name, {**entry, "row": row, "question": asked, "at": now()})

    @contextmanager
    def _turn(self, token: str, name: str, turn: int | None, *, over: bool = False) -> Iterator[Search]:
        """The search, alone and measured, if it may go on from what the person saw."""
        with self.alone(name), self.verbs.clock.request():
            search = self._own(token, name)
            if turn is not None and turn != search.turn:
                raise SessionError(f"this search is at turn {search.turn}, the page shows turn {turn}: reload it")
            if search.over and not over:
                raise SessionError("this search is over: undo, or start another one")
            yield search

    def _own(self, token: str, name: str) -> Search:
        held = self._held.get(name)
        entries = self.journal.read(name) if held is None else []
        owner = held.owner if held else entries[0].get("owner") if entries else None
        check_owner(token, owner, name)
        return held or self._hold(_revived(self.verbs, self.gallery, self.targets, self.ties, entries))

    def _hold(self, search: Search) -> Search:
        with self._lock:
            self._held[search.name] = search
            self._held.move_to_end(search.name)
            while len(self._held) > self.held:
                self._held.popitem(last=False)
        return search

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """One thread at a time for each session; locks live as long as somebody wants them."""
        with self._lock:
            entry = self._locks.setdefault(name, [threading.Lock(), 0])
            entry[1] += 1
        try:
            with entry[0]:
                yield
        finally:
            with self._lock:
                entry[1] -= 1
                if not entry[1]:
                    del self._locks[name]

    def _reference(self, name: str, reference: str | None) -> str | None:
        if reference is None or self.known(reference):
            return reference
        raise SessionError(f"search {name}: no video {reference!r}: choose one that is indexed, or upload it")


def _revived(
    verbs: Batcher, gallery: Gallery, targets: Mapping[str, Target], ties: Ties, entries: Sequence[Entry]
) -> Search:
    """A search from its journal."""
    first = entries[0]
    links = {key: first[key] for key in ("participant", "parent", "instance")}
    target = None if first["instance"] is None else targets.get(first["instance"])
    return Search(restored(verbs, gallery, target, ties, entries), first["owner"], **links)


def clean(text: str) -> str:
    """A text that can be stored, without blanks at its ends; letters that are none become question marks.

    Raises:
        Refused: it is too long.
    """
    if len(text) > LONGEST:
        raise Refused(f"the text has {len(text):,} characters, at most {LONGEST:,} are read: shorten it")
    return text.encode("utf-8", "replace").decode().strip()


def _clean_memory(memory: Reflection) -> Reflection:
    kinds = {kind: tuple(filter(None, map(clean, getattr(memory, kind)))) for kind in ("keep", "require", "avoid")}
    if (most := max(map(len, kinds.values()))) > LONGEST // 20:
        raise Refused(f"{most} constraints of one kind, at most {LONGEST // 20} are kept: remove some")
    return replace(memory, satisfaction="neutral", parse_ok=True, query=clean(memory.query), **kinds)
