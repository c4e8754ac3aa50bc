"""The server: API, media and page behind one guard, bound to loopback unless it has a login."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

import uvicorn
from anyio import to_thread
from fastapi import FastAPI

from covr_lab.app.api import add_api
from covr_lab.app.client import Client
from covr_lab.app.guard import LOOPBACK, TOKEN, App, Guard, Limits, Receive, Scope, Send
from covr_lab.app.media import Media, MediaApp
from covr_lab.app.state import Service
from covr_lab.types import Refused

SILENT: Final = {  # what libraries would send to their makers
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
THREADS: Final = 100  # requests that are answered, or wait for the system, at once
ACTIONS: Final = ("/api/sessions", "/api/study")
GRACE: Final = 5  # seconds that open requests have at the end


def create_app(service: Service, mount: Callable[[FastAPI, Service], Any] | None = None) -> FastAPI:
    """API and media, and whatever ``mount`` adds (the page); without a :class:`~covr_lab.app.guard.Guard`.

    Args:
        service: closed with the application.
        mount: adds routes.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        service.close()

    app = FastAPI(title="covr_lab", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json", lifespan=lifespan)
    app.state.service = service
    add_api(app)
    app.mount("/media", MediaApp(lambda scope: _media(service, scope)))
    app.add_middleware(Measured, service=service)
    if mount is not None:
        mount(app, service)
    return app


class Measured:
    """ASGI middleware: what requests take beside the model, of those that make it work."""

    def __init__(self, app: App, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and note the time."""
        acts = scope["type"] == "http" and scope["method"] == "POST" and scope["path"].startswith(ACTIONS)
        with self.service.measured() if acts else nullcontext():
            await self.app(scope, receive, send)


def _media(service: Service, scope: MutableMapping[str, Any]) -> Media:
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return Client(service, scope[TOKEN]).media(path.split("/", 2)[-1])


def guarded(
    app: App, service: Service, *, host: str = "127.0.0.1", login: str | None = None, limits: Limits | None = None
) -> Guard:
    """The application as it may stand on a network."""
    hosts = (*LOOPBACK, host) if is_loopback(host) else None
    return Guard(app, limits=limits or Limits(), uploads=service.uploads.limit, hosts=hosts, login=login)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bound(host: str, port: int, login: str | None) -> socket.socket:
    """A socket that listens.

    Raises:
        Refused: others would reach it without a login, or the address is taken.
    """
    if not is_loopback(host) and not login:
        raise Refused(f"--host {host} lets others in: give --login a variable with USER:PASSWORD, or leave --host away")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        raise Refused(
            f"--host {host} --port {port}: {error} (is a server running already? give another --port)"
        ) from error
    return listening


def serve(guard: Guard, listening: socket.socket) -> None:
    """Answer until the process is told to end. Who asks is not logged, and no proxy is believed."""
    config = uvicorn.Config(
        guard,
        log_level="warning",
        access_log=False,
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    uvicorn.Server(config).run(sockets=[listening])


def stay_silent() -> None:
    """Keep libraries from calling home; before they are imported."""
    os.environ.update(SILENT)
