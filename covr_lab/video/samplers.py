"""Frame samplers: which frames of a clip a model sees."""

from __future__ import annotations

from abc import ABC, abstractmethod

from covr_lab.functional import sampling
from covr_lab.functional.sampling import Indices


class FrameSampler(ABC):
    """Chooses frames by index; samplers that describe themselves alike are equal."""

    @abstractmethod
    def indices(self, total: int) -> Indices:
        """Int64 ``(F,)`` indices below ``total``, the number of frames of the clip."""

    @abstractmethod
    def describe(self) -> str:
        """Stable text for fingerprints: it changes whenever other frames may be chosen."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameSampler) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash(self.describe())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()!r})"


class Uniform(FrameSampler):
    """Middles of ``count`` equal segments; a shorter clip repeats frames.

    Args:
        count: frames to choose (15 in CoVR).

    >>> Uniform(4).indices(300).tolist(), Uniform(4).describe()
    ([37, 112, 187, 262], 'uniform:4')
    """

    def __init__(self, count: int = 15) -> None:
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        self.count = count

    def indices(self, total: int) -> Indices:
        """Int64 ``(count,)``, non-decreasing."""
        return sampling.uniform(total, self.count)

    def describe(self) -> str:
        """``uniform:COUNT``."""
        return f"uniform:{self.count}"


class Middle(FrameSampler):
    """The middle frame (CoVR's reference frame)."""

    def indices(self, total: int) -> Indices:
        """Int64 ``(1,)``."""
        return sampling.middle(total)

    def describe(self) -> str:
        """``middle``."""
        return "middle"


class All(FrameSampler):
    """Every frame; the caller pays for the memory."""

    def indices(self, total: int) -> Indices:
        """Int64 ``(total,)``."""
        return sampling.every(total)

    def describe(self) -> str:
        """``all``."""
        return "all"
