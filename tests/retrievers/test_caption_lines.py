"""Caption proxies of videos with several captions: one text, or the mean of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from covr_lab.gallery.gallery import Gallery
from covr_lab.retrievers.captions import CaptionProxy, seeded_noise
from covr_lab.types import SessionError

SAID = {"a": "a dog runs\na small dog\nan animal outside", "b": "a woman eats", "c": "\na cat sleeps\n \n", "d": " \n"}


def proxy(folder: Path, *, lines: Literal["one", "mean"] = "mean", noise: float = 0.0) -> CaptionProxy:
    retriever = CaptionProxy(model=str(folder), noise=noise, lines=lines)
    retriever.load()
    retriever.gallery = Gallery.of(SAID, SAID)
    return retriever


def test_a_video_is_the_unit_mean_of_its_captions(tiny_encoder: Path) -> None:
    retriever = proxy(tiny_encoder)
    said = {text: retriever.encoder([text])[0].numpy() for text in ("a cat sleeps", *SAID["a"].split("\n"))}
    mean = np.mean([said[line] for line in SAID["a"].split("\n")], axis=0)
    vectors = retriever.encode_videos(["a", "b", "c"])
    np.testing.assert_allclose(vectors[0], mean / np.linalg.norm(mean), atol=1e-6)
    torch.testing.assert_close(vectors[1], retriever.encoder(["a woman eats"])[0])
    torch.testing.assert_close(vectors[2], retriever.encoder(["a cat sleeps"])[0])  # blank lines are none
    assert torch.equal(retriever.encode_videos(["c", "a"]), vectors[[2, 0]])
    assert retriever.encode_videos([]).shape[0] == 0


def test_by_default_all_lines_are_one_text(tiny_encoder: Path) -> None:
    retriever = proxy(tiny_encoder, lines="one")
    assert torch.equal(retriever.encode_videos(["a", "b"]), retriever.encoder([SAID["a"], SAID["b"]]))
    assert not torch.allclose(retriever.encode_videos(["a"]), proxy(tiny_encoder).encode_videos(["a"]))


def test_noise_comes_after_the_mean(tiny_encoder: Path) -> None:
    clean, noisy = (proxy(tiny_encoder, noise=noise).encode_videos(["a"])[0] for noise in (0.0, 1.6))
    moved = clean + 1.6 / clean.numel() ** 0.5 * seeded_noise("a", clean.numel(), 0)
    torch.testing.assert_close(noisy, moved / moved.norm())


def test_a_video_with_blank_lines_alone_has_no_caption(tiny_encoder: Path) -> None:
    with pytest.raises(SessionError, match="video 'd' has no caption"):
        proxy(tiny_encoder).encode_videos(["d"])
