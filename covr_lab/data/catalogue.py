"""What is known of people's own files, in one SQLite file: content ids, facts of their containers, the last index."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from covr_lab.gallery.cache import cache_dir
from covr_lab.gallery.reuse import is_superseded
from covr_lab.types import Refused
from covr_lab.video import Probe, VideoError, VideoReader

DIGITS: Final = 24  # hexadecimal, of a content id
PASSING: Final = ("missing", "unreadable", "timeout", "crashed")  # reasons that another try may not find again
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, size INTEGER, mtime INTEGER, inode INTEGER, id TEXT);
CREATE TABLE IF NOT EXISTS facts (id TEXT, reader TEXT, found TEXT, PRIMARY KEY (id, reader));
CREATE TABLE IF NOT EXISTS indexed (folder BLOB, id TEXT, name BLOB, PRIMARY KEY (folder, id));
CREATE TABLE IF NOT EXISTS artifacts (folder BLOB, artifact TEXT, PRIMARY KEY (folder, artifact));
"""


@contextmanager
def catalogue() -> Iterator[sqlite3.Connection]:
    """The file, open; each statement is stored at once, so an interrupted run goes on where it stopped.

    Raises:
        Refused: it is damaged, or cannot be written.
    """
    path = cache_dir() / "library.sqlite"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(SCHEMA)
            yield db
    except sqlite3.Error as error:
        raise Refused(
            f"{path}: {error} (delete it, or set COVR_CACHE to a folder with room that can be written)"
        ) from error


def content_id(path: Path) -> str:
    """The first digits of the sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]


def identify(db: sqlite3.Connection, path: Path) -> str:
    """The content id of a file, which is read unless size, time and inode are those of the last time.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no file, has no bytes, or changes while it is read; the message is what to say of it.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is neither a file nor a folder")
    if not status.st_size:
        raise ValueError("is empty")
    seen = (status.st_size, status.st_mtime_ns, status.st_ino)
    row = db.execute("SELECT size, mtime, inode, id FROM files WHERE path = ?", (os.fsencode(path),)).fetchone()
    if row is not None and row[:3] == seen:
        return str(row[3])
    found, after = content_id(path), path.stat()
    if (after.st_size, after.st_mtime_ns, after.st_ino) != seen:
        raise ValueError("changes while it is read: index again when it is finished")
    db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", (os.fsencode(path), *seen, found))
    return found


def look(db: sqlite3.Connection, video: str, path: Path, reader: VideoReader, by: str) -> Probe:
    """What a video's container says, looked at once for each content and reader.

    Args:
        db: see :func:`catalogue`.
        video: content id.
        path: its file.
        reader: opens it.
        by: all of the reader that decides what it says.

    Raises:
        VideoError: it cannot be read; a reason that may pass is not remembered.
    """
    row = db.execute("SELECT found FROM facts WHERE id = ? AND reader = ?", (video, by)).fetchone()
    known = None if row is None else json.loads(row[0])
    if known is not None and "reason" in known:
        raise VideoError(path, **known)
    if known is not None:
        return Probe(**known)
    fault: VideoError | None = None
    try:
        probe = reader.probe(path)
        found = asdict(probe)
    except VideoError as error:
        if error.reason in PASSING:
            raise
        fault, found = error, {"reason": error.reason, "detail": error.detail}
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (video, by, json.dumps(found)))
    if fault is not None:
        raise fault
    return probe


def last_index(db: sqlite3.Connection, folder: Path) -> dict[str, str]:
    """Content id -> name, of the videos of a folder when it was indexed last."""
    rows = db.execute("SELECT id, name FROM indexed WHERE folder = ?", (os.fsencode(folder),))
    return {video: os.fsdecode(name) for video, name in rows}


def set_last_index(db: sqlite3.Connection, folder: Path, names: Mapping[str, str]) -> None:
    """Remember the videos of a folder, all or none."""
    at = os.fsencode(folder)
    db.execute("BEGIN")
    db.execute("DELETE FROM indexed WHERE folder = ?", (at,))
    db.executemany("INSERT INTO indexed VALUES (?, ?, ?)", [(at, v, os.fsencode(n)) for v, n in names.items()])
    db.execute("COMMIT")


def keep_artifacts(db: sqlite3.Connection, folder: Path, artifacts: Sequence[Path]) -> list[Path]:
    """Note what a folder is indexed in; returns what was made of it earlier and is now nobody's, to be deleted."""
    at, galleries = os.fsencode(folder), cache_dir() / "galleries"
    rows = db.execute("SELECT artifact FROM artifacts WHERE folder = ?", (at,))
    old = [name for (name,) in rows if any(is_superseded(galleries / name, new) for new in artifacts)]
    db.executemany("DELETE FROM artifacts WHERE folder = ? AND artifact = ?", [(at, name) for name in old])
    db.executemany("INSERT OR IGNORE INTO artifacts VALUES (?, ?)", [(at, path.name) for path in artifacts])
    used = {name for (name,) in db.execute("SELECT artifact FROM artifacts")}
    return [galleries / name for name in old if name not in used]
