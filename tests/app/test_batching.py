from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest

from covr_lab.app.batching import Batcher, Overloaded
from covr_lab.system import System
from covr_lab.types import Feedback, Query, Question, RankedList, Refused, Session, SessionError, Turn


class Held:
    """A system whose calls wait for a gate; what it is asked is written down."""

    def __init__(self) -> None:
        self.gate, self.entered, self.calls = threading.Event(), threading.Event(), list[tuple[str, list[str]]]()

    def start(self, queries: Sequence[Query]) -> list[Turn]:
        return [self._turn(0, text) for text in self._called("start", [query.text for query in queries])]

    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[Question | None]
    ) -> list[Turn]:
        texts = self._called("step", [words.text for words in feedback])
        return [self._turn(len(session.turns), text) for session, text in zip(sessions, texts, strict=True)]

    def ask(self, sessions: Sequence[Session]) -> list[Question | None]:
        texts = self._called("ask", [session.query.text for session in sessions])
        return [Question(text) if text != "silent" else None for text in texts]

    def _called(self, verb: str, texts: list[str]) -> list[str]:
        self.calls.append((verb, texts))
        self.entered.set()
        assert self.gate.wait(10)
        if "unreadable" in texts:
            raise SessionError("video 'v' cannot be read")
        if "bug" in texts:
            raise KeyError("oops")
        if "engine" in texts:
            raise Refused("engine 'llm' is gone: start its server")
        return texts

    @staticmethod
    def _turn(index: int, text: str) -> Turn:
        return Turn(index, RankedList(np.array([len(text)], np.int32)))


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def batcher(held: Held) -> Iterator[Batcher]:
    batcher = Batcher(cast(System, held), size=8, waiting=16)
    yield batcher
    held.gate.set()
    batcher.close()


def ask(batcher: Batcher, text: str) -> Any:
    """What one user gets: the length of the text, or the error."""
    try:
        return int(batcher.start([Query(text, None, text)])[0].result.rows[0])
    except (SessionError, Refused) as error:
        return str(error)


def together(batcher: Batcher, held: Held, texts: Sequence[str]) -> list[Any]:
    """Results of users who ask while a call is running."""
    with ThreadPoolExecutor(len(texts) + 1) as pool:
        first = pool.submit(ask, batcher, "first")
        assert held.entered.wait(10)
        others = [pool.submit(ask, batcher, text) for text in texts]
        while batcher._queue.qsize() < len(texts):
            time.sleep(0.001)
        held.gate.set()
        assert first.result(10) == 5
        return [other.result(10) for other in others]


def test_requests_that_come_during_a_call_share_the_next_one(batcher: Batcher, held: Held) -> None:
    texts = ["a" * size for size in range(1, 11)]
    assert together(batcher, held, texts) == list(range(1, 11))  # each its own result
    assert [len(texts) for _, texts in held.calls] == [1, 8, 2]  # never more than the size
    assert (dict(batcher.sizes), batcher.batches) == ({1: 1, 8: 1, 2: 1}, 3)


def test_a_session_that_fails_fails_alone(batcher: Batcher, held: Held, caplog: pytest.LogCaptureFixture) -> None:
    found = together(batcher, held, ["ab", "unreadable", "abc", "bug"])
    assert found == [2, "video 'v' cannot be read", 3, "this could not be answered (KeyError: 'oops')"]
    assert "Traceback" in caplog.text
    assert ask(batcher, "abcd") == 4


def test_when_nothing_can_be_answered_everybody_is_told_and_it_may_come_back(batcher: Batcher, held: Held) -> None:
    gone = "engine 'llm' is gone: start its server"
    assert together(batcher, held, ["ab", "engine"]) == [gone, gone]
    assert ask(batcher, "ab") == 2


def test_verbs_are_not_mixed(batcher: Batcher, held: Held) -> None:
    held.gate.set()
    session = Session(Query("s", None, "why"), (Turn(0, RankedList(np.array([1], np.int32))),))
    assert batcher.ask([session, Session(Query("t", None, "silent"), session.turns)]) == [Question("why"), None]
    (turn,) = batcher.step([session], [Feedback("free", "four")], [None])
    assert (turn.index, turn.result.rows.tolist()) == (1, [4])
    assert [verb for verb, _ in held.calls] == ["ask", "step"]


def test_a_full_queue_is_refused_with_a_sentence(held: Held) -> None:
    batcher = Batcher(cast(System, held), waiting=2)
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(ask, batcher, "first")
        assert held.entered.wait(10)
        waiting = [pool.submit(ask, batcher, "ab") for _ in range(2)]
        while batcher._queue.qsize() < 2:
            time.sleep(0.001)
        with pytest.raises(Overloaded, match="too many people"):
            batcher.start([Query("q", None, "abc")])
        held.gate.set()
        assert [running.result(10), *(one.result(10) for one in waiting)] == [5, 2, 2]
    batcher.close()


def test_closing_answers_what_waits_and_refuses_the_rest(held: Held) -> None:
    batcher = Batcher(cast(System, held), size=1)
    with ThreadPoolExecutor(5) as pool:
        users = [pool.submit(ask, batcher, "first")]
        assert held.entered.wait(10)
        users += [pool.submit(ask, batcher, "ab") for _ in range(3)]
        while batcher._queue.qsize() < 3:
            time.sleep(0.001)
        closing = pool.submit(batcher.close)
        while not batcher._closed:
            time.sleep(0.001)
        assert ask(batcher, "late") == "the server is stopping: try again when it is back"
        held.gate.set()
        closing.result(10)
        assert [user.result(10) for user in users] == [5, 2, 2, 2]
    batcher.close()
    assert not batcher._thread.is_alive()


def test_time_in_the_model_is_no_overhead_of_anybody(batcher: Batcher, held: Held) -> None:
    def user(_: int) -> None:
        with batcher.clock.request():
            ask(batcher, "ab")
            time.sleep(0.02)

    with ThreadPoolExecutor(4) as pool:
        users = [pool.submit(user, number) for number in range(4)]
        assert held.entered.wait(10)
        time.sleep(0.3)  # all four wait for the model
        held.gate.set()
        for one in users:
            one.result(10)
    assert batcher.clock.busy >= 0.3
    assert len(batcher.clock.outside) == 4
    assert 0.02 <= batcher.clock.percentile(0) <= batcher.clock.percentile(100) < 0.25
