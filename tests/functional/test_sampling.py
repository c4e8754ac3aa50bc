from __future__ import annotations

import numpy as np
import pytest

from covr_lab.functional.sampling import every, middle, uniform


@pytest.mark.parametrize("count", [1, 2, 3, 8, 15, 16, 64])
def test_uniform_covers_the_whole_clip(count: int) -> None:
    """A sampler that steps by whole numbers never sees the second half of a short clip."""
    for total in range(1, 401):
        indices = uniform(total, count)
        assert indices.dtype == np.int64
        assert indices.shape == (count,)
        assert (np.diff(indices) >= 0).all()
        assert 0 <= indices[0] <= total / count
        assert total - 1 - total / count <= indices[-1] < total
        exact = [(2 * i + 1) * total // (2 * count) for i in range(count)]
        assert indices.tolist() == exact


def test_short_clips_show_every_frame() -> None:
    for total in range(1, 16):
        assert set(uniform(total, 15).tolist()) == set(range(total))


def test_middle_and_every() -> None:
    assert [middle(total).tolist() for total in (1, 2, 3, 300)] == [[0], [1], [1], [150]]
    assert every(3).tolist() == [0, 1, 2]


def test_a_clip_without_frames_is_refused() -> None:
    for choose in (middle, every, lambda total: uniform(total, 3)):
        with pytest.raises(ValueError, match="at least one frame"):
            choose(0)
    with pytest.raises(ValueError, match="count must be at least 1"):
        uniform(3, 0)
