"""What a reasoner is told of a session: never a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covr_lab.gallery.gallery import Gallery
from covr_lab.retrievers.base import Retriever
from covr_lab.types import RETRIEVAL, Context, Reflection, Rows, Session, Turn

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

CANDIDATES = 5  # displayed videos whose captions a question may draw on


def context_of(session: Session, state: Reflection | None, gallery: Gallery, videos: VideoStore | None) -> Context:
    """What is known of a session with at least turn 0.

    Args:
        session: the dialogue so far.
        state: progress memory, ``None`` before the first reflection.
        gallery: ids and the captions that the system knows.
        videos: the media.
    """
    ids, turns = gallery.ids, session.turns
    rows = turns[-1].result.rows[:CANDIDATES]
    captions = tuple(gallery.caption(ids[row]) for row in rows)
    return Context(
        session,
        state or Reflection(query=session.query.text),
        reference_caption=gallery.caption(session.query.reference),
        shown_caption=captions[0] if captions else "",
        shown=ids[rows[0]] if len(rows) else None,
        candidates=captions,
        scores=similarities(turns[-1], rows),
        displayed=tuple(gallery.caption(ids[t.result.rows[0]]) if len(t.result.rows) else "" for t in turns),
        videos=videos,
    )


def similarities(turn: Turn, rows: Rows) -> tuple[float, ...]:
    """Similarity of gallery ``rows`` to the turn's query; after turn 0, to that of the first channel that ran."""
    before = turn.stages.get(RETRIEVAL, turn.result)  # stages leave an order without similarities
    ranking = before if before.scores is not None else next(iter(turn.channels.values()), None)
    if ranking is None or ranking.scores is None or not len(ranking.rows):
        return (float("nan"),) * len(rows)
    places = ranking.rows == rows[:, None]
    return tuple(np.where(places.any(1), ranking.scores[places.argmax(1)], np.nan).tolist())


def with_caption_vectors(contexts: Sequence[Context], retriever: Retriever) -> list[Context]:
    """With the vectors of the candidates' captions, encoded for all at once; zeros where there is no caption."""
    known = dict[str, npt.NDArray[np.float32]]()
    captions = list(dict.fromkeys(text for context in contexts for text in context.candidates if text))
    if captions:
        vectors = retriever.encode_queries(captions, [None] * len(captions)).float().cpu().numpy()
        known = dict(zip(captions, vectors, strict=True))
    nothing = np.zeros(len(retriever.features), np.float32)
    found = [[known.get(text, nothing) for text in context.candidates] for context in contexts]
    return [
        replace(context, caption_vectors=np.reshape(rows, (-1, len(nothing))))
        for context, rows in zip(contexts, found, strict=True)
    ]
