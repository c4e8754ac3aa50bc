"""Channels: which texts of an intent ask the gallery, from which video, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.correct import Found
from covr_lab.ranking.fold import QueryFold
from covr_lab.ranking.retrieve import by_ranks, rank_vectors
from covr_lab.retrievers.base import Ask, Retriever
from covr_lab.types import Intent, Query, Session


@dataclass(frozen=True)
class Channel:
    """One way of asking the gallery.

    Attributes:
        retriever: name of the retriever.
        query: which text of the intent it sends; an empty one leaves the channel silent.
        anchor: the video it composes the text with: the one ``shown``, the session's ``reference``, or ``none``.
        mask_anchor: leave the shown anchor out of the list (a user who goes on says that it is not the target);
            the reference follows the protocol's self-masking.
        fold: makes one query vector of the composed query of turn 0 and all that the channel sent since; without it,
            the newest text alone asks.
        pieces: what separates the pieces of the newest text (" [SEP] "); each then asks by itself. ``fold`` makes one
            query of these alone, and without it their ranks are fused (:func:`~covr_lab.ranking.retrieve.by_ranks`).
    """

    retriever: str
    query: Literal["search", "edit"]
    anchor: Literal["shown", "reference", "none"] = "none"
    mask_anchor: bool = True
    fold: QueryFold | None = None
    pieces: str | None = None

    def text(self, intent: Intent) -> str:
        """What it sends."""
        return intent.search if self.query == "search" else intent.edit

    def ask(self, session: Session, text: str, opening: Ask, gallery: Gallery) -> Ask:
        """What ``text`` asks after the turns of ``session``, which began with ``opening``."""
        masked, anchor, shown = opening.masked, None, session.shown
        if self.anchor == "reference":
            anchor = opening.anchor
        elif self.anchor == "shown" and shown is not None:
            anchor, masked = gallery.ids[shown], (*masked, shown) if self.mask_anchor else masked
        return Ask(text, anchor, masked, opening.session, len(session.turns))

    def asks(self, session: Session, text: str, opening: Ask, gallery: Gallery) -> list[Ask]:
        """All that the query of this turn is made of, the newest last."""
        newest = self.ask(session, text, opening, gallery)
        if self.pieces is not None:
            return [replace(newest, text=piece) for piece in text.split(self.pieces)]
        if self.fold is None:
            return [newest]
        said = [(turn, self.text(turn.intent)) for turn in session.turns if turn.intent is not None]
        earlier = [
            self.ask(Session(session.query, session.turns[: turn.index]), words, opening, gallery)
            for turn, words in said
            if words
        ]
        return [opening, *earlier, newest]


def opening_ask(query: Query, gallery: Gallery, *, mask_source: bool) -> Ask:
    """Turn 0: the composed query (reference, edit).

    Self-masking leaves out the reference's row, unless the protocol (``mask_source``) or the annotation keeps it. A
    query with a gallery of its own leaves out all other rows.
    """
    row = gallery.row.get(query.reference or "")
    masked = (row,) if row is not None and mask_source and query.mask_reference else ()
    if query.within is not None:
        inside = {gallery.row[video] for video in query.within if video in gallery.row}
        masked = (*masked, *(other for other in range(len(gallery)) if other not in inside and other not in masked))
    return Ask(query.text, query.reference, masked, query.session_id)


def retrieve(
    channels: Mapping[str, Channel],
    retrievers: Mapping[str, Retriever],
    sessions: Sequence[Session],
    intents: Sequence[Intent],
    openings: Sequence[Ask],
    gallery: Gallery,
) -> list[Found]:
    """Run every channel for the sessions that have a text for it; a channel encodes the texts of all at once.

    Args:
        channels: by name.
        retrievers: by the names that channels give.
        sessions: dialogues before this turn.
        intents: texts of this turn.
        openings: what each session asked at turn 0.
        gallery: what rows stand for.
    """
    found = [Found({}) for _ in sessions]
    for name, channel in channels.items():
        texts = [channel.text(intent) for intent in intents]
        active = [index for index, text in enumerate(texts) if text]
        if not active:
            continue
        asks = [channel.asks(sessions[index], texts[index], openings[index], gallery) for index in active]
        retriever = retrievers[channel.retriever]
        queries = retriever.encode([ask for each in asks for ask in each])
        if channel.fold is not None:
            queries = torch.stack([channel.fold(part) for part in torch.split(queries, [len(each) for each in asks])])
            asks = [each[-1:] for each in asks]
        rankings = iter(rank_vectors(retriever, queries, [ask.masked for each in asks for ask in each]))
        for index, each in zip(active, asks, strict=True):
            found[index].lists[name] = by_ranks([next(rankings) for _ in each])
    return found
