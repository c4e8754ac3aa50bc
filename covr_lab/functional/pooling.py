"""One vector for the frames of a video."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize


def pool_mean(frames: Tensor) -> Tensor:
    """Unit mean of frame embeddings: ``(N, F, D)`` to float32 ``(N, D)``.

    >>> pool_mean(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
    tensor([[0.7071, 0.7071]])
    """
    return normalize(frames.float().mean(1), dim=-1)


def pool_query(frames: Tensor, texts: Tensor, temperature: float = 0.1) -> Tensor:
    """Unit mean of frame embeddings, weighted by a softmax of their similarity to a text (CoVR's evaluator).

    The released protocol weighs the frames of each target by the edit of that very target: a gallery vector then
    depends on the query that it answers. :func:`pool_mean` does not.

    Args:
        frames: unit vectors ``(N, F, D)``.
        texts: unit vectors ``(N, D)``, one a video.
        temperature: of the softmax over frames.

    Returns:
        float32 ``(N, D)``.

    >>> frames, text = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[1.0, 0.0]])
    >>> bool(pool_query(frames, text)[0, 0] > 0.999)
    True
    """
    frames = frames.float()
    scores = (frames * texts.float().unsqueeze(1)).sum(-1)
    weights = torch.softmax(scores / temperature, dim=1).unsqueeze(-1)
    return normalize((weights * frames).sum(1), dim=-1)
