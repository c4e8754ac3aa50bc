"""A search from its journal: the turns that stand, played again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covr_lab.app.journal import Entry
from covr_lab.chat import Conversation, Verbs
from covr_lab.gallery.gallery import Gallery
from covr_lab.protocol import Ties
from covr_lab.replay import differences, replay
from covr_lab.results.rows import turn_row
from covr_lab.types import Event, Question, Session, SessionError, Target


def standing(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of the turns that were not taken back, turn 0 first.

    >>> [entry["row"] for entry in standing([{"verb": "start", "row": 0}, {"verb": "say", "row": 1}, {"verb": "undo"}])]
    [0]
    """
    kept = list[Entry]()
    for entry in entries:
        if entry["verb"] == "undo":
            kept.pop()
        elif "row" in entry:
            kept.append(entry)
    return kept


def restored(
    verbs: Verbs, gallery: Gallery, target: Target | None, ties: Ties, entries: Sequence[Entry]
) -> Conversation:
    """The dialogue of ``entries``, with its way back.

    Args:
        verbs: the system.
        gallery: what is searched.
        target: the answer, for the rows that are compared.
        ties: tie rule of target ranks.
        entries: of one session, as the journal has them.

    Raises:
        SessionError: it no longer gives the recorded results (other videos, another recipe, a model that is not
            deterministic), so that it cannot go on.
    """
    kept = standing(entries)
    rows = [entry["row"] for entry in kept]
    (session,) = replay(verbs, rows)
    links = {key: entries[0][key] for key in ("participant", "parent", "instance")}
    again = [turn_row(session, turn, gallery, target, ties, **links) for turn in session.turns]
    if odd := differences(rows, again):
        name = session.query.session_id
        raise SessionError(
            f"search {name} was recorded with other videos or another model ({', '.join(odd)} differ): it stays on "
            "record and cannot go on; start another one"
        )
    talk: Conversation | None = None
    for index, entry in enumerate(kept):
        so_far = Session(session.query, session.turns[: index + 1])
        talk = Conversation(verbs, so_far, _question(verbs, so_far, entry["question"], index == len(kept) - 1), talk)
    if talk is None:
        raise SessionError(f"session {session.query.session_id}: its journal has no turn")
    return talk


def _question(verbs: Verbs, session: Session, stored: dict[str, Any] | None, newest: bool) -> Question | None:
    """The open question; the newest one is asked again, for only the system knows how its round goes on."""
    if stored is None:
        return None
    again = verbs.ask([session])[0] if newest else None
    if again is not None and again.text == stored["text"]:
        return Question(again.text, events=again.events, interview=again.interview)
    return Question(stored["text"], events=tuple(Event(kind, detail) for kind, detail in stored["events"]))
