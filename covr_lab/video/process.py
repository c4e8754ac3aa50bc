"""A decoding process that can be killed at any moment: decoders may hang or crash inside native code."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal

Backend = Literal["decord", "pyav"]
START = 120.0  # seconds in which a new process has to say that it is ready
ROOT = Path(__file__).parents[2]


class DecodeProcess:
    """One ``python -m covr_lab.video.worker``, reused for many clips.

    It is started with :mod:`subprocess`, as the daemonic workers of a DataLoader may not use :mod:`multiprocessing`.

    Args:
        backend: the library that decodes.

    Attributes:
        owner: id of the process that started it; a forked copy must not use it.
        served: clips so far.
    """

    def __init__(self, backend: Backend) -> None:
        self.owner, self.served = os.getpid(), 0
        self._deadline = time.monotonic() + START
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - decoders write to it as long as the process lives
        self._socket, other = socket.socketpair()
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "covr_lab.video.worker", str(other.fileno()), backend],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the main process
            )
        self._end = weakref.finalize(self, _end, self._process, self._socket, self._log, self.owner)
        try:
            self.receive()
        except (OSError, EOFError) as error:
            raise RuntimeError(f"the decoding process does not start: {self.autopsy()}") from error

    def limit(self, seconds: float) -> None:
        """Start the clock of one clip."""
        self._deadline = time.monotonic() + seconds
        self.served += 1

    def send(self, message: dict[str, Any]) -> None:
        """Send a request; the process ends itself some seconds after the time limit."""
        data = json.dumps({**message, "seconds": self._left()}).encode()
        self._socket.settimeout(self._left())
        self._socket.sendall(len(data).to_bytes(4) + data)

    def receive(self) -> dict[str, Any]:
        """The next message.

        Raises:
            TimeoutError: the time limit is over.
            EOFError: the process has died.
        """
        size = bytearray(4)
        self.fill(memoryview(size))
        data = bytearray(int.from_bytes(size))
        self.fill(memoryview(data))
        message: dict[str, Any] = json.loads(data)
        return message

    def fill(self, buffer: memoryview) -> None:
        """Receive as many bytes as the buffer holds; raises like :meth:`receive`."""
        while buffer:
            self._socket.settimeout(self._left())
            count = self._socket.recv_into(buffer)
            if not count:
                self._left()  # past the limit the process has ended itself
                raise EOFError
            buffer = buffer[count:]

    def kill(self) -> None:
        """End the process and wait for it."""
        self._end()

    def alive(self) -> bool:
        """Whether it can take another request."""
        return self._end.alive and self._process.poll() is None

    def autopsy(self) -> str:
        """What a process died of that has closed its side; nothing of it is left afterwards."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code, last = self._process.returncode, _last_line(self._log)
        self.kill()
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        return f"{how}, {last}" if last else how

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _end(process: subprocess.Popen[bytes], connection: socket.socket, log: IO[bytes], owner: int) -> None:
    connection.close()
    log.close()
    if owner == os.getpid():
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # a file system that hangs may hold it for longer
            process.wait(5)
    else:
        process.returncode = 0  # not ours: a forked copy leaves it alone


def _last_line(log: IO[bytes]) -> str:
    end = os.fstat(log.fileno()).st_size
    lines = os.pread(log.fileno(), 2000, max(0, end - 2000)).decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
