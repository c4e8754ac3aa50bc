from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import normalize

from covr_lab.functional.pooling import pool_mean, pool_query


def test_pooling_equals_a_loop_over_videos() -> None:
    generator = torch.Generator().manual_seed(0)
    frames = normalize(torch.randn(4, 5, 8, generator=generator), dim=-1)
    texts = normalize(torch.randn(4, 8, generator=generator), dim=-1)
    for video, text, mean, query in zip(
        frames.double().numpy(), texts.double().numpy(), pool_mean(frames), pool_query(frames, texts), strict=True
    ):
        weights = np.exp(video @ text / 0.1)
        for actual, expected in ((mean, video.mean(0)), (query, weights @ video / weights.sum())):
            np.testing.assert_allclose(actual, expected / np.linalg.norm(expected), atol=1e-6)
    assert torch.equal(pool_query(frames, texts)[1:2], pool_query(frames[1:2], texts[1:2]))
    torch.testing.assert_close(pool_query(frames, texts, temperature=1e9), pool_mean(frames))
    assert torch.equal(pool_mean(frames.bfloat16()), pool_mean(frames.bfloat16().float()))
