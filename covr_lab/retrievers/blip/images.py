"""Frames as BLIP sees them: squashed to a square (bicubic), normalised with CLIP's mean and deviation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
Frames = npt.NDArray[np.uint8]


def squash(frames: Frames, size: int) -> Frames:
    """Frames uint8 ``(F, H, W, 3)`` squashed to ``(F, size, size, 3)``, bicubic.

    Pillow resizes, in integers: the same bits on every machine.

    Raises:
        ValueError: the frames are not uint8 RGB.
    """
    from PIL import Image

    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
        raise ValueError(f"frames must be uint8 (F, H, W, 3), not {frames.dtype} {frames.shape}")
    squashed = np.empty((len(frames), size, size, 3), dtype=np.uint8)
    for place, frame in enumerate(frames):
        squashed[place] = np.asarray(Image.fromarray(frame).resize((size, size), Image.Resampling.BICUBIC))
    return squashed


def preprocess(frames: Frames, size: int, storyboard: int = 1) -> Tensor:
    """Pixels of a video's frames, as in the evaluators of BLIP and CoVR.

    Args:
        frames: RGB, uint8 ``(F, H, W, 3)``, in time order.
        size: pixels of an input side.
        storyboard: n; n * n consecutive frames become one image of n x n cells, in reading order.

    Returns:
        float32 ``(F / (n * n), 3, size, size)``.

    Raises:
        ValueError: the frames are not uint8 RGB, or do not fill whole images.

    >>> preprocess(np.zeros((8, 30, 40, 3), dtype=np.uint8), 32, storyboard=2).shape
    torch.Size([2, 3, 32, 32])
    """
    from torchvision.transforms.v2.functional import normalize  # heavy: only where pixels are made

    if size % storyboard or len(frames) % storyboard**2:
        raise ValueError(
            f"{len(frames)} frames do not fill storyboards of {storyboard} x {storyboard} cells in {size} pixels: take "
            f"a multiple of {storyboard**2} frames and a size that {storyboard} divides"
        )
    cell = size // storyboard
    cells = squash(frames, cell).reshape(len(frames) // storyboard**2, storyboard, storyboard, cell, cell, 3)
    images = cells.transpose(0, 1, 3, 2, 4, 5).reshape(-1, size, size, 3)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float().div(255)
    normalised: Tensor = normalize(pixels, list(MEAN), list(DEVIATION))
    return normalised.contiguous()
