"""Rounds of questions: which one comes next is a function of the answers so far (IVR; dossier, section 3.4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from covr_lab.types import Exchange, Probe


class Interview(ABC):
    """The questions of one round; a value, equal to another one that asks the same."""

    @abstractmethod
    def following(self, said: Sequence[Exchange]) -> tuple[Probe, ...]:
        """The questions that can be asked together after ``said``, the round so far; none when it is over."""
