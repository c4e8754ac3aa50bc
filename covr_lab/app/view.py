"""A search as plain values, for the page and for programs alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from covr_lab.app.desk import Search
from covr_lab.chat import NOTES, Place, cap_text, places
from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.fusion import Fusion
from covr_lab.ranking.memory import Memory, collate_memory
from covr_lab.types import Reflection, Session, Turn

View = dict[str, Any]
Shares = Callable[[Session, Sequence[int]], list[dict[str, float]]]
TOP: Final = 20  # results on display


@dataclass(frozen=True, slots=True)
class Names:
    """What people see of videos.

    Attributes:
        gallery: for captions.
        known: video id -> name, where the id is none.
        media: whether there are files to show.
    """

    gallery: Gallery
    known: Mapping[str, str]
    media: bool = True

    def of(self, video: str) -> str:
        """Name of a video."""
        return self.known.get(video, video)

    def card(self, video: str) -> View:
        """Id, name, caption, and where picture and video are, ``None`` where there is nothing to show."""
        places = {
            kind: f"/media/{kind}/{quote(video, safe='')}" if self.media else None for kind in ("poster", "video")
        }
        caption = self.gallery.caption(video)
        return {
            "id": video,
            "name": self.of(video),
            "caption": caption,
            "poster": places["poster"],
            "media": places["video"],
        }


def channel_shares(
    session: Session, rows: Sequence[int], *, fusion: Fusion, channels: Sequence[str], opening: bool
) -> list[dict[str, float]]:
    """How much each channel did for videos of the newest turn, over all remembered turns.

    Args:
        session: at least turn 0, which is shown as if it were remembered.
        rows: gallery rows.
        fusion: the rule that made the order.
        channels: names.
        opening: whether later turns remember turn 0.

    Returns:
        Channel -> share of the fused score, together 1; empty for a row that no list holds.
    """
    remembers = opening or len(session.turns) == 1
    memory = collate_memory([session], channels, window=fusion.window + 1, pool=fusion.pool, opening=remembers)
    lists = memory.rows[:, :-1]  # the last turn is the one to come
    values = fusion.shares(Memory(lists, memory.scores[:, :-1]))[0]
    shares = []
    for row in rows:
        parts = np.where(lists[0] == row, values, 0.0).sum((0, 2))
        total = float(parts.sum())
        found = zip(channels, parts.tolist(), strict=True)
        shares.append({name: part / total for name, part in found if part} if total else {})
    return shares


def session_view(search: Search, names: Names, shares: Shares | None = None, top: int = TOP) -> View:
    """All that a person may see of a search; never a target.

    Args:
        search: as it stands.
        names: what people see of videos.
        shares: :func:`channel_shares` of the system, ``None`` where it fuses nothing.
        top: results on display.
    """
    session = search.talk.session
    turn, query, state = session.turns[-1], session.query, session.state or Reflection(query=session.query.text)
    rows = [int(row) for row in turn.result.rows[:top]]
    parts = shares(session, rows) if shares else [{}] * len(rows)
    question = search.talk.question
    return {
        "id": search.name,
        "turn": search.turn,
        "over": search.over,
        "found": turn.feedback.text if search.over and turn.feedback else None,
        "parent": search.parent,
        "reference": None if query.reference is None else names.card(query.reference),
        "text": query.text,
        "total": len(turn.result.rows),
        "results": [
            _result(session, rank, row, names, part, top)
            for rank, (row, part) in enumerate(zip(rows, parts, strict=True), 1)
        ],
        "question": question.text if question else None,
        "constraints": {
            **{kind: list(getattr(state, kind)) for kind in ("keep", "require", "avoid")},
            "query": state.query,
        },
        "history": [_past(one, names) for one in session.turns],
        "notes": _notes(turn, names),
    }


def _result(session: Session, rank: int, row: int, names: Names, shares: Mapping[str, float], top: int) -> View:
    turn, video = session.turns[-1], names.gallery.ids[row]
    traced = places(session, row)
    before = traced[-2].rank if len(traced) > 1 else None
    scores = turn.result.scores
    return {
        **names.card(video),
        "rank": rank,
        "before": before,
        "new": len(traced) > 1 and (before is None or before > top),
        "score": None if scores is None else float(scores[rank - 1]),
        "shares": dict(shares),
        "why": [_why(one, place, names.of(video)) for one, place in zip(session.turns, traced, strict=True)],
        "stages": {name: place for name, found in turn.stages.items() if (place := found.rank(row)) is not None},
        "reasons": _reasons(turn, row, names),
    }


def _reasons(turn: Turn, row: int, names: Names) -> list[View]:
    """What a judge said about a video against others, one entry an outcome of a pair; the best of the others first."""
    met: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for one in turn.comparisons:
        if row in (one.first, one.second):
            mine, its, other = ("first", "second", one.second) if row == one.first else ("second", "first", one.first)
            outcome = {"tie": "tie", mine: "won", its: "lost"}.get(one.outcome, "unclear")
            met.setdefault((other, outcome), []).append((mine, one.reason))
    place = {other: turn.result.rank(other) or len(names.gallery) for other, _ in met}
    said = []
    for other, outcome in sorted(met, key=lambda pair: place[pair[0]]):
        seen = met[other, outcome]
        where, why = seen[-1]
        against = names.of(names.gallery.ids[other])
        said.append({"against": against, "outcome": outcome, "times": len(seen), "as": where, "reason": why})
    return said


def _why(turn: Turn, place: Place, name: str) -> View:
    cap = cap_text(place.cap, name) if place.cap else None
    return {"turn": turn.index, "rank": place.rank, "channels": dict(place.channels), "cap": cap}


def _past(turn: Turn, names: Names) -> View:
    """One line of the history."""
    said, shown = turn.feedback, turn.result.rows
    return {
        "turn": turn.index,
        "question": turn.question,
        "action": said.action if said else None,
        "feedback": said.text if said else None,
        "rejected": [names.card(video) for video in said.rejected] if said else [],
        "edited": said is not None and said.memory is not None,
        "shown": names.card(names.gallery.ids[int(shown[0])]) if len(shown) else None,
        "sent": {"search": turn.intent.search, "edit": turn.intent.edit} if turn.intent else None,
        "satisfaction": turn.state.satisfaction if turn.state else None,
        "seconds": turn.seconds,
        "error": turn.error,
    }


def _notes(turn: Turn, names: Names) -> list[str]:
    """What a person is told about the newest turn."""
    caps = [
        f"{cap_text(cap, names.of(names.gallery.ids[cap.row]))}; now at {turn.result.rank(cap.row)}"
        for cap in turn.caps
    ]
    said = [NOTES[event.kind].format(names.of(event.detail)) for event in turn.events if event.kind in NOTES]
    return [*caps, *said]
