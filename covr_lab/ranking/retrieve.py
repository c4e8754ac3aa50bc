"""One channel's answer: the gallery in order for each query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from covr_lab.retrievers.base import Retriever
from covr_lab.types import RankedList


@dataclass(frozen=True, slots=True)
class Ask:
    """A query to a channel.

    Attributes:
        text: what is searched.
        anchor: id of the video that the text changes, ``None`` for a description.
        masked: gallery rows left out of the ranking.
    """

    text: str
    anchor: str | None = None
    masked: tuple[int, ...] = ()


def rank_gallery(retriever: Retriever, asks: Sequence[Ask]) -> list[RankedList]:
    """Full rankings by (similarity descending, row ascending), masked rows left out.

    Raises:
        SessionError: a query cannot be encoded.
        ValueError: a similarity is not a number.
    """
    if not asks:
        return []
    queries = retriever.encode_queries([ask.text for ask in asks], [ask.anchor for ask in asks])
    scores = retriever.score(queries)
    if bool(scores.isnan().any()):
        raise ValueError(f"{type(retriever).__name__} scored NaN: its features or queries are broken")
    for line, ask in zip(scores, asks, strict=True):
        line[list(ask.masked)] = -torch.inf
    values, rows = (part.cpu().numpy() for part in scores.sort(dim=1, descending=True, stable=True))
    kept = [len(line) - len(ask.masked) for line, ask in zip(rows, asks, strict=True)]
    return [
        RankedList(line[:size].astype("int32"), value[:size])
        for line, value, size in zip(rows, values, kept, strict=True)
    ]
