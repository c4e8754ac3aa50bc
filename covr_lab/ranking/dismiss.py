"""Videos that a user rejects one by one: where the rank policies put them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.memory import apply_caps, fires
from covr_lab.ranking.policies import RankPolicy, Tops
from covr_lab.types import Cap, Event, Feedback, Question, RankedList, Session, SessionError, Turn


def rejected_rows(session: Session, feedback: Feedback, gallery: Gallery) -> tuple[int, ...]:
    """Gallery rows of the videos that ``feedback`` rejects by name, each once.

    Raises:
        SessionError: a video is not in the gallery.
    """
    for video in feedback.rejected:
        if video not in gallery.row:
            name = session.query.session_id
            raise SessionError(f"session {name}: rejected video {video!r} is not in the gallery: reject results only")
    return tuple(dict.fromkeys(gallery.row[video] for video in feedback.rejected))


def dismiss(
    session: Session,
    feedback: Feedback,
    question: Question | None,
    rejected: Sequence[int],
    policies: Sequence[RankPolicy],
    scope: Literal["lists", "order"],
    gallery: Gallery,
) -> Turn:
    """A turn of rejections alone: the order on display with these videos demoted, without an intent.

    The user said nothing of the other videos, so that none of them is demoted for staying. Later turns find the
    demotions in the lists that they remember, as they do after any turn.

    Args:
        session: the dialogue up to the display.
        feedback: the rejections.
        question: what was open.
        rejected: gallery rows of the rejected videos.
        policies: rank policies; the first to name a video decides.
        scope: what caps of this system's fusion act on.
        gallery: ids of the rows.
    """
    order, caps = session.turns[-1].result.rows, dict[int, Cap]()
    for policy in policies:
        for cap in policy.plan(session, None, Tops(None, rejected=tuple(rejected))):
            caps.setdefault(cap.row, replace(cap, fired=fires(cap, order[None])))
    plan = tuple(caps.values())
    if scope == "order":
        plan = tuple(replace(cap, scope="order", guard=False) for cap in plan)
    return Turn(
        len(session.turns),
        RankedList(apply_caps(order[None], [plan])[0]),
        question=question.text if question else None,
        feedback=feedback,
        state=session.state and replace(session.state, satisfaction="neutral"),
        caps=plan,
        events=(*(question.events if question else ()), *unheeded(rejected, plan, gallery)),
    )


def unheeded(rejected: Sequence[int], caps: Sequence[Cap], gallery: Gallery) -> tuple[Event, ...]:
    """An event for each rejected video that no policy of the recipe demotes."""
    demoted = {cap.row for cap in caps}
    return tuple(Event("not_demoted", gallery.ids[row]) for row in rejected if row not in demoted)
