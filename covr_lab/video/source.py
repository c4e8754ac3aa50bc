"""What the decoding process knows about one file; nothing here is imported by the main process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from covr_lab.video.base import Frames, Probe, Reason, VideoError


class Source(ABC):
    """An opened video.

    Attributes:
        path: the file or folder.
        probe: what its container says.
        decodable: share of promised frames that are there; after :meth:`frames`, that also decode.
    """

    path: Path
    probe: Probe
    decodable: float = 1.0

    @abstractmethod
    def frames(self, wanted: Sequence[int]) -> Iterator[tuple[int, Frames]]:
        """One ``(index, uint8 (H, W, 3))`` for each of ``wanted``, which ascends; indices differ where none decodes.

        Raises:
            VideoError: the frames do not decode.
        """

    @abstractmethod
    def seconds(self, indices: Sequence[int]) -> npt.NDArray[np.float64] | None:
        """Presentation times float64 ``(F,)`` of frames, ``None`` without a clock."""

    def failed(self, reason: Reason, detail: str) -> VideoError:
        """The error to raise about this file."""
        return VideoError(self.path, reason, detail)
