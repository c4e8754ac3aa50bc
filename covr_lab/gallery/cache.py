"""Vectors on disk, addressed by everything that can change them."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
_log = logging.getLogger(__name__)


def cache_dir() -> Path:
    """Where caches live: ``$COVR_CACHE``, else ``~/.cache/covr_lab``."""
    return Path(os.environ.get("COVR_CACHE", Path.home() / ".cache" / "covr_lab"))


class VectorCache:
    """Vectors of texts in one SQLite file; safe under several processes.

    A cache is never on the critical path: a full disk, a read-only folder or a damaged file is one warning and a miss.

    Args:
        path: the file; its folder is made when the first vector is written.
        fingerprint: identity of the encoder (weights, pooling, length limit, version).
        width: entries of a vector; a row of another size is malformed and counts as a miss.
    """

    def __init__(self, path: Path, fingerprint: str, width: int) -> None:
        self.path, self.fingerprint, self.width = path, fingerprint, width
        self._usable = True

    def get(self, texts: Sequence[str]) -> dict[str, Vector]:
        """The stored vectors of ``texts``; a text without one is absent."""
        found: dict[str, Vector] = {}
        try:
            if not self._usable or not self.path.exists():
                return {}
            with closing(self._open()) as db:
                for text in dict.fromkeys(texts):
                    row = db.execute(
                        "SELECT data FROM vectors WHERE encoder = ? AND text = ?", (self.fingerprint, text)
                    ).fetchone()
                    if row is not None and isinstance(row[0], bytes) and len(row[0]) == 4 * self.width:
                        found[text] = np.frombuffer(row[0], dtype=np.float32)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)
        return found

    def put(self, vectors: Mapping[str, Vector]) -> None:
        """Store vectors; what is there already is replaced by the same value."""
        if not self._usable or not vectors:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            rows = [(self.fingerprint, text, vector.astype(np.float32).tobytes()) for text, vector in vectors.items()]
            with closing(self._open()) as db, db:
                db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=60)
        db.execute(
            "CREATE TABLE IF NOT EXISTS vectors (encoder TEXT, text TEXT, data BLOB, PRIMARY KEY (encoder, text))"
        )
        return db

    def _give_up(self, error: Exception) -> None:
        self._usable = False
        _log.warning(
            "cache %s is not usable (%s): going on without it; set COVR_CACHE to another folder", self.path, error
        )
