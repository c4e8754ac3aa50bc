"""Which frames of a clip to look at: pure functions of the frame count."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def uniform(total: int, count: int) -> Indices:
    """Middles of ``count`` equal segments: ``floor((i + 0.5) * total / count)``.

    A clip with fewer frames than ``count`` repeats frames, in order: every frame is seen.

    Args:
        total: frames of the clip.
        count: frames to choose.

    Returns:
        int64 ``(count,)``, non-decreasing, each below ``total``.

    Raises:
        ValueError: ``total`` or ``count`` is below 1.

    >>> uniform(300, 15)[:3].tolist(), uniform(3, 5).tolist()
    ([10, 30, 50], [0, 0, 1, 2, 2])
    """
    _refuse(total)
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    return (2 * np.arange(count, dtype=np.int64) + 1) * total // (2 * count)  # whole numbers: no rounding


def middle(total: int) -> Indices:
    """The one frame ``total // 2`` (CoVR, ``get_middle_frame``): int64 ``(1,)``.

    >>> middle(301).tolist()
    [150]
    """
    _refuse(total)
    return np.array([total // 2], dtype=np.int64)


def every(total: int) -> Indices:
    """All frames: int64 ``(total,)``."""
    _refuse(total)
    return np.arange(total, dtype=np.int64)


def _refuse(total: int) -> None:
    if total < 1:
        raise ValueError(f"a clip has at least one frame, not {total}")
