"""From a turn to its stored row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from covr_lab.functional.ranks import position_rank, target_rank
from covr_lab.gallery.gallery import Gallery
from covr_lab.protocol import Ties
from covr_lab.results.calls import call_columns
from covr_lab.results.schema import TOP
from covr_lab.types import Feedback, RankedList, Reflection, Session, Target, Turn


def turn_row(
    session: Session,
    turn: Turn,
    gallery: Gallery,
    target: Target | None,
    ties: Ties,
    *,
    participant: str | None = None,
    parent: str | None = None,
    instance: str | None = None,
) -> dict[str, Any]:
    """One row of :data:`covr_lab.results.schema.SCHEMA`.

    Args:
        session: the dialogue that ``turn`` belongs to.
        turn: what happened.
        gallery: what rows stand for.
        target: the answer, ``None`` when nobody knows it (a person at the keyboard).
        ties: tie rule for rankings with scores.
        participant: id of the person, if it was one.
        parent: session that this one was started from, if any.
        instance: session of the data that a study's participant was given, if any.
    """
    state, rows = turn.state or Reflection(), turn.result.rows
    rank, tied = (None, None) if target is None else best_of(turn.result, target, gallery, ties)
    channel_ranks = {name: min(at) for name, found in turn.channels.items() if (at := places(found, target, gallery))}
    stages = {} if target is None else {name: best_of(r, target, gallery, ties) for name, r in turn.stages.items()}
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
        "stage_target_rank": {name: rank for name, (rank, _) in stages.items()},
        "routing": dict(turn.routing),
        "stage_timing": dict(turn.stage_seconds),
        "other_targets": [] if target is None else list(target.others),
        "subset_rank": None if target is None else subset_rank(turn.result, target, gallery),
        "exchanges": [
            {"question": e.probe.text, "part": e.probe.part, "slot": e.probe.slot, "answer": e.answer}
            for e in (feedback.exchanges if feedback else ())
        ],
        "comparisons": [
            {**asdict(one), "first": gallery.ids[one.first], "second": gallery.ids[one.second]}
            for one in turn.comparisons
        ],
        "mask_reference": session.query.mask_reference,
        "within": None if session.query.within is None else list(session.query.within),
        "rejected": list(feedback.rejected) if feedback else [],
        "memory": _memory(feedback),
        "parent": parent,
        "instance": instance,
        "seconds": turn.seconds,
        "error": turn.error,
    }


def _memory(feedback: Feedback | None) -> dict[str, Any] | None:
    """The memory as the user left it, where it was edited."""
    if feedback is None or feedback.memory is None:
        return None
    kinds = {kind: list(getattr(feedback.memory, kind)) for kind in ("keep", "require", "avoid")}
    return {**kinds, "query": feedback.memory.query}


def best_of(ranking: RankedList, target: Target, gallery: Gallery, ties: Ties) -> tuple[int, int]:
    """Rank and ties of the target that is ranked first; equal ranks go to the one named first."""
    rows = (gallery.row.get(video, -1) for video in target.videos)
    return min((rank_of(ranking, row, len(gallery), ties) for row in rows), key=lambda found: found[0])


def places(ranking: RankedList, target: Target | None, gallery: Gallery) -> list[int]:
    """1-based positions of the targets that a list holds."""
    found = (ranking.rank(gallery.row.get(video, -1)) for video in (target.videos if target is not None else ()))
    return [place for place in found if place is not None]


def subset_rank(ranking: RankedList, target: Target, gallery: Gallery) -> int | None:
    """1-based rank of the best target among the target's subset, one more than its size for a miss.

    ``None`` where there is no subset. Places count, in the order of the ranking.
    """
    if not target.subset:
        return None
    rows = [gallery.row[video] for video in target.subset if video in gallery.row]
    kept = ranking.rows[np.isin(ranking.rows, rows)]
    return min(position_rank(kept, gallery.row.get(video, -1), len(target.subset)) for video in target.videos)


def rank_of(ranking: RankedList, target: int, n_gallery: int, ties: Ties) -> tuple[int, int]:
    """Rank of the target and how many others share its score; a target that is not ranked is a miss.

    An order without scores has positions; a ranking with scores follows the tie rule.
    """
    where = np.flatnonzero(ranking.rows == target)
    if ranking.scores is None or not where.size:
        return position_rank(ranking.rows, target, n_gallery), 0
    rank, tied = target_rank(torch.from_numpy(ranking.scores[None]), torch.from_numpy(where[:1]), ties)
    return int(rank), int(tied)
