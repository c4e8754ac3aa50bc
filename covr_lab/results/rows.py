"""From a turn to its stored row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from covr_lab.functional.ranks import position_rank, target_rank
from covr_lab.gallery.gallery import Gallery
from covr_lab.protocol import Ties
from covr_lab.results.calls import call_columns
from covr_lab.results.schema import TOP
from covr_lab.types import RankedList, Reflection, Session, Target, Turn


def turn_row(
    session: Session,
    turn: Turn,
    gallery: Gallery,
    target: Target | None,
    ties: Ties,
    *,
    participant: str | None = None,
) -> dict[str, Any]:
    """One row of :data:`covr_lab.results.schema.SCHEMA`.

    Args:
        session: the dialogue that ``turn`` belongs to.
        turn: what happened.
        gallery: what rows stand for.
        target: the answer, ``None`` when nobody knows it (a person at the keyboard).
        ties: tie rule for rankings with scores.
        participant: id of the person, if it was one.
    """
    state, rows = turn.state or Reflection(), turn.result.rows
    answer = None if target is None else gallery.row.get(target.video, -1)
    rank, tied = (None, None) if answer is None else rank_of(turn.result, answer, len(gallery), ties)
    places = {name: found.rank(answer) for name, found in turn.channels.items()} if answer is not None else {}
    channel_ranks = {name: place for name, place in places.items() if place is not None}
    snapshots = {} if answer is None else {n: rank_of(r, answer, len(gallery), ties)[0] for n, r in turn.stages.items()}
    feedback, intent, top = turn.feedback, turn.intent, turn.result.head(TOP)
    return {
        "session_id": session.query.session_id,
        "turn": turn.index,
        "reference": session.query.reference,
        "edit": session.query.text,
        "target": None if target is None else target.video,
        "target_rank": rank,
        "target_ties": tied,
        "n_gallery": len(gallery),
        "question": turn.question,
        "action": feedback.action if feedback else None,
        "feedback": feedback.text if feedback else None,
        "source": feedback.source if feedback else None,
        "participant": participant,
        "intent": {"search": intent.search, "edit": intent.edit} if intent else {},
        "satisfaction": state.satisfaction if turn.state else None,
        "keep": list(state.keep),
        "require": list(state.require),
        "avoid": list(state.avoid),
        "query": state.query if turn.state else None,
        "shown": gallery.ids[rows[0]] if len(rows) else None,
        "top_ids": [gallery.ids[row] for row in top.rows],
        "top_scores": None if top.scores is None else top.scores.tolist(),
        "channel_top_ids": {name: [gallery.ids[row] for row in found.rows] for name, found in turn.channels.items()},
        "channel_target_rank": channel_ranks,
        "caps": [
            {
                "video": gallery.ids[c.row],
                "position": c.position,
                "reason": c.reason,
                "scope": c.scope,
                "fired": c.fired,
            }
            for c in turn.caps
        ],
        "events": [{"kind": event.kind, "detail": event.detail} for event in turn.events],
        "intent_ok": intent.parse_ok if intent else None,
        "reflection_ok": turn.state.parse_ok if turn.state else None,
        **call_columns(turn.calls),
        "stage_target_rank": snapshots,
        "routing": dict(turn.routing),
        "stage_timing": dict(turn.stage_seconds),
        "seconds": turn.seconds,
        "error": turn.error,
    }


def rank_of(ranking: RankedList, target: int, n_gallery: int, ties: Ties) -> tuple[int, int]:
    """Rank of the target and how many others share its score; a target that is not ranked is a miss.

    An order without scores has positions; a ranking with scores follows the tie rule.
    """
    where = np.flatnonzero(ranking.rows == target)
    if ranking.scores is None or not where.size:
        return position_rank(ranking.rows, target, n_gallery), 0
    rank, tied = target_rank(torch.from_numpy(ranking.scores[None]), torch.from_numpy(where[:1]), ties)
    return int(rank), int(tied)
