"""Runs read side by side, and whether they may be: the rule that keeps unlike numbers apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from covr_lab.results.plots import Curve
from covr_lab.results.reader import Outcomes, densify, read_rows, read_run
from covr_lab.results.resample import Resamples, session_values
from covr_lab.results.summary import summarise


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run folder, read and scored; ``name`` is unique in a report."""

    name: str
    folder: Path
    run: dict[str, Any]
    table: pa.Table
    outcomes: Outcomes
    summary: dict[str, Any]
    captions: dict[str, str]

    @property
    def conditions(self) -> dict[str, Any]:
        """What has to be equal before this run may share a table with another."""
        protocol = {f"protocol.{key}": value for key, value in self.summary["protocol"].items()}
        return protocol | {"proxy": self.summary["proxy"], "n": self.summary["n"]}


def load_runs(folders: Sequence[Path], *, allow_partial: bool = False) -> list[Run]:
    """Read and score ``folders``. Runs of one name are named by their folder, and by its path if that is not enough.

    Raises:
        ValueError: a folder is given twice, or a run cannot be scored.
    """
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError(f"a run is given twice in {' '.join(map(str, folders))}: give each folder once")
    records = [read_run(folder) for folder in folders]
    names = [str(record["name"]) for record in records]
    for other in ([folder.resolve().name for folder in folders], [str(folder.resolve()) for folder in folders]):
        times = Counter(names)
        names = [name if times[name] == 1 else replacement for name, replacement in zip(names, other, strict=True)]
    runs = []
    for name, folder, record in zip(names, folders, records, strict=True):
        table, path = read_rows(folder), folder / "captions.json"
        summary = summarise(table, record, allow_partial=allow_partial)
        captions = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        outcomes = densify(table, record["protocol"]["turns"])
        runs.append(Run(name, folder, record, table, outcomes, summary, captions))
    return runs


def objections(runs: Sequence[Run], baseline: Run) -> list[str]:
    """Why the numbers of ``runs`` should not be compared, one line a reason."""
    keys = dict.fromkeys(key for run in runs for key in run.conditions)
    differing = [key for key in keys if len({repr(run.conditions.get(key)) for run in runs}) > 1]
    found = [f"runs differ in {', '.join(differing)}: they do not share a protocol"] if differing else []
    for run in runs:
        if run.summary["n"] < run.run["n_sessions"]:
            found.append(f"run {run.name} is unfinished: {run.summary['n']} of {run.run['n_sessions']} sessions")
        if differs := len(set(run.outcomes.session_ids) ^ set(baseline.outcomes.session_ids)):
            found.append(f"{differs} sessions are in only one of {run.name} and {baseline.name}: no paired difference")
    return found


def contexts(runs: Sequence[Run]) -> list[tuple[str, str, str | None]]:
    """(run names or "" for all, protocol in words, proxy label) of each set of equal conditions."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for run in runs:
        protocol = {
            key: str(value)[:12] if key.endswith("sha256") else value for key, value in run.summary["protocol"].items()
        }
        words = "; ".join(f"{key} {value}" for key, value in {"sessions": run.summary["n"], **protocol}.items())
        groups.setdefault((words, run.summary["proxy"]), []).append(run.name)
    return [("" if len(groups) == 1 else ", ".join(names), *group) for group, names in groups.items()]


def curves(run: Run, resamples: Resamples | None = None) -> dict[str, Curve]:
    """Metric -> its mean over sessions at every turn, with the 95 % band of the session bootstrap.

    Args:
        run: whose curves.
        resamples: that have this run and :data:`~covr_lab.results.resample.METRICS`; by default its own.
    """
    values, resamples = session_values(run.outcomes), resamples or Resamples([run])
    return {
        metric: Curve(run.name, value.mean(axis=0), *resamples.band(run, metric)) for metric, value in values.items()
    }
