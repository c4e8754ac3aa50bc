"""One channel's answer: the gallery in order for each query."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from covr_lab.retrievers.base import Ask, Retriever
from covr_lab.types import RankedList


def rank_gallery(retriever: Retriever, asks: Sequence[Ask]) -> list[RankedList]:
    """Full rankings of what is asked; see :func:`rank_vectors`.

    Raises:
        SessionError: a query cannot be encoded.
    """
    return rank_vectors(retriever, retriever.encode(asks), [ask.masked for ask in asks]) if asks else []


def rank_vectors(retriever: Retriever, queries: Tensor, masked: Sequence[Sequence[int]]) -> list[RankedList]:
    """Full rankings by (similarity descending, row ascending); masked and unusable rows are left out.

    Args:
        retriever: scores the gallery.
        queries: ``(B, D)``.
        masked: rows that each query leaves out.

    Raises:
        ValueError: a similarity is not a number.
    """
    scores = retriever.score(queries)
    if bool(scores.isnan().any()):
        raise ValueError(f"{type(retriever).__name__} scored NaN: its features or queries are broken")
    left_out = [list({*rows, *retriever.unusable_rows}) for rows in masked]
    for line, without in zip(scores, left_out, strict=True):
        line[without] = -torch.inf
    values, rows = (part.cpu().numpy() for part in scores.sort(dim=1, descending=True, stable=True))
    kept = [len(line) - len(without) for line, without in zip(rows, left_out, strict=True)]
    return [
        RankedList(line[:size].astype("int32"), value[:size])
        for line, value, size in zip(rows, values, kept, strict=True)
    ]
