"""What the stages of a cascade did: where its gates sent the queries, and the order after each stage.

A query is an executed session-turn at which stages ran. Everything is read from the stored rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covr_lab.functional import metrics
from covr_lab.results.calls import USER
from covr_lab.results.reader import Grid, Outcomes
from covr_lab.types import SCORING

VERIFICATION: Final = "verification"
KEYS: Final = (
    *("gap_skip", "seed", "pages", "pool", "expanded", "early_description", "late_description", "pairs_scored"),
    *("verify_entered", "cluster", "verify_calls", "failed"),
)
Floats = npt.NDArray[np.float64]
Row = dict[str, Any]


def staged_rows(table: pa.Table) -> list[Row]:
    """Rows at which stages ran, with plain mappings."""
    names = ("turn", "stage_target_rank", "routing", "stage_timing", "module_timing", "seconds")
    rows = table.select(names).to_pylist(maps_as_pydicts="strict")
    return [row for row in rows if row["stage_target_rank"]]


def routing_summary(table: pa.Table) -> dict[str, Any]:
    """:func:`routing_of` all queries (``all``) and those of each turn (``per_turn``, ``None`` where no stage ran).

    Empty for a run without stages.
    """
    rows = staged_rows(table)
    if not rows:
        return {}
    turns = [[row for row in rows if row["turn"] == turn] for turn in range(max(row["turn"] for row in rows) + 1)]
    return {"all": routing_of(rows), "per_turn": [routing_of(some) if some else None for some in turns]}


def routing_of(rows: Sequence[Row]) -> dict[str, float | int | None]:
    """Where the gates sent the queries ``rows`` (CoVRAGE; dossier, sections 2.3 to 2.5 and 2.8).

    Rates are in percent of the queries: repairs less regressions is what verification adds to R@1. A rescue is a target
    outside the seed that an expansion admitted and that comes first in the end (``rescued_top5``: among the first
    five). ``mean_pages`` is over the expanded queries; ``mean_cluster`` and ``mean_scan`` are videos that stood for
    verification, and those that were looked at, over the verified ones. Pairs, descriptions and verifications are
    counts a query. ``None`` where there is nothing to take the mean of.
    """
    read = {key: np.array([row["routing"].get(key, 0.0) for row in rows]) for key in KEYS}
    ranks = [list(row["stage_target_rank"].values()) for row in rows]
    start, end = (np.array([places[at] for places in ranks]) for at in (0, -1))
    before, after = np.array([_around(row["stage_target_rank"], VERIFICATION) for row in rows]).T
    expanded, verified = read["expanded"] > 0, read["verify_entered"] > 0
    early, late = read["early_description"] > 0, read["late_description"] > 0
    admitted = expanded & (start > read["seed"]) & (start <= read["pool"])
    flags = {
        "gap_skip": read["gap_skip"] > 0,
        "expanded": expanded,
        "rescued": admitted & (end == 1),
        "rescued_top5": admitted & (end <= 5),
        "described": early | late,
        "concise": early,
        "ambiguous": late,
        "verified": verified,
        "repaired": (before > 1) & (after == 1),
        "regressed": (before == 1) & (after > 1),
        "failed": read["failed"] > 0,
    }
    means = {
        "mean_pages": read["pages"][expanded],
        "mean_cluster": read["cluster"][verified],
        "mean_scan": read["verify_calls"][verified],
        "pairs": read["pairs_scored"],
        "descriptions": 0.0 + early + late,
        "verifications": read["verify_calls"],
    }
    rates = {name: 100 * float(flag.mean()) for name, flag in flags.items()}
    return {"queries": len(rows)} | rates | {name: _mean(values) for name, values in means.items()}


def _around(ranks: dict[str, int], stage: str) -> tuple[int, int]:
    """Rank of the target before and after ``stage``, 0 twice where it did not run."""
    names = list(ranks)
    at = names.index(stage) if stage in names else 0
    return (ranks[names[at - 1]], ranks[stage]) if at else (0, 0)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def stage_outcomes(table: pa.Table, outcomes: Outcomes) -> dict[str, Outcomes]:
    """Outcomes as they were after retrieval and after each stage, in the order of the stages.

    Where a stage did not run, also after a session's end, the rank is that of ``outcomes``: nothing was won or lost.
    The last stage has the ranks of ``outcomes`` everywhere.

    Args:
        table: rows as :func:`covr_lab.results.reader.read_rows` returns them.
        outcomes: of these rows.
    """
    grid, final = Grid(table, outcomes.ranks.shape[1] - 1), table["target_rank"].to_pylist()
    rows = [dict(entry or ()) for entry in table["stage_target_rank"].to_pylist()]
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row.get(name, rank) for row, rank in zip(rows, final, strict=True)] for name in names}
    return {
        name: replace(outcomes, ranks=np.where(grid.stored, grid.fill(ranks, np.int64), outcomes.ranks))
        for name, ranks in found.items()
    }


def staged_turns(table: pa.Table) -> list[int]:
    """Turns at which a stage ran."""
    return sorted({row["turn"] for row in staged_rows(table)})


def stage_summary(table: pa.Table, outcomes: Outcomes, recalls: Sequence[int]) -> dict[str, dict[str, list[Any]]]:
    """Stage -> R@K, MRR, and sessions that it brought to rank 1 (``won``) or took from it (``lost``), by turn.

    Args:
        table: rows as :func:`covr_lab.results.reader.read_rows` returns them.
        outcomes: of these rows.
        recalls: K of the recalls.

    Returns:
        Lists for turns 0 to T, ``None`` at turns without stages; retrieval has nothing to win or lose.
    """
    turns, found, before = staged_turns(table), dict[str, dict[str, list[Any]]](), None
    for name, after in stage_outcomes(table, outcomes).items():
        values = {f"R@{k}": metrics.recall_at(after.ranks, min(k, after.n_gallery)) for k in recalls}
        values["MRR"] = metrics.mean_reciprocal_rank(after.ranks, after.n_gallery)
        if before is not None:
            values["won"] = ((after.ranks == 1) & (before.ranks != 1)).sum(axis=0)
            values["lost"] = ((after.ranks != 1) & (before.ranks == 1)).sum(axis=0)
        found[name] = {
            metric: [value if turn in turns else None for turn, value in enumerate(column.tolist())]
            for metric, column in values.items()
        }
        before = after
    return found


def stage_seconds(table: pa.Table) -> dict[str, float]:
    """Seconds a query: of the whole turn (``wall``), of each stage, and of engine calls and pair scoring (``busy``).

    Shares of a batch are wall time. Calls are in flight at once, so that the sum of their times can be above it.
    Empty for a run without stages.
    """
    rows = staged_rows(table)
    if not rows:
        return {}
    names = dict.fromkeys(name for row in rows for name in row["stage_timing"] if name != SCORING)
    calls = [call for row in rows for call in row["module_timing"] or () if not call["module"].startswith(USER)]
    spent = {name: sum(row["stage_timing"].get(name, 0.0) for row in rows) for name in names}
    scoring = sum(row["stage_timing"].get(SCORING, 0.0) for row in rows)
    busy = scoring + sum(call["seconds"] for call in calls)
    total = {"wall": sum(row["seconds"] for row in rows), **spent, "busy": busy}
    return {name: seconds / len(rows) for name, seconds in total.items()}
