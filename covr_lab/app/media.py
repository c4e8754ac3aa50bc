"""Videos and pictures for a browser, by video id alone: no client ever names a path."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from covr_lab.app.formats import HEAD, sniff
from covr_lab.gallery.cache import cache_dir
from covr_lab.gallery.thumbnails import thumbnail, thumbnail_path
from covr_lab.types import Refused, SessionError
from covr_lab.video.base import VideoError
from covr_lab.video.images import is_image

if TYPE_CHECKING:
    from covr_lab.data import TripletDataModule
    from covr_lab.gallery.videos import VideoStore

PREVIEW_SECONDS: Final = 120.0  # that making a preview may take
CHUNK: Final = 1 << 18  # bytes sent at once
NOT_FOUND: Final = "there is no such video here"
ROOT: Final = Path(__file__).parents[2]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Unsatisfiable(ValueError):
    """A range that lies behind the end of the file (status 416)."""


def ranges(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and end (exclusive) that a ``Range`` header asks for; ``None`` for the whole file.

    A header that is malformed, of another unit, or of several ranges is ignored, as RFC 9110 (section 14.2) allows.

    Raises:
        Unsatisfiable: no byte of the range is there.

    >>> ranges("bytes=100-199", 1000), ranges("bytes=-10", 1000), ranges("bytes=990-2000", 1000)
    ((100, 200), (990, 1000), (990, 1000))
    >>> ranges(None, 1000), ranges("bytes=0-1,5-6", 1000), ranges("bytes=9-5", 1000)
    (None, None, None)
    """
    found = re.fullmatch(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", header or "", flags=re.IGNORECASE)
    if found is None or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:  # the last bytes
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise Unsatisfiable(f"bytes {header} of {size}")
    return start, end


class Media:
    """Files of known videos.

    Args:
        videos: where they lie.
        known: ids that are served; no other id leads to a file.
        folders: whatever lies outside these, links resolved, is not served.
    """

    def __init__(self, videos: VideoStore, known: Iterable[str], folders: Collection[Path]) -> None:
        self.videos, self.known = videos, frozenset(known)
        self.folders = [Path(os.path.realpath(folder)) for folder in folders]
        self._locks: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)
        self._faults: dict[tuple[str, str], str] = {}  # kind and id -> why it has no preview, or poster

    @classmethod
    def of(cls, data: TripletDataModule) -> Self:
        """All videos of a data set.

        Raises:
            Refused: it has none.
        """
        if data.videos is None:
            raise Refused("there are no videos to show: set data.videos_dir")
        return cls(data.videos, data.video_ids, list(data.media_folders.values()))

    def find(self, video: str) -> Path:
        """The file, or folder of frames, of a video, links resolved.

        Raises:
            SessionError: no known video has this id, its file is gone, or it leads out of the folders.
        """
        if video not in self.known:
            raise SessionError(NOT_FOUND)
        try:
            path = Path(os.path.realpath(self.videos.path(video), strict=True))
        except OSError as error:
            raise SessionError("the file of this video is gone: index the folder again") from error
        if not any(path.is_relative_to(folder) for folder in self.folders):
            raise SessionError("the file of this video leads out of the folder of the videos: it is not shown")
        return path

    def poster(self, video: str) -> Path:
        """A small picture, the middle frame.

        Raises:
            SessionError: see :meth:`find`, or the video cannot be read.
        """
        with self._locks["poster", video]:
            if (ready := self.poster_ready(video)) is not None:
                return ready
            try:
                return thumbnail(self.videos, video)
            except VideoError as error:  # whose message names a path
                fault = f"this video cannot be shown ({error.reason.replace('_', ' ')})"
                self._faults["poster", video] = fault
                raise SessionError(fault) from error

    def poster_ready(self, video: str) -> Path | None:
        """What :meth:`poster` returns where it has nothing to make; raises like it."""
        self.find(video)
        if ("poster", video) in self._faults:
            raise SessionError(self._faults["poster", video])
        made = thumbnail_path(self.videos, video)
        return made if made.exists() else None

    def playable(self, video: str) -> Path:
        """A file that browsers play or show: that of the video, or a preview that is made once and kept.

        Raises:
            SessionError: see :meth:`find`, or no preview can be made.
        """
        with self._locks["video", video]:  # many ask, one makes it
            if (ready := self.ready(video)) is not None:
                return ready
            path, made = self.find(video), self._preview(video)
            made.parent.mkdir(parents=True, exist_ok=True)
            try:
                if not make_preview(path, made):
                    made.with_suffix(".plain").touch()
            except SessionError as error:
                self._faults["video", video] = str(error)
            return self.ready(video) or path

    def ready(self, video: str) -> Path | None:
        """What :meth:`playable` returns where it has nothing to make; raises like it."""
        path, made = self.find(video), self._preview(video)
        if ("video", video) in self._faults:
            raise SessionError(self._faults["video", video])
        if made.exists():
            return made
        return path if is_image(path) or made.with_suffix(".plain").exists() else None

    def _preview(self, video: str) -> Path:
        return cache_dir() / "previews" / f"{self.videos.digest([video])[:32]}.mp4"


def make_preview(source: Path, target: Path, *, seconds: float = PREVIEW_SECONDS) -> bool:
    """Write what browsers play of a video, in a process that is killed when it takes too long.

    Returns:
        Whether it was written: ``False`` where browsers play the video itself.

    Raises:
        SessionError: it cannot be read, or not in time.
    """
    part = target.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
    command = [sys.executable, "-P", "-m", "covr_lab.app.preview", os.fspath(source.absolute()), os.fspath(part)]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
    try:
        done = subprocess.run(
            command,
            timeout=seconds,
            check=False,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
            **pipes,
        )
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().split("\n")[-1][:200]
            raise SessionError(f"no preview of this video can be made ({last or f'exit code {done.returncode}'})")
        if not part.exists():
            return False
        part.replace(target)
        return True
    except subprocess.TimeoutExpired as error:
        raise SessionError(f"no preview of this video was made within {seconds:g} seconds") from error
    finally:
        part.unlink(missing_ok=True)


class MediaApp:
    """ASGI application, to be mounted: ``GET /video/ID`` and ``GET /poster/ID``, with ranges.

    Args:
        media_of: the videos that a request may see, from its scope; a :class:`~covr_lab.types.SessionError` is "not
            found".
    """

    def __init__(self, media_of: Callable[[MutableMapping[str, Any]], Media]) -> None:
        self.media_of = media_of
        # The threads that send files never wait for what must be made, nor posters for previews, which take longer.
        self._makers = {kind: ThreadPoolExecutor(2, kind) for kind in ("video", "poster")}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        if scope["method"] not in ("GET", "HEAD"):
            await _say(send, 405, "only GET and HEAD are answered", [(b"allow", b"GET, HEAD")])
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        kind, _, video = path.removeprefix("/").partition("/")
        try:
            media = self.media_of(scope)
            if kind not in ("video", "poster"):
                raise SessionError(NOT_FOUND)
            ready, made = (media.ready, media.playable) if kind == "video" else (media.poster_ready, media.poster)
            file = await asyncio.to_thread(ready, video)
            if file is None:
                file = await asyncio.get_running_loop().run_in_executor(self._makers[kind], made, video)
            await _send_file(scope, receive, send, file)
        except SessionError as error:
            await _say(send, 404, str(error))
        except OSError:
            await _say(send, 404, "the file of this video cannot be opened")


async def _gone(receive: Receive) -> None:
    """Wait until the client hangs up; a body of a GET means nothing."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_file(scope: MutableMapping[str, Any], receive: Receive, send: Send, path: Path) -> None:
    """A file or the part of it that is asked for; the whole where ``If-Range`` names another version.

    Nothing more is read once the client has hung up.
    """
    headers = {bytes(key).lower(): bytes(value).decode("latin-1") for key, value in scope["headers"]}
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        tag = f'"{status.st_size:x}-{status.st_mtime_ns:x}"'
        size, common = status.st_size, _headers(file.read(HEAD), tag)
        if headers.get(b"if-none-match") == tag:
            await _start(send, 304, common)
            await send({"type": "http.response.body"})
            return
        try:
            wanted = ranges(headers.get(b"range"), size) if headers.get(b"if-range", tag) == tag else None
        except Unsatisfiable:
            await _say(send, 416, "no such part of the file", [(b"content-range", f"bytes */{size}".encode())])
            return
        first, end = wanted or (0, size)
        if wanted:
            common.append((b"content-range", f"bytes {first}-{end - 1}/{size}".encode()))
        common.append((b"content-length", str(end - first).encode()))
        await _start(send, 206 if wanted else 200, common)
        file.seek(first)
        left = end - first if scope["method"] == "GET" else 0
        gone = asyncio.create_task(_gone(receive))
        try:
            while left and not gone.done() and (data := await asyncio.to_thread(file.read, min(CHUNK, left))):
                left -= len(data)
                await send({"type": "http.response.body", "body": data, "more_body": left > 0})
        finally:
            gone.cancel()
        if scope["method"] == "HEAD" or end == first:
            await send({"type": "http.response.body"})


def _headers(head: bytes, tag: str) -> list[tuple[bytes, bytes]]:
    """What every file is sent with: nothing in it may run as a script, and no other site may embed it."""
    return [
        (b"content-type", (sniff(head) or "application/octet-stream").encode()),
        (b"accept-ranges", b"bytes"),
        (b"etag", tag.encode()),
        (b"cache-control", b"private, max-age=3600"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"default-src 'none'; media-src 'self'; img-src 'self'; sandbox"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]


async def _start(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _say(send: Send, status: int, text: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    body = text.encode()
    plain = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await _start(send, status, [*plain, (b"x-content-type-options", b"nosniff"), *headers])
    await send({"type": "http.response.body", "body": body})
