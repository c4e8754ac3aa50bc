"""One channel's answer: the gallery in order for each query."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from covr_lab.retrievers.base import Ask, Retriever
from covr_lab.types import RankedList


def rank_gallery(retriever: Retriever, asks: Sequence[Ask]) -> list[RankedList]:
    """Full rankings by (similarity descending, row ascending); masked and unusable rows are left out.

    Raises:
        SessionError: a query cannot be encoded.
        ValueError: a similarity is not a number.
    """
    if not asks:
        return []
    scores = retriever.score(retriever.encode(asks))
    if bool(scores.isnan().any()):
        raise ValueError(f"{type(retriever).__name__} scored NaN: its features or queries are broken")
    left_out = [list({*ask.masked, *retriever.unusable_rows}) for ask in asks]
    for line, masked in zip(scores, left_out, strict=True):
        line[masked] = -torch.inf
    values, rows = (part.cpu().numpy() for part in scores.sort(dim=1, descending=True, stable=True))
    kept = [len(line) - len(masked) for line, masked in zip(rows, left_out, strict=True)]
    return [
        RankedList(line[:size].astype("int32"), value[:size])
        for line, value, size in zip(rows, values, kept, strict=True)
    ]
