"""A study with people: what they reached beside simulated users and other systems on the same instances.

An instance is a session of the data; several people may have had it. Every number is a mean over instances, of the mean
over the people who had each, so that all curves weigh the same instances alike.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from covr_lab.functional.bootstrap import bootstrap_sums, interval
from covr_lab.results import plots
from covr_lab.results.compare import Run, load_runs
from covr_lab.results.folder import PEOPLE
from covr_lab.results.reader import densify
from covr_lab.results.report import TITLES, console, render, svg
from covr_lab.results.resample import METRICS, STEP, session_values
from covr_lab.results.summary import summarise
from covr_lab.results.tables import Table, number, plain

Floats = npt.NDArray[np.float64]
ALIKE: Final = ("gallery_sha256", "data_sha256", "n_gallery", "ties", "mask_source")  # or the ranks mean other things
ACTIONS: Final = ("modify", "rewrite", "answer", "free", "stop")


def has_people(folder: Path) -> bool:
    """Whether a run folder holds turns that a person said."""
    parts = (folder / "turns").glob("*.parquet")
    return any("human" in pq.ParquetFile(part).read(["source"])["source"].to_pylist() for part in parts)


def write_people(folders: Sequence[Path], out: Path | None = None, *, force: bool = False) -> tuple[str, list[Path]]:
    """Write ``report.html``, ``curves.png`` and ``curves.svg`` of people and of others on the instances they had.

    Args:
        folders: run folders, at least one with people; the others are cut to its instances and its turns.
        out: output folder, by default ``report`` in the first run.
        force: put runs of unlike conditions side by side, under a warning.

    Returns:
        The tables as text, and the absolute paths of what was written.

    Raises:
        ValueError: a run lacks instances, has no targets, or was made under other conditions.
    """
    runs, instances = same_instances(load_runs(folders, allow_partial=True))
    found = unlike(runs)
    if found and not force:
        raise ValueError(f"{'; '.join(found)} (--force compares them all the same)")
    bands = [curves(run, instances) for run in runs]
    tables = [curve_table(runs, bands), feedback_table(runs), *timing_table(runs)]
    panels = [plots.Panel(title, tuple(band[metric] for band in bands)) for metric, title in TITLES.items()]
    panels = [panel for panel in panels if any(np.isfinite(curve.mean).any() for curve in panel.curves)]
    out = (out or folders[0] / "report").resolve()
    out.mkdir(parents=True, exist_ok=True)
    proxies = dict.fromkeys(f"Proxy: {run.summary['proxy']}" for run in runs if run.summary["proxy"])
    lines = [*(f"Warning: {line}" for line in found), *proxies]
    note = f"{len(instances)} instances, the same for all; bands: 95 %, bootstrap of instances"
    paths = plots.save_figure(panels, "\n".join([*lines, note]), out / "curves")
    page = out / "report.html"
    page.write_text(render("report.html", runs, found, {"tables": tables, "figures": svg(panels), "cases": []}))
    return console(runs, tables, found), [page, *paths]


def instance_of(row: Mapping[str, Any]) -> str:
    """The session of the data that a row is about."""
    return str(row["instance"] or row["session_id"])


def same_instances(runs: Sequence[Run]) -> tuple[list[Run], tuple[str, ...]]:
    """The runs cut to the instances and turns of the people among them, and these instances, sorted.

    Raises:
        ValueError: there are no people, they had no instance in common, or another run lacks one.
    """
    people = [run for run in runs if "human" in pc.unique(run.table["source"]).to_pylist()]
    if not people:
        raise ValueError("no run has turns that a person said: give the folder that the study exported")
    had = [set(_instances(run.table)) for run in people]
    instances = set.intersection(*had)
    if not instances:
        raise ValueError(f"the people of {' and '.join(run.name for run in people)} had no instance in common")
    turns = min(run.run["protocol"]["turns"] for run in people)
    cut = []
    for run in runs:
        if lacking := sorted(instances - set(_instances(run.table))):
            raise ValueError(
                f"run {run.name} lacks {len(lacking)} of {len(instances)} instances of the people ({lacking[0]}, ...): "
                "play the same data"
            )
        cut.append(_cut(run, instances, turns))
    return cut, tuple(sorted(instances))


def unlike(runs: Sequence[Run]) -> list[str]:
    """Why the numbers should not stand side by side; users, systems and numbers of sessions may differ."""
    keys = [key for key in ALIKE if len({repr(run.run["protocol"].get(key)) for run in runs}) > 1]
    keys += ["proxy"] if len({run.summary["proxy"] for run in runs}) > 1 else []
    return [f"runs differ in {', '.join(keys)}: their ranks do not mean the same"] if keys else []


def curves(run: Run, instances: Sequence[str]) -> dict[str, plots.Curve]:
    """Metric -> mean over ``instances`` at every turn, with the 95 % band of their bootstrap; one set of draws for all.

    Raises:
        ValueError: the run has sessions of other instances; cut it first.
    """
    names, place = _by_session(run.table), {name: at for at, name in enumerate(instances)}
    owner = np.array([place[names[session]] for session in run.outcomes.session_ids])
    counts = np.bincount(owner, minlength=len(instances))[:, None]
    found = {}
    for metric, values in session_values(run.outcomes).items():
        means = np.zeros((len(instances), values.shape[1]))
        np.add.at(means, owner, values)
        means = np.round(means / counts / STEP) * STEP  # exact sums, whatever their order
        low, high = interval(bootstrap_sums(means))
        found[metric] = plots.Curve(run.name, means.mean(axis=0), low / len(instances), high / len(instances))
    return found


def curve_table(runs: Sequence[Run], bands: Sequence[Mapping[str, plots.Curve]]) -> Table:
    """Every metric by turn, with its interval."""
    rows, records = list[tuple[str, ...]](), list[Mapping[str, Any]]()
    width = max(run.outcomes.ranks.shape[1] for run in runs)
    for metric in METRICS:
        digits = 3 if metric == "BRI" else 1
        for run, band in zip(runs, bands, strict=True):
            curve, cells = band[metric], list[str]()
            for turn, (mean, low, high) in enumerate(zip(curve.mean, curve.low, curve.high, strict=True)):
                span = f" ({number(low, digits)} to {number(high, digits)})" if mean == mean else ""
                cells.append(number(mean, digits) + span)
                bounds = {"low": plain(low), "high": plain(high)}
                records.append({"metric": metric, "run": run.name, "turn": turn, "value": plain(mean), **bounds})
            rows.append((metric, run.name, *cells, *["-"] * (width - len(cells))))
    head = ("metric", "run", *(f"turn {turn}" for turn in range(width)))
    note = "mean over instances and 95 % interval of their bootstrap; R@K in percent; BRI, lower is better"
    return Table("People and others by turn", note, head, tuple(rows), 2, tuple(records))


def feedback_table(runs: Sequence[Run]) -> Table:
    """How long feedback is, what it is made of, and how the searches ended."""
    rows, records = list[tuple[str, ...]](), list[Mapping[str, Any]]()
    for run in runs:
        record = _feedback(run)
        shares = [number(record[name], 1) for name in (*ACTIONS, "not this", "edited memory", "found", "found right")]
        length = [number(record["words"], 1), number(record["median words"], 1)]
        rows.append((run.name, str(record["sessions"]), str(record["turns"]), *length, *shares))
        records.append({"run": run.name, **record})
    head = ("run", "sessions", "turns", "words", "median", *(f"{name} %" for name in ACTIONS))
    note = (
        "words of a feedback with words, separated by blanks; percent of turns of each action, and with rejections or "
        "an edited memory; percent of sessions that a user ended with Found It, and of these on the target"
    )
    more = ("not this %", "edited memory %", "found %", "found right %")
    return Table("Feedback", note, (*head, *more), tuple(rows), 1, tuple(records))


def timing_table(runs: Sequence[Run]) -> list[Table]:
    """How long people looked and typed, where their browsers told."""
    rows, records = list[tuple[str, ...]](), list[Mapping[str, Any]]()
    for run in runs:
        path = run.folder / PEOPLE
        kept = set(run.outcomes.session_ids)
        told = json.loads(path.read_text(encoding="utf-8"))["timings"] if path.is_file() else []
        by_person = defaultdict[str, list[Mapping[str, Any]]](list)
        for one in told:
            if one["session"] in kept:
                by_person[str(one["participant"])].append(one)
        for person, own in sorted(by_person.items()):
            looked, typed = _seconds(own, "shown", "first_key"), _seconds(own, "first_key", "sent")
            rows.append((run.name, person, str(len(own)), number(looked, 1), number(typed, 1)))
            records.append(
                {"run": run.name, "participant": person, "turns": len(own), "looked": looked, "typed": typed}
            )
    note = "median seconds from the display to the first key, and from there to sending"
    head = ("run", "participant", "turns", "looked", "typed")
    return [Table("Time of people", note, head, tuple(rows), 2, tuple(records))] if rows else []


def _seconds(timings: Sequence[Mapping[str, Any]], begin: str, end: str) -> float | None:
    known = [one[end] - one[begin] for one in timings if begin in one and end in one]
    return median(known) if known else None


def _feedback(run: Run) -> dict[str, Any]:
    said = [row for row in run.table.to_pylist() if row["action"] is not None]
    words = [len(row["feedback"].split()) for row in said if row["action"] != "stop" and row["feedback"].strip()]
    ends = {row["session_id"]: (row["feedback"], row) for row in said if row["action"] == "stop" and row["feedback"]}
    late = ((one["detail"], row) for row in said for one in row["events"] or () if one["kind"] == "found")
    ends |= {row["session_id"]: (video, row) for video, row in late}
    right = sum(video in (row["target"], *(row["other_targets"] or ())) for video, row in ends.values())
    sessions = len(run.outcomes.session_ids)
    return {
        "sessions": sessions,
        "turns": len(said),
        "words": sum(words) / len(words) if words else None,
        "median words": float(median(words)) if words else None,
        **{name: _percent(sum(row["action"] == name for row in said), len(said)) for name in ACTIONS},
        "not this": _percent(sum(bool(row["rejected"]) for row in said), len(said)),
        "edited memory": _percent(sum(row["memory"] is not None for row in said), len(said)),
        "found": _percent(len(ends), sessions),
        "found right": _percent(right, len(ends)),
    }


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _instances(table: pa.Table) -> list[str]:
    ids = zip(table["session_id"].to_pylist(), table["instance"].to_pylist(), strict=True)
    return [instance_of({"session_id": session, "instance": instance}) for session, instance in ids]


def _by_session(table: pa.Table) -> dict[str, str]:
    """Session id -> its instance."""
    return dict(zip(table["session_id"].to_pylist(), _instances(table), strict=True))


def _cut(run: Run, instances: set[str], turns: int) -> Run:
    """``run`` with nothing but these instances and turns 0 to ``turns``."""
    inside = pa.array([name in instances for name in _instances(run.table)])
    table = run.table.filter(pc.and_(inside, pc.less_equal(run.table["turn"], turns)))
    last = min(turns, run.run["protocol"]["turns"])
    sessions = len(pc.unique(table["session_id"]))
    record = {**run.run, "n_sessions": sessions, "protocol": {**run.run["protocol"], "turns": last}}
    return replace(run, run=record, table=table, outcomes=densify(table, last), summary=summarise(table, record))
