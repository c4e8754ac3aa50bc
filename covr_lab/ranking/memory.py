"""Result memory: the lists of a window of turns as one array, derived from the sessions and never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from covr_lab.functional.caps import ABSENT, rank_cap
from covr_lab.types import Cap, RankedList, Session

Lists = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Lists of a batch of sessions over a window of turns and all channels.

    Attributes:
        rows: int32 ``(B, window, C, pool)``, best first, padded with -1.
        scores: float32 of the same shape: the similarities of the rows, NaN where there is none.
    """

    rows: Lists
    scores: npt.NDArray[np.float32]

    @classmethod
    def empty(cls, *shape: int) -> Memory:
        """Without any entry."""
        return cls(np.full(shape, ABSENT, dtype=np.int32), np.full(shape, np.nan, dtype=np.float32))

    def write(self, at: tuple[int, int, int], ranking: RankedList) -> None:
        """Put the head of ``ranking`` into the empty place ``at`` (session, slot, channel)."""
        size = min(len(ranking.rows), self.rows.shape[-1])
        self.rows[at][:size] = ranking.rows[:size]
        if ranking.scores is not None:
            self.scores[at][:size] = ranking.scores[:size]

    def read(self, at: tuple[int, int, int]) -> RankedList:
        """What stands there; a list with a similarity missing has none."""
        kept = self.rows[at] != ABSENT
        scores = self.scores[at][kept]
        return RankedList(self.rows[at][kept], None if np.isnan(scores).any() else scores)


def collate_memory(
    sessions: Sequence[Session], channels: Sequence[str], *, window: int, pool: int, opening: bool
) -> Memory:
    """Lists of the last turns of each session, as later caps left them, with room for the turn in progress.

    Args:
        sessions: dialogues, at least one turn each.
        channels: names, in the order of the result's third axis.
        window: turns, the one in progress included.
        pool: entries kept of a list.
        opening: whether turn 0 is remembered.

    Returns:
        Oldest turn first; the last turn is empty.
    """
    memory = Memory.empty(len(sessions), window, len(channels), pool)
    for slot in range(window - 1):
        back = window - 1 - slot
        turns = [session.turns[-back] if len(session.turns) >= back else None for session in sessions]
        for row, turn in enumerate(turns):
            if turn is None or not (turn.index or opening):
                continue
            for column, channel in enumerate(channels):
                if channel in turn.channels:
                    memory.write((row, slot, column), turn.channels[channel])
        # The turn stored its own lists capped; its caps reach back to older ones.
        caps = [[cap for cap in turn.caps if cap.scope == "window"] if turn else [] for turn in turns]
        memory = cap_slots(memory, slice(0, slot), caps)
    return memory


def cap_slots(memory: Memory, slots: slice, caps: Sequence[Sequence[Cap]]) -> Memory:
    """``memory`` with the videos of each session's ``caps`` demoted in its lists of ``slots``; scores go with rows."""
    if not any(caps):
        return memory
    rows, scores = memory.rows.copy(), memory.scores.copy()
    rows[:, slots] = apply_caps(rows[:, slots], caps)
    moved = (rows != memory.rows).any(-1)
    before, after = memory.rows[moved].argsort(-1), rows[moved].argsort(-1)
    found = np.empty_like(scores[moved])
    np.put_along_axis(found, after, np.take_along_axis(scores[moved], before, -1), -1)
    scores[moved] = found
    return Memory(rows, scores)


def apply_caps(lists: Lists, caps: Sequence[Sequence[Cap]]) -> Lists:
    """A copy of ``lists`` with the videos of each session's ``caps`` demoted in all its lists ``(B, ..., pool)``."""
    width = max(map(len, caps), default=0)
    if not width or not lists.size:
        return lists.copy()
    videos = np.full((len(caps), width), ABSENT)
    positions = np.ones((len(caps), width), dtype=np.int64)
    for row, plan in enumerate(caps):
        for column, cap in enumerate(plan):
            videos[row, column], positions[row, column] = cap.row, cap.position
    flat = lists.reshape(-1, lists.shape[-1])
    each = len(flat) // len(caps)
    capped = rank_cap(flat, videos.repeat(each, 0), positions.repeat(each, 0))
    return capped.reshape(lists.shape).astype(np.int32, copy=False)


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
