"""Stored dialogues played again: whoever the user was, what was said is in the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from covr_lab.results.schema import SCHEMA, TIMING
from covr_lab.types import Event, Exchange, Feedback, Probe, Query, Question, RankedList, Reflection, Session, Turn

if TYPE_CHECKING:
    from covr_lab.chat import Verbs

Row = Mapping[str, Any]
ENGINE = ("calls", "tokens_in", "tokens_out", "modules", "prompts")  # calls of questions and users are not repeated
REPEATED = tuple(name for name in SCHEMA.names if name not in (*TIMING, *ENGINE))


def replay(system: Verbs, rows: Sequence[Row]) -> list[Session]:
    """Sessions that a system answers when their users say again what they said: a fold over stored rows.

    Query, open question, answers, rejections and edited memory come from the rows; engines are asked anew for what the
    system thinks, not for its questions and not for its user. A turn that failed, or that ended the session, is taken
    as it is stored.

    Args:
        system: loaded and bound.
        rows: as :func:`~covr_lab.results.rows.turn_row` makes them or a table gives them back, in any order.

    Returns:
        One session for each id, in the order of their first rows.

    Raises:
        ValueError: turns of a session are not 0, 1, 2, ...
        SessionError: a turn cannot be answered any more (a video is gone).
    """
    stored: dict[str, list[Row]] = {}
    for row in rows:
        stored.setdefault(row["session_id"], []).append(row)
    for name, own in stored.items():
        own.sort(key=lambda row: int(row["turn"]))
        if [row["turn"] for row in own] != list(range(len(own))):
            raise ValueError(f"session {name}: its turns are {[row['turn'] for row in own]}: give all of its rows")
    sessions = {name: Session(query_of(own[0])) for name, own in stored.items()}
    for index in range(max(map(len, stored.values()), default=0)):
        due = [name for name, own in stored.items() if len(own) > index]
        played = [name for name in due if not stored[name][index]["error"] and stored[name][index]["action"] != "stop"]
        again = _played(system, [sessions[name] for name in played], [stored[name][index] for name in played])
        turns = dict(zip(played, again, strict=True))
        for name in due:
            turn = turns.get(name) or _kept(sessions[name], stored[name][index])
            sessions[name] = sessions[name].then(turn)
    return list(sessions.values())


def query_of(row: Row) -> Query:
    """The query of a stored session; rows from before there were such columns mask their reference."""
    within = row.get("within")
    masked = row.get("mask_reference") is not False
    return Query(row["session_id"], row["reference"], row["edit"], masked, None if within is None else tuple(within))


def feedback_of(row: Row) -> Feedback:
    """What the user of a stored turn said, as far as a system may know it."""
    exchanges = tuple(
        Exchange(Probe(one["question"], one["part"], one["slot"]), one["answer"]) for one in row.get("exchanges") or ()
    )
    rejected, edited, memory = tuple(row.get("rejected") or ()), row.get("memory"), None
    if edited is not None:
        keep, require, avoid = (tuple(edited[kind]) for kind in ("keep", "require", "avoid"))
        memory = Reflection("neutral", keep, require, avoid, edited["query"])
    said = Feedback(row["action"], row["feedback"], row["source"], exchanges=exchanges)
    return replace(said, rejected=rejected, memory=memory)


def differences(rows: Sequence[Row], again: Sequence[Row]) -> list[str]:
    """Columns in which a replay of one session differs from what was stored; times and engine calls do not count."""
    pairs = zip(rows, again, strict=True)
    return sorted({name for old, new in pairs for name in REPEATED if _plain(old.get(name)) != _plain(new.get(name))})


def _played(system: Verbs, sessions: Sequence[Session], rows: Sequence[Row]) -> list[Turn]:
    if not sessions:
        return []
    if not sessions[0].turns:
        return system.start([session.query for session in sessions])
    questions = [None if row["question"] is None else Question(row["question"]) for row in rows]
    turns = system.step(sessions, [feedback_of(row) for row in rows], questions)
    return [replace(turn, events=_events(row, turn)) for row, turn in zip(rows, turns, strict=True)]


def _events(row: Row, turn: Turn) -> tuple[Event, ...]:
    """Those of the turn, after what led to its question or was meant by its user, which only the row knows."""
    stored = [Event(event["kind"], event["detail"]) for event in row["events"] or ()]
    before = len(stored) - len(turn.events)
    return tuple(stored) if before > 0 and tuple(stored[before:]) == turn.events else turn.events


def _kept(session: Session, row: Row) -> Turn:
    """A turn that no system plays: a failure, or the end."""
    shown = session.turns[-1].result if session.turns else RankedList(np.empty(0, np.int32))
    if row["error"]:
        return Turn(row["turn"], shown, error=row["error"])
    return Turn(row["turn"], shown, question=row["question"], feedback=feedback_of(row))


def _plain(value: Any) -> Any:
    """A stored value whatever it came through: maps are pairs in a table, and nothing is as good as null."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()} or None
    if isinstance(value, list | tuple):
        pairs = [tuple(one) if isinstance(one, list) else one for one in value]
        if pairs and all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in pairs):
            return {key: _plain(one) for key, one in pairs}
        return [_plain(one) for one in value] or None
    return value
