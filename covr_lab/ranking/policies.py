"""Rank policies: which videos this turn's ranking must not show first again, and how far down they go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from covr_lab.frozen import Frozen
from covr_lab.types import Cap, Satisfaction, Session


@dataclass(frozen=True, slots=True)
class Tops:
    """Rows that would come first without a cap, and those that the user rejected one by one.

    Attributes:
        fused: first of the provisional fusion, ``None`` when there is no ranking.
        channels: first of each current channel list that ran.
        rejected: rejected by name, wherever they stood.
    """

    fused: int | None
    channels: tuple[int | None, ...] = ()
    rejected: tuple[int, ...] = ()


class RankPolicy(Frozen, ABC):
    """Plans demotions from what the user said and what would be shown; never from a target."""

    @abstractmethod
    def plan(self, session: Session, satisfaction: Satisfaction | None, tops: Tops) -> tuple[Cap, ...]:
        """The demotions of this turn, no video twice.

        Args:
            session: the dialogue up to the rejected display (``session.shown``).
            satisfaction: what the newest feedback says about it, ``None`` where it says nothing.
            tops: what would be shown next, and what was rejected by name.
        """


class RankCap(RankPolicy):
    """Rank-cap (ReCoVR, sections 3.2 and 4.3): a rejected video leaves the top ten, a stagnant one the top three.

    Args:
        negative: position of a video whose display was rejected.
        neutral: position of a video that would stay first although the user asked for something else.
        stagnation: how staying first is read: the ``provisional`` fusion would repeat it, the ``history`` showed it
            twice already, or it comes first in a current ``channel`` list. The paper leaves it open.
        scope: ``window`` caps every remembered list and the memory keeps them capped; ``current`` caps and keeps this
            turn's lists only. A fusion that reads similarities caps its order of this turn instead, whatever is set.
        memory: ``last`` caps the video just rejected, ``all_rejected`` every video rejected so far in the session.
        fused_guard: move a capped video down in the fused order as well if it still comes first (scope ``window``).
        spare_positive: never cap after praise ("almost, but ..."). By default praise is read like a neutral signal,
            for otherwise the video comes first again although the user went on; with two cap positions in the paper
            and no repeat by design (table 8), praise cannot be an exemption there.
    """

    def __init__(
        self,
        *,
        negative: int = 11,
        neutral: int = 4,
        stagnation: Literal["provisional", "history", "channel"] = "provisional",
        scope: Literal["window", "current"] = "window",
        memory: Literal["last", "all_rejected"] = "last",
        fused_guard: bool = True,
        spare_positive: bool = False,
    ) -> None:
        super().__init__()
        if min(negative, neutral) < 2:
            raise ValueError(f"rank-cap positions must be 2 or more, not {negative} and {neutral}")
        self.negative, self.neutral = negative, neutral
        self.stagnation, self.scope, self.memory = stagnation, scope, memory
        self.guard = fused_guard and scope == "window"
        self.spare_positive = spare_positive

    def plan(self, session: Session, satisfaction: Satisfaction | None, tops: Tops) -> tuple[Cap, ...]:
        """Cap the video on display, what was rejected by name, and earlier rejections where the recipe asks for it."""
        shown, caps = session.shown, dict[int | None, Cap]()
        if self.memory == "all_rejected":
            caps |= {row: self._rejection(row) for row in session.rejected}
        if shown is not None and satisfaction == "negative":
            caps[shown] = self._rejection(shown)
        elif satisfaction == "positive" and self.spare_positive:
            caps.pop(shown, None)
        elif shown is not None and satisfaction is not None and self._stagnant(session, shown, tops):
            caps.setdefault(shown, Cap(shown, self.neutral, "stagnant", self.scope, self.guard))
        return tuple((caps | {row: self._rejection(row) for row in tops.rejected}).values())

    def _rejection(self, row: int) -> Cap:
        return Cap(row, self.negative, "rejected", self.scope, self.guard)

    def _stagnant(self, session: Session, shown: int, tops: Tops) -> bool:
        if self.stagnation == "provisional":
            return tops.fused == shown
        if self.stagnation == "channel":
            return shown in tops.channels
        return len(session.turns) > 1 and session.turns[-2].result.rows[:1].tolist() == [shown]
