"""A server in a process of its own, and what speaks with it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """``tools/app.py`` on a free port, without a way out; it can be killed and started again, on the same port."""

    port = 0

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self.arguments = folder, arguments
        self.outside = folder / "outside.txt"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.app.offline", *self.arguments]
        keys = ["--port", str(self.port), "--data_dir", str(self.folder / "data"), "--trainer.accelerator", "cpu"]
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "OUTSIDE": str(self.outside), "PYTHONPATH": paths}
        log = (self.folder / "log.txt").open("a")
        self.process = subprocess.Popen(
            [*command, *keys], stdout=subprocess.PIPE, stderr=log, text=True, env=env, cwd=ROOT, start_new_session=True
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("http://"):
                self.port = int(line.rpartition(":")[2])
                return self
        raise RuntimeError(f"no server: {said} {(self.folder / 'log.txt').read_text()[-3000:]}")

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Visitor:
    """One program: its secret, its address, and a connection for each request."""

    server: Server
    secret: str = "a-secret-of-22-letters-or-more"
    source: str = "127.0.0.1"
    headers: dict[str, str] = field(default_factory=dict)

    def send(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, **headers: str | None
    ) -> Answer:
        """A request exactly as it is given; ``content_type=None`` leaves a header out."""
        given: dict[str, str | None] = {
            "authorization": f"Bearer {self.secret}",
            "content-type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, 60, source_address=(self.source, 0))
        try:
            own = {name: value for name, value in given.items() if value is not None}
            connection.request(method, path, body, own, encode_chunked=not isinstance(body, bytes | None))
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.send("GET", path, **headers)

    def post(self, path: str, content: Any = None, **headers: str | None) -> Answer:
        return self.send("POST", path, json.dumps(content or {}).encode(), **headers)

    def act(self, path: str, **content: Any) -> Any:
        """What is answered to a request that must be all right."""
        answer = self.post(path, content)
        assert answer.status == 200, (path, answer.status, answer.body)
        return answer.json
