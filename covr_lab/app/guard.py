"""What stands before every request: who asks, whether they may, how often and how much.

Nothing but the addresses below is answered, so that what a page framework brings along (files by path, proxies,
uploads of its own) is not there.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from covr_lab.app.limits import RateLimit, TooFast

COOKIE: Final = "covr_lab"
TOKEN: Final = "covr_lab.token"  # key of the scope
ADDRESSES: Final = re.compile(
    r"/(?:api/.*|media/(?:video|poster)/.*|docs|config/?|(?:assets|static|svelte)/.*|theme\.css|favicon\.ico|robots\.txt|"
    r"manifest\.json|gradio_api/(?:heartbeat/\w+|startup-events|theme\.css|app_id|info/?))?"
)
SECRET: Final = re.compile(r"[A-Za-z0-9_~.+/=-]{22,200}")
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
SMALL: Final = 1 << 18  # bytes of a body that is no upload
UPLOADS: Final = "/api/uploads"
# The page's own scripts stand in it and make functions of texts (Gradio), hence the two "unsafe"; nothing from
# elsewhere is loaded or connected to, and nobody may embed the page.
POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' blob:; font-src 'self' data:; connect-src 'self'; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Rejected(Exception):
    """A request that goes no further: its status, one sentence, and headers."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True, slots=True)
class Limits:
    """How often a client may ask: of one browser, and of one address, behind which there may be many.

    Attributes:
        browser: requests that make the system work.
        address: the same, of all browsers there, and of those that take no cookie.
        media: pictures and pieces of videos of an address.
        logins: wrong passwords of an address.
    """

    browser: RateLimit = field(default_factory=lambda: RateLimit(5, 40))
    address: RateLimit = field(default_factory=lambda: RateLimit(60, 400))
    media: RateLimit = field(default_factory=lambda: RateLimit(200, 1500))
    logins: RateLimit = field(default_factory=lambda: RateLimit(0.2, 10))

    def check(self, path: str, method: str, token: str, address: str) -> None:
        """Count a request.

        Raises:
            Rejected: with the seconds to wait.
        """
        try:
            if path.startswith("/media/"):
                self.media.check(address)
            elif path.startswith("/api/") or method == "POST":
                self.address.check(address)
                self.browser.check(token)
        except TooFast as error:
            raise Rejected(429, str(error), retry_after="1") from error


class InFlight:
    """How many requests of a client are answered at once; one event loop uses it.

    Args:
        browser: requests of one browser that make the system work.
        address: the same, of all browsers of an address.
        media: pictures and videos that are sent to an address.
    """

    def __init__(self, browser: int = 4, address: int = 32, media: int = 64) -> None:
        self.browser, self.address, self.media = browser, address, media
        self._open: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def held(self, path: str, method: str, token: str, address: str) -> Iterator[None]:
        """While a request is answered.

        Raises:
            Rejected: too many of the client's are.
        """
        most: dict[tuple[str, str], int] = {}
        if path.startswith("/media/"):
            most = {("media", address): self.media}
        elif path.startswith("/api/") or method == "POST":
            most = {("address", address): self.address, ("browser", token): self.browser}
        if any(self._open[key] >= limit for key, limit in most.items()):
            raise Rejected(429, "too many requests at once: wait for the answer to an earlier one", retry_after="1")
        self._open.update(most.keys())
        try:
            yield
        finally:
            self._open.subtract(most.keys())
            for key in most:
                if not self._open[key]:
                    del self._open[key]


class Guard:
    """ASGI middleware; the application finds the browser's secret in ``scope[TOKEN]``.

    Args:
        app: what is guarded.
        limits: how often.
        flight: how many at once, by default those of :class:`InFlight`.
        uploads: bytes of an upload.
        hosts: names that the server answers to, ``None`` for any. A page of another site whose name was made to lead to
            this machine must not speak with a server that has no login (DNS rebinding).
        login: ``USER:PASSWORD``, ``None`` for none.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        uploads: int,
        hosts: Iterable[str] | None = LOOPBACK,
        login: str | None = None,
        flight: InFlight | None = None,
    ) -> None:
        self.app, self.limits, self.uploads, self.login = app, limits, uploads, login
        self.flight = flight or InFlight()
        self.hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or say no."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {
            bytes(key).decode("latin-1").lower(): bytes(value).decode("latin-1") for key, value in scope["headers"]
        }
        answer = Answer(send)
        try:
            token, fresh = self._admitted(scope, headers)
            scope[TOKEN] = token
            answer.cookie = token if fresh else None
            body = Body(receive, answer, self._allowed(scope["path"]))
            body.check(headers.get("content-length"))
            with self.flight.held(scope["path"], scope["method"], token, _address(scope)):
                await self._answered(scope, body, answer)
        except Rejected as error:
            await answer.say(error)

    async def _answered(self, scope: Scope, body: Body, answer: Answer) -> None:
        try:
            await self.app(scope, body, answer)
        except Exception:
            if answer.refused is None or answer.begun:
                raise
            await answer.say(answer.refused)

    def _allowed(self, path: str) -> int:
        return self.uploads if path == UPLOADS else SMALL

    def _admitted(self, scope: Scope, headers: MutableMapping[str, str]) -> tuple[str, bool]:
        """The browser's secret, and whether it is a new one.

        Raises:
            Rejected: the request goes no further.
        """
        path, method = scope["path"], scope["method"]
        address = _address(scope)
        if (
            not ADDRESSES.fullmatch(path)
            or any(part in ("..", ".") for part in path.split("/"))
            or "\\" in path
            or "\0" in path
        ):
            raise Rejected(404, "there is nothing here")
        self._check_host(headers.get("host", ""))
        bearer = self._check_login(headers.get("authorization", ""), address)
        _check_site(method, path, headers)
        known = bearer or _cookie(headers.get("cookie", ""))
        token = known or secrets.token_urlsafe(32)
        self.limits.check(path, method, token, address)
        return token, known is None

    def _check_host(self, host: str) -> None:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if self.hosts is not None and name not in self.hosts:
            raise Rejected(421, f"this server answers to {' and '.join(sorted(self.hosts))} only")

    def _check_login(self, authorization: str, address: str) -> str | None:
        """The secret of a program, if that is what it sent.

        Raises:
            Rejected: there is a login, and this is not it.
        """
        kind, _, value = authorization.partition(" ")
        if self.login is None:
            if kind.lower() != "bearer":
                return None
            if not SECRET.fullmatch(value):
                raise Rejected(401, "the bearer token must be a secret of 22 to 200 letters and digits")
            return value
        wanted = base64.b64encode(self.login.encode()).decode()
        if kind.lower() == "basic" and hmac.compare_digest(value.strip().encode(), wanted.encode()):
            return None
        if value:
            try:
                self.limits.logins.check(address)
            except TooFast as error:
                raise Rejected(429, str(error), retry_after="5") from error
        raise Rejected(401, "name and password, please", www_authenticate='Basic realm="covr_lab", charset="UTF-8"')


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def _check_site(method: str, path: str, headers: MutableMapping[str, str]) -> None:
    """Only pages of this server make a browser act: other origins cannot, nor can forms.

    Raises:
        Rejected: another site made the browser ask, or the body is of the wrong kind.
    """
    if method in ("GET", "HEAD"):
        return
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        raise Rejected(403, "another site may not act here")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Rejected(403, "another site may not act here")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if path == UPLOADS:
        if kind != "application/octet-stream":
            raise Rejected(415, "send the file as it is, with content-type: application/octet-stream")
    elif kind != "application/json" and method == "POST":
        raise Rejected(415, "send JSON, with content-type: application/json")


def _cookie(header: str) -> str | None:
    """The secret; other cookies, of whatever runs on other ports here, may look as they like."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE and SECRET.fullmatch(value)), None)


class Answer:
    """What is sent: with the headers of all answers, and a cookie for who has none; a refusal takes its place."""

    def __init__(self, send: Send) -> None:
        self.send, self.begun, self._said = send, False, False
        self.refused: Rejected | None = None
        self.cookie: str | None = None

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer."""
        if self.refused is not None and not self.begun:
            await self.say(self.refused)
        if self._said:
            return
        if message["type"] == "http.response.start":
            self.begun = True
            message = {**message, "headers": self._headers(message.get("headers", ()))}
        await self.send(message)

    async def say(self, error: Rejected) -> None:
        """The whole answer is a refusal."""
        if self._said:
            return
        self.begun = self._said = True
        body = json.dumps({"error": str(error)}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
        if error.status == 413:
            headers["connection"] = "close"  # what is still on its way is not read
        own = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": self._headers(own)})
        await self.send({"type": "http.response.body", "body": body})

    def _headers(self, own: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers = [(bytes(name).lower(), bytes(value)) for name, value in own]
        there = {name for name, _ in headers}
        headers += [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there]
        if self.cookie is not None:
            kept = f"{COOKIE}={self.cookie}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict"
            headers.append((b"set-cookie", kept.encode()))
        return headers


class Body:
    """What arrives, counted; once it is too much, nothing more is read and the answer is a refusal."""

    def __init__(self, receive: Receive, answer: Answer, most: int) -> None:
        self.receive, self.answer, self.most, self.size = receive, answer, most, 0

    def check(self, announced: str | None) -> None:
        """Refuse what is announced as too large before any of it is read.

        Raises:
            Rejected: it is.
        """
        if announced is not None and announced.isdecimal() and int(announced) > self.most:
            raise self._large()

    async def __call__(self) -> Message:
        """The next part of the body."""
        message = await self.receive()
        self.size += len(message.get("body", b""))
        if self.size > self.most:
            self.answer.refused = self._large()
            return {"type": "http.disconnect"}
        return message

    def _large(self) -> Rejected:
        unit, most = ("MB", self.most >> 20) if self.most >= 1 << 20 else ("KB", self.most >> 10)
        return Rejected(413, f"this is larger than the {most} {unit} that are read: cut it, or save it smaller")
