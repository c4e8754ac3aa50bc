"""A real server in its own process, on the demo world, spoken with over HTTP."""

from __future__ import annotations

import inspect
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from covr_lab.app.batching import Batcher
from covr_lab.results.reader import read_rows, read_run
from tests.app.running import ROOT, Server, Visitor
from tools import people
from tools.app import main

pytest.importorskip("gradio", reason="pip install 'covr_lab[app]'")

RECIPE = str(ROOT / "recipes" / "recovr_demo.yaml")
SAID = ["no, not this: it should be red", "make it huge", "in a garden", "almost, but at night", "<b>hmm</b> & a star"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    keys = [
        "--data.families",
        "5",
        "--data.folder",
        str(folder / "clips"),
        "--study",
        "6",
        "--each",
        "2",
        "--turns",
        "2",
    ]
    with Server(folder, RECIPE, *keys, "--upload_mb", "1") as server:
        yield server
        assert server.stop() == -signal.SIGTERM
    assert not server.outside.exists()  # in all that the tests did, and at the end


@pytest.fixture
def me(server: Server, request: pytest.FixtureRequest) -> Visitor:
    """A program of its own at an address of its own, so that no test uses up the requests of another."""
    number = sum(request.node.name.encode()) % 200 + 10
    return Visitor(
        server, f"{request.node.name}-{'x' * 22}"[:100].replace("[", "-").replace("]", "-"), f"127.0.1.{number}"
    )


def video_of(visitor: Visitor, place: int = 0) -> str:
    return str(visitor.get("/api/videos").json["videos"][place]["id"])


def told(view: dict[str, Any]) -> dict[str, Any]:
    """What a search says, without its name and its clock."""
    history = [{key: value for key, value in line.items() if key != "seconds"} for line in view["history"]]
    return {**view, "id": None, "history": history}


def test_the_client_of_the_readme(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "recipes" / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(import json, secrets.*?)```", text, flags=re.DOTALL)
    exec(code.replace("127.0.0.1:7860", f"127.0.0.1:{server.port}"), {})
    assert "demo/" in capsys.readouterr().out


def test_a_search_tells_ranks_movement_shares_and_why(me: Visitor) -> None:
    reference = video_of(me)
    first = me.act("/api/sessions", reference=reference, text="make it red")
    assert [one["rank"] for one in first["results"]] == list(range(1, len(first["results"]) + 1))
    assert first["total"] == 19  # 20 videos, the reference is masked
    assert reference not in [one["id"] for one in first["results"]]
    later = me.act(f"/api/sessions/{first['id']}/feedback", text="no, not this: a star", turn=0)
    before = {one["id"]: one["rank"] for one in first["results"]}
    for one in later["results"]:
        assert one["before"] == before[one["id"]]
        assert sum(one["shares"].values()) == pytest.approx(1)
        assert [line["turn"] for line in one["why"]] == [0, 1]
        assert one["why"][1]["rank"] == one["rank"]
    assert any(cap for one in later["results"] for line in one["why"] if (cap := line["cap"]))
    assert later["history"][1]["feedback"] == "no, not this: a star"
    assert later["history"][1]["question"] == first["question"]
    rejected = later["results"][1]["id"]
    after = me.act(f"/api/sessions/{first['id']}/not_this", video=rejected, turn=1)
    assert next(one["rank"] for one in after["results"] if one["id"] == rejected) == 11
    memory = {"require": ["green"], "avoid": ["star"]}
    edited = me.act(f"/api/sessions/{first['id']}/feedback", memory=memory, turn=2)["constraints"]
    assert (edited["require"], edited["avoid"]) == (["green"], ["star"])
    assert me.act(f"/api/sessions/{first['id']}/undo")["turn"] == 2
    like = me.act(f"/api/sessions/{first['id']}/more_like", video=rejected)
    assert (like["reference"]["id"], like["parent"]) == (rejected, first["id"])
    ended = me.act(f"/api/sessions/{first['id']}/found", video=rejected, turn=2)
    assert (ended["over"], ended["found"]) == (True, rejected)
    assert set(me.get("/api/sessions").json) == {first["id"], like["id"]}


def test_errors_are_sentences(me: Visitor) -> None:
    search = me.act("/api/sessions", text="a red star")["id"]
    for path, body, status, words in [
        ("/api/sessions", {"reference": "../../etc/passwd", "text": "x"}, 422, "choose one that is indexed"),
        ("/api/sessions", {}, 422, "needs words"),
        ("/api/sessions", {"txt": "x"}, 422, "txt: extra inputs"),
        ("/api/sessions", {"text": 3}, 422, "text: input should be a valid string"),
        (f"/api/sessions/{search}/feedback", {"text": "x", "turn": 7}, 422, "at turn 0, the page shows turn 7"),
        (f"/api/sessions/{search}/feedback", {"text": "x" * 2001}, 400, "2,001 characters"),
        (f"/api/sessions/{search}/feedback", {"text": "x", "timing": {"sent": float("nan")}}, 422, "timing.sent"),
        (f"/api/sessions/{search}/feedback", {"text": "x", "timing": {"turn": 3}}, 422, "timing.turn: extra inputs"),
        (f"/api/sessions/{search}/feedback", {"rejected": ["a"] * 101}, 422, "rejected: list should have at most 100"),
        (f"/api/sessions/{search}/feedback", {"rejected": ["a" * 201]}, 422, "rejected: string should have at most"),
        (f"/api/sessions/{search}/feedback", {"rejected": ["\ud800"]}, 422, "rejected"),
        (f"/api/sessions/{search}/found", {"video": "\ud800"}, 422, "video"),
        ("/api/study/leave", {"participant": "p", "instance": "\udfff"}, 422, "instance"),
        ("/api/sessions", {"reference": "v" * 201, "text": "x"}, 422, "reference: string should have at most"),
        (f"/api/sessions/{search}/found", {"video": "nowhere"}, 422, "not in the gallery"),
        ("/api/sessions/nobody/undo", {}, 404, "no search 'nobody'"),
    ]:
        answer = me.post(path, body)
        assert (answer.status, words in answer.json["error"]) == (status, True), answer.body
    assert "the body" in me.send("POST", "/api/sessions", b"{").json["error"]
    assert me.post("/api/sessions", {"reference": "\ud800", "text": "x"}).status == 422
    assert me.post("/api/study/consent", {"participant": "\ud800"}).status == 422
    assert me.get(f"/api/sessions/{search}").json["turn"] == 0


def test_html_is_text(me: Visitor) -> None:
    search = me.act("/api/sessions", text="a red <script>alert(1)</script> star")
    answer = me.get(f"/api/sessions/{search['id']}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = me.get("/docs")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert b"/api/sessions/{name}/feedback" in page.body
    assert not re.search(rb"<script|https?://", page.body)
    front = me.get("/").body.decode()
    assert "covr_lab" in front
    assert set(re.findall(r"""(?:src|href)=["']https?://[^"']+""", front)) == set()


def test_videos_come_by_id_with_ranges(me: Visitor) -> None:
    card = me.get("/api/videos?q=CIRCLE").json["videos"][0]
    assert "circle" in card["caption"]
    whole = me.get(card["media"])
    assert (whole.status, whole.headers["content-type"]) == (200, "video/mp4")
    part = me.get(card["media"], range="bytes=100-199")
    assert (part.status, part.body) == (206, whole.body[100:200])
    assert me.get(card["poster"]).headers["content-type"] == "image/jpeg"
    assert me.get("/api/videos?page=99").json["videos"] == []
    assert me.get("/api/videos?q=qwerty").json["total"] == 0


def test_no_path_leads_anywhere_else(server: Server, me: Visitor, tmp_path: Path) -> None:
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(b"root:x:0:0")
    ways = [
        "../",
        "..%2f",
        "%2e%2e/",
        "%2e%2e%2f",
        "..\\",
        "%252e%252e%252f",
        "%c0%ae%c0%ae/",
        "%ef%bc%8e%ef%bc%8e/",
        "./",
    ]
    for way in ways:
        for start in ("/media/video/", "/media/poster/", "/media/", "/api/", "/", "/static/", "/gradio_api/file="):
            answer = me.send("GET", start + way * 9 + str(secret)[1:])
            assert answer.status in (400, 404), (start, way)
            assert b"root:x" not in answer.body
    for path in (
        f"/media/video/{secret}",
        f"/gradio_api/file={secret}",
        f"/media/video/%00{secret}",
        "/media/",
        "/api",
    ):
        assert me.get(path).status == 404
    assert me.send("POST", "/gradio_api/upload", b"x").status == 404

    video = video_of(me, 3)
    clip = server.folder / "clips" / f"{video}.mp4"
    kept = clip.rename(clip.with_suffix(".kept"))
    clip.symlink_to(secret)
    try:
        answer = me.get(f"/media/video/{video}")
        assert (answer.status, b"leads out of the folder" in answer.body) == (404, True)
    finally:
        kept.replace(clip)
    assert me.get(f"/media/video/{video}").status == 200


def test_uploads_are_checked_and_belong_to_who_sent_them(server: Server, me: Visitor) -> None:
    binary = {"content_type": "application/octet-stream"}
    clip = me.get(me.get("/api/videos").json["videos"][0]["media"]).body
    guest = me.send("POST", "/api/uploads", clip, **binary).json
    assert me.get(guest["media"]).body == clip
    assert me.get(guest["poster"]).headers["content-type"] == "image/jpeg"
    assert "in front of" in guest["caption"]
    search = me.act("/api/sessions", reference=guest["id"], text="make it blue")
    assert search["reference"]["name"] == "your upload"
    other = Visitor(server, "somebody-else-with-a-secret", me.source)
    assert other.get(guest["media"]).status == 404
    assert other.post("/api/sessions", {"reference": guest["id"], "text": "x"}).status == 422

    answer = me.send("POST", "/api/uploads", b"this is text, whatever its name says", **binary)
    assert (answer.status, "neither a video nor a picture" in answer.json["error"]) == (400, True)
    assert me.send("POST", "/api/uploads", clip[: len(clip) // 2], **binary).status == 400
    assert me.send("POST", "/api/uploads", b"", **binary).json["error"].endswith("it is empty")
    chunks = (clip[:1000] for _ in range(2000))
    try:
        late = me.send("POST", "/api/uploads", chunks, **binary, transfer_encoding="chunked")
        assert (late.status, "larger than the 1 MB" in late.json["error"]) == (413, True)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has hung up in the middle
    files = [path.name for path in (server.folder / "data" / "uploads").rglob("*.*") if path.is_file()]
    assert files == [f"{guest['id'].rpartition('-')[2]}.mp4"]


def test_a_file_of_two_gigabytes_is_refused_before_it_comes(server: Server, me: Visitor) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 10, (me.source, 0)) as raw:
        raw.sendall(
            b"POST /api/uploads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Length: 2147483648\r\n\r\n"
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    assert me.post("/api/sessions", {"text": "x" * 300_000}).status == 413


def test_nobody_sees_what_is_anothers(server: Server, me: Visitor) -> None:
    mine = me.act("/api/sessions", text="a red star")
    other = Visitor(server, "another-secret-of-22-letters", me.source)
    for path, body in [
        ("", None),
        ("/feedback", {"text": "x"}),
        ("/undo", {}),
        ("/found", {"video": mine["results"][0]["id"]}),
        ("/more_like", {"video": mine["results"][0]["id"]}),
        ("/not_this", {"video": mine["results"][0]["id"]}),
    ]:
        place = f"/api/sessions/{mine['id']}{path}"
        answer = other.get(place) if body is None else other.post(place, body)
        assert (answer.status, answer.json["error"]) == (404, f"no search {mine['id']!r}: start a new one")
    assert other.get("/api/sessions").json == []
    assert me.get(f"/api/sessions/{mine['id']}").json["turn"] == 0


def test_a_browser_is_known_by_its_cookie(me: Visitor) -> None:
    first = me.post("/api/sessions", {"text": "a red star"}, authorization=None)
    cookie = first.headers["set-cookie"]
    assert re.fullmatch(r"covr_lab=[\w-]{43}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict", cookie)
    place = f"/api/sessions/{first.json['id']}"
    again = me.get(place, authorization=None, cookie=cookie.partition(";")[0])
    assert (again.status, "set-cookie" in again.headers) == (200, False)
    assert me.get(place, authorization=None).status == 404
    assert me.get(place, authorization="Bearer short").status == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": None}, 415),
        ({"host": "evil.example"}, 421),
        ({"host": "localhost", "origin": "http://localhost"}, 200),
    ],
)
def test_other_sites_cannot_act(me: Visitor, headers: dict[str, str | None], status: int) -> None:
    assert me.post("/api/sessions", {"text": "a red star"}, **headers).status == status


def test_a_thousand_requests_at_once_disturb_nobody_else(server: Server, me: Visitor) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: me.get("/api/sessions/none"), range(1000)))
    refused = [answer for answer in answers if answer.status == 429]
    assert len(refused) > 700
    assert {answer.status for answer in answers} == {404, 429}
    said = {re.sub(r"[\d.]+ s$", "N s", answer.json["error"]) for answer in refused}
    at_once = "too many requests at once: wait for the answer to an earlier one"
    assert "too many requests: try again in N s" in said <= {"too many requests: try again in N s", at_once}
    assert int(refused[0].headers["retry-after"]) >= 1
    assert (
        Visitor(server, "somebody-else-with-a-secret", "127.0.2.1").act("/api/sessions", text="a red star")["turn"] == 0
    )


def test_fewer_requests_wait_for_the_system_than_there_are_threads() -> None:
    """So that a queue that is full leaves threads for those who look only."""
    from covr_lab.app.server import THREADS

    assert inspect.signature(Batcher).parameters["waiting"].default <= THREADS - 32


def dialogue(visitor: Visitor, number: int) -> list[dict[str, Any]]:
    """Five turns; every second person rejects a result beside what they say."""
    search = visitor.act("/api/sessions", reference=video_of(visitor, number), text="make it red")
    views = [search]
    for turn in range(5):
        rejected = [search["results"][1]["id"]] if (number + turn) % 2 else []
        said = {"text": SAID[(number + turn) % len(SAID)], "rejected": rejected, "turn": turn}
        search = visitor.act(f"/api/sessions/{search['id']}/feedback", **said)
        views.append(search)
    return views


def test_twenty_people_at_once_get_what_each_gets_alone(server: Server, me: Visitor) -> None:
    visitors = [Visitor(server, f"person-{number:02}-of-twenty-in-all", me.source) for number in range(20)]
    before = me.get("/api/stats").json
    barrier = threading.Barrier(20)

    def play(number: int) -> list[dict[str, Any]]:
        barrier.wait()
        return dialogue(visitors[number], number)

    with ThreadPoolExecutor(20) as pool:
        together = list(pool.map(play, range(20)))
    after = me.get("/api/stats").json
    assert after["requests"] - before["requests"] == 120
    assert after["calls"] - before["calls"] < 240  # a turn is a step and a question
    assert max(map(int, after["batches"])) > 2
    for number in range(0, 20, 4):
        alone = dialogue(Visitor(server, f"person-{number:02}-who-is-alone-now", "127.0.2.2"), number)
        assert list(map(told, alone)) == list(map(told, together[number]))
    for person, views in zip(visitors, together, strict=True):
        assert person.get("/api/sessions").json == [views[0]["id"]]


def test_a_study_and_a_kill_in_the_middle(server: Server, me: Visitor, tmp_path: Path) -> None:
    """What was answered before the kill is there after it: searches, an upload as the reference, the study."""
    assert me.get("/api/study/task?participant=p1").status == 404
    task = me.act("/api/study/consent", participant="p1")
    assert (task["number"], task["of"], task["left"], task["search"]["turn"]) == (1, 2, 2, 0)
    said = {"participant": "p1", "instance": task["instance"], "text": "make it red"}
    later = me.act("/api/study/feedback", **said, timing={"shown": 0, "first_key": 1.5, "sent": 2.5})
    assert (later["left"], later["target"]) == (1, task["target"])
    assert me.post(f"/api/sessions/{later['search']['id']}/undo").status == 400
    clip = me.get(me.get("/api/videos").json["videos"][0]["media"]).body
    guest = me.send("POST", "/api/uploads", clip, content_type="application/octet-stream").json
    brought = me.act("/api/sessions", reference=guest["id"], text="make it blue")

    visitors = [
        Visitor(server, f"person-{number}-at-the-kill-{'x' * 22}", f"127.0.3.{number + 1}") for number in range(4)
    ]
    answered: list[tuple[Visitor, dict[str, Any]]] = []

    def play(visitor: Visitor) -> None:
        try:
            search = visitor.act("/api/sessions", reference=video_of(visitor), text="make it red")
            for turn in range(100):
                answered.append((visitor, search))
                search = visitor.act(f"/api/sessions/{search['id']}/feedback", text=SAID[turn % 5], turn=turn)
        except (OSError, AssertionError, ValueError):
            pass  # the server is gone

    threads = [threading.Thread(target=play, args=(visitor,)) for visitor in visitors]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 30
    while len(answered) < 12 and time.monotonic() < until:
        time.sleep(0.01)
    server.kill()
    for thread in threads:
        thread.join()
    assert len(answered) >= 12
    server.start()
    for visitor, view in {view["id"]: (visitor, view) for visitor, view in answered}.values():  # the newest of each
        now = visitor.get(f"/api/sessions/{view['id']}").json
        assert now["turn"] in (view["turn"], view["turn"] + 1)  # one more may be on the disk, unanswered
        if now["turn"] > view["turn"]:
            now = visitor.act(f"/api/sessions/{view['id']}/undo")
        assert told(now) == told(view)
    assert told(me.get(f"/api/sessions/{brought['id']}").json) == told(brought)
    again = me.get("/api/study/task?participant=p1").json
    assert {**again, "search": told(again["search"])} == {**later, "search": told(later["search"])}
    ended = {"participant": "p1", "instance": task["instance"], "video": later["search"]["results"][0]["id"]}
    assert "the page shows turn 0" in me.post("/api/study/found", {**ended, "turn": 0}).json["error"]
    second = me.act("/api/study/found", **ended, turn=1)
    assert (second["number"], second["instance"] != task["instance"]) == (2, True)
    assert me.act("/api/study/leave", participant="p1", instance=second["instance"]) == {"done": True}
    stranger = Visitor(server, "somebody-else-with-a-secret", me.source)
    assert stranger.post("/api/study/consent", {"participant": "p1"}).status == 404

    [folder] = (server.folder / "data").glob("run-*")
    assert people.main([str(folder), str(tmp_path / "run")]) == 0
    rows = read_rows(tmp_path / "run").to_pylist()  # of the free searches none
    assert [(row["participant"], row["action"]) for row in rows if row["turn"]] == [("p1", "free"), ("p1", "stop")]
    assert {row["instance"] for row in rows} == {task["instance"], second["instance"]}
    assert all(row["target"] and row["target_rank"] for row in rows)
    assert read_run(tmp_path / "run")["protocol"]["turns"] == 2
    assert people.main([str(folder.parent), str(tmp_path / "none")]) == 1


def test_nothing_is_sent_to_another_machine(server: Server, me: Visitor) -> None:
    dialogue(me, 1)
    assert not server.outside.exists()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets others in: give --login"),
        (["--login", "NO_SUCH_VARIABLE"], "the environment has no NAME:PASSWORD"),
        (["--data.clips", "5", "--port", "0"], "clips"),
    ],
)
def test_refusals_at_the_start_are_one_line(
    keys: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([RECIPE, "--data_dir", str(tmp_path), *keys]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_port_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main([RECIPE, "--port", str(taken.getsockname()[1])]) == 1
    assert "is a server running already?" in capsys.readouterr().err
