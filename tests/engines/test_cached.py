from __future__ import annotations

import copy
import json
import resource
import signal
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from covr_lab.engines import openai as wire
from covr_lab.engines.base import Engine
from covr_lab.engines.cached import AnswerStore, CachedEngine
from covr_lab.engines.openai import OpenAIEngine
from covr_lab.engines.request import Media, Request, Response
from covr_lab.gallery.videos import VideoStore
from covr_lab.types import SessionError
from covr_lab.video import Clip, FrameSampler, Probe, VideoReader
from tests.openai_server import OpenAIServer, prompt_text


class Counting(Engine):
    """Repeats the prompt and counts; a prompt with "broken" in it is an error."""

    def __init__(self, mark: str = "", sampled: bool = False) -> None:
        super().__init__()
        self.mark, self.sampled = mark, sampled
        self.asked: list[Request] = []
        self.lists = 0

    @property
    def fingerprint(self) -> str:
        return f"counting {self.mark}"

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.asked += requests
        self.lists += 1
        return [
            Response("", error="it broke", seconds=1.0, retries=2)
            if "broken" in request.text
            else Response(f"{self.mark}{request.text} {request.session_id}", 7, 3, 1.0, retries=1)
            for request in requests
        ]


class One(BaseModel):
    edit: str


class Two(BaseModel):
    edit: str
    keep: str


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "generations"


def cached(inner: Engine | None = None, name: str = "system_vlm", **settings: Any) -> CachedEngine:
    engine = CachedEngine(engine=inner or Counting(), **settings)
    engine.name = name
    return engine


def ask(text: str = "hello", session: str = "s", **more: Any) -> Request:
    return Request(**{"role": "intent", "content": (text,), "session_id": session, "turn": 1, **more})


def asked(engine: CachedEngine) -> list[str]:
    assert isinstance(engine.engine, Counting)
    return [request.text for request in engine.engine.asked]


def test_a_second_run_asks_nothing(folder: Path) -> None:
    requests = [ask("a"), ask("b", "t")]
    first = cached().generate(requests)
    assert first == [Response("a s", 7, 3, 1.0, 1), Response("b t", 7, 3, 1.0, 1)]
    later = cached()
    second = later.generate(requests[::-1])
    assert asked(later) == []
    assert later.engine.lists == 0  # type: ignore[union-attr]
    assert [(r.text, r.tokens_in, r.tokens_out, r.retries, r.cached) for r in second] == [
        ("b t", 7, 3, 0, True),
        ("a s", 7, 3, 0, True),
    ]
    assert all(0 < response.seconds < 1 for response in second)
    assert [file.name for file in folder.iterdir()] == ["system_vlm.sqlite"]


def test_one_word_changed_asks_that_again_and_nothing_else() -> None:
    requests = [ask(f"question {number}") for number in range(5)]
    cached().generate(requests)
    requests[3] = ask("question three")
    later = cached()
    found = later.generate(requests)
    assert asked(later) == ["question three"]
    assert [response.cached for response in found] == [True, True, True, False, True]
    assert [response.text for response in found] == [f"{request.text} s" for request in requests]


@pytest.mark.parametrize(
    "change",
    [
        {"content": ("hello", "")},
        {"system": "be brief"},
        {"schema": One},
        {"schema": Two},
        {"role": "reflection"},  # the name that a server reads beside the schema
    ],
)
def test_all_that_an_answer_depends_on_is_in_its_address(change: dict[str, Any]) -> None:
    cached().generate([ask()])
    for engine, count in ((cached(), 1), (cached(), 0), (cached(Counting("other")), 1)):
        engine.generate([ask(**change)])
        assert len(asked(engine)) == count


def test_a_greedy_answer_serves_every_session_and_a_sampled_one_its_own() -> None:
    others = [ask(session="t"), ask(turn=2), ask(attempt=2)]
    cached().generate([ask()])
    greedy = cached()
    assert [response.text for response in greedy.generate(others)] == ["hello s"] * 3
    assert asked(greedy) == []
    cached(Counting(sampled=True)).generate([ask()])
    sampled = cached(Counting(sampled=True))
    assert [response.cached for response in sampled.generate([*others, ask()])] == [False, False, False, True]
    assert sampled.sampled
    assert len(asked(sampled)) == 3


def test_equal_requests_of_a_list_are_asked_once() -> None:
    engine = cached()
    found = engine.generate([ask("a"), ask("b"), ask("a", "t"), ask("broken"), ask("broken"), ask("a")])
    assert asked(engine) == ["a", "b", "broken"]
    assert [response.text for response in found] == ["a s", "b s", "a s", "", "", "a s"]
    assert [response.cached for response in found] == [False, False, True, False, False, True]
    assert [response.error for response in found] == ["", "", "", "it broke", "it broke", ""]
    assert [response.retries for response in found] == [1, 1, 0, 2, 0, 0]
    assert engine.generate([]) == []


def test_an_error_is_not_kept() -> None:
    cached().generate([ask("broken"), ask("fine")])
    later = cached()
    found = later.generate([ask("broken"), ask("fine")])
    assert asked(later) == ["broken"]
    assert [response.error for response in found] == ["it broke", ""]


def test_switched_off_for_runs_that_measure_time(folder: Path) -> None:
    cached().generate([ask("a")])
    off = cached(enabled=False)
    found = off.generate([ask("a"), ask("a"), ask("b")])
    assert asked(off) == ["a", "a", "b"]
    assert not any(response.cached for response in found)
    later = cached()
    later.generate([ask("b")])
    assert asked(later) == ["b"]  # what was asked meanwhile is not kept


def test_system_and_user_do_not_see_each_other(folder: Path) -> None:
    """Equal weights, equal prompt: the simulator's answers lie where no system looks."""
    cached(name="user_vlm").generate([ask()])
    system = cached(name="system_vlm")
    system.generate([ask()])
    assert asked(system) == ["hello"]
    odd = cached(name="../a b/c")
    odd.generate([ask()])
    cached(name="").generate([ask()])
    names = ["..%2Fa%20b%2Fc.sqlite", "system_vlm.sqlite", "unnamed.sqlite", "user_vlm.sqlite"]
    assert sorted(file.name for file in folder.iterdir()) == names
    assert odd.engine.name == "../a b/c"


def test_it_is_the_engine_but_for_the_cache() -> None:
    class Loaded(Counting):
        loads = 0

        def load(self) -> None:
            self.loads += 1

    engine = cached(Loaded("x"))
    engine.load()
    assert (engine.engine.name, engine.engine.loads) == ("system_vlm", 1)  # type: ignore[union-attr]
    assert engine.fingerprint == "counting x"
    engine.generate([ask()])
    assert copy.deepcopy(engine).to("cpu").generate([ask()])[0].cached
    assert not engine.train().training


class Unread(VideoReader):
    """Knows its name and reads nothing."""

    fingerprint = "unread"

    def probe(self, path: Path) -> Probe:
        raise AssertionError("probed")

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        raise AssertionError("read")


def test_a_kept_answer_reads_no_frame(tmp_path: Path) -> None:
    def shown(frames: int = 8) -> Request:
        store = VideoStore(lambda name: tmp_path / name, Unread())
        return ask(content=("what?", Media("clip", frames, store)))

    (tmp_path / "clip").write_bytes(b"one")
    cached().generate([shown()])
    later = cached()
    assert later.generate([shown()])[0].cached
    assert not later.generate([shown(4)])[0].cached
    (tmp_path / "clip").write_bytes(b"two")
    assert not later.generate([shown()])[0].cached


def test_a_video_without_a_place_is_asked_for_and_not_kept() -> None:
    def nowhere(name: str) -> Path:
        raise SessionError(f"id '{name}' leads out of the folder")

    lost = ask(content=(Media("../x", 2, VideoStore(nowhere, Unread())),))
    for _ in range(2):
        engine = cached()
        found = engine.generate([lost, ask("a"), lost])
        assert len([text for text in asked(engine) if "../x" in text]) == 2
        assert [response.error for response in found] == ["", "", ""]


def test_behind_it_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FIRST_DELAY", 0.005)

    def failing(body: dict[str, Any], seen: int) -> str | None:
        return {"two": "400", "three": "500" if seen == 0 else None}.get(prompt_text(body))

    with OpenAIServer(faults=failing) as server:
        requests = [ask("one"), ask("two"), ask("three")]
        first = cached(OpenAIEngine(model="tiny", base_url=server.url)).generate(requests)
        assert [response.retries for response in first] == [0, 0, 1]
        assert len(server.requests) == 4
        second = cached(OpenAIEngine(model="tiny", base_url=server.url)).generate(requests)
        assert [prompt_text(body) for body in server.requests[4:]] == ["two"]
        assert [response.cached for response in second] == [True, False, True]
        assert [replace(r, seconds=0, cached=False, retries=0) for r in second] == [
            replace(r, seconds=0, cached=False, retries=0) for r in first
        ]
    url = server.url  # gone, and not missed for what is kept
    moved = cached(OpenAIEngine(model="tiny", base_url=url.replace("127.0.0.1", "localhost")))
    assert [response.cached for response in moved.generate([ask("one"), ask("three")])] == [True, True]


def test_a_folder_that_cannot_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "file" / "below"))
    engine = cached()
    for _ in range(3):
        assert [response.text for response in engine.generate([ask("a"), ask("b")])] == ["a s", "b s"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(tmp_path / "file") in caplog.text
    assert "COVR_CACHE" in caplog.text


def test_a_read_only_file_still_serves_what_it_holds(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SQLite's own switch stands for a folder without permission, which stops every user but root."""
    cached().generate([ask("a")])
    engine = cached()
    store = AnswerStore(folder / "system_vlm.sqlite")
    opened = store._open

    def read_only() -> sqlite3.Connection:
        db = opened()
        db.execute("PRAGMA query_only = ON")
        return db

    store._open = read_only  # type: ignore[method-assign]
    engine._store = store
    for _ in range(2):
        found = engine.generate([ask("a"), ask("b")])
        assert [(response.text, response.cached) for response in found] == [("a s", True), ("b s", False)]
    assert len(caplog.records) == 1


def test_a_full_disk_is_one_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = cached()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))  # no file may grow beyond one kibibyte
    try:
        texts = [response.text for response in engine.generate([ask("a"), ask("b")])]
        engine.generate([ask("c")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert texts == ["a s", "b s"]
    assert len(caplog.records) == 1
    later = cached()
    assert [response.text for response in later.generate([ask("a")])] == ["a s"]
    assert cached().generate([ask("a")])[0].cached


@pytest.mark.parametrize("content", [b"no database" * 1000, b"SQLite format 3\0" + bytes(4000)])
def test_a_damaged_file_is_one_warning(folder: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    cached().generate([ask("a")])
    (folder / "system_vlm.sqlite").write_bytes(content)
    engine = cached()
    for _ in range(2):
        assert engine.generate([ask("a")])[0].text == "a s"
    assert len(caplog.records) == 1
    assert "remove it" in caplog.text


def test_a_file_of_another_form_is_one_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "system_vlm.sqlite") as db:
        db.execute("CREATE TABLE answers (something)")
    assert cached().generate([ask("a")])[0].text == "a s"
    assert len(caplog.records) == 1


@pytest.mark.parametrize("change", ["text = NULL", "text = x'00'", "tokens_in = 'many'", "tokens_out = NULL"])
def test_a_malformed_row_is_a_miss_and_mended(folder: Path, change: str, caplog: pytest.LogCaptureFixture) -> None:
    cached().generate([ask("a"), ask("b")])
    with sqlite3.connect(folder / "system_vlm.sqlite") as db:
        db.execute(f"UPDATE answers SET {change} WHERE text = 'a s'")
    for count in (1, 0):
        engine = cached()
        assert [response.text for response in engine.generate([ask("a"), ask("b")])] == ["a s", "b s"]
        assert len(asked(engine)) == count
    assert caplog.records == []


def test_an_empty_file_is_filled(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a process leaves that is killed between opening and writing."""
    folder.mkdir(parents=True)
    (folder / "system_vlm.sqlite").touch()
    cached().generate([ask("a")])
    assert cached().generate([ask("a")])[0].cached
    assert caplog.records == []


def test_what_cannot_be_encoded_ends_no_run(caplog: pytest.LogCaptureFixture) -> None:
    engine = cached(Counting("\ud83d"))
    assert engine.generate([ask("a")])[0].text == "\ud83da s"
    assert len(caplog.records) == 1


def write(path: Path, who: str, count: int, start: Barrier, said: Connection) -> None:
    """What a process does: some answers of its own and some that others have too, one list after the other."""
    start.wait()
    store = AnswerStore(path)
    for number in range(count):
        keys = [f"{who}-{number}", f"both-{number}"]
        store.get(keys)
        store.put({key: Response(f"answer {key}" + "x" * 2000, number, 1) for key in keys})
        said.send(number)
    assert store._readable
    assert store._writable


def test_processes_that_write_at_once_lose_nothing_and_a_kill_tears_nothing(tmp_path: Path) -> None:
    path, count, fork = tmp_path / "new" / "answers.sqlite", 40, get_context("fork")
    start, (heard, said) = fork.Barrier(3), fork.Pipe(duplex=False)
    _, other = fork.Pipe(duplex=False)
    one = fork.Process(target=write, args=(path, "one", count, start, other))
    two = fork.Process(target=write, args=(path, "two", count, start, other))
    victim = fork.Process(target=write, args=(path, "victim", 100_000, start, said))
    for process in (one, two, victim):
        process.start()
    numbers = [heard.recv() for _ in range(15)]
    time.sleep(0.003)  # somewhere between two commits
    victim.kill()
    for process in (one, two, victim):
        process.join(60)
    while heard.poll():
        numbers.append(heard.recv())
    assert [one.exitcode, two.exitcode, victim.exitcode] == [0, 0, -signal.SIGKILL]
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    keys = [f"{who}-{number}" for who in ("one", "two", "both") for number in range(count)]
    keys += [f"victim-{number}" for number in numbers]  # all that it said it had kept
    found = AnswerStore(path).get(keys)
    assert {key: answer.text for key, answer in found.items()} == {key: f"answer {key}" + "x" * 2000 for key in keys}
    assert all(found[key].tokens_in == int(key.split("-")[1]) for key in keys)


def test_a_file_that_another_holds_for_long_is_a_miss(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cached().generate([ask("a")])
    connect, opened = sqlite3.connect, list[Path]()

    def impatient(path: Path, timeout: float) -> sqlite3.Connection:
        opened.append(path)
        return connect(path, timeout=0.01)

    monkeypatch.setattr(sqlite3, "connect", impatient)
    with connect(folder / "system_vlm.sqlite") as db:
        db.execute("BEGIN EXCLUSIVE")
        engine = cached()
        for _ in range(2):
            assert engine.generate([ask("a")])[0].text == "a s"
    assert len(opened) == 1  # nobody waits for it a second time
    assert "locked" in caplog.text


def test_the_address_is_stable() -> None:
    """A kept answer is found by later versions: sha256 of this list, whatever the process."""
    from hashlib import sha256

    from covr_lab.engines.cached import address

    request = ask("hello", schema=One)
    parts = ["fingerprint", "intent", request.digest, None]
    assert address("fingerprint", request, False) == sha256(json.dumps(parts).encode()).hexdigest()
    parts[3] = ["s", 1, 1]
    assert address("fingerprint", request, True) == sha256(json.dumps(parts).encode()).hexdigest()
