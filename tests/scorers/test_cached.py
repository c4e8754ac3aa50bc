"""Kept scores: hits, misses, everything that changes an address, and a store that is damaged."""

from __future__ import annotations

import logging
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from covr_lab.gallery.gallery import Gallery
from covr_lab.scorers import CachedScorer, Pair, PairScorer
from covr_lab.types import SessionError
from tests.openai_server import made_up


class Counting(PairScorer):
    """Made-up scores; NaN, inf or too much for texts that say so. Remembers what it was asked."""

    def __init__(self, weights: str = "w", by_session: bool = False) -> None:
        super().__init__()
        self.weights, self.by_session = weights, by_session
        self.asked: list[list[Pair]] = []
        self.looked: list[str] = []

    @property
    def fingerprint(self) -> str:
        return f"{self.weights:>64}"[::-1]

    def reads(self, video: str) -> str:
        self.looked.append(video)
        if video == "lost":
            raise SessionError("nothing is known")
        return super().reads(video)

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        self.asked.append(list(pairs))
        odd = {"nan": math.nan, "inf": math.inf, "two": 2.0}
        return [odd.get(pair.text, made_up([pair.source, pair.text], pair.candidate)) for pair in pairs]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path))
    return tmp_path / "scores"


def cached(scorer: PairScorer | None = None, caption: str = "a clip", **settings: bool) -> CachedScorer:
    found = CachedScorer(scorer=scorer or Counting(), **settings)
    found.load()
    found.bind(Gallery.of("abc", {"a": caption, "r": "a source"}))
    return found


def asked(scorer: CachedScorer) -> list[Pair]:
    assert isinstance(scorer.scorer, Counting)
    return [pair for pairs in scorer.scorer.asked for pair in pairs]


PAIRS = [Pair("r", f"text {k % 2}", "abc"[k % 3], f"s{k}", k) for k in range(6)]


def test_a_second_run_asks_nothing_and_gets_the_same_bits() -> None:
    first, second = cached(), cached()
    scores = first.score(PAIRS)
    assert scores == [float(np.float32(made_up(["r", pair.text], pair.candidate))) for pair in PAIRS]
    assert asked(first) == PAIRS
    assert second.score(PAIRS[::-1]) == scores[::-1]
    assert asked(second) == []
    assert second.score([]) == []


def test_only_what_is_new_is_asked_and_order_is_kept() -> None:
    cached().score(PAIRS[1:4])
    scorer = cached()
    assert scorer.score(PAIRS) == cached().score(PAIRS)
    assert asked(scorer) == [PAIRS[0], *PAIRS[4:]]


def test_equal_pairs_of_a_list_are_scored_once() -> None:
    scorer = cached()
    twice = [Pair("r", "t", "a", "s1"), Pair("r", "t", "b", "s1"), Pair("r", "t", "a", "s2", 3)]
    scores = scorer.score(twice)
    assert scores[0] == scores[2] != scores[1]
    assert asked(scorer) == twice[:2]


def test_everything_that_can_change_a_score_changes_its_address() -> None:
    pair = Pair("r", "t", "a", "s", 1)
    cached().score([pair])
    others = [Pair("a", "t", "a", "s", 1), Pair(None, "t", "a", "s", 1), Pair("r", "u", "a", "s", 1)]
    for other in [*others, Pair("r", "t", "b", "s", 1)]:
        scorer = cached()
        scorer.score([other])
        assert asked(scorer) == [other]
    for scorer in (cached(Counting("other weights")), cached(caption="another clip")):
        scorer.score([pair])
        assert asked(scorer) == [pair]
    same = cached()
    same.score([pair, Pair("r", "t", "a", "another session", 2)])
    assert asked(same) == []


def test_a_scorer_that_knows_who_asks_is_asked_for_each_session() -> None:
    cached(Counting(by_session=True)).score([Pair("r", "t", "a", "s1")])
    scorer = cached(Counting(by_session=True))
    scorer.score([Pair("r", "t", "a", "s1"), Pair("r", "t", "a", "s2"), Pair("r", "t", "a", "s1", 1)])
    assert [(pair.session, pair.turn) for pair in asked(scorer)] == [("s2", 0), ("s1", 1)]


def test_a_video_is_looked_at_once_until_another_gallery_is_bound() -> None:
    inner = Counting()
    scorer = cached(inner)
    scorer.score(PAIRS)
    scorer.score(PAIRS)
    assert sorted(inner.looked) == ["a", "b", "c", "r"]
    scorer.bind(Gallery.of("abc", {"a": "another clip", "r": "a source"}))
    scorer.score(PAIRS)
    assert asked(scorer) == [*PAIRS, PAIRS[0], PAIRS[3]]  # those of the clip with another caption


@pytest.mark.parametrize("text", ["nan", "inf", "two"])
def test_what_is_no_relevance_is_handed_on_and_not_kept(text: str) -> None:
    pairs = [Pair("r", "fine", "a"), Pair("r", text, "a")]
    for _ in range(2):
        scorer = cached()
        score = scorer.score(pairs)[1]
        assert math.isnan(score) or score > 1
        assert pairs[1] in asked(scorer)
    assert pairs[0] not in asked(scorer)


def test_a_pair_whose_video_has_no_place_is_scored_and_not_kept() -> None:
    pairs = [Pair("r", "t", "lost"), Pair("lost", "t", "a"), Pair("r", "t", "lost")]
    for _ in range(2):
        scorer = cached()
        assert len(scorer.score(pairs)) == 3
        assert asked(scorer) == pairs


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"\0" * 8, "text", 7, None, *(np.float32(x).tobytes() for x in (math.nan, math.inf, 1.5, -0.1))],
)
def test_a_malformed_row_is_a_miss_and_is_written_anew(cache: Path, data: object) -> None:
    scores = cached().score(PAIRS)
    (file,) = cache.iterdir()
    with sqlite3.connect(file) as db:
        db.execute("UPDATE vectors SET data = ?", (data,))
    damaged, mended = cached(), cached()
    assert damaged.score(PAIRS) == scores == mended.score(PAIRS)
    assert (asked(damaged), asked(mended)) == (PAIRS, [])


def test_a_damaged_file_is_one_warning_and_a_miss(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    scores = cached().score(PAIRS)
    (file,) = cache.iterdir()
    file.write_bytes(b"no database at all, but long enough to look at" * 50)
    scorer = cached()
    with caplog.at_level(logging.WARNING):
        assert scorer.score(PAIRS) == scores == scorer.score(PAIRS)
    assert len(asked(scorer)) == 2 * len(PAIRS)
    assert caplog.text.count("is not usable") == 1


def test_switched_off_it_hands_everything_on_and_keeps_nothing(cache: Path) -> None:
    scorer = cached(enabled=False)
    assert scorer.score(PAIRS) == Counting().score(PAIRS)
    scorer.score(PAIRS)
    assert len(asked(scorer)) == 2 * len(PAIRS)
    assert not cache.exists()


def test_each_scorer_and_fingerprint_has_a_file_of_its_own(cache: Path) -> None:
    cached().score(PAIRS)
    cached(Counting("v")).score(PAIRS)
    names = sorted(file.name for file in cache.iterdir())
    assert len(names) == 2
    assert all(name.startswith("Counting-") and name.endswith(".sqlite") for name in names)


def test_it_stands_for_its_scorer() -> None:
    inner = Counting()
    inner.proxy = "made up"
    scorer = cached(inner)
    assert (scorer.fingerprint, scorer.proxy, scorer.by_session) == (inner.fingerprint, "made up", False)
    assert inner in list(scorer.modules())  # encoders inside are found and indexed
