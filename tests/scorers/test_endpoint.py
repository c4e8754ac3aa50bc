"""A reranker behind a real server on loopback that fails in every way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from covr_lab.engines import openai as wire
from covr_lab.engines.base import EngineError
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.scorers import Pair, RerankEndpoint
from covr_lab.types import Refused
from covr_lab.video import PyAVReader
from covr_lab.views.uniform import UniformView
from tests.gallery.toy import write_clip
from tests.openai_server import Body, OpenAIServer, made_up, relevances

GALLERY = Gallery.of("abcd", {video: f"a clip of {video}" for video in "abcdr"})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FIRST_DELAY", 0.005)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VideoStore]:
    folder = tmp_path_factory.mktemp("videos")
    for seed, video in enumerate("abcr"):
        write_clip(folder / f"{video}.mp4", seed)
    (folder / "d.mp4").write_text("<html>")
    reader = PyAVReader(timeout=60)
    yield VideoStore(lambda video: folder / f"{video}.mp4", reader)
    reader.close()


def endpoint(server: OpenAIServer, videos: VideoStore | None = None, **settings: Any) -> RerankEndpoint:
    made = {"model": "tiny", "base_url": server.url, "timeout": 10.0, "retries": 2, **settings}
    scorer = RerankEndpoint(**made)
    scorer.load()
    scorer.bind(GALLERY, videos)
    return scorer


def pairs(text: str = "make it red", candidates: str = "abcd", source: str | None = "r") -> list[Pair]:
    return [Pair(source, text, candidate, "s") for candidate in candidates]


def expected(text: str = "make it red", candidates: str = "abcd") -> list[float]:
    return [made_up(f"a clip of r\n{text}", f"a clip of {video}") for video in candidates]


def only(*results: Any) -> Any:
    return lambda body: list(results)


def test_captions_are_scored_in_the_order_of_the_pairs_whatever_the_order_of_the_results() -> None:
    with OpenAIServer() as server:
        scores = endpoint(server).score(pairs())
        assert endpoint(server).score([]) == []
    assert scores == expected()
    assert sorted(scores) != scores  # else the order of the results would have done
    (sent,) = server.requests
    assert (sent["model"], sent["query"], sent["top_n"]) == ("tiny", "a clip of r\nmake it red", 4)
    assert sent["documents"] == [f"a clip of {video}" for video in "abcd"]
    assert set(sent) == {"model", "query", "documents", "top_n"}  # no instruction of ours


def test_pairs_of_a_query_share_requests_up_to_a_limit_and_queries_do_not() -> None:
    mixed = [pair for two in zip(pairs("one"), pairs("two"), strict=True) for pair in two]
    with OpenAIServer() as server:
        scores = endpoint(server, documents=3).score(mixed)
    assert scores[::2] == expected("one")
    assert scores[1::2] == expected("two")
    assert sorted(len(sent["documents"]) for sent in server.requests) == [1, 1, 3, 3]


def test_an_instruction_is_sent_only_if_there_is_one() -> None:
    with OpenAIServer() as server:
        endpoint(server, instruction="Find the edited video.").score(pairs())
    assert server.requests[0]["instruction"] == "Find the edited video."


@pytest.mark.parametrize("fault", ["429", "429:0.01", "503", "drop", "reset", "malformed", "html", "hollow", "hang"])
def test_what_may_come_right_is_sent_again(fault: str) -> None:
    with OpenAIServer(faults=[fault, fault]) as server:
        scores = endpoint(server, timeout=0.5 if fault == "hang" else 10.0).score(pairs())
    assert scores == expected()
    assert (len(server.requests), server.faulted[fault]) == (3, 2)


@pytest.mark.parametrize("fault", ["400", "422", "500", "hang", "drop"])
def test_a_query_that_keeps_failing_has_no_scores_and_others_have_theirs(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(body: Body, seen: int) -> str | None:
        return fault if "bad" in body["query"] else None

    with OpenAIServer(faults=broken) as server:
        scorer = endpoint(server, timeout=0.3 if fault == "hang" else 10.0)
        scores = scorer.score([*pairs("bad"), *pairs("good")])
    assert all(map(math.isnan, scores[:4]))
    assert scores[4:] == expected("good")
    assert "session s: 4 pairs were not scored" in caplog.text


@pytest.mark.parametrize(
    ("results", "known"),
    [
        (only({"index": 0, "relevance_score": 0.25}, {"index": 2, "relevance_score": 0.5}), {0: 0.25, 2: 0.5}),
        (only({"index": 1, "relevance_score": 0.5}, {"index": 1, "relevance_score": 0.5}), {}),
        (only({"index": 3, "relevance_score": 1}, {"index": 4, "relevance_score": 0.9}), {3: 1.0}),
        (only({"index": -1, "relevance_score": 0.9}, {"index": True, "relevance_score": 0.9}), {}),
        (only({"index": "0", "relevance_score": 0.9}, {"relevance_score": 0.9}, None, 7), {}),
        (only({"index": 0, "relevance_score": 7.3}, {"index": 1, "relevance_score": -0.1}), {}),
        (only({"index": 0, "relevance_score": "0.3"}, {"index": 1, "relevance_score": True}), {}),
        (only({"index": 0, "relevance_score": float("nan")}, {"index": 1, "relevance_score": None}), {}),
        (only(), {}),
    ],
)
def test_a_wrong_index_or_score_costs_its_own_pair_alone(results: Any, known: dict[int, float]) -> None:
    with OpenAIServer(rerank=results) as server:
        scores = endpoint(server).score(pairs())
    assert {place: score for place, score in enumerate(scores) if not math.isnan(score)} == known
    assert (len(scores), len(server.requests)) == (4, 1)


def test_frames_go_as_images_behind_their_times_source_before_text(videos: VideoStore) -> None:
    with OpenAIServer() as server:
        scores = endpoint(server, videos, view=UniformView(frames=2, side=32)).score(pairs(candidates="ab"))
    (sent,) = server.requests
    kinds = [part["type"] for part in sent["query"]["content"]]
    assert kinds == ["text", "image_url", "text", "image_url", "text"]
    assert sent["query"]["content"][-1]["text"] == "make it red"
    assert [len(document["content"]) for document in sent["documents"]] == [4, 4]
    assert all(part["image_url"]["url"].startswith("data:image/jpeg") for part in sent["query"]["content"][1:4:2])
    assert scores == [made_up(sent["query"], document) for document in sent["documents"]]


def test_a_candidate_that_cannot_be_read_shifts_nobody(videos: VideoStore, caplog: pytest.LogCaptureFixture) -> None:
    view = UniformView(frames=1, side=32)
    with OpenAIServer() as server:
        scores = endpoint(server, videos, view=view).score(pairs(candidates="adcd"))
        alone = endpoint(server, videos, view=view).score(pairs(candidates="ac"))
        lost = endpoint(server, videos, view=view).score([*pairs(candidates="d"), *pairs(source="d", candidates="ab")])
    assert [scores[0], scores[2]] == alone
    assert [math.isnan(score) for score in scores] == [False, True, False, True]
    assert all(map(math.isnan, lost))
    assert len(server.requests[0]["documents"]) == 2
    assert "d.mp4 is no video" in caplog.text


def test_a_video_without_caption_and_an_empty_query_have_no_score() -> None:
    with OpenAIServer() as server:
        scorer = endpoint(server)
        scores = scorer.score([Pair("r", "x", "unknown"), Pair("unknown", "x", "a"), Pair(None, "", "a"), *pairs()])
        assert scorer.score([Pair("r", "", "a")]) == [made_up("a clip of r", "a clip of a")]
    assert all(map(math.isnan, scores[:3]))
    assert scores[3:] == expected()


def test_a_server_that_is_gone_ends_the_run_in_one_line() -> None:
    with OpenAIServer() as server:
        scorer = endpoint(server, retries=0)
    with pytest.raises(EngineError, match="does not answer") as caught:
        scorer.score(pairs())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", ["401", "404"])
def test_a_refused_key_or_address_ends_the_run(fault: str) -> None:
    with OpenAIServer(faults=[fault]) as server, pytest.raises(EngineError, match=fault):
        endpoint(server).score(pairs())


def test_requests_in_flight_stay_below_the_limit() -> None:
    with OpenAIServer() as server:
        scores = endpoint(server, concurrency=2, documents=1).score([p for n in range(6) for p in pairs(f"t{n}")])
    assert scores == [score for n in range(6) for score in expected(f"t{n}")]
    assert server.most <= 2


def test_the_fingerprint_follows_model_and_instruction_not_the_address() -> None:
    def made(**settings: Any) -> str:
        return RerankEndpoint(**{"model": "m", "base_url": "http://one/v1", **settings}).fingerprint

    assert made() == made(base_url="http://two/v1", timeout=1.0, documents=2)
    assert len({made(), made(model="n"), made(instruction="i")}) == 3


def test_settings_out_of_range_are_refused() -> None:
    for settings in ({"documents": 0}, {"concurrency": 0}, {"timeout": 0.0}, {"base_url": "no address"}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            RerankEndpoint(**{"model": "m", "base_url": "http://h/v1", **settings})
    with pytest.raises(Refused, match="UniformView needs videos"):
        RerankEndpoint(model="m", base_url="http://h/v1", view=UniformView()).bind(GALLERY)


def test_the_results_of_the_fake_server_are_sorted_by_relevance() -> None:
    results = relevances({"query": "q", "documents": ["x", "y", "z"]})
    assert [r["relevance_score"] for r in results] == sorted((r["relevance_score"] for r in results), reverse=True)


def test_the_key_is_sent_and_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RERANK_KEY", "sk-secret")
    with OpenAIServer(key="sk-secret", faults=["400"]) as server:
        scorer = endpoint(server, api_key_env="RERANK_KEY")
        assert all(map(math.isnan, scorer.score(pairs())))
        assert scorer.score(pairs()) == expected()
    assert server.keys == {"sk-secret"}


def test_what_is_read_of_a_video_follows_the_view(videos: VideoStore) -> None:
    with OpenAIServer() as server:
        small = endpoint(server, videos, view=UniformView(frames=1, side=16))
        large = endpoint(server, videos, view=UniformView(frames=1, side=32))
        words = endpoint(server)
    assert len({small.reads("a"), small.reads("b"), large.reads("a")}) == 3
    assert words.reads("a") == "a clip of a"
