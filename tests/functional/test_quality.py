"""Frames by quality: against OpenCV and scikit-learn's own ground, brute force, and clips whose answer is known."""

from __future__ import annotations

import random

import numpy as np
import pytest

from covr_lab.functional.quality import best_of_bins, best_of_clusters, candidates, evenly, grey, sharpness


@pytest.mark.parametrize("size", [(48, 64), (31, 57), (2, 2), (3, 200)])
def test_sharpness_is_that_of_opencv(size: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2")
    draw = np.random.default_rng(sum(size))
    noise = draw.integers(0, 256, (3, *size, 3), dtype=np.uint8)
    noise[1] = cv2.GaussianBlur(noise[1], (0, 0), 1.5)
    noise[2] = 77
    for frame, found in zip(noise, sharpness(noise), strict=True):
        luma = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        assert (grey(frame) == luma).all()
        assert found == pytest.approx(cv2.Laplacian(luma, cv2.CV_64F).var(), rel=1e-12)


def test_a_blurred_frame_is_less_sharp() -> None:
    board = np.repeat((np.indices((32, 32)).sum(0) // 4 % 2 * 255).astype(np.uint8)[..., None], 3, axis=2)
    soft = np.stack([np.roll(board, (dy, dx), (0, 1)) for dy in range(3) for dx in range(3)]).mean(0).astype(np.uint8)
    sharp, blurred, flat = sharpness(np.stack([board, soft, np.full_like(board, 9)]))
    assert sharp > 2 * blurred > flat == 0


def slow_bins(quality: list[float], times: list[float], bins: int) -> list[int]:
    """Bin after bin, frame after frame."""
    width, found = (times[-1] - times[0]) / bins, []
    for number in range(bins):
        start, end = times[0] + number * width, times[0] + (number + 1) * width
        inside = [at for at, time in enumerate(times) if start <= time < end]
        if inside:
            found.append(max(inside, key=lambda at: (quality[at], -at)))
    return found


def test_one_frame_of_each_bin_and_none_at_the_very_end() -> None:
    draw = random.Random(0)
    for _ in range(300):
        # Times in 1/64 and bins in powers of two: no edge is rounded.
        times = sorted(draw.sample(range(512), draw.randint(2, 40)))
        quality = [float(draw.randint(0, 5)) for _ in times]
        bins = 2 ** draw.randint(0, 5)
        scaled = [time / 64 for time in times]
        found = best_of_bins(np.array(quality), np.array(scaled), bins).tolist()
        assert found == slow_bins(quality, scaled, bins)
        assert found == sorted(set(found))
        assert len(times) - 1 not in found
    assert best_of_bins(np.array([3.0]), np.array([0.5]), 4).tolist() == []


def test_there_are_three_bins_a_frame_and_more_in_a_long_clip() -> None:
    for frames, bins in ((30, 24), (72, 24), (75, 25), (300, 100)):
        times = np.arange(frames * 16) / 16 / frames  # every bin has frames
        found = candidates(np.zeros(frames), times[::16], 8)
        assert len(found) == min(bins, frames - 1)


def test_the_best_of_each_cluster_in_order_of_time() -> None:
    centres = np.eye(5)
    owner = np.array([0, 1, 2, 3, 4] * 4)
    vectors = centres[owner] + np.random.default_rng(0).normal(0, 0.01, (20, 5))
    quality = np.random.default_rng(1).permutation(20).astype(float)
    best = sorted(max(np.flatnonzero(owner == one), key=lambda at: quality[at]) for one in range(5))
    assert best_of_clusters(quality, vectors, 5).tolist() == best
    assert best_of_clusters(quality, vectors.astype(np.float32), 5).tolist() == best
    assert best_of_clusters(np.zeros(20), vectors, 5).tolist() == [0, 1, 2, 3, 4]  # equal: the first
    assert best_of_clusters(quality, vectors, 20).tolist() == list(range(20))


def test_frames_that_look_alike_are_one_and_impossible_ones_are_refused() -> None:
    same = np.ones((6, 3))
    assert best_of_clusters(np.array([1.0, 5, 2, 5, 0, 0]), same, 4).tolist() == [1]
    with pytest.raises(ValueError, match="n_samples=2"):
        best_of_clusters(np.zeros(2), same[:2], 3)
    with pytest.raises(ValueError, match="NaN"):
        best_of_clusters(np.zeros(2), np.full((2, 3), np.nan), 2)


def test_evenly_is_never_more_than_there_are() -> None:
    assert [evenly(total, 4).tolist() for total in (1, 3, 4, 8)] == [[0], [0, 1, 2], [0, 1, 2, 3], [1, 3, 5, 7]]
