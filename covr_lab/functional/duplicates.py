"""Frames that look like one that is kept are dropped (X-CoT; dossier, section 4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covr_lab.functional.sampling import Indices


def distinct(vectors: npt.NDArray[np.floating], threshold: float = 0.95) -> Indices:
    """Places of the vectors to keep: the first, then each whose cosine to every kept one is below ``threshold``.

    A frame is held against all frames that are kept, not against its neighbour alone: a scene that comes back is not
    kept twice.

    Args:
        vectors: ``(M, D)`` of frames in time order, of any length above 0.
        threshold: cosine from which on two frames are the same, compared in fp64.

    Returns:
        int64 ``(K,)``, strictly ascending, the first is 0.

    Raises:
        ValueError: there is no vector, or one is zero or not finite.

    >>> distinct(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.1]])).tolist()
    [0, 2]
    """
    exact = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt((exact * exact).sum(1, keepdims=True))
    if not len(exact) or not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError(f"vectors of frames must be finite and not zero: {exact.shape}")
    units = exact / lengths
    kept = [0]
    for place in range(1, len(units)):
        if (units[kept] * units[place]).sum(1).max() < threshold:
            kept.append(place)
    return np.array(kept, dtype=np.int64)
