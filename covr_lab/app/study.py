"""A study with people: who gets which instance, and how far they are (ReCoVR, appendix D.3; dossier, section 1.13)."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from covr_lab.app.desk import Search, Searches
from covr_lab.app.journal import Entry, Journal
from covr_lab.app.limits import Unknown, check_owner, seal
from covr_lab.results.folder import now
from covr_lab.types import Query, Reflection, SessionError, Target

Pair = tuple[Query, Target]
Outcome = Literal["found", "not found", "failed"]
STALE: Final = "this page shows an instance that is not open any more: reload it"
log = logging.getLogger(__name__)


def draw(seed: int, *key: str) -> bytes:
    """A number of its own for each key, the same everywhere."""
    return hashlib.sha256("\0".join((str(seed), *key)).encode("utf-8", "surrogatepass")).digest()


def drawn(pairs: Sequence[Pair], size: int, seed: int = 0) -> list[Pair]:
    """``size`` of the pairs, or all; which ones does not depend on their order.

    >>> pairs = [(Query(name, None, "x"), Target(name, "v")) for name in "abc"]
    >>> [query.session_id for query, _ in drawn(pairs, 2)] == [q.session_id for q, _ in drawn(pairs[::-1], 2)]
    True
    """
    return sorted(pairs, key=lambda pair: draw(seed, pair[0].session_id))[:size]


def choose(
    instances: Sequence[str], load: Mapping[str, int], had: Collection[str], seed: int, participant: str
) -> str | None:
    """The next instance of a participant: one of those that fewest people have, and none that they had before.

    Args:
        instances: all of the study.
        load: how many people finished each, or are at it.
        had: what this participant was given so far.
        seed: decides between equal loads, for each participant differently.
        participant: who asks.

    Returns:
        ``None`` when they had all.

    >>> choose(["a", "b"], {"a": 1}, [], 0, "p1"), choose(["a", "b"], {"a": 1}, ["b"], 0, "p1")
    ('b', 'a')
    """
    free = [name for name in instances if name not in had]
    return min(free, key=lambda name: (load.get(name, 0), draw(seed, participant, name)), default=None)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What a participant is at.

    Attributes:
        instance: session of the data.
        target: id of the wanted video, for the participant's eyes only.
        search: the dialogue so far.
        number: 1-based, among this participant's.
        left: feedback turns that they still have.
    """

    instance: str
    target: str
    search: Search
    number: int
    left: int


class Study:
    """Participants, their instances, and where each of them stands; all of it is in journals, nothing only in memory.

    An instance that somebody began and left counts as taken for ``patience`` seconds; it then goes to others as well.
    One whose search cannot begin, or go on, ends as failed: it is none of the ``each``, nobody did it, none exports it.

    Args:
        searches: where the dialogues are held; it knows the targets of all instances.
        pairs: instances with their targets.
        journal: one key a participant; another folder than that of the searches.
        each: most instances of a participant.
        turns: feedback turns of an instance.
        seed: of the assignment.
        patience: seconds after which an instance that is not finished counts as dropped.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        searches: Searches,
        pairs: Sequence[Pair],
        journal: Journal,
        *,
        each: int = 20,
        turns: int = 3,
        seed: int = 0,
        patience: float = 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not pairs or each < 1 or turns < 1:
            raise ValueError(f"a study needs instances, turns and a number each, not {len(pairs)}, {turns} and {each}")
        if lacking := [query.session_id for query, _ in pairs if query.session_id not in searches.targets]:
            raise ValueError(f"instance {lacking[0]!r} has no target among those of the searches: give both the same")
        self.searches, self.journal, self.clock = searches, journal, clock
        self.pairs = {query.session_id: (query, target) for query, target in pairs}
        self.each, self.turns, self.seed, self.patience = each, turns, seed, patience
        self._lock = threading.Lock()  # one assignment at a time, or two people would get the same instance

    def consent(self, token: str, participant: str) -> None:
        """Record that a participant read the page and agrees; the id is this browser's from then on.

        Raises:
            SessionError: the id is blank.
            Unknown: it is used in another browser.
        """
        if not participant.strip():
            raise SessionError("a participant needs an id: type the one that you were given")
        with self._lock:
            entries = self.journal.read(participant)
            if entries:
                self._check(token, participant, entries)
                return
            entry = {"verb": "consent", "participant": participant, "owner": seal(token), "at": now()}
            self.journal.append(participant, entry)

    def task(self, token: str, participant: str) -> Task | None:
        """What the participant is at, after a reload and a restart as before; the next instance when nothing is open.

        Returns:
            ``None`` when they are done.

        Raises:
            Unknown: they have not consented, or not in this browser.
        """
        with self.searches.alone(f"participant {participant}"):
            while (given := self._given(token, participant)) is not None:
                try:
                    task = self._task(token, participant, *given)
                except SessionError as error:
                    log.warning(
                        "participant %s, instance %s: failed, the next one is given: %s", participant, given[0], error
                    )
                    self._end(participant, given[0], "failed", error=str(error))
                    continue
                if not task.search.over:
                    return task
                self._end(participant, task.instance, "found")  # a kill came between the two records
        return None

    def say(
        self,
        token: str,
        participant: str,
        instance: str,
        text: str,
        *,
        rejected: Sequence[str] = (),
        memory: Reflection | None = None,
        turn: int | None = None,
        timing: Mapping[str, float] | None = None,
    ) -> Task:
        """One turn later; ``timing`` has the seconds ``shown``, ``first_key`` and ``sent``.

        Raises:
            SessionError: ``instance`` is not the open one, ``turn`` is not where it stands, its turns are over, or it
                cannot be answered.
        """
        task = self._open(token, participant, instance, turn)
        if not task.left:
            raise SessionError(f"the {self.turns} turns are over: say whether the video was found, or go on")
        seen, name = task.search.turn, task.search.name  # another answer that came meanwhile would use up a turn
        search = self.searches.say(token, name, text, rejected=rejected, memory=memory, turn=seen, timing=timing)
        return replace(task, search=search, left=self.turns - search.turn)

    def found(
        self,
        token: str,
        participant: str,
        instance: str,
        video: str,
        *,
        turn: int | None = None,
        timing: Mapping[str, float] | None = None,
    ) -> Task | None:
        """*Found It*: ends ``instance`` with ``video``; returns the next one, and raises as :meth:`say`."""
        task = self._open(token, participant, instance, turn)
        self.searches.found(token, task.search.name, video, turn=task.search.turn, timing=timing)
        self._end(participant, instance, "found")
        return self.task(token, participant)

    def leave(self, token: str, participant: str, instance: str) -> Task | None:
        """End ``instance`` without having found it, whatever became of its search; returns the next one.

        Raises:
            SessionError: ``instance`` is not the open one.
        """
        with self.searches.alone(f"participant {participant}"):
            entries = self.journal.read(participant)
            self._check(token, participant, entries)
            if standing_at(entries) != instance:
                raise SessionError(STALE)
            self._end(participant, instance, "not found")
        return self.task(token, participant)

    def finished(self) -> list[str]:
        """Ids of the searches that ended and did not fail, those of people who dropped out later among them."""
        return finished(self.journal)

    def _given(self, token: str, participant: str) -> tuple[str, int] | None:
        """The open instance and its number, or the next one."""
        with self._lock:
            entries = self.journal.read(participant)
            self._check(token, participant, entries)
            had = [entry["instance"] for entry in entries if entry["verb"] == "assigned"]
            number = len(had) - len(failed(entries))
            if (instance := standing_at(entries)) is not None:
                return instance, number
            instance = choose(list(self.pairs), self._load(), had, self.seed, participant)
            if instance is None or number >= self.each:
                return None
            entry = {"verb": "assigned", "instance": instance, "clock": self.clock(), "at": now()}
            self.journal.append(participant, entry)
            return instance, number + 1

    def _open(self, token: str, participant: str, instance: str, turn: int | None) -> Task:
        task = self.task(token, participant)
        if task is None or task.instance != instance:
            raise SessionError(STALE)
        if turn not in (None, task.search.turn):
            raise SessionError(f"this search is at turn {task.search.turn}, the page shows turn {turn}: reload it")
        return task

    def _task(self, token: str, participant: str, instance: str, number: int) -> Task:
        query, target = self.pairs[instance]
        name = session_name(instance, participant)
        if self.searches.journal.read(name):
            search = self.searches.get(token, name)
        else:
            query = replace(query, session_id=name)
            search = self.searches.begin(token, query, participant=participant, instance=instance)
        return Task(instance, target.video, search, number, self.turns - search.turn)

    def _end(self, participant: str, instance: str, outcome: Outcome, **more: str) -> None:
        entry = {"verb": "ended", "instance": instance, "outcome": outcome, **more, "at": now()}
        self.journal.append(participant, entry)

    def _load(self) -> Counter[str]:
        """People who finished each instance or are at it."""
        load, since = Counter[str](), self.clock() - self.patience
        for entries in self.journal.readable():
            ended = {entry["instance"] for entry in entries if entry["verb"] == "ended"}
            recent = {entry["instance"] for entry in entries if entry.get("clock", since) > since}
            load.update((ended | recent) - failed(entries))
        return load

    def _check(self, token: str, participant: str, entries: Sequence[Entry]) -> None:
        try:
            check_owner(token, entries[0]["owner"] if entries else None, participant)
        except Unknown:
            raise Unknown(
                f"participant {participant!r} has not agreed in this browser: begin on its consent page"
            ) from None


def finished(journal: Journal) -> list[str]:
    """Ids of the searches that ended and did not fail, from the journal of a study."""
    names = set[str]()
    for entries in journal.all():
        ended = {entry["instance"] for entry in entries if entry["verb"] == "ended"} - failed(entries)
        names |= {session_name(instance, entries[0]["participant"]) for instance in ended}
    return sorted(names)


def failed(entries: Sequence[Entry]) -> set[str]:
    """Instances of a participant whose searches failed."""
    return {entry["instance"] for entry in entries if entry.get("outcome") == "failed"}


def standing_at(entries: Sequence[Entry]) -> str | None:
    """The instance that is open for a participant.

    >>> begun = {"verb": "assigned", "instance": "a"}
    >>> standing_at([begun]), standing_at([begun, {"verb": "ended", "instance": "a"}])
    ('a', None)
    """
    last = next((entry for entry in reversed(entries) if entry["verb"] in {"assigned", "ended"}), None)
    return last["instance"] if last and last["verb"] == "assigned" else None


def session_name(instance: str, participant: str) -> str:
    """Id of the search of a participant: an instance may be given to several."""
    return f"{instance}@{participant}"
