"""One channel's answer: the gallery in order for each query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from covr_lab.functional.fusion import reciprocal_rank_fusion
from covr_lab.ranking.memory import complete
from covr_lab.retrievers.base import Ask, Retriever
from covr_lab.types import RankedList

DEEP = 1000  # ranks of a piece that count


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


def by_ranks(rankings: Sequence[RankedList]) -> RankedList:
    """One order of several full rankings of the same rows, by the sum of their reciprocal ranks; one stays as it is.

    The first :data:`DEEP` ranks of each count; the rest is in the order of the first ranking.

    >>> rows = ([1, 2, 0], [2, 0, 1])
    >>> by_ranks([RankedList(np.array(each, np.int32)) for each in rows]).rows.tolist()
    [2, 1, 0]
    """
    if len(rankings) == 1:
        return rankings[0]
    lists = np.stack([ranking.rows[:DEEP] for ranking in rankings])
    fused, _ = reciprocal_rank_fusion(lists[None], [1.0] * len(lists), current=len(lists))
    return RankedList(complete(fused[0], rankings[0].rows))
