"""A person talks to a system: the three verbs of evaluation on the same session values, free of terminal input."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Protocol, Self

from covr_lab.functional.text import content_words
from covr_lab.gallery.gallery import Gallery
from covr_lab.types import (
    Cap,
    Exchange,
    Feedback,
    Probe,
    Query,
    Question,
    Reflection,
    Refused,
    Session,
    SessionError,
    Target,
    Turn,
)

if TYPE_CHECKING:
    import torch

    from covr_lab.data import TripletDataModule
    from covr_lab.recipe import Document
    from covr_lab.results.folder import RunFolder
    from covr_lab.runner import SessionRunner
    from covr_lab.system import System

REASONS = {"rejected": "you rejected it", "stagnant": "it would have stayed first"}
SCOPES = {"window": "all remembered lists", "current": "the lists of this turn", "order": "the order on display"}
NOTES = {  # event kind -> what a person is told
    "fallback": "{} could not be read from your words; a fixed rule answered instead",
    "truncated": "longer than the encoder reads, the end was cut: {}",
    "not_demoted": "no rank policy of this recipe demotes a rejected video: {} keeps its place",
}


class Verbs(Protocol):
    """What a dialogue needs of a :class:`~covr_lab.system.System`, or of what gathers the requests of many."""

    def start(self, queries: Sequence[Query], /) -> list[Turn]:
        """Turn 0 of each query."""

    def ask(self, sessions: Sequence[Session], /) -> list[Question | None]:
        """One question to each user, ``None`` where nothing is asked."""

    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[Question | None], /
    ) -> list[Turn]:
        """The next turn of each session."""


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """A dialogue as a value, with the question that is open; every method leaves it as it is.

    Attributes:
        system: loaded and bound.
        session: at least turn 0, once it has started.
        question: what the system asks about the video on display, if anything; its calls are in the last turn.
        before: the dialogue up to the turn before, ``None`` at turn 0.
    """

    system: Verbs
    session: Session
    question: Question | None = None
    before: Self | None = None

    @classmethod
    def start(cls, system: Verbs, query: Query) -> Self:
        """Turn 0 of ``query``.

        Raises:
            SessionError: the query cannot be answered.
        """
        if query.reference is None and not query.text.strip():
            raise SessionError("without a reference the query needs words: describe the video")
        return cls(system, Session(query))._extended(lambda: system.start([query]))

    def following(self, said: Sequence[Exchange]) -> tuple[Probe, ...]:
        """The questions that are open after ``said``, where the system asks a round of them; none in any other case."""
        interview = self.question.interview if self.question else None
        return interview.following(said) if interview else ()

    def say(
        self,
        text: str,
        exchanges: Sequence[Exchange] = (),
        *,
        rejected: Sequence[str] = (),
        memory: Reflection | None = None,
    ) -> Self:
        """One turn later, after the feedback ``text``.

        Args:
            text: what the person wrote, the answers side by side where a round was asked; may be blank beside others.
            exchanges: questions and answers of the round.
            rejected: ids of results that the person said no to one by one.
            memory: the constraints as the person left them; their running query is blank where it shall follow.

        Raises:
            SessionError: the feedback cannot be answered; this conversation can still go on.
        """
        said = Feedback("free", text, "human", exchanges=tuple(exchanges), rejected=tuple(rejected), memory=memory)
        if not text.strip() and not said.wordless:
            raise SessionError("nothing was said: write what should change, or reject a result")
        later = self._extended(lambda: self.system.step([self.session], [said], [self.question]))
        return replace(later, before=self)

    def more_like(self, video: str, session_id: str, text: str = "") -> Self:
        """A new dialogue, called ``session_id``, that starts from ``video``: what resembles it, or ``text`` of it.

        Raises:
            SessionError: the query cannot be answered.
        """
        return self.start(self.system, Query(session_id, video, text))

    def undo(self) -> Self:
        """One turn earlier, with the question that was open then; turn 0 stays."""
        return self.before or self

    def found(self, video: str) -> Self:
        """Solved: a last turn, not executed, stops at the ranking on display and names the ``video``."""
        stop = Feedback("stop", video, "human")
        turns = self.session.turns
        asked = self.question.text if self.question else None
        last = Turn(len(turns), turns[-1].result, question=asked, feedback=stop)
        return replace(self, session=self.session.then(last), question=None)

    def _extended(self, verb: Callable[[], list[Turn]]) -> Self:
        begun = time.perf_counter()
        turn = verb()[0]
        longer = self.session.then(replace(turn, seconds=time.perf_counter() - begun))
        question = self.system.ask([longer])[0]
        if question is None:
            return replace(self, session=longer, question=None)
        asked = replace(longer.turns[-1], calls=(*longer.turns[-1].calls, *question.calls))
        return replace(self, session=self.session.then(asked), question=replace(question, calls=()))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a video stood at one turn; ranks are 1-based.

    Attributes:
        rank: rank in the result, ``None`` where it is masked.
        channels: channel -> rank in the list that the turn remembers of it; absent where the list lacks the video.
        cap: the demotion that the turn planned for it.
    """

    rank: int | None
    channels: Mapping[str, int]
    cap: Cap | None


def places(session: Session, row: int) -> list[Place]:
    """The place of gallery ``row`` at each turn of ``session``."""
    traced = []
    for turn in session.turns:
        ranks = {name: rank for name, found in turn.channels.items() if (rank := found.rank(row)) is not None}
        cap = next((cap for cap in turn.caps if cap.row == row), None)
        traced.append(Place(turn.result.rank(row), ranks, cap))
    return traced


def find_videos(words: str, captions: Mapping[str, str], limit: int = 10) -> list[str]:
    """Ids whose captions share most content words with ``words``; shorter captions first, then by id.

    >>> find_videos("a red dog", {"x": "the dog", "y": "one red dog runs", "z": "a cat"})
    ['y', 'x']
    """
    wanted, scored = set(content_words(words)), []
    for video, caption in captions.items():
        known = content_words(caption)
        if shared := len(wanted.intersection(known)):
            scored.append((-shared, len(known), video))
    return [video for *_, video in sorted(scored)[:limit]]


def clip(text: str, width: int) -> str:
    r"""One printable line of at most ``width`` characters.

    >>> clip("a dog\non the beach", 12)
    'a dog on...'
    """
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= width else line[: max(width - 3, 0)].rstrip() + "..."


def movement(now: int, before: int | None, top: int) -> str:
    """What became of a rank: up, down, the same, or new among the ``top`` on display.

    >>> movement(2, 5, top=5), movement(3, 2, top=5), movement(4, 4, top=5), movement(1, 38, top=5)
    ('+3', '-1', '=', 'new, was 38')
    """
    if before is None or before > top:
        return f"new, was {before or 'left out'}"
    return "=" if now == before else f"{before - now:+d}"


def listed(videos: Sequence[str], gallery: Gallery, width: int) -> str:
    """Numbered videos with id and caption, one a line."""
    lines = (clip(f"{video}: {gallery.caption(video)}", width - 5) for video in videos)
    return "\n".join(f"{number:3}  {line}" for number, line in enumerate(lines, 1))


def results_text(session: Session, gallery: Gallery, top: int, width: int) -> str:
    """The ``top`` of the newest turn: caption, id, movement and what moved it; then notes on the turn."""
    turn, lines = session.turns[-1], [f"turn {len(session.turns) - 1}"]
    for rank, row in enumerate(turn.result.rows[:top].tolist(), 1):
        *earlier, now = places(session, row)
        moved = [movement(rank, earlier[-1].rank, top)] if earlier else []
        lines.append(f"{rank:3}  " + clip(gallery.caption(gallery.ids[row]) or "(no caption)", width - 5))
        lines.append(_wrapped(" | ".join([gallery.ids[row], *moved, _channels(now, turn)]), width))
    for cap in turn.caps:
        lines.append(_wrapped(f"{cap_text(cap, gallery.ids[cap.row])}; now at {turn.result.rank(cap.row)}", width, 0))
    for event in turn.events:
        if event.kind in NOTES:
            lines.append(_wrapped(f"note: {NOTES[event.kind].format(event.detail)}", width, 0))
    return "\n".join(lines)


def why_text(session: Session, gallery: Gallery, rank: int, width: int) -> str:
    """Ranks of the video at ``rank``, rank-caps on it and the texts that were sent, over all turns."""
    row = int(session.turns[-1].result.rows[rank - 1])
    video, query = gallery.ids[row], session.query
    lines = [clip(f"{video}: {gallery.caption(video)}", width)]
    for turn, place in zip(session.turns, places(session, row), strict=True):
        lines.append(f"turn {turn.index} | rank {place.rank or '-'} | {_channels(place, turn)}")
        opening = {"reference": query.reference, "edit": query.text} if turn.feedback is None else {}
        sent = {"search": turn.intent.search, "edit": turn.intent.edit} if turn.intent else opening
        lines += [_wrapped(f"{name}: {text}", width) for name, text in sent.items() if text]
        if place.cap:
            lines.append(_wrapped(cap_text(place.cap, video), width))
    return "\n".join(lines)


def state_text(session: Session, width: int) -> str:
    """The progress memory: running query, signal, constraints."""
    state = session.state or Reflection(query=session.query.text)
    words = {name: ", ".join(getattr(state, name)) or "-" for name in ("keep", "require", "avoid")}
    values = {"running query": state.query or "-", "feedback read as": state.satisfaction, **words}
    lines = [_wrapped(f"{name}: {value}", width, 0) for name, value in values.items()]
    return "\n".join(lines if session.state else [*lines, "(nothing is remembered before the first feedback)"])


def probe_text(probe: Probe) -> str:
    """A question of a round, with the part of the video that it is about.

    >>> probe_text(Probe("where is the dog?", "first half")), probe_text(Probe("where is the dog?"))
    ('question, about the first half: where is the dog?', 'question: where is the dog?')
    """
    return f"question{'' if probe.part == 'whole' else f', about the {probe.part}'}: {probe.text}"


def cap_text(cap: Cap, video: str) -> str:
    """What a planned demotion did, and why."""
    done = "" if cap.fired else " (no list had to change)"
    return f"rank-cap: {video} down to {cap.position} in {SCOPES[cap.scope]}{done}, because {REASONS[cap.reason]}"


def _channels(place: Place, turn: Turn) -> str:
    return ", ".join(f"{name} {place.channels.get(name, '-')}" for name in turn.channels) or "no channel list"


def _wrapped(text: str, width: int, indent: int = 5) -> str:
    return fill(text, width, initial_indent=" " * indent, subsequent_indent=" " * indent, break_on_hyphens=False)


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a person talks: a bound system, what can be picked, and the folder that keeps the dialogues.

    Attributes:
        system: loaded and bound.
        gallery: what is searched.
        references: ids of the data's reference videos, sorted.
        folder: the run folder, claimed.
        participant: who talks, for the record.
        pairs: queries of the data with their targets, for a study; no system may see the targets.
        data: where they come from; its media are for people to look at.
    """

    system: System
    gallery: Gallery
    references: tuple[str, ...]
    folder: RunFolder
    participant: str | None = None
    pairs: tuple[tuple[Query, Target], ...] = ()
    data: TripletDataModule | None = None

    def keep(self, session: Session) -> Path:
        """Store all turns of ``session`` as one part; returns its path."""
        from covr_lab.results.folder import now
        from covr_lab.results.rows import turn_row
        from covr_lab.results.writer import write_part

        rows = [
            turn_row(session, turn, self.gallery, None, "optimistic", participant=self.participant)
            for turn in session.turns
        ]
        part = write_part(self.folder.turns, rows)
        self.folder.update(n_sessions=len(self.folder.finished_sessions()), finished=now())
        return part


def open_desk(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    *,
    run_dir: Path | None = None,
    fresh: bool = False,
    participant: str | None = None,
    kind: str = "chat",
) -> Desk:
    """Build data and system of a recipe; its user and its number of turns are not needed.

    Args:
        paths: recipe, then overlays.
        overrides: ``--key value`` pairs.
        run_dir: folder of the dialogues, by default ``runs/<kind>-<recipe>``. Later dialogues with the same recipe,
            data, versions and weights are added to it.
        fresh: start a new folder instead.
        participant: who talks.
        kind: what the folder is for; folders of two kinds are never mixed.

    Raises:
        Refused: recipe or data are wrong, or the folder belongs to something else.
        SessionError: a gallery video cannot be encoded.
    """
    # Heavy imports (torch, Lightning) only here: the help of a command line has to be quick.
    from covr_lab.evaluate import prepare
    from covr_lab.results.folder import free_folder

    name = f"{kind}-{'+'.join(path.stem for path in paths)}"
    path = run_dir or Path("runs") / name
    prepared = prepare(paths, overrides)
    return desk_of(prepared, name, free_folder(path) if fresh else path, participant=participant, kind=kind)


def desk_of(
    prepared: tuple[Document, TripletDataModule, SessionRunner],
    name: str,
    path: Path,
    *,
    participant: str | None = None,
    kind: str = "chat",
) -> Desk:
    """Load and bind what :func:`~covr_lab.evaluate.prepare` made, and claim the folder; see :func:`open_desk`."""
    from covr_lab.evaluate import run_record
    from covr_lab.results.folder import RunFolder

    document, data, runner = prepared
    system, device = runner.system, _device(document["trainer"]["accelerator"])
    system.load()
    folder = RunFolder(path)
    folder.open(_chat_record(run_record(name, document, runner, data), system, kind), data.user_gallery.captions)
    system.freeze().to(device)
    system.bind(data.gallery, data.videos, mask_source=runner.protocol.mask_source)
    references = sorted({row.reference for row in data.triplets if row.reference is not None})
    pairs = tuple(zip(data.queries(), data.targets(), strict=True))
    return Desk(system, system.gallery, tuple(references), folder, participant, pairs, data)


def _device(accelerator: str) -> torch.device:
    """The device that a trainer would take."""
    from lightning.fabric import Fabric

    try:
        return Fabric(accelerator=accelerator, devices=1).device
    except RuntimeError as error:
        raise Refused(f"trainer.accelerator: {error} (use cpu or auto)") from error


def _chat_record(record: dict[str, Any], system: System, kind: str) -> dict[str, Any]:
    """``run.json`` of dialogues: of another identity than an evaluation, so that neither goes on in the other's folder.

    ``n_sessions`` counts the dialogues that are stored, for nobody knows how many will follow.
    """
    identity = {**record["identity"], "recipe": f"{kind} {record['identity']['recipe']}", "models": system.fingerprints}
    protocol = {key: value for key, value in record["protocol"].items() if key != "degradations"} | {"user": "a person"}
    return {**record, "identity": identity, "protocol": protocol, "models": system.fingerprints, "n_sessions": 0}
