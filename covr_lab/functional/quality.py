"""Sharp frames that differ: one of each time bin, then one of each cluster (UMIVR's TQFS; dossier, section 5)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from covr_lab.functional.sampling import Indices, uniform

if TYPE_CHECKING:
    from covr_lab.video.base import Frames

Floats = npt.NDArray[np.floating]

SELECTOR: Final = 1  # another number: other frames of the same clip
SEED: Final = 42  # of k-means, as released
RESTARTS: Final = 10
BINS: Final = 3  # time bins for each frame to choose; in a long clip one for so many frames that were looked at
_GREY: Final = (9798, 19235, 3735)  # 0.299 R + 0.587 G + 0.114 B in 15 bits, as OpenCV does it


def grey(frame: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Luma int64 ``(H, W)``, 0 to 255, of a frame uint8 ``(H, W, 3)`` in RGB; whole numbers, as OpenCV rounds them.

    >>> grey(np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], np.uint8)).tolist()
    [[76, 150, 29]]
    """
    return np.asarray((frame.astype(np.int64) @ np.array(_GREY) + (1 << 14)) >> 15)


def sharpness(frames: Frames) -> npt.NDArray[np.float64]:
    """Variance of the Laplacian of each frame: low where it is blurred or flat.

    The Laplacian has four neighbours; at an edge of the frame it sees the mirrored row beside it, as OpenCV does.

    Args:
        frames: uint8 ``(F, H, W, 3)``, RGB, of 2 x 2 pixels at least.

    Returns:
        float64 ``(F,)``, in squared grey levels.

    >>> board = np.indices((4, 4)).sum(0, keepdims=True)[..., None] % 2 * np.full(3, 255)
    >>> sharpness(np.concatenate([board, board * 0]).astype(np.uint8)).tolist()  # every pixel 4 * 255 off, or none
    [1040400.0, 0.0]
    """
    found = np.empty(len(frames))
    for place, frame in enumerate(frames):
        wide = np.pad(grey(frame), 1, mode="reflect")
        around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
        found[place] = (around - 4 * wide[1:-1, 1:-1]).var()
    return found


def best_of_bins(quality: Floats, times: Floats, bins: int) -> Indices:
    """The best frame of each of ``bins`` half-open bins of equal length, from the first time to the last.

    The last frame, at whose time the last bin ends, is in none (as in UMIVR's code).

    Args:
        quality: ``(F,)``.
        times: ``(F,)``, ascending, of any unit.
        bins: how many, 1 or more; an empty one has no best.

    Returns:
        int64 ``(C,)``, strictly ascending; of equal frames in a bin the first.

    >>> best_of_bins(np.array([1.0, 3, 3, 2, 9]), np.array([0.0, 1, 2, 3, 4]), 2).tolist()
    [1, 2]
    """
    edges = np.linspace(times[0], times[-1], bins + 1)
    owner = np.searchsorted(edges, times, side="right") - 1
    inside = [np.flatnonzero(owner == one) for one in np.unique(owner[owner < bins])]
    return np.array([places[quality[places].argmax()] for places in inside], dtype=np.int64)


def candidates(quality: Floats, times: Floats, budget: int) -> Indices:
    """The best frame of each bin; there are three bins for each frame of the budget, more in a long clip.

    Args:
        quality: ``(F,)``.
        times: ``(F,)``, ascending.
        budget: frames that will be chosen.

    Returns:
        int64 ``(C,)``, strictly ascending; empty where all times are equal.
    """
    return best_of_bins(quality, times, max(len(quality) // BINS, BINS * budget))


def best_of_clusters(quality: Floats, vectors: Floats, count: int) -> Indices:
    """The best frame of each k-means cluster (seed 42, 10 restarts, scikit-learn), in order.

    Args:
        quality: ``(C,)``.
        vectors: ``(C, D)``, finite.
        count: clusters; frames that look exactly alike may make them fewer.

    Returns:
        int64 ``(at most count,)``, strictly ascending; of equal frames in a cluster the first.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
        ValueError: there are fewer frames than clusters, or vectors are not finite.
    """
    from sklearn.cluster import KMeans  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct frames than clusters: see above
        means = KMeans(n_clusters=count, random_state=SEED, n_init=RESTARTS)
        labels = means.fit_predict(np.asarray(vectors, np.float64))
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.array(sorted(int(places[quality[places].argmax()]) for places in members), dtype=np.int64)


def evenly(total: int, budget: int) -> Indices:
    """What is taken where frames cannot be chosen: at most ``budget`` of ``total``, at the middles of equal segments.

    >>> evenly(10, 3).tolist(), evenly(2, 3).tolist()
    ([1, 5, 8], [0, 1])
    """
    return uniform(total, min(total, budget))
