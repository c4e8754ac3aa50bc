"""What people did, on disk before they see the answer: one append-only file a session, one line an action."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from covr_lab.types import Refused

Entry = dict[str, Any]
T = TypeVar("T")
log = logging.getLogger(__name__)


class Journal:
    """Entries by key (a session's id, or a name of the study), each file JSON lines in the order of :meth:`append`.

    A line is on the disk when :meth:`append` returns. A kill in the middle of it leaves a torn last line, which is
    dropped with a warning: its answer was never given.

    Args:
        folder: made when it is missing; one process writes in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._checked: set[Path] = set()

    def path(self, key: str) -> Path:
        """File of ``key``, which may be any text: its name is a hash."""
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.jsonl"

    def append(self, key: str, entry: Mapping[str, Any]) -> None:
        """Add one line, durably.

        Raises:
            OSError: the disk refuses it; then nothing was answered, and the file is as it was.
        """
        line = (json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n").encode()
        path = self.path(key)
        with self._lock:
            self._mend(path)
            before = path.stat().st_size if path.exists() else None
            try:
                _write(path, line)
                if before is None:
                    _sync(self.folder)
            except OSError:
                self._checked.discard(path)
                _take_back(path, before)
                raise

    def read(self, key: str) -> list[Entry]:
        """Entries of ``key``, oldest first; none when there is no file.

        Raises:
            Refused: a line that is not the last one cannot be read.
        """
        path = self.path(key)
        return _entries(path)[0] if path.exists() else []

    def all(self, wanted: Callable[[Entry], bool] = bool) -> list[list[Entry]]:
        """Entries of every file, the files in the order of their names.

        Args:
            wanted: tells by its first entry whether a file is read; by default all are.

        Raises:
            Refused: the first line of a file, or another one of a file that is read, cannot be read.
        """
        return [_entries(path)[0] for path in self._paths() if (first := _first(path)) and wanted(first)]

    def firsts(self) -> list[Entry]:
        """The first entry of every file, no more of it being read; a file that cannot be read is logged and left out.

        >>> Journal(Path("/nowhere")).firsts()
        []
        """
        return [first for first in self._readable(_first) if first]

    def readable(self) -> list[list[Entry]]:
        """As :meth:`all`, but a file that cannot be read is logged and left out."""
        return [entries for entries, _ in self._readable(_entries) if entries]

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def _readable(self, read: Callable[[Path], T]) -> Iterator[T]:
        for path in self._paths():
            try:
                yield read(path)
            except (Refused, OSError) as error:
                log.error("left out: %s", error)

    def _mend(self, path: Path) -> None:
        """Cut a torn last line off before the first new one, or it would spoil that."""
        if path in self._checked:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            whole = _entries(path)[1]
            if whole < path.stat().st_size:
                os.truncate(path, whole)
        self._checked.add(path)


def _write(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _entries(path: Path) -> tuple[list[Entry], int]:
    """What a file holds, and how many of its bytes are whole lines."""
    content, entries = path.read_bytes(), list[Entry]()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        log.warning("%s: its last line was cut off by a kill: dropped, its answer was never shown", path)
    for number, line in enumerate(content[:whole].splitlines(), 1):
        entries.append(_entry(path, number, line))
    return entries, whole


def _first(path: Path) -> Entry | None:
    """The first entry of a file, ``None`` where no line of it is whole."""
    with path.open("rb") as file:
        line = file.readline()
    return _entry(path, 1, line) if line.endswith(b"\n") else None


def _entry(path: Path, number: int, line: bytes) -> Entry:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise Refused(f"{path}:{number}: not a line of JSON ({error}): remove that line, or the file") from error
    if not isinstance(entry, dict):
        raise Refused(f"{path}:{number}: not an object of JSON: remove that line, or the file")
    return entry


def _take_back(path: Path, before: int | None) -> None:
    """Undo a write that failed: the file has ``before`` bytes again, or there is none."""
    try:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            os.truncate(path, before)
    except OSError as error:
        log.error("%s: a line that failed could not be taken back (%s): cut the file to %s bytes", path, error, before)


def _sync(folder: Path) -> None:
    """Make the name of a new file durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
