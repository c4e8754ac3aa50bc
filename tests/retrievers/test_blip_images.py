from __future__ import annotations

import numpy as np
import pytest
import torch

from covr_lab.retrievers.blip.images import DEVIATION, MEAN, preprocess


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(("height", "width"), [(30, 60), (48, 48), (17, 9)])
def test_pixels_equal_those_of_torchvision(height: int, width: int) -> None:
    """The transforms that BLIP and CoVR evaluate with, to the last bit."""
    transforms = pytest.importorskip("torchvision.transforms", reason="needs torchvision")
    from PIL import Image

    frames = noise(3, height, width, 3)
    bicubic = transforms.InterpolationMode.BICUBIC
    steps = [
        transforms.Resize((48, 48), interpolation=bicubic),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, DEVIATION),
    ]
    expected = torch.stack([transforms.Compose(steps)(Image.fromarray(frame)) for frame in frames])
    actual = preprocess(frames, 48)
    assert torch.equal(actual, expected)
    assert torch.equal(preprocess(frames[::-1], 48), expected.flip(0))


def test_a_storyboard_is_read_like_a_page() -> None:
    frames = noise(8, 20, 30, 3)
    boards = preprocess(frames, 32, storyboard=2)
    single = preprocess(frames, 16)
    for board in range(2):
        for cell in range(4):
            row, column = divmod(cell, 2)
            part = boards[board, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
            assert torch.equal(part, single[4 * board + cell])
    assert preprocess(frames[:0], 32, storyboard=2).shape == (0, 3, 32, 32)


def test_frames_that_are_none_are_refused() -> None:
    for frames in (noise(2, 8, 8, 4), noise(8, 8, 3), noise(2, 8, 8, 3).astype(np.float32)):
        with pytest.raises(ValueError, match=r"frames must be uint8 \(F, H, W, 3\), not"):
            preprocess(frames, 16)
    for count, size in [(6, 16), (4, 15)]:
        with pytest.raises(ValueError, match=f"{count} frames do not fill storyboards of 2 x 2 cells in {size}"):
            preprocess(noise(count, 8, 8, 3), size, storyboard=2)
