"""The decoding process: ``python -m covr_lab.video.worker SOCKET BACKEND``, started by :mod:`covr_lab.video.process`.

It answers requests on a socket until the other end closes it. It imports neither torch nor lightning.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from covr_lab.video.base import Reason, VideoError
from covr_lab.video.images import ImageSource, is_image
from covr_lab.video.source import Source

GRACE = 2.0  # seconds after the time limit when the process ends itself: the main process may be gone


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """One message: its length in 4 bytes, then JSON."""
    data = json.dumps(message).encode()
    connection.sendall(len(data).to_bytes(4) + data)


def open_source(path: Path, backend: str) -> Source:
    """A file, a folder of images or an image."""
    if path.is_dir() or is_image(path):
        return ImageSource(path)
    if backend == "decord":
        from covr_lab.video.decord_source import DecordSource

        return DecordSource(path)
    from covr_lab.video.av_source import AVSource

    return AVSource(path)


def serve(connection: socket.socket, backend: str) -> None:
    """Answer requests until the connection closes.

    ``{"open": path}`` is answered by ``{"probe", "decodable"}``. ``{"wanted": ascending indices}`` then brings, for
    each of them, ``{"index", "second"}`` and the bytes of the frame, and ``{"decodable"}`` in the end.
    ``{"reason", "detail"}`` in place of any answer is a failure. Both requests name the ``seconds`` left.
    """
    source: Source | None = None
    with connection.makefile("rb") as stream:
        while size := stream.read(4):
            request = json.loads(stream.read(int.from_bytes(size)))
            signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE)
            try:
                if "open" in request:
                    source = None  # the last one goes before the next one comes
                    source = open_source(Path(request["open"]), backend)
                    send(connection, {"probe": asdict(source.probe), "decodable": source.decodable})
                elif source is not None:
                    decodable = _send_frames(connection, source, request["wanted"])
                    source = None  # the file is closed when the last answer arrives
                    send(connection, {"decodable": decodable})
            except ConnectionError:
                raise
            except Exception as error:  # whatever a decoder raises fails one clip, not the run
                reason, detail = explain(error)
                send(connection, {"reason": reason, "detail": detail})
            signal.setitimer(signal.ITIMER_REAL, 0)


def explain(error: Exception) -> tuple[Reason, str]:
    """Reason and detail of a failure."""
    if isinstance(error, VideoError):
        return error.reason, error.detail
    if isinstance(error, FileNotFoundError):
        return "missing", ""
    if isinstance(error, OSError):
        return "unreadable", error.strerror or type(error).__name__
    return "crashed", f"{type(error).__name__}: {error}"


def _send_frames(connection: socket.socket, source: Source, wanted: list[int]) -> float:
    for index, frame in source.frames(wanted):
        seconds = source.seconds([index])
        send(connection, {"index": index, "second": None if seconds is None else float(seconds[0])})
        connection.sendall(np.ascontiguousarray(frame).data)
    return source.decodable


def main() -> None:
    """Serve one socket, given by its file descriptor, with one backend."""
    number, backend = sys.argv[1:]
    for library in ("av", *(("decord",) if backend == "decord" else ())):
        import_module(library)  # before the clock of the first clip starts
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the system ends the process, whatever its code is doing
    with socket.socket(fileno=int(number)) as connection, suppress(ConnectionError):
        send(connection, {"ready": True})
        serve(connection, backend)


if __name__ == "__main__":
    main()
