"""Result memory: the lists of a window of turns as one array, derived from the sessions and never stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from covr_lab.functional.caps import ABSENT, rank_cap
from covr_lab.types import Cap, Session

Lists = npt.NDArray[np.int32]


def collate_memory(
    sessions: Sequence[Session], channels: Sequence[str], *, window: int, pool: int, opening: bool
) -> Lists:
    """Lists of the last turns of each session, as later caps left them, with room for the turn in progress.

    Args:
        sessions: dialogues, at least one turn each.
        channels: names, in the order of the result's third axis.
        window: turns, the one in progress included.
        pool: entries kept of a list.
        opening: whether turn 0 is remembered.

    Returns:
        int32 ``(B, window, C, pool)``, oldest turn first, padded with -1; the last turn is empty.
    """
    memory = np.full((len(sessions), window, len(channels), pool), ABSENT, dtype=np.int32)
    for slot in range(window - 1):
        back = window - 1 - slot
        turns = [session.turns[-back] if len(session.turns) >= back else None for session in sessions]
        for row, turn in enumerate(turns):
            if turn is None or not (turn.index or opening):
                continue
            for column, channel in enumerate(channels):
                if channel in turn.channels:
                    rows = turn.channels[channel].rows[:pool]
                    memory[row, slot, column, : len(rows)] = rows
        # The turn stored its own lists capped; its caps reach back to older ones.
        caps = [[cap for cap in turn.caps if cap.scope == "window"] if turn else [] for turn in turns]
        memory[:, :slot] = apply_caps(memory[:, :slot], caps)
    return memory


def apply_caps(memory: Lists, caps: Sequence[Sequence[Cap]]) -> Lists:
    """A copy of ``memory`` with the videos of each session's ``caps`` demoted in all its lists ``(B, ..., pool)``."""
    width = max(map(len, caps), default=0)
    if not width or not memory.size:
        return memory.copy()
    videos = np.full((len(caps), width), ABSENT)
    positions = np.ones((len(caps), width), dtype=np.int64)
    for row, plan in enumerate(caps):
        for column, cap in enumerate(plan):
            videos[row, column], positions[row, column] = cap.row, cap.position
    lists = memory.reshape(-1, memory.shape[-1])
    each = len(lists) // len(caps)
    capped = rank_cap(lists, videos.repeat(each, 0), positions.repeat(each, 0))
    return capped.reshape(memory.shape).astype(np.int32, copy=False)


def complete(head: npt.NDArray[np.integer[Any]], tail: Lists) -> Lists:
    """Full order of one session: ``head`` first, then everything of ``tail`` that is not in it.

    Args:
        head: fused rows ``(M,)``, padded with -1; rows that ``tail`` lacks (masked ones) are dropped.
        tail: the order that ranks the rest, without padding.

    >>> complete(np.array([4, 2, -1]), np.array([1, 2, 3, 4], dtype=np.int32)).tolist()
    [4, 2, 1, 3]
    """
    size = int(max(head.max(initial=-1), tail.max(initial=-1))) + 1
    allowed = np.zeros(size + 1, dtype=bool)
    allowed[tail] = True
    front = head[allowed[head]]
    allowed[front] = False
    return np.concatenate((front.astype(np.int32), tail[allowed[tail]]))


def fires(cap: Cap, lists: Lists) -> bool:
    """Whether ``cap`` moves its video in any of the lists ``(..., pool)``."""
    *_, place = np.nonzero(lists == cap.row)
    lengths = (lists != ABSENT).sum(-1)[(lists == cap.row).any(-1)]
    return bool((place < np.minimum(lengths, cap.position) - 1).any())
