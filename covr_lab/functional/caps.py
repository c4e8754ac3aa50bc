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
    ``min(kappa, |L|)`` and the items between move up by one. With several, each ends at its position or below,
    also when the others leave the places above it.

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
    result, known = lists.copy(), videos != ABSENT
    if not lists.size or not known.any():
        return result
    # Nothing below the deepest position plus the number of further demoted videos can move. Columns come first from
    # here on: a few long rows are faster than many short ones.
    width = min(lists.shape[1], int(positions.max()) + videos.shape[1] - 1)
    head = lists[:, :width].T.copy()
    move = _move_one if videos.shape[1] == 1 else _move_several
    result[:, :width] = move(head, videos.T, positions.T).T
    return result


def _move_one(head: Lists, videos: Lists, positions: Lists) -> Lists:
    """One video a list ``(width, S)``: the items between its place and its position move up by one."""
    session, column = np.arange(head.shape[1]), np.arange(len(head) - 1)[:, None]
    match = (head == videos) & (videos != ABSENT)
    start = match.argmax(0)
    end = np.minimum(positions[0], (head != ABSENT).sum(0)) - 1
    end = np.where(match[start, session], np.maximum(end, start), start)
    moved = head[start, session]
    head[:-1] = np.where((start <= column) & (column < end), head[1:], head[:-1])
    head[end, session] = moved
    return head


def _move_several(head: Lists, videos: Lists, positions: Lists) -> Lists:
    """Several videos a list ``(width, S)``: each item's new place is counted."""
    width, session = len(head), np.arange(head.shape[1])
    match = (head == videos[:, None]) & (videos != ABSENT)[:, None]  # (R, width, S)
    others = ~match.any(0)
    place = np.zeros(head.shape, dtype=np.int64)  # others ahead of each column
    for column in range(1, width):
        np.add(place[column - 1], others[column - 1], out=place[column])
    found, origin = match.any(1), match.argmax(1)
    ahead = np.maximum(place[origin, session], positions - 1)  # others that a demoted video has to let pass
    ahead = np.where(found, np.minimum(ahead, (others & (head != ABSENT)).sum(0)), width)
    key = ahead * width + origin  # order among the demoted: by what is ahead, then as they came
    demoted = ahead + (key < key[:, None]).sum(1)
    for behind in ahead[:, None] <= place:
        place += behind
    video, hit = np.nonzero(found)
    place[origin[video, hit], hit] = demoted[video, hit]
    capped = np.empty_like(head)
    capped[place, session] = head
    return capped
