"""A real server on loopback, with every fault that a real one has."""

from __future__ import annotations

import asyncio
import base64
import copy
import io
import json
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from covr_lab.engines import openai as wire
from covr_lab.engines.base import EngineError, seed_of
from covr_lab.engines.consult import consult
from covr_lab.engines.images import frame_labels
from covr_lab.engines.openai import OpenAIEngine
from covr_lab.engines.request import Media, Request, Response
from covr_lab.engines.schema import read_json
from covr_lab.gallery.videos import VideoStore
from covr_lab.types import Refused
from covr_lab.video import Clip, FrameSampler, Probe, VideoError, VideoReader
from tests.openai_server import Body, OpenAIServer, by_chance, chatty, prompt_text

KEY = "sk-secret-0123456789"
RETRIED = ["429", "429:0.01", "408", "500", "503", "drop", "reset", "malformed", "html", "hollow"]
SAME = {"truncated", "prose", "empty", "null", "surrogate"}  # answers as they are: consult() repairs


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    edit: str = Field(max_length=20)
    keep: list[str] = Field(max_length=3)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FIRST_DELAY", 0.005)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def engine(server: OpenAIServer, **settings: Any) -> OpenAIEngine:
    return OpenAIEngine(**{"model": "tiny", "base_url": server.url, "timeout": 10.0, "retries": 2, **settings})


def ask(text: str = "hello", session: str = "s", **more: Any) -> Request:
    return Request("intent", (text,), session, 1, **{"schema": Answer, **more})


def echo(body: Body) -> str:
    return json.dumps({"edit": prompt_text(body), "keep": []})


def test_an_answer_with_its_tokens_and_seconds() -> None:
    with OpenAIServer() as server:
        (response,) = engine(server).generate([ask("one two three", system="Be brief.")])
        assert engine(server).generate([]) == []
    assert response.text == '{"edit": "edit", "keep": []}'
    assert (response.tokens_in, response.tokens_out) == (5, 4)
    assert 0 < response.seconds < 5
    assert response == Response(response.text, 5, 4, response.seconds)
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", RETRIED)
def test_what_may_come_right_is_sent_again(fault: str) -> None:
    with OpenAIServer(faults=[fault, fault]) as server:
        (response,) = engine(server).generate([ask()])
    assert response.error == ""
    assert read_json(response.text, Answer) == Answer(edit="edit", keep=[])
    assert (response.retries, len(server.requests), server.faulted[fault]) == (2, 3, 2)
    assert server.requests[0] == server.requests[1] == server.requests[2]


def test_a_request_that_takes_too_long_is_sent_again() -> None:
    with OpenAIServer(faults=["hang"]) as server:
        (response,) = engine(server, timeout=0.7).generate([ask()])
    assert (response.retries, response.error) == (1, "")
    assert 0.7 < response.seconds < 5


def test_the_time_limit_is_on_the_whole_answer() -> None:
    """A server that sends a byte now and then never runs into a limit on single reads."""
    with OpenAIServer(faults=["drip"]) as server:
        (response,) = engine(server, timeout=0.3, retries=0).generate([ask()])
    assert (response.error, response.retries) == ("no answer in 0.3 s", 0)
    assert 0.3 <= response.seconds < 5


@pytest.mark.parametrize("fault", ["429", "500", "drop", "reset", "malformed", "html", "hollow", "hang"])
def test_what_keeps_failing_while_the_server_lives_is_an_error(fault: str) -> None:
    def broken(body: Body, seen: int) -> str | None:
        return fault if "broken" in prompt_text(body) else None

    with OpenAIServer(faults=broken) as server:
        responses = engine(server, timeout=0.5 if fault == "hang" else 10.0).generate(
            [ask("well"), ask("broken"), ask("fine")]
        )
    assert [bool(response.error) for response in responses] == [False, True, False]
    assert (responses[1].text, responses[1].retries, server.faulted[fault]) == ("", 2, 3)
    assert server.listed == 1  # it was asked once whether it lives
    assert "\n" not in responses[1].error


@pytest.mark.parametrize("status", ["400", "413", "422"])
def test_a_refused_request_is_an_error_at_once(status: str) -> None:
    with OpenAIServer(faults=[status]) as server:
        responses = engine(server, concurrency=1).generate([ask("bad"), ask("good")])
    assert responses[0].error.startswith(f"{status} ")
    assert (responses[0].retries, responses[1].error, len(server.requests)) == (0, "", 2)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("truncated", '{"edit": "edit'),
        ("prose", 'Sure, here you are {:\n```json\n{"edit": "edit", "keep": []}\n```\nAnything else?'),
        ("empty", ""),
        ("null", ""),
        ("surrogate", '{"edit": "edit", "keep": []}?'),
    ],
)
def test_an_imperfect_answer_is_handed_on(fault: str, text: str) -> None:
    with OpenAIServer(faults=[fault]) as server:
        (response,) = engine(server).generate([ask()])
    assert (response.text, response.error, response.retries) == (text, "", 0)
    assert len(server.requests) == 1
    response.text.encode()


def test_an_answer_cut_short_is_repaired() -> None:
    with OpenAIServer(faults=["truncated", None]) as server:
        (found,) = consult([ask()], [lambda text: read_json(text, Answer)], engine(server))
    assert found.answer == Answer(edit="edit", keep=[])
    assert [call.valid for call in found.calls] == [False, True]
    assert "no complete JSON object" in prompt_text(server.requests[1])


def test_nothing_is_lost_doubled_or_swapped_whatever_happens() -> None:
    """Random latencies and all faults at once; each prompt is answered in full exactly once."""
    chances = dict.fromkeys(["_429", "_500", "_503", "drop", "reset", "malformed", "hang", "html"], 0.05)
    with OpenAIServer(chatty(7, 0.05, echo), by_chance(3, **chances)) as server:
        asked = [ask(f"prompt {number}", f"s{number}") for number in range(60)]
        responses = engine(server, concurrency=5, timeout=2.0, retries=8).generate(asked)
    assert [json.loads(response.text)["edit"] for response in responses] == [request.content[0] for request in asked]
    assert sorted(map(prompt_text, server.answered)) == sorted(str(request.content[0]) for request in asked)
    assert len(server.faulted) >= 6
    assert sum(response.retries for response in responses) == sum(server.faulted.values())
    assert len(server.requests) == 60 + sum(server.faulted.values())
    assert server.most == 5


def test_lists_of_several_threads_share_the_limit() -> None:
    with OpenAIServer(chatty(1, 0.03, echo)) as server:
        shared, found = engine(server, concurrency=3), dict[int, list[Response]]()

        def work(number: int) -> None:
            found[number] = shared.generate([ask(f"{number}-{item}") for item in range(6)])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert server.most == 3
    for number, responses in found.items():
        assert [json.loads(r.text)["edit"] for r in responses] == [f"{number}-{item}" for item in range(6)]


def test_it_works_where_a_loop_runs_already() -> None:
    async def notebook(one: OpenAIEngine) -> list[Response]:
        return one.generate([ask()])

    with OpenAIServer() as server:
        assert asyncio.run(notebook(engine(server)))[0].error == ""


def test_waits_are_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(wire, "FIRST_DELAY", 1.0)
    monkeypatch.setattr(wire.asyncio, "sleep", sleep)
    for _ in range(2):
        with OpenAIServer(faults=["500", "429:3", "429", "429:1000000000", "503:0", "drop"]) as server:
            (response,) = engine(server, retries=6).generate([ask()])
        assert response.retries == 6
        assert waits == [1.0, 3.0, 4.0, 60.0, 0.0, 32.0]
        waits.clear()
    for odd in ("", "-1", "nan", "Wed, 21 Oct 2026 07:28:00 GMT"):
        assert wire.delay(1, odd) == 2.0


def test_a_server_that_is_gone_ends_the_run_and_can_come_back() -> None:
    server = OpenAIServer().start()
    one = engine(server, concurrency=2)
    one.name = "system_vlm"
    assert one.generate([ask()])[0].error == ""
    server.stop()
    start = time.perf_counter()
    with pytest.raises(EngineError) as error:
        one.generate([ask(str(number)) for number in range(500)])
    assert time.perf_counter() - start < 5  # hundreds that wait are not tried one by one
    assert str(error.value) == (
        f"engine 'system_vlm': tiny at {server.url} does not answer (connection failed, ConnectError): start it again "
        "and run the same command, the run goes on where it stopped"
    )
    assert error.value.__context__ is None
    with server.start():
        assert [response.error for response in one.generate([ask("a"), ask("b")])] == ["", ""]


def test_a_server_that_dies_in_the_middle() -> None:
    server = OpenAIServer()

    def last_words(body: Body) -> str:
        if len(server.requests) == 5:
            threading.Thread(target=server.stop).start()
            time.sleep(0.2)
        return echo(body)

    server.answer = last_words
    with server.start(), pytest.raises(EngineError, match="does not answer"):
        engine(server, concurrency=2).generate([ask(str(number)) for number in range(50)])
    assert len(server.requests) < 12


@pytest.mark.parametrize("state", ["502", "hang"])
def test_a_proxy_without_a_server_behind_it_is_no_server(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PING", 0.5)
    with OpenAIServer(faults=lambda body, seen: "502") as server:
        server.models_fault = state
        with pytest.raises(EngineError, match=r"does not answer \(502 "):
            engine(server, retries=1).generate([ask()])
        server.models_fault = "404"  # it answers, if only that it lists no models
        assert engine(server, retries=1).generate([ask()])[0].error.startswith("502 ")


@pytest.mark.parametrize(
    ("settings", "fault", "line"),
    [
        ({}, "401", r"refuses the key \(401\): set the environment variable OPENAI_API_KEY to a valid one"),
        (
            {"model": "big"},
            None,
            r"big at .*/v1 has no such model or no such address .*: correct `model` or `base_url`",
        ),
        ({}, "403", r"does not allow this .*: use another `model`"),
        ({}, "429:insufficient_quota", r"has no quota left .*: raise it and run the same command"),
        ({}, "400:response_format", r"does not take this response_format .*: change `schema` of the engine"),
        ({}, "400:temperature", r"does not take this temperature .*: change `temperature` of the engine"),
    ],
)
def test_what_no_request_can_survive_ends_the_run(settings: dict[str, Any], fault: str | None, line: str) -> None:
    with OpenAIServer(faults=lambda body, seen: fault) as server, pytest.raises(EngineError, match=line) as error:
        engine(server, concurrency=2, **settings).generate([ask(str(number)) for number in range(50)])
    assert "\n" not in str(error.value)
    assert len(server.requests) <= 4


def test_a_wrong_address_is_named() -> None:
    with OpenAIServer() as server:
        url = server.url.removesuffix("/v1")
        with pytest.raises(EngineError, match=rf"tiny at {url} has no such model or no such address"):
            engine(server, base_url=url).generate([ask()])


def test_the_key_is_sent_and_appears_nowhere_else(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    with OpenAIServer(faults=["400", None, "500", None, "403"], key=KEY) as server:
        one = engine(server, api_key_env="MY_KEY", concurrency=1)
        one.load()
        responses = one.generate([ask("a"), ask("b"), ask("c")])
        with pytest.raises(EngineError) as denied:
            one.generate([ask("d")])
        monkeypatch.setenv("MY_KEY", KEY + "-old")
        with pytest.raises(EngineError) as refused:
            one.generate([ask("e")])
    assert server.keys == {KEY, KEY + "-old"}
    assert "***" in responses[0].error  # this server repeats what it was shown
    assert "***" in str(denied.value)
    errors = [line for error in (denied, refused) for line in traceback.format_exception(error.value)]
    places = [repr(one), one.fingerprint, str(vars(one)), str(responses), str(errors), caplog.text]
    assert not [place for place in places if KEY in place]
    for error in (denied.value, refused.value):
        assert error.__cause__ is error.__context__ is None


def test_a_missing_key_is_one_line_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    hosted = OpenAIEngine(model="gpt", api_key_env="MY_KEY")
    for call in (hosted.load, lambda: hosted.generate([ask()])):
        with pytest.raises(Refused, match="set the environment variable MY_KEY to a key, or set `base_url`"):
            call()
    with OpenAIServer() as server:
        local = engine(server, api_key_env="MY_KEY")
        local.load()
        local.generate([ask()])
        assert server.keys == {"none"}
        for odd in ("schlüssel", "two\nlines"):
            monkeypatch.setenv("MY_KEY", odd)
            with pytest.raises(Refused, match="the key in MY_KEY holds characters") as error:
                local.generate([ask()])
            assert odd not in str(error.value)
        assert len(server.requests) == 1


def test_the_package_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "find_spec", lambda name: None)
    with pytest.raises(Refused, match=r"pip install 'covr_lab\[reasoning\]'"):
        OpenAIEngine(model="m", base_url="http://localhost:8000/v1").load()


def test_what_is_sent() -> None:
    with OpenAIServer() as server:
        engine(server, max_tokens=99).generate([ask("user words", system="system words"), ask("free", schema=None)])
        engine(server, schema="json_object").generate([ask()])
        engine(server, schema="none").generate([ask()])
    whole, free = sorted(server.requests[:2], key=lambda body: len(body), reverse=True)
    form = {"name": "intent", "strict": True, "schema": Answer.model_json_schema()}
    assert whole == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "system words"}, {"role": "user", "content": "user words"}],
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": 99,
        "response_format": {"type": "json_schema", "json_schema": form},
    }
    assert whole["response_format"]["json_schema"]["schema"]["additionalProperties"] is False
    assert free["messages"] == [{"role": "user", "content": "free"}]
    assert "response_format" not in free
    assert server.requests[2]["response_format"] == {"type": "json_object"}
    assert "response_format" not in server.requests[3]
    # OpenAI itself refuses the old name for its new models; other servers may not know the new one.
    assert "max_completion_tokens" in OpenAIEngine(model="gpt").body(ask())
    assert "max_tokens" not in OpenAIEngine(model="gpt").body(ask())


def test_a_sampled_request_has_a_seed_of_its_own() -> None:
    def draw(body: Body) -> str:
        return str(body["seed"])

    with OpenAIServer(draw) as server:
        one = engine(server, temperature=0.7, top_p=0.9, seed=5)
        asked = [ask("same", session) for session in "abc"]
        together = one.generate(asked)
        alone = [one.generate([request])[0] for request in reversed(asked)]
    assert [response.text for response in together] == [str(seed_of(5, request)) for request in asked]
    assert [response.text for response in reversed(alone)] == [response.text for response in together]
    assert len({response.text for response in together}) == 3
    assert one.sampled
    assert not engine(server).sampled


def test_the_fingerprint_holds_what_changes_an_answer_and_nothing_else() -> None:
    base = {"model": "m", "base_url": "http://a/v1"}
    changes: list[dict[str, Any]] = [
        {"model": "n"},
        {"schema": "none"},
        {"max_tokens": 9},
        {"temperature": 0.5},
        {"temperature": 0.5, "seed": 1},
        {"temperature": 0.5, "top_p": 0.5},
        {"max_side": None},
    ]
    prints = [OpenAIEngine(**{**base, **change}).fingerprint for change in ({}, *changes)]
    assert len(set(prints)) == len(prints)
    same: list[dict[str, Any]] = [
        {"base_url": "http://b:1/v1"},
        {"base_url": None},
        {"api_key_env": "K"},
        {"concurrency": 1},
        {"timeout": 1.0, "retries": 0},
        {"seed": 1},  # a greedy answer has no seed
    ]
    for change in same:
        assert OpenAIEngine(**{**base, **change}).fingerprint == prints[0]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1, not 0"),
        ({"retries": -1}, "retries must be at least 0, not -1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"max_side": 0}, "max_side must be at least 1, not 0"),
        ({"timeout": 0.0}, "timeout 0.0 > 0"),
        ({"timeout": float("nan")}, "timeout nan > 0"),
        ({"temperature": -1.0}, "temperature -1.0 >= 0"),
        ({"top_p": 1.5}, "top_p 1.5 <= 1"),
        ({"base_url": "localhost:8000"}, "base_url must be an address such as http://localhost:8000/v1"),
        ({"base_url": "http:///v1"}, "base_url must be an address"),
        ({"base_url": f"http://me:{KEY}@host/v1"}, "base_url holds a user name or password"),
    ],
)
def test_bad_settings(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line) as error:
        OpenAIEngine(**{"model": "m", **settings})
    assert KEY not in str(error.value)


def test_it_is_a_module_like_any_other() -> None:
    with OpenAIServer() as server:
        one = engine(server)
        one.generate([ask()])
        copied = copy.deepcopy(one).to("cpu").freeze()
        assert copied.generate([ask()])[0].error == ""
        assert copied.fingerprint == one.fingerprint
        assert dict(one.state_dict()) == {}


class Numbered(VideoReader):
    """Frames whose brightness is their index; ids beginning with "folder" have no clock, "broken" does not decode."""

    fingerprint = "numbered"

    def __init__(self, shape: tuple[int, int] = (48, 64)) -> None:
        super().__init__()
        self.shape, self.read_frames = shape, 0

    def probe(self, path: Path) -> Probe:
        raise NotImplementedError

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        if path.name.startswith("broken"):
            raise VideoError(path, "corrupt", "no frame decodes")
        total = 240
        indices = np.asarray(sampler.indices(total))
        self.read_frames += len(indices)
        frames = np.broadcast_to(indices[:, None, None, None], (len(indices), *self.shape, 3)).astype(np.uint8)
        seconds = None if path.name.startswith("folder") else indices / 30
        return Clip(frames, indices, seconds, total, None if seconds is None else 30.0, 1.0)


def media(video: str, frames: int = 4, **settings: Any) -> Media:
    return Media(video, frames, VideoStore(lambda name: Path(name), Numbered(**settings)))


def pixels(part: Body) -> Image.Image:
    kind, data = part["image_url"]["url"].split(",")
    assert kind == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_frames_arrive_in_order_with_their_labels() -> None:
    request = Request("describe", ("Look: ", media("clip"), media("folder7", 2), "", " What is it?"), "v", 0)
    with OpenAIServer() as server:
        (response,) = engine(server).generate([request])
        assert response.error == ""
    parts = server.requests[0]["messages"][0]["content"]
    # 240 frames at 30 per second: the middles of four parts, and of two.
    labels = ["<1.0 seconds>", "<3.0 seconds>", "<5.0 seconds>", "<7.0 seconds>", "frame 1 of 2", "frame 2 of 2"]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    assert texts == ["Look: ", *labels, " What is it?"]
    assert [part["type"] for part in parts] == ["text", *["text", "image_url"] * 6, "text"]
    shown = [np.asarray(pixels(part)) for part in parts if part["type"] == "image_url"]
    for number, image in zip([30, 90, 150, 210, 60, 180], shown, strict=True):
        assert image.shape == (48, 64, 3)
        assert abs(float(image.mean()) - number) <= 1.5


@pytest.mark.parametrize(
    ("shape", "limit", "size"),
    [((48, 64), 32, (32, 24)), ((64, 48), 32, (24, 32)), ((48, 64), 640, (64, 48)), ((48, 64), None, (64, 48))],
)
def test_large_frames_are_scaled_down(shape: tuple[int, int], limit: int | None, size: tuple[int, int]) -> None:
    one = OpenAIEngine(model="m", base_url="http://a/v1", max_side=limit)
    body = one.body(Request("describe", (media("clip", 1, shape=shape),), "v", 0))
    assert pixels(body["messages"][0]["content"][1]).size == size


def test_labels_of_a_long_clip() -> None:
    """Dossier, E8: 380 frames at 30 per second, eight of them; the reference values of 0.9 to 11.7 s lie among them."""
    seconds = np.array([12, 42, 108, 162, 216, 270, 324, 378]) / 30
    clip = Clip(np.zeros((8, 2, 2, 3), np.uint8), np.arange(8), seconds, 380, 30.0, 1.0)
    assert frame_labels(clip) == [f"<{x} seconds>" for x in ("0.4", "1.4", "3.6", "5.4", "7.2", "9.0", "10.8", "12.6")]


def test_a_video_that_cannot_be_read_costs_its_own_request_only() -> None:
    asked = [Request("describe", (media(video),), video, 0) for video in ("one", "broken", "two")]
    with OpenAIServer() as server:
        responses = engine(server).generate(asked)
    assert [bool(response.error) for response in responses] == [False, True, False]
    assert "id 'broken' no frame decodes" in responses[1].error
    assert len(server.requests) == 2


def test_a_folder_that_is_not_set_is_said_as_it_is() -> None:
    def unset(name: str) -> Path:
        raise ValueError("data.videos_dir is not set")

    request = Request("describe", (Media("clip", 2, VideoStore(unset, Numbered())),), "v", 0)
    with OpenAIServer() as server, pytest.raises(ValueError, match=r"^data\.videos_dir is not set$"):
        engine(server).generate([ask(), request, request])


def test_frames_are_read_one_request_at_a_time() -> None:
    """What waits for its turn holds no frames in memory, and an answer waits for no other request's frames."""
    reader, lock, read_when_asked = Numbered(), threading.Lock(), list[int]()
    read: Callable[..., Clip] = reader.read

    def alone(path: Path, sampler: FrameSampler) -> Clip:
        assert lock.acquire(blocking=False), "two at once"
        try:
            time.sleep(0.005)
            return read(path, sampler)
        finally:
            lock.release()

    def answer(body: Body) -> str:
        time.sleep(0.03)
        read_when_asked.append(reader.read_frames // 2)
        return "x"

    reader.read = alone  # type: ignore[method-assign]
    store = VideoStore(lambda name: Path(name), reader)
    asked = [Request("describe", (Media(str(number), 2, store),), "v", 0) for number in range(12)]
    with OpenAIServer(answer) as server:
        assert {response.error for response in engine(server, concurrency=3).generate(asked)} == {""}
    # Each that was answered before, those in flight, and the one that takes the place of an answer on its way.
    assert all(seen <= place + 3 for place, seen in enumerate(sorted(read_when_asked), 1))
    assert server.most <= 3


def test_a_recipe_can_name_it(tmp_path: Path) -> None:
    from jsonargparse import ArgumentParser

    from covr_lab.engines.base import Engine

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--engines", type=dict[str, Engine], default={})
    inner = {"class_path": "covr_lab.engines.openai.OpenAIEngine", "init_args": {"model": "m", "schema": "none"}}
    cached = {"class_path": "covr_lab.engines.cached.CachedEngine", "init_args": {"engine": inner}}
    built = parser.instantiate(parser.parse_object({"engines": {"system_vlm": cached}}))
    assert built.engines["system_vlm"].engine.schema == "none"
    assert built.engines["system_vlm"].engine.max_side == 640
