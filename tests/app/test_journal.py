from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from covr_lab.app.journal import Journal
from covr_lab.app.limits import Bucket, RateLimit, TooFast, Unknown, check_owner, seal
from covr_lab.types import Refused

ENTRIES: list[dict[str, Any]] = [
    {"verb": "start", "text": 'ein "Hund"\n\u2028 auf <b>Schnee</b> \U0001f415', "score": 0.1},
    {"verb": "say", "row": {"top_ids": ["a/b", "../c"], "error": None}},
    {"verb": "undo"},
]


def test_a_kill_at_any_byte_loses_at_most_the_line_that_was_being_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Journal(tmp_path / "whole")
    for entry in ENTRIES:
        whole.append("s/1", entry)
    assert Journal(tmp_path / "whole").read("s/1") == ENTRIES
    content = whole.path("s/1").read_bytes()
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    for size in range(len(content) + 1):
        journal = Journal(tmp_path / str(size))
        journal.folder.mkdir()
        journal.path("s/1").write_bytes(content[:size])
        lines = sum(end <= size for end in ends)
        caplog.clear()
        assert journal.read("s/1") == ENTRIES[:lines]
        torn = size not in (0, *ends)
        assert ("cut off by a kill" in caplog.text) is torn
        journal.append("s/1", {"verb": "found"})
        assert Journal(journal.folder).read("s/1") == [*ENTRIES[:lines], {"verb": "found"}]


def test_keys_are_no_paths_and_share_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for number, key in enumerate(["../up", "a", "A", "a/", "ä" * 300, ""]):
        journal.append(key, {"number": number})
    assert [entries[0]["number"] for entries in map(journal.read, ["../up", "a", "A", "a/", "ä" * 300, ""])] == list(
        range(6)
    )
    assert sorted(entries[0]["number"] for entries in journal.all()) == list(range(6))
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
    assert journal.read("never") == []


def test_a_spoiled_line_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    path = journal.path("s")
    path.write_bytes(b'{"verb": "start"}\n{"verb": \n{"verb": "undo"}\n')
    with pytest.raises(Refused, match=rf"{path.name}:2: not a line of JSON .*: remove that line"):
        journal.read("s")


def test_a_damaged_file_is_left_out_of_what_lists_all_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    for key in ("a", "b", "c", "d"):
        journal.append(key, {"key": key})
        journal.append(key, {"verb": "undo"})
    journal.path("b").write_bytes(b'{"key": "b"}\n{"verb": \n{"verb": "undo"}\n')
    journal.path("d").write_bytes(b'{"key": "d", "ver')  # killed at its first line: there is no such search
    assert sorted(first["key"] for first in journal.firsts()) == ["a", "b", "c"]
    assert "cannot" not in caplog.text
    assert sorted(entries[0]["key"] for entries in journal.readable()) == ["a", "c"]
    assert f"left out: {journal.path('b')}:2: not a line" in caplog.text
    assert [entries[1] for entries in journal.all(lambda first: first["key"] == "c")] == [{"verb": "undo"}]
    with pytest.raises(Refused, match=r":2: not a line"):
        journal.all(lambda first: first["key"] in "ab")
    for line in (b"3\n", b"\xff\n"):
        journal.path("b").write_bytes(line)
        assert sorted(first["key"] for first in journal.firsts()) == ["a", "c"]
        with pytest.raises(Refused, match=r":1: not "):  # nobody knows whose it was
            journal.all(lambda first: first["key"] == "c")


@pytest.mark.parametrize("call", [1, 2], ids=["of the file", "of its folder"])
@pytest.mark.parametrize("before", [0, 2])
def test_a_line_that_the_disk_refuses_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, call: int
) -> None:
    journal, calls, fsync = Journal(tmp_path), list[int](), os.fsync
    for entry in ENTRIES[:before]:
        journal.append("s", entry)

    def failing(handle: int) -> None:
        calls.append(handle)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        if before and call == 2:  # the folder knows the file
            journal.append("s", ENTRIES[2])
            assert len(calls) == 1
            return
        with pytest.raises(OSError, match="No space left"):
            journal.append("s", {"verb": "never"})
    assert journal.path("s").exists() is bool(before)
    assert journal.read("s") == ENTRIES[:before]
    journal.append("s", ENTRIES[2])
    assert Journal(tmp_path).read("s") == [*ENTRIES[:before], ENTRIES[2]]


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from covr_lab.app.journal import Journal
journal = Journal(Path(sys.argv[1]))
for number in range(10**6):
    journal.append(f"s{number % 3}", {"number": number, "filler": "x" * 5000})
    print(number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(40):
        last = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    last = max([last, *map(int, process.stdout.read().split())])
    process.wait()
    journal = Journal(tmp_path)
    numbers = sorted(entry["number"] for key in range(3) for entry in journal.read(f"s{key}"))
    assert numbers in (list(range(last + 1)), list(range(last + 2)))  # the next one may be whole, too
    assert all(len(json.dumps(entry)) > 5000 for entry in journal.read("s0"))


def test_a_client_that_asks_too_often_waits_and_another_does_not() -> None:
    now = [100.0]
    limit = RateLimit(rate=2.0, burst=3.0, clients=2, clock=lambda: now[0])
    for _ in range(3):
        limit.check("a")
    with pytest.raises(TooFast, match=r"try again in 0\.5 s"):
        limit.check("a")
    limit.check("b")
    now[0] += 0.5
    limit.check("a")
    with pytest.raises(TooFast):
        limit.check("a")
    now[0] -= 50  # a clock that goes back gives nothing away
    with pytest.raises(TooFast):
        limit.check("a")
    now[0] += 1050
    allowed = 0
    for _ in range(1000):
        try:
            limit.check("a")
            allowed += 1
        except TooFast:
            pass
    assert allowed == 3
    limit.check("c")  # of three clients two are remembered
    assert set(limit._buckets) == {"a", "c"}


def test_a_bucket_never_gives_more_than_its_rate() -> None:
    bucket, granted = Bucket(5.0, 0.0), 0
    for step in range(1, 10_001):
        bucket, wait = bucket.take(step / 100, rate=3.0, burst=5.0)
        granted += not wait
        assert 0 <= bucket.tokens <= 5.0
    assert granted in (304, 305)  # the burst, then 3 a second for 100 s


def test_only_the_token_opens_a_session() -> None:
    check_owner("secret", seal("secret"), "s1")
    messages = set()
    for token, sealed in (("other", seal("secret")), ("", seal("secret")), ("secret", None), ("\udc80", seal("x"))):
        with pytest.raises(Unknown) as caught:
            check_owner(token, sealed, "s1")
        messages.add(str(caught.value))
    assert messages == {"no search 's1': start a new one"}
    assert seal("secret") != "secret"
