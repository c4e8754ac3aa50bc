"""From a run folder to arrays: every number and plot starts from these."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from covr_lab.results.schema import SCHEMA, VERSION, schema_of


class Unfinished(ValueError):
    """A run whose rows do not yet cover every session of its data."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Rows of a run as session x turn arrays; S sessions sorted by id, turns 0 to T.

    A session that ended early keeps its last rank, shown video and ties; ``executed`` and ``fired`` are not carried.

    Attributes:
        session_ids: ``(S,)``.
        ranks: int64 ``(S, T+1)``, 1-based rank of the target; ``n_gallery + 1`` is a miss.
        executed: bool ``(S, T+1)``, the turn was played (a failed turn was played, a stop was not).
        shown: object ``(S, T+1)``, id of the video on display, ``None`` when turn 0 failed.
        ties: int64 ``(S, T+1)``, other videos with exactly the target's score.
        fired: bool ``(S, T+1)``, a rank-cap changed a list in this turn.
        n_gallery: videos in the gallery.
    """

    session_ids: tuple[str, ...]
    ranks: npt.NDArray[np.int64]
    executed: npt.NDArray[np.bool_]
    shown: npt.NDArray[np.object_]
    ties: npt.NDArray[np.int64]
    fired: npt.NDArray[np.bool_]
    n_gallery: int


def read_run(run_dir: Path) -> dict[str, Any]:
    """Content of ``run.json``.

    Raises:
        FileNotFoundError: the folder holds no ``run.json``.
        ValueError: another version of this package wrote it.
    """
    path = run_dir / "run.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: give the folder of a run that tools/eval.py wrote")
    run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if run.get("schema") not in range(1, VERSION + 1):
        raise ValueError(
            f"{path}: schema {run.get('schema')} is not one of 1 to {VERSION}: report it with the version that wrote it"
        )
    return run


def read_rows(run_dir: Path) -> pa.Table:
    """All rows of ``run_dir/turns/*.parquet``, sorted by (session_id, turn).

    Raises:
        FileNotFoundError: there is no part.
        ValueError: a part has other columns, a row is there twice, or a turn is missing.
    """
    paths = sorted((run_dir / "turns").glob("*.parquet"))
    if not paths:
        raise FileNotFoundError(f"{run_dir / 'turns'} holds no *.parquet: run tools/eval.py first")
    return ordered(pa.concat_tables([_read_part(path) for path in paths]))


def _read_part(path: Path) -> pa.Table:
    """One part; columns that are newer than it are null."""
    table = pq.ParquetFile(path).read()  # read_table would invent columns from a folder named a=b
    version = int((table.schema.metadata or {}).get(b"covr_lab.schema", VERSION))
    wanted = schema_of(version)
    if not table.schema.equals(wanted):
        types = [dict(zip(schema.names, schema.types, strict=True)) for schema in (table.schema, wanted)]
        odd = [name for name in types[0] | types[1] if types[0].get(name) != types[1].get(name)] or ["their order"]
        raise ValueError(
            f"{path}: columns differ from schema {version} ({', '.join(odd)}): delete it and run eval again"
        )
    known = {name: _widened(table[name], SCHEMA.field(name).type) for name in table.column_names}
    nulls = {field.name: pa.nulls(len(table), field.type) for field in SCHEMA if field.name not in known}
    return pa.table({name: (known | nulls)[name] for name in SCHEMA.names}, schema=SCHEMA)


def _widened(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column as it is written today; fields that are newer are null."""
    return column if column.type == kind else pa.array(column.to_pylist(), kind)


def ordered(table: pa.Table) -> pa.Table:
    """``table`` sorted by (session_id, turn), after a check that turns run 0, 1, 2, ... in every session.

    Raises:
        ValueError: a row is there twice, or a turn is missing.
    """
    table = table.sort_by([("session_id", "ascending"), ("turn", "ascending")])
    ids, turns = np.asarray(table["session_id"].to_pylist(), dtype=object), table["turn"].to_numpy()
    index = np.arange(len(ids))
    expected = index - np.maximum.accumulate(np.where(_first(ids), index, 0))
    bad = np.flatnonzero(turns != expected)
    if len(bad):
        at = bad[0]
        if expected[at] and turns[at] == turns[at - 1]:
            raise ValueError(f"session {ids[at]}: turn {turns[at]} is stored twice: delete one of the parts in turns/")
        raise ValueError(f"session {ids[at]}: turn {expected[at]} is missing before {turns[at]}: run eval again")
    return table


def _first(ids: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    """Marks the first row of every session, bool ``(rows,)``."""
    return np.concatenate([np.ones(min(len(ids), 1), dtype=np.bool_), np.asarray(ids[1:] != ids[:-1], dtype=np.bool_)])


class Grid:
    """Values of rows as session x turn arrays.

    Args:
        table: rows as :func:`read_rows` returns them.
        turns: T, feedback turns of the protocol; no row lies beyond it.
    """

    def __init__(self, table: pa.Table, turns: int) -> None:
        ids = np.asarray(table["session_id"].to_pylist(), dtype=object)
        first = _first(ids)
        self.session_ids: tuple[str, ...] = tuple(ids[first])
        self._at = (np.cumsum(first) - 1, table["turn"].to_numpy())
        self.stored = np.zeros((len(self.session_ids), turns + 1), dtype=np.bool_)  # cells that have a row
        self.stored[self._at] = True
        last = self.stored.sum(axis=1, keepdims=True) - 1
        self._source = np.minimum(np.arange(turns + 1), last)  # turn that each cell is read from

    def fill(self, values: Any, dtype: Any, carry: bool = True) -> Any:
        """Values, one a row, as ``(S, T+1)``; with ``carry`` a session that ended early keeps its last one."""
        cells = np.zeros(self.stored.shape, dtype=dtype)
        cells[self._at] = np.asarray(values, dtype=dtype)
        return np.take_along_axis(cells, self._source, axis=1) if carry else cells


def densify(table: pa.Table, turns: int) -> Outcomes:
    """Session x turn arrays of ``table``, early ends carried forward.

    Args:
        table: rows as :func:`read_rows` returns them.
        turns: T, feedback turns of the protocol.

    Raises:
        ValueError: a rank is null (no target known), a turn lies beyond ``turns``, or gallery sizes differ.
    """
    _check_scorable(table, np.asarray(table["session_id"].to_pylist(), dtype=object), turns)
    grid, caps = Grid(table, turns), table["caps"].to_pylist()
    executed = [action != "stop" for action in table["action"].to_pylist()]
    return Outcomes(
        session_ids=grid.session_ids,
        ranks=grid.fill(table["target_rank"].to_numpy(), np.int64),
        executed=grid.fill(executed, np.bool_, carry=False),
        shown=grid.fill(table["shown"].to_pylist(), object),
        ties=grid.fill(table["target_ties"].fill_null(0).to_numpy(), np.int64),
        fired=grid.fill([any(cap["fired"] for cap in row or ()) for row in caps], np.bool_, carry=False),
        n_gallery=table["n_gallery"][0].as_py(),
    )


def _check_scorable(table: pa.Table, ids: npt.NDArray[np.object_], turns: int) -> None:
    ranks = table["target_rank"].to_pylist()
    if None in ranks:
        raise ValueError(f"session {ids[ranks.index(None)]}: no target rank: only sessions with a target can be scored")
    beyond = np.flatnonzero(table["turn"].to_numpy() > turns)
    if len(beyond):
        raise ValueError(f"session {ids[beyond[0]]}: a turn beyond protocol.turns={turns}: run.json is of another run")
    sizes = table["n_gallery"].unique().to_pylist()
    if len(sizes) != 1 or sizes[0] is None:
        raise ValueError(f"n_gallery is not one number but {sizes}: the parts in turns/ are of different runs")


def check_complete(sessions: int, run: dict[str, Any], *, allow_partial: bool = False) -> None:
    """Check that ``sessions`` is the ``n_sessions`` of ``run``: the denominator is the annotation rows.

    Raises:
        Unfinished: sessions are missing and ``allow_partial`` is not set.
        ValueError: there are more sessions than the data has.
    """
    missing = run["n_sessions"] - sessions
    if missing > 0 and not allow_partial:
        raise Unfinished(
            f"run {run['name']}: {missing} of {run['n_sessions']} sessions missing: run eval again to resume"
        )
    if missing < 0:
        raise ValueError(
            f"run {run['name']}: {sessions} sessions, run.json says {run['n_sessions']}: turns/ mixes runs"
        )
