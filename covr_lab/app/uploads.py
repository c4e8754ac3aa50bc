"""Videos and pictures that people bring along as references: kept apart by browser session, checked by decoding."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, Self, cast

from covr_lab.app.formats import HEAD, SUFFIXES, sniff
from covr_lab.app.media import NOT_FOUND
from covr_lab.captioners.base import Captioner
from covr_lab.data.catalogue import DIGITS
from covr_lab.gallery.cache import cache_dir
from covr_lab.retrievers.video import VideoEncoder
from covr_lab.types import Refused, SessionError
from covr_lab.video import Clip, Middle, Probe, PyAVReader, VideoError, VideoReader

if TYPE_CHECKING:
    from torch import nn

    from covr_lab.gallery.gallery import Gallery

MEGABYTE: Final = 1 << 20
VIDEO_PIXELS: Final = 4096 * 2304  # of a frame; an encoder reads many
PICTURE_PIXELS: Final = 64_000_000
SECONDS: Final = 20.0  # that checking may take
PREFIX: Final = "upload-"  # of ids: no id of a data set is meant by one
KEPT: Final = re.compile(rf"[0-9a-f]{{{DIGITS}}}\.\w+")  # names of files that were checked
_WHY: Final = {
    "not_a_video": "it is neither a video nor a picture that can be read here",
    "no_video_stream": "it has no pictures, only sound or text",
    "codec": "its format cannot be decoded here: save it as MP4 (H.264)",
    "truncated": "a part of it is missing: was the transfer cut off?",
    "corrupt": "it is damaged",
    "timeout": f"it cannot be read within {SECONDS:g} seconds",
}


def _name(place: Path, content: str) -> str:
    return f"{PREFIX}{place.name[:12]}-{content}"


@dataclass(frozen=True, slots=True)
class Upload:
    """A guest: a video or picture that one browser session brought along.

    Attributes:
        video: its id, of session and content.
        path: its file.
    """

    video: str
    path: Path


class Uploads:
    """Files below one folder, each session's in its own; they outlive the server until they are forgotten.

    Args:
        folder: where they lie, by default below the cache folder.
        limit: bytes of one file.
        each: files of one session.
        total: bytes of all sessions together.
        reader: decodes them, in a process that is killed when it takes too long.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        limit: int = 200 * MEGABYTE,
        each: int = 20,
        total: int = 10240 * MEGABYTE,
        reader: VideoReader | None = None,
    ) -> None:
        self.folder = folder or cache_dir() / "uploads"
        self.limit, self.each, self.total = limit, each, total
        self.reader = reader or PyAVReader(timeout=SECONDS)

    def place(self, session: str) -> Path:
        """Folder of a session; its name does not tell the token of the browser."""
        return self.folder / hashlib.sha256(session.encode()).hexdigest()[:32]

    def begin(self, session: str, size: int | None = None) -> Incoming:
        """Open a file to write to.

        Args:
            session: token of the browser.
            size: bytes, as the client announces them.

        Raises:
            Refused: it is announced as too large, or there is no room.
        """
        if size is not None and size > self.limit:
            raise self.too_large()
        if len(self.held(session)) >= self.each:
            raise Refused(f"you have {self.each} uploads already: go on with one of them")
        if self.crowd(session):
            raise Refused("there is no room for uploads at the moment: use a video of the collection")
        return Incoming(self, session)

    def crowd(self, session: str) -> dict[str, Path]:
        """Guest id -> file, the oldest first, of the files of which one must go before ``session`` may send another.

        They are its own where it has too many, those of all where all are too large, and none where there is room.
        """
        crowd = sorted(self._files(), key=lambda one: (one[1].st_mtime_ns, one[0]))
        own = [one for one in crowd if one[0].parent == self.place(session)]
        if len(own) >= self.each:
            crowd = own
        elif sum(status.st_size for _, status in crowd) < self.total:
            return {}
        return {_name(file.parent, file.stem): file for file, _ in crowd}

    def sweep(self) -> None:
        """Delete what a kill left of files that were arriving or on trial; while no server uses the folder."""
        for file in self.folder.glob("*/*"):
            if not KEPT.fullmatch(file.name):
                file.unlink(missing_ok=True)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """Files that are kept, of all sessions; one that goes in the meantime is none."""
        found = list[tuple[Path, os.stat_result]]()
        for file in self.folder.glob("*/*"):
            with suppress(FileNotFoundError):
                found += [(file, file.stat())] if KEPT.fullmatch(file.name) else []
        return found

    def take(self, session: str, chunks: Iterable[bytes], size: int | None = None) -> Upload:
        """A whole file, from its pieces; raises like :meth:`begin` and the methods of :class:`Incoming`."""
        with self.begin(session, size) as incoming:
            for chunk in chunks:
                incoming.write(chunk)
            return incoming.finish()

    def too_large(self) -> Refused:
        """The error to raise about a file."""
        return Refused(f"the file is larger than {self.limit / MEGABYTE:g} MB: cut it, or save it smaller")

    def held(self, session: str) -> dict[str, Path]:
        """Guest id -> file, of one session."""
        place = self.place(session)
        files = sorted(place.glob(f"{'[0-9a-f]' * DIGITS}.*")) if place.is_dir() else []
        return {self.name(session, file.stem): file for file in files}

    def name(self, session: str, content: str) -> str:
        """The guest id of a content: that of another session is another one."""
        return _name(self.place(session), content)

    def find(self, session: str, video: str) -> Path:
        """The file of a guest of this session.

        Raises:
            SessionError: it has none of this id; another's is as unknown as one that never was.
        """
        found = self.held(session).get(video)
        if found is None:
            raise SessionError(NOT_FOUND)
        return found

    def forget(self, session: str) -> list[str]:
        """Delete the files of a session; returns the ids, to :func:`dismiss`."""
        videos = list(self.held(session))
        shutil.rmtree(self.place(session), ignore_errors=True)
        return videos

    def check(self, path: Path) -> Probe:
        """What a file is, known by decoding it.

        Raises:
            Refused: it cannot be used; the message is a sentence for the person who sent it.
        """
        try:
            probe = self.reader.probe(path)
            limit = PICTURE_PIXELS if probe.codec == "images" else VIDEO_PIXELS
            if probe.width * probe.height > limit:
                raise Refused(
                    f"{probe.width}x{probe.height} pixels are too many ({limit} are allowed): save it smaller"
                )
            self.reader.read(path, Middle())
        except VideoError as error:
            raise Refused(f"this file cannot be used: {_WHY.get(error.reason, 'it cannot be read')}") from error
        return probe


class Incoming:
    """A file while it arrives, also piece by piece from an asynchronous server; unfinished, it leaves nothing.

    Attributes:
        fresh: whether the session did not have this content before; known once it is finished.
    """

    def __init__(self, uploads: Uploads, session: str) -> None:
        self.uploads, self.session, self.size, self.fresh = uploads, session, 0, True
        self._digest, self._head = hashlib.sha256(), b""
        place = uploads.place(session)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._part = place / f".{secrets.token_hex(8)}.part"
        self._file: IO[bytes] = self._part.open("wb")

    def write(self, chunk: bytes) -> None:
        """Add a piece.

        Raises:
            Refused: the file is too large; what arrived of it is deleted with the end of the ``with`` block.
        """
        self.size += len(chunk)
        if self.size > self.uploads.limit:
            raise self.uploads.too_large()
        self._head += chunk[: HEAD - len(self._head)]
        self._digest.update(chunk)
        self._file.write(chunk)

    def finish(self) -> Upload:
        """Check and keep the file.

        Raises:
            Refused: it is no video or picture; the message is a sentence for the person who sent it.
        """
        self._file.close()
        if not self.size:
            raise Refused("this file cannot be used: it is empty")
        kind = sniff(self._head)
        if not kind:
            raise Refused(f"this file cannot be used: {_WHY['not_a_video']}")
        content = self._digest.hexdigest()[:DIGITS]
        trial = self._part.with_suffix(SUFFIXES[kind])
        # A hidden picture is none for our readers, so the name on trial is a visible one.
        trial = self._part = self._part.rename(trial.with_name(trial.name.removeprefix(".")))
        self.uploads.check(trial)
        name = self.uploads.name(self.session, content)
        self.fresh = name not in self.uploads.held(self.session)
        path = trial.replace(trial.with_name(f"{content}{SUFFIXES[kind]}"))
        return Upload(name, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


def admit(
    system: nn.Module,
    gallery: Gallery,
    upload: Upload,
    *,
    alone: AbstractContextManager[object] | None = None,
    reader: VideoReader | None = None,
) -> None:
    """Let all parts of a bound system see a guest, which can then be a reference.

    A captioner that fails on it leaves it without a caption, as it does with videos of the gallery.

    Args:
        system: what is searched with.
        gallery: the system's own; it learns the guest's caption.
        upload: the guest.
        alone: held while the system works and changes, so that no other thread uses it; not while files are read.
        reader: decodes the guest where it gives the same frames as the one of the data.

    Raises:
        Refused: no part of the system sees videos.
        SessionError: a part cannot encode it; nothing of it is kept.
    """
    encoders = _encoders(system)
    seeing = [encoder for encoder in encoders if not isinstance(encoder, Captioner)]
    if not seeing:
        raise Refused("this system searches without seeing videos: it cannot take one as a reference")
    seen = {encoder: encoder.read_guest(upload.video, upload.path, reader) for encoder in seeing}
    described = dict[Captioner, dict[str, Clip]]()
    for captioner in encoders:
        if isinstance(captioner, Captioner):
            with suppress(SessionError):
                described[captioner] = captioner.read_guest(upload.video, upload.path, reader)
    with alone or nullcontext():
        try:
            for encoder, clips in seen.items():
                encoder.admit(upload.video, upload.path, clips)
        except SessionError:
            dismiss(system, gallery, upload.video)
            raise
        for captioner, clips in described.items():
            with suppress(SessionError):
                captioner.admit(upload.video, upload.path, clips)
                (artifact,) = captioner.artifacts.values()
                _captions(gallery)[upload.video] = captioner.caption(artifact.row(upload.video))


def dismiss(system: nn.Module, gallery: Gallery, video: str) -> None:
    """Forget a guest."""
    for encoder in _encoders(system):
        encoder.dismiss(video)
    _captions(gallery).pop(video, None)


def _encoders(system: nn.Module) -> list[VideoEncoder]:
    return [module for module in system.modules() if isinstance(module, VideoEncoder) and module.artifacts]


def _captions(gallery: Gallery) -> dict[str, str]:
    return cast("dict[str, str]", gallery.captions)  # a plain dict, whatever the field promises
