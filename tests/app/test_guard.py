"""The guard alone: logins, limits, sizes and headers, without a network."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest

from covr_lab.app.guard import TOKEN, Guard, InFlight, Limits
from covr_lab.app.limits import RateLimit

SECRET = "a-secret-of-22-letters-or-more"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers the browser's secret and the size of the body; has a content policy of its own at /media."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise OSError("the client is gone")
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    own = [(b"Content-Security-Policy", b"sandbox")] if scope["path"].startswith("/media/") else []
    await send({"type": "http.response.start", "status": 200, "headers": own})
    await send({"type": "http.response.body", "body": json.dumps([scope[TOKEN], size]).encode()})


def guard(**keys: Any) -> Guard:
    limits = Limits(logins=RateLimit(0.001, 3, clock=lambda: 0.0))
    return Guard(echo, **{"limits": limits, "uploads": 1 << 20, **keys})


def ask(
    guard: Guard, path: str = "/api/x", method: str = "GET", parts: Iterable[bytes] = (b"",), **headers: str
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and body."""
    given = {"host": "localhost:7860", **{name.replace("_", "-"): value for name, value in headers.items()}}
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": pairs,
        "client": ("127.0.0.1", 5),
    }
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    names = [(bytes(name).decode(), bytes(value).decode()) for name, value in sent[0]["headers"]]
    assert len({name for name, _ in names}) == len(names), "a header is there twice"
    return sent[0]["status"], names, sent[1]["body"]


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_a_login_lets_in_who_knows_it_and_guesses_run_out() -> None:
    behind = guard(login="anna:schön", hosts=None)
    status, headers, body = ask(behind)
    assert (status, dict(headers)["www-authenticate"].partition(" ")[0]) == (401, "Basic")
    assert b"name and password" in body
    assert ask(behind, authorization=f"Bearer {SECRET}")[0] == 401
    for wrong in ("anna:schon", "anna:schön:"):
        assert ask(behind, authorization=basic(wrong))[0] == 401
    assert ask(behind, authorization=basic("anna:x"))[0] == 429
    status, _, body = ask(behind, host="any.example", authorization=basic("anna:schön"), cookie=f"covr_lab={SECRET}")
    assert (status, json.loads(body)) == (200, [SECRET, 0])


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7860", "[::1]:7860", "LOCALHOST:1"])
def test_names_of_this_machine(host: str) -> None:
    assert ask(guard(), host=host)[0] == 200


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "[::1"])
def test_other_names(host: str) -> None:
    assert ask(guard(), host=host)[0] == 421


def test_who_asks_is_told_by_bearer_cookie_or_chance() -> None:
    status, headers, body = ask(guard(), cookie=f'broken="; a=b=c; covr_lab={SECRET}; [x]=1')
    assert (status, json.loads(body)[0], "set-cookie" in dict(headers)) == (200, SECRET, False)
    assert json.loads(ask(guard(), authorization=f"Bearer {SECRET}", cookie="covr_lab=x")[2])[0] == SECRET
    fresh = {json.loads(ask(guard(), cookie="covr_lab=short")[2])[0] for _ in range(10)}
    assert len(fresh) == 10
    assert min(map(len, fresh)) == 43


def test_headers_of_an_application_stay_and_the_others_come() -> None:
    page, media = (dict(ask(guard(), path)[1]) for path in ("/", "/media/video/x"))
    assert media["content-security-policy"] == "sandbox"
    assert "default-src 'self'" in page["content-security-policy"]
    assert "http" not in page["content-security-policy"]
    assert {page["x-frame-options"], media["x-frame-options"]} == {"DENY"}


@pytest.mark.parametrize(
    "path",
    [
        *("/gradio_api/file=/etc/passwd", "/gradio_api/proxy=http://x", "/gradio_api/upload", "/monitoring"),
        *("/api/../x", "/media/video/../x", "/media/other/x", "/assets/..\\x", "/api/\0", "//evil.example"),
        *("/login", "/openapi.json"),
    ],
)
def test_addresses_that_are_not_there(path: str) -> None:
    assert ask(guard(), path)[0] == 404


@pytest.mark.parametrize(("path", "most"), [("/api/uploads", 1 << 20), ("/api/sessions", 1 << 18)])
def test_a_body_is_counted_while_it_comes(path: str, most: int) -> None:
    kind = "application/octet-stream" if path == "/api/uploads" else "application/json"
    half = bytes(most // 2)
    status, _, body = ask(guard(), path, "POST", [half, half], content_type=kind)
    assert (status, json.loads(body)[1]) == (200, most)
    status, headers, body = ask(guard(), path, "POST", [half, half, b"x"], content_type=kind)
    assert (status, dict(headers)["connection"]) == (413, "close")
    assert "larger than the" in json.loads(body)["error"]
    assert ask(guard(), path, "POST", content_type=kind, content_length=str(most + 1))[0] == 413


@pytest.mark.parametrize(
    ("path", "browsers", "most"), [("/api/x", 1, 2), ("/api/x", 9, 3), ("/media/video/x", 1, 4), ("/assets/x.js", 1, 9)]
)
def test_few_requests_are_answered_at_once(path: str, browsers: int, most: int) -> None:
    """Of nine that wait for each other: those of one browser, those of an address, and what is only shown."""

    async def at_once() -> list[int]:
        said, go = list[int](), asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            del scope, receive
            await go.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        one = Guard(slow, limits=Limits(), uploads=1, flight=InFlight(browser=2, address=3, media=4))

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                said.append(message["status"])

        def asked(number: int) -> Any:
            bearer = f"Bearer {SECRET}{number % browsers}".encode()
            headers = [(b"host", b"localhost"), (b"authorization", bearer)]
            scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "client": ("127.0.0.1", 5)}
            return one(scope, asyncio.Event().wait, send)

        running = [asyncio.create_task(asked(number)) for number in range(9)]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*running)
        await asked(0)  # what was held is free again
        return said

    said = asyncio.run(at_once())
    assert sorted(said) == [200] * (most + 1) + [429] * (9 - most)


def test_an_address_runs_out_whatever_its_browsers_say() -> None:
    limits = Limits(browser=RateLimit(1, 5, clock=lambda: 0.0), address=RateLimit(1, 8, clock=lambda: 0.0))
    one = guard(limits=limits)
    said = [ask(one, authorization=f"Bearer {SECRET}")[0] for _ in range(6)]
    assert said == [200] * 5 + [429]
    assert [ask(one)[0] for _ in range(3)] == [200, 200, 429]  # each without a cookie is a new browser
    assert ask(one, "/assets/x.js")[0] == 200
