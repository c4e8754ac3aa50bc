"""Frame samplers: which frames of a clip a model sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from covr_lab.functional import novelty, sampling
from covr_lab.functional.sampling import Indices
from covr_lab.types import SessionError


class FrameSampler(ABC):
    """Chooses frames by index; samplers that describe themselves alike are equal.

    Attributes:
        side: pixels of the longer side above which frames are scaled down while they are read, ``None`` for never.
    """

    side: int | None = None

    @abstractmethod
    def indices(self, total: int) -> Indices:
        """Int64 ``(F,)`` indices below ``total``, the number of frames of the clip."""

    def choose(self, total: int, seconds: float | None) -> Indices:
        """As :meth:`indices`, for a clip of known duration; ``seconds`` is ``None`` for one without a clock."""
        del seconds
        return self.indices(total)

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


class PerSecond(FrameSampler):
    """Equidistant frames at a fixed rate, within a bound.

    Args:
        rate: frames a second.
        most: frames at most; of a clip without a clock as many of them as it has.

    >>> PerSecond(1.0, 32).choose(250, 10.0).tolist()[:3], len(PerSecond(1.0, 32).choose(3000, 120.0))
    ([12, 37, 62], 32)
    """

    def __init__(self, rate: float, most: int) -> None:
        novelty.check_rates(((0.0, rate),))
        if most < 1:
            raise ValueError(f"most must be at least 1, not {most}")
        self.rate, self.most = rate, most

    def indices(self, total: int) -> Indices:
        """Int64 ``(min(total, most),)``, strictly ascending."""
        return sampling.uniform(total, min(total, self.most))

    def choose(self, total: int, seconds: float | None) -> Indices:
        """Int64 ``(F,)``, strictly ascending."""
        if seconds is None:
            return self.indices(total)
        count = novelty.probe_count(total, seconds, ((0.0, self.rate),))
        return sampling.uniform(total, min(count, self.most))

    def describe(self) -> str:
        """``per second:RATE, at most COUNT``."""
        return f"per second:{self.rate:g}, at most {self.most}"


class All(FrameSampler):
    """Every frame; the caller pays for the memory."""

    def indices(self, total: int) -> Indices:
        """Int64 ``(total,)``."""
        return sampling.every(total)

    def describe(self) -> str:
        """``all``."""
        return "all"


class Listed(FrameSampler):
    """Frames that were chosen before.

    Args:
        chosen: native indices, ascending.

    >>> Listed([3, 17]).indices(20).tolist(), Listed([3, 17]).describe()
    ([3, 17], 'listed:3,17')
    """

    def __init__(self, chosen: Sequence[int]) -> None:
        self.chosen = tuple(map(int, chosen))
        if not self.chosen or list(self.chosen) != sorted(self.chosen) or self.chosen[0] < 0:
            raise ValueError(f"listed frames must ascend from 0 or more, not {list(chosen)}")

    def indices(self, total: int) -> Indices:
        """Int64 ``(F,)``.

        Raises:
            SessionError: the clip has too few frames: it is another than the one they were chosen of.
        """
        if self.chosen[-1] >= total:
            raise SessionError(f"frame {self.chosen[-1]} was chosen of a clip that has {total} frames: index it again")
        return np.array(self.chosen, dtype=np.int64)

    def describe(self) -> str:
        """``listed:INDEX,INDEX...``."""
        return f"listed:{','.join(map(str, self.chosen))}"


class Probes(FrameSampler):
    """Equidistant frames at a rate that falls with the clip's length (dossier, section 2.6); all without a clock.

    Args:
        rates: pairs (from this many seconds on, probes a second).
        side: see :class:`FrameSampler`.

    >>> Probes().choose(300, 12.0).shape, Probes().describe()
    ((48,), 'probes:0s 8/s, 10s 4/s, 30s 2/s; side 256')
    """

    def __init__(self, rates: novelty.Rates = novelty.RATES, side: int = 256) -> None:
        novelty.check_rates(rates)
        self.rates, self.side = rates, side

    def indices(self, total: int) -> Indices:
        """Int64 ``(total,)``: all frames."""
        return sampling.every(total)

    def choose(self, total: int, seconds: float | None) -> Indices:
        """Int64 ``(M,)``, strictly ascending."""
        return novelty.probe_positions(total, seconds, self.rates)

    def describe(self) -> str:
        """``probes:RATES; side PIXELS``."""
        bands = ", ".join(f"{start:g}s {rate:g}/s" for start, rate in self.rates)
        return f"probes:{bands}; side {self.side}"
