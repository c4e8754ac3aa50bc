"""Answers on disk, addressed by everything that can change them: a second run asks nothing."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Request, Response
from covr_lab.gallery.cache import cache_dir
from covr_lab.types import SessionError

_log = logging.getLogger(__name__)


class CachedEngine(Engine):
    """An engine whose answers are kept, in ``generations/<name>.sqlite`` of the cache.

    The name is the recipe's: what a simulator was told about a target lies where no system's engine looks. Equal
    requests of a list are asked once. An answer with an error is not kept.

    Args:
        engine: who answers what is not kept yet.
        enabled: ``false`` hands everything on, for runs that measure time.
    """

    def __init__(self, *, engine: Engine, enabled: bool = True) -> None:
        super().__init__()
        self.engine, self.enabled, self.sampled = engine, enabled, engine.sampled
        self._store: AnswerStore | None = None

    def load(self) -> None:
        """Load the engine."""
        self.engine.name = self.name
        self.engine.load()

    @property
    def fingerprint(self) -> str:
        """That of the engine: a kept answer is its answer."""
        return self.engine.fingerprint

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Look every request up; ask the engine for those that are not kept, each once.

        Raises:
            EngineError: the engine cannot go on.
        """
        self.engine.name = self.name
        if not self.enabled:
            return self.engine.generate(requests)
        start, store, fingerprint = time.perf_counter(), self._open(), self.fingerprint
        keys = [address(fingerprint, request, self.sampled) for request in requests]
        kept = store.get([key for key in keys if key is not None])
        seconds = (time.perf_counter() - start) / max(len(keys), 1)
        first: dict[str, int] = {}
        places = [at if key is None else first.setdefault(key, at) for at, key in enumerate(keys)]
        asked = [at for at, key in enumerate(keys) if places[at] == at and key not in kept]
        fresh = dict(zip(asked, self.engine.generate([requests[at] for at in asked]) if asked else (), strict=True))
        store.put({key: fresh[at] for at in asked if (key := keys[at]) is not None and not fresh[at].error})
        return [
            fresh[at] if at in fresh else repeated(kept.get(str(keys[at])) or fresh[places[at]], seconds)
            for at in range(len(keys))
        ]

    def _open(self) -> AnswerStore:
        path = cache_dir() / "generations" / f"{quote(self.name, safe='') or 'unnamed'}.sqlite"
        if self._store is None or self._store.path != path:
            self._store = AnswerStore(path)
        return self._store


def address(fingerprint: str, request: Request, sampled: bool) -> str | None:
    """sha256 of all that an answer depends on; ``None`` if the request names a video that has no place.

    Args:
        fingerprint: the engine's, with its seed if it samples.
        request: what is asked.
        sampled: whether it matters whose turn it is.
    """
    try:
        parts = [fingerprint, request.role, request.digest]
    except SessionError:
        return None
    drawn = [request.draw] if request.draw else []
    turn = [request.session_id, request.turn, request.attempt, *drawn] if sampled else None
    return hashlib.sha256(json.dumps([*parts, turn]).encode()).hexdigest()


def repeated(response: Response, seconds: float) -> Response:
    """A response given once more, without a generation."""
    return replace(response, seconds=seconds, retries=0, cached=not response.error)


class AnswerStore:
    """Answers in one SQLite file; safe under several processes.

    It is never on the critical path: a full disk, a read-only folder or a damaged file is one warning and a miss. What
    can be read is still used when nothing more can be kept.

    Args:
        path: the file; its folder is made when the first answer is kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._readable = self._writable = True

    def get(self, keys: Sequence[str]) -> dict[str, Response]:
        """The kept answers; a key without one is absent, as is one whose row is malformed."""
        found: dict[str, Response] = {}
        try:
            if not self._readable or not self.path.exists():
                return {}
            with closing(self._open()) as db:
                for key in dict.fromkeys(keys):
                    row = db.execute("SELECT text, tokens_in, tokens_out FROM answers WHERE key = ?", (key,)).fetchone()
                    if row is not None and [type(value) for value in row] == [str, int, int]:
                        found[key] = Response(*row)
        except (sqlite3.Error, OSError) as error:
            self._readable = False
            self._give_up(error)
        return found

    def put(self, answers: Mapping[str, Response]) -> None:
        """Keep answers; what is there already is replaced."""
        if not self._writable or not answers:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            rows = [(key, answer.text, answer.tokens_in, answer.tokens_out) for key, answer in answers.items()]
            with closing(self._open()) as db, db:
                db.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
        except (sqlite3.Error, OSError, UnicodeError) as error:
            self._give_up(error)

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=60)
        db.execute("CREATE TABLE IF NOT EXISTS answers (key PRIMARY KEY, text, tokens_in, tokens_out)")
        return db

    def _give_up(self, error: Exception) -> None:
        if self._writable:
            _log.warning(
                "cache %s is not usable (%s): going on without it; remove it, or set COVR_CACHE to another folder",
                self.path,
                error,
            )
        self._writable = False
