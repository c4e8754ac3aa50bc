"""Matching as a stage: its scores against plain transformers, its orders against hand-made ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from covr_lab.gallery.build import index
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.ranking import MatchRerank
from covr_lab.ranking.refine import refine
from covr_lab.ranking.retrieve import rank_gallery
from covr_lab.recipe import Machine
from covr_lab.retrievers.base import Ask
from covr_lab.retrievers.blip import Blip
from covr_lab.retrievers.composed import BlipRetriever
from covr_lab.scorers import ITMScorer, Pair
from covr_lab.video import PyAVReader, Uniform
from tests.gallery.toy import write_clip
from tests.ranking.toy import gallery_of, work_of
from tests.tiny_blip import make_tiny_blip

GALLERY = Gallery.of("abcde", {})
TEXTS = ("a red car", "a man running [SEP] street at night [SEP] the dog is black", "snow")
FRAMES = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_blip(tmp_path_factory.mktemp("blip"))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VideoStore]:
    folder = tmp_path_factory.mktemp("videos")
    for seed, video in enumerate("abcd"):
        write_clip(folder / f"{video}.mp4", seed)
    (folder / "e.mp4").write_text("<html>")
    reader = PyAVReader(timeout=60)
    yield VideoStore(lambda video: folder / f"{video}.mp4", reader)
    reader.close()


@pytest.fixture(scope="module")
def system(model: Path, videos: VideoStore) -> dict[str, Any]:
    """Retriever and stage on the same model and frames, bound."""
    blip = Blip(model=str(model), max_length=35, separators=True)
    parts = {"retriever": BlipRetriever(blip=blip, frames=FRAMES)}
    stage = MatchRerank(scorer=ITMScorer(blip=blip, images=FRAMES, batch=3), pool=3)
    index(nn.ModuleDict({**parts, "stage": stage}), GALLERY, videos, Machine(accelerator="cpu"), workers=0)
    parts["retriever"].bind(GALLERY, videos)
    stage.bind(GALLERY, videos)
    return {**parts, "stage": stage}


@pytest.fixture(scope="module")
def plain(model: Path, videos: VideoStore, system: dict[str, Any]) -> dict[tuple[str, str], tuple[float, float]]:
    """Matching logit and similarity of each text and video by transformers' own class, without padding or tiles."""
    from transformers import AutoTokenizer, BlipForImageTextRetrieval

    tokenizer, network = AutoTokenizer.from_pretrained(model), BlipForImageTextRetrieval.from_pretrained(model).eval()
    found = {}
    with torch.no_grad():
        for video in "abcd":
            pixels = system["stage"].scorer.blip.pixels(videos.clip(video, Uniform(FRAMES)).frames)
            states = network.vision_model(pixels).last_hidden_state
            unit = normalize(normalize(network.vision_proj(states[:, 0]), dim=-1).mean(0), dim=-1)
            for text in TEXTS:
                ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=35).input_ids
                said = normalize(network.text_proj(network.text_encoder(ids).last_hidden_state[0, 0]), dim=-1)
                ids[:, 0] = network.config.text_config.vocab_size - 1  # [ENC]
                seen = states.flatten(0, 1).unsqueeze(0)
                read = network.text_encoder(ids, encoder_hidden_states=seen).last_hidden_state[0, 0]
                found[text, video] = (float(network.itm_head(read)[1]), float(said @ unit))
    return found


def test_logit_and_similarity_are_those_of_transformers(
    system: dict[str, Any], plain: dict[tuple[str, str], tuple[float, float]]
) -> None:
    pairs = [Pair(None, text, video) for text, video in plain]
    found = system["stage"].scorer.logits_and_similarities(pairs)
    assert np.array(found) == pytest.approx(np.array(list(plain.values())), abs=2e-5)
    assert len({round(logit, 4) for logit, _ in found}) == len(found)
    assert system["stage"].scorer.logits_and_similarities(pairs[::-1])[::-1] == found
    assert [system["stage"].scorer.logits_and_similarities([pair])[0] for pair in pairs] == found
    (unread,) = system["stage"].scorer.logits_and_similarities([Pair(None, "snow", "e")])
    assert np.isnan(unread).all()


def test_the_similarity_is_the_one_that_retrieval_sorted_by(system: dict[str, Any]) -> None:
    for text, ranking in zip(TEXTS, rank_gallery(system["retriever"], [Ask(text) for text in TEXTS]), strict=True):
        pairs = [Pair(None, text, GALLERY.ids[row]) for row in ranking.rows]
        found = [similarity for _, similarity in system["stage"].scorer.logits_and_similarities(pairs)]
        assert ranking.scores is not None
        assert found == pytest.approx(ranking.scores.tolist(), abs=1e-6)


def test_the_head_is_sorted_by_the_sum_and_the_tail_stays(
    system: dict[str, Any], plain: dict[tuple[str, str], tuple[float, float]]
) -> None:
    """Whatever the order is, with similarities (turn 0) or without (a fused one)."""
    stage, orders = system["stage"], ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1])
    works = [
        work_of(f"{text} {order} {scores}", text, order, scores, source=None)
        for text in TEXTS
        for order in orders
        for scores in (None, [0.4, 0.3, 0.2, 0.1])
    ]
    for work, one in zip(works, stage(works, {}), strict=True):
        rows = work.ranking.rows.tolist()
        sums = {row: sum(plain[work.text, GALLERY.ids[row]]) for row in rows}
        assert one.ranking.rows.tolist() == [*sorted(rows[:3], key=lambda row: -sums[row]), rows[3]]
        assert one.ranking.scores is None
        assert one.scored is not None
        assert one.scored.scores is not None
        expected = sorted((sums[row] for row in rows[:3]), reverse=True)
        assert one.scored.scores.tolist() == pytest.approx(expected, abs=2e-5)
        assert one.routing == {"pool": 3, "reranked": 1, "pairs_scored": 3, "failed": 0}
    alone = [stage([work], {})[0].ranking.rows.tolist() for work in works]
    assert alone == [one.ranking.rows.tolist() for one in stage(works[::-1], {})][::-1]


class Table(ITMScorer):
    """Logits and similarities from a function of the pair; no model."""

    def __init__(self, values: dict[str, tuple[float, float]]) -> None:
        super().__init__(blip=Blip(model="demo"))
        self.values = values

    def logits_and_similarities(self, pairs: Sequence[Pair]) -> list[tuple[float, float]]:
        return [self.values[pair.candidate] for pair in pairs]


def staged(values: dict[str, tuple[float, float]], pool: int = 128) -> MatchRerank:
    stage = MatchRerank(scorer=Table(values), pool=pool)
    stage.gallery = gallery_of(5)
    return stage


def test_logit_and_similarity_both_count_and_ties_stay() -> None:
    values = {"v000": (1.0, 0.1), "v001": (0.75, 0.5), "v002": (1.25, 0.0), "v003": (1.0, 0.25), "v004": (-3.0, 0.9)}
    (one,) = staged(values)([work_of("q", "a dog", [4, 0, 3, 2, 1])], {})  # sums -2.1, 1.1, 1.25, 1.25, 1.25
    assert one.ranking.rows.tolist() == [3, 2, 1, 0, 4]
    (head,) = staged(values, pool=2)([work_of("q", "a dog", [4, 0, 3, 2, 1])], {})
    assert head.ranking.rows.tolist() == [0, 4, 3, 2, 1]


def test_a_query_with_a_video_that_has_no_score_keeps_its_order_and_says_so() -> None:
    values = {f"v{row:03}": (float(row), 0.0) for row in range(4)} | {"v004": (float("nan"), 0.0)}
    works = [work_of("good", "a dog", [0, 1, 2]), work_of("bad", "a dog", [0, 4, 1])]
    good, bad = refine([staged(values)], works, {})
    assert good.work.ranking.rows.tolist() == [2, 1, 0]
    assert bad.work.ranking.rows.tolist() == [0, 4, 1]
    assert [event.detail for event in bad.events] == ["matching: ValueError: no score for 'v004' (1 of 3 pairs)"]
    assert bad.routing["failed"] == 1


def test_an_empty_head_is_refused() -> None:
    with pytest.raises(ValueError, match=r"matching\.pool must be 1 or more, not 0"):
        staged({}, pool=0)
