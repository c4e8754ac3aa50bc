"""Spherical interpolation of vectors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

PARALLEL = 1e-6  # sine below which two directions count as one line: weights would divide rounding errors


def slerp(first: Tensor, second: Tensor, alpha: float) -> Tensor:
    """A point on the arc from ``first`` to ``second``, ``alpha`` of the angle away from the first.

    The angle is that of the directions, the weights act on the vectors as they come. Where they lie on one line, the
    same way or opposite ways, there is no single arc: the first is returned (dossier, section 6).

    Args:
        first: ``(D,)``.
        second: ``(D,)``, of the same dtype.
        alpha: 0 to 1.

    Returns:
        ``(D,)``, of unit length if both vectors are.

    >>> slerp(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 1 / 3)
    tensor([0.8660, 0.5000])
    """
    cosine = (normalize(first, dim=0) * normalize(second, dim=0)).sum().clamp(-1, 1)
    angle = torch.arccos(cosine)
    sine = torch.sin(angle)
    if sine < PARALLEL:
        return first
    return (torch.sin((1 - alpha) * angle) * first + torch.sin(alpha * angle) * second) / sine
