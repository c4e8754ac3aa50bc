"""Numbers of a run, derived from its rows alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covr_lab.functional import metrics
from covr_lab.functional.transitions import transition_statistics
from covr_lab.results.calls import cost_per_turn, module_summary
from covr_lab.results.folder import write_json
from covr_lab.results.reader import Grid, Outcomes, check_complete, densify, read_rows, read_run
from covr_lab.results.routing import routing_summary, stage_summary

RECALLS = (1, 5, 10, 50)
SUBSET_RECALLS = (1, 2, 3)  # of the rank within a query's subset (CIRR)
ANY: Final = " (any relevant)"
_METRIC: Final = re.compile(r"\b(?:Rs?@(?:\d+|K)|Hits@\d+|MeanR[34]|MdR|MnR|MRR|BRI)\b(?! \(any)")


def named(text: str, protocol: Mapping[str, Any]) -> str:
    """A metric, or a text that names some, as it is shown and stored.

    Where a query may have several targets (``relevant: any``) every rank is that of whichever is ranked first, and the
    names say so.

    >>> named("R@1 gain", {"relevant": "any"}), named("R@1 gain", {})
    ('R@1 (any relevant) gain', 'R@1 gain')
    """
    return _METRIC.sub(lambda found: found[0] + ANY, text) if protocol.get("relevant") == "any" else text


def summarise(table: pa.Table, run: dict[str, Any], *, allow_partial: bool = False) -> dict[str, Any]:
    """All metrics of one run: plain values that JSON keeps, without anything that two equal runs could differ in.

    Recalls and rates are in percent and unrounded, MRR is in [0, 1], ranks and BRI are as they are. ``Rs@K`` is the
    recall within the queries' subsets. Coverage is the share of sessions whose target was ranked. Lists hold turns 0 to
    T; a value without a denominator is ``None``. Metrics have their bare names here; :func:`named` says how they are
    shown and stored.

    Args:
        table: rows as :func:`covr_lab.results.reader.read_rows` returns them.
        run: content of ``run.json``.
        allow_partial: score the sessions that are there when others are missing.

    Raises:
        Unfinished: sessions are missing.
        ValueError: rows and ``run.json`` are not of one run.
    """
    protocol = run["protocol"]
    outcomes = densify(table, protocol["turns"])
    check_complete(len(outcomes.session_ids), run, allow_partial=allow_partial)
    if outcomes.n_gallery != protocol["n_gallery"]:
        raise ValueError(
            f"run {run['name']}: its rows have n_gallery {outcomes.n_gallery}, run.json has {protocol['n_gallery']}: "
            "turns/ is of another run"
        )
    costs = cost_per_turn(table, protocol["turns"])
    return {
        "n": len(outcomes.session_ids),
        "n_gallery": outcomes.n_gallery,
        "protocol": protocol,
        "proxy": run["proxy"],
        "per_turn": _per_turn(outcomes, protocol.get("recalls", ())) | _subset_recalls(table, protocol["turns"]),
        "transitions": transition_statistics(outcomes.ranks, outcomes.executed, outcomes.shown, outcomes.fired),
        "failures": _failures(table, outcomes),
        "cost": {name: sum(values) for name, values in costs.items()},
        "cost_per_turn": costs,
        "modules": module_summary(table),
        "stages": stage_summary(table, outcomes, RECALLS),
        "routing": routing_summary(table),
    }


def _per_turn(outcomes: Outcomes, more: Sequence[int]) -> dict[str, list[float | None]]:
    """Metrics of the ranks; ``more`` recalls than the usual ones where the protocol has them."""
    ranks = outcomes.ranks
    cut = {k: min(k, outcomes.n_gallery) for k in RECALLS}  # a miss has the rank n_gallery + 1 and is no hit for any K
    shown = cut | {k: min(k, outcomes.n_gallery) for k in more}
    arrays = {f"R@{k}": metrics.recall_at(ranks, shown[k]) for k in sorted(shown)} | {
        "MdR": metrics.median_rank(ranks),
        "MnR": metrics.mean_rank(ranks),
        "MRR": metrics.mean_reciprocal_rank(ranks, outcomes.n_gallery),
        "MeanR3": metrics.mean_recall(ranks, [cut[k] for k in RECALLS[:3]]),
        "MeanR4": metrics.mean_recall(ranks, list(cut.values())),
        "BRI": metrics.bri_per_turn(ranks),
        "Hits@1": metrics.hits_at(ranks, 1),
        "Hits@10": metrics.hits_at(ranks, cut[10]),
        "coverage": 100.0 * (ranks <= outcomes.n_gallery).mean(axis=0),
        "ties": (outcomes.ties > 0).sum(axis=0),
    }
    return {name: [value if value == value else None for value in array.tolist()] for name, array in arrays.items()}


def _subset_recalls(table: pa.Table, turns: int) -> dict[str, list[float | None]]:
    """Rs@K in percent of the sessions that have a subset, by turn; nothing where none has."""
    found = np.array([np.nan if rank is None else rank for rank in table["subset_rank"].to_pylist()])
    if np.isnan(found).all():
        return {}
    ranks = Grid(table, turns).fill(found, np.float64)
    ranks = ranks[~np.isnan(ranks[:, 0])]
    return {f"Rs@{k}": (100.0 * (ranks <= k).mean(axis=0)).tolist() for k in SUBSET_RECALLS}


def _failures(table: pa.Table, outcomes: Outcomes) -> dict[str, int]:
    """Counts of what went wrong; a missing target is one that no turn ranked."""
    return {
        "rows_with_error": len(table) - table["error"].null_count,
        "sessions_missing_target": int((outcomes.ranks > outcomes.n_gallery).all(axis=1).sum()),
        "intent_fallbacks": pc.sum(pc.invert(table["intent_ok"])).as_py() or 0,
        "reflection_fallbacks": pc.sum(pc.invert(table["reflection_ok"])).as_py() or 0,
    }


def _renamed(values: Mapping[str, Any], protocol: Mapping[str, Any]) -> dict[str, Any]:
    return {named(metric, protocol): value for metric, value in values.items()}


def write_metrics(run_dir: Path, *, allow_partial: bool = False) -> Path:
    """Write ``metrics.json`` of a run folder, all or nothing; deleting it loses nothing.

    Raises:
        Unfinished: sessions are missing and ``allow_partial`` is not set.
    """
    summary = summarise(read_rows(run_dir), read_run(run_dir), allow_partial=allow_partial)
    summary["per_turn"] = _renamed(summary["per_turn"], summary["protocol"])
    summary["stages"] = {stage: _renamed(found, summary["protocol"]) for stage, found in summary["stages"].items()}
    write_json(run_dir / "metrics.json", summary)
    return run_dir / "metrics.json"
