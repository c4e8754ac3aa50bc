"""The folder of a run: made once, resumed by the same run only, finished with metrics."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as pq

from covr_lab.types import Refused

Record = dict[str, Any]
PEOPLE = "people.json"  # when people read, typed and sent, in the folder of a study
CLAIMED = (".lock", "captions.json", "captions.tmp", "run.tmp")  # what a kill before run.json leaves


class RunRefused(Refused):
    """A folder that this run must not touch; the message says why and what to do."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` whole or not at all."""
    part = path.with_suffix(".tmp")
    part.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)


def now() -> str:
    """UTC time, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def free_folder(wanted: Path) -> Path:
    """``wanted``, or the first of ``wanted-2``, ``wanted-3``, ... that does not exist."""
    folder, number = wanted, 2
    while folder.exists():
        folder, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return folder


class RunFolder:
    """One run on disk: ``run.json``, ``captions.json``, ``turns/``, ``metrics.json``.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.turns = path / "turns"
        self._lock: IO[str] | None = None

    @property
    def record(self) -> Record:
        """Content of ``run.json``, empty before :meth:`open`."""
        path = self.path / "run.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def open(self, record: Mapping[str, Any], captions: Mapping[str, str]) -> None:
        """Claim the folder: make it, or resume what the same recipe, data and versions left there.

        Raises:
            RunRefused: it holds something else, or another process works in it.
        """
        known = self.record
        if self.path.exists() and not self.path.is_dir():
            raise RunRefused(f"{self.path} is a file: give --run_dir a folder")
        if not known and self.path.exists() and any(path.name not in CLAIMED for path in self.path.iterdir()):
            raise RunRefused(f"{self.path} is not empty and holds no run.json: give --run_dir a new folder")
        different = [key for key, value in record["identity"].items() if known and known["identity"].get(key) != value]
        if different:
            raise RunRefused(
                f"{self.path} holds a run with another {', '.join(different)}: use --fresh, or another --run_dir"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunRefused(
                f"{self.path}: another process is working on this run; wait for it, or use --fresh"
            ) from error
        for leftover in self.path.rglob("*.tmp"):
            leftover.unlink()
        if not known:
            write_json(self.path / "captions.json", captions)
            write_json(self.path / "run.json", {**record, "started": now(), "finished": None})

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.close()

    def finished_sessions(self) -> frozenset[str]:
        """Ids of the sessions whose rows are on disk; a part holds whole sessions."""
        ids: set[str] = set()
        for part in sorted(self.turns.glob("*.parquet")):
            try:
                ids.update(pq.ParquetFile(part).read(["session_id"])["session_id"].to_pylist())
            except (OSError, ValueError) as error:
                raise RunRefused(f"{part} cannot be read ({error}): delete it and run again") from error
        return frozenset(ids)

    def update(self, **fields: object) -> None:
        """Change fields of ``run.json``."""
        write_json(self.path / "run.json", {**self.record, **fields})
