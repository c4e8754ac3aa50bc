"""Rank-cap: demote known videos in ranked lists, without looking at any target (ReCoVR, section 3.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

ABSENT = -1
Lists = npt.NDArray[np.integer[Any]]


def rank_cap(lists: Lists, videos: Lists, positions: Lists) -> Lists:
    """Move each video that stands above its allowed position down to it; everybody else keeps their order.

    With one video this is ``cap(L, c, kappa)`` of the dossier: if ``c`` stands above ``kappa`` it moves to
    ``min(kappa, |L|)`` and the items between move up by one. With several, each ends at its position or below, and
    none is lifted by the demotion of another.

    Args:
        lists: integers ``(S, K)``, best first, padded with -1 at the end.
        videos: integers ``(S, R)``, -1 where a list has fewer than ``R`` videos to demote; no repeats in a row.
        positions: integers ``(S, R)``, 1-based.

    Returns:
        The capped lists, ``(S, K)``; the input is left as it is.

    >>> rank_cap(np.array([[7, 8, 9, 6]]), np.array([[7]]), np.array([[3]])).tolist()
    [[8, 9, 7, 6]]
    >>> rank_cap(np.array([[7, 8, -1]]), np.array([[7]]), np.array([[11]])).tolist()
    [[8, 7, -1]]
    """
    result = lists.copy()
    if not videos.size or not lists.size:
        return result
    # Nothing below the deepest position plus the number of demoted videos can move.
    width = min(lists.shape[1], int(positions.max()) + videos.shape[1])
    match = (lists[:, None, :width] == videos[:, :, None]) & (videos != ABSENT)[:, :, None]  # (S, R, width)
    hit = np.flatnonzero(match.any(axis=(1, 2)))
    if not hit.size:
        return result
    head, match, floor = lists[hit, :width], match[hit], positions[hit] - 1
    free = ~match.any(1) & (head != ABSENT)
    place = free.cumsum(1) - free  # free items ahead of each column
    found, column = match.any(2), match.argmax(2)
    ahead = np.maximum(np.take_along_axis(place, column, 1), floor)  # free items a demoted video has to let pass
    ahead = np.where(found, np.minimum(ahead, free.sum(1, keepdims=True)), width)
    key = ahead * width + column  # order among the demoted: by place, then by the column they came from
    demoted = ahead + (key[:, None, :] < key[:, :, None]).sum(2)
    target = np.where(free, place + (ahead[:, :, None] <= place[:, None]).sum(1), np.arange(width))
    session, slot = np.nonzero(found)
    target[session, column[session, slot]] = demoted[session, slot]
    result[hit[:, None], target] = head
    return result
