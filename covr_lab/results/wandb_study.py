"""A study on Weights & Biases: one group, a run for every system and condition, and one with the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from covr_lab.recipe import Wandb
from covr_lab.results.compare import Run, load_runs
from covr_lab.results.examples import choose, dialogue
from covr_lab.results.resample import Resamples
from covr_lab.results.summary import named
from covr_lab.results.wandb_log import attempt, experiment, log_points, read_payload

DIFFERENCES: Final = ("R@1", "BRI")  # to the baseline, in the summary of every run
MODES: Final = "tables/failure-modes"
EXAMPLES: Final = "tables/example-dialogues"
DIALOGUE: Final = ("session_id", "turn", "question", "feedback", "shown", "target_rank")
MAX_ROWS = 5_000  # of a table: the service drops records that are too large without a word
MAX_CHARS = 500  # of a cell


@dataclass(frozen=True, slots=True)
class Logged:
    """A table as it is sent: texts and numbers under ``columns``, cut to size; ``note`` says what was cut."""

    columns: tuple[str, ...]
    rows: list[list[Any]]
    note: str = ""


def log_study(out: Path, options: Wandb) -> None:
    """Log a finished study; whatever goes wrong is a warning, for the results are on disk already.

    Args:
        out: folder with ``study.json`` and ``runs/``.
        options: mode, project, group (default: the name of the study).
    """
    attempt(_send, out, options)


def _send(out: Path, options: Wandb, offline: bool) -> None:
    study = read_study(out)
    options = replace(options, group=options.group or study["name"])
    entries, baseline = study["runs"], study["spec"].get("baseline")
    folders = [out / entry["folder"] for entry in entries]
    runs = [
        replace(run, name=f"{entry['system']} · {entry['condition']}")
        for entry, run in zip(entries, load_runs(folders), strict=True)
    ]
    gained = differences(entries, runs, baseline)
    for entry, folder, run, gain in zip(entries, folders, runs, gained, strict=True):
        _, config, points, summary = read_payload(folder)
        labels = {key: entry[key] for key in ("system", "condition")}
        with experiment(
            out, options, run.name, config | labels, offline=offline, job_type=entry["condition"]
        ) as open_run:
            log_points(open_run, points, summary | gain)
    import wandb

    names = {key: list(dict.fromkeys(entry[key] for entry in entries)) for key in ("system", "condition")}
    config = {"name": study["name"], "title": study["title"], "baseline": baseline}
    config |= {"systems": names["system"], "conditions": names["condition"]}
    with experiment(out, options, "study", config, offline=offline, job_type="study") as open_run:
        for key, table in tables(study, runs).items():
            open_run.log({key: wandb.Table(columns=list(table.columns), data=table.rows)})
            open_run.summary[f"notes/{key.removeprefix('tables/')}"] = table.note


def read_study(out: Path) -> dict[str, Any]:
    """Content of ``study.json``.

    Raises:
        FileNotFoundError: the folder holds none.
    """
    path = out / "study.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: give the folder that tools/study.py wrote")
    study: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return study


def differences(
    entries: Sequence[Mapping[str, Any]], runs: Sequence[Run], baseline: str | None
) -> list[dict[str, float]]:
    """Difference of each run to the baseline in its condition at the last turn, as entries of the run's summary.

    Returns:
        Per run, mean and bounds of the paired 95 % interval; nothing for the baseline and for runs over other sessions.
    """
    rivals = {entry["condition"]: run for entry, run in zip(entries, runs, strict=True) if entry["system"] == baseline}
    found: list[dict[str, float]] = []
    for entry, run in zip(entries, runs, strict=True):
        found.append({})
        rival = rivals.get(entry["condition"])
        if rival is None or rival is run or rival.outcomes.session_ids != run.outcomes.session_ids:
            continue
        resamples = Resamples([run, rival], DIFFERENCES)
        for metric in DIFFERENCES:
            mean, low, high = (float(column[-1]) for column in resamples.difference(run, rival, metric))
            name = f"difference/{named(metric, run.summary['protocol'])}"
            parts = {name: mean, f"{name}_low": low, f"{name}_high": high}
            found[-1] |= {key: value for key, value in parts.items() if value == value}
    return found


def tables(study: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, Logged]:
    """Key -> table: failure modes and example dialogues (of the first condition), then the tables of the report."""
    entries = study["runs"]
    labels = [(entry["system"], entry["condition"]) for entry in entries]
    rates = [run.summary["transitions"] for run in runs]
    modes = [[*label, *rate.values()] for label, rate in zip(labels, rates, strict=True)]
    first = [(system, run) for (system, condition), run in zip(labels, runs, strict=True) if condition == labels[0][1]]
    examples = [line for system, run in first for line in _examples(system, run)]
    found = {
        MODES: capped(("system", "condition", *rates[0]), modes),
        EXAMPLES: capped(("system", "kind", "session", *DIALOGUE[1:]), examples),
    }
    for key, table in zip(table_keys(study), study["tables"], strict=True):
        found[key] = capped(table["head"], table["rows"], table["note"])
    return found


def table_keys(study: Mapping[str, Any]) -> list[str]:
    """Keys of the report's tables, no two the same.

    >>> table_keys({"tables": [{"name": "turn-0"}, {"name": "failure_modes"}]})
    ['tables/turn-0', 'tables/failure-modes-2']
    """
    keys: list[str] = []
    for table in study["tables"]:
        slug = "tables/" + re.sub(r"[^a-z0-9]+", "-", table["name"].lower()).strip("-")
        taken, key, number = {MODES, EXAMPLES, *keys}, slug, 2
        while key in taken:
            key, number = f"{slug}-{number}", number + 1
        keys.append(key)
    return keys


def _examples(system: str, run: Run) -> Iterator[list[Any]]:
    for kind, sessions in choose(run.outcomes).items():
        for session in sessions:
            for row in dialogue(run.table, session):
                yield [system, kind, *(row[name] for name in DIALOGUE)]


def capped(columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> Logged:
    """At most ``MAX_ROWS`` rows with cells of at most ``MAX_CHARS`` characters; the note says what is missing.

    >>> capped(["a"], [["x" * 501]]).note
    '1 text cut to 500 characters'
    """
    kept = [list(row) for row in rows[:MAX_ROWS]]
    long = [
        (line, at) for line in kept for at, cell in enumerate(line) if isinstance(cell, str) and len(cell) > MAX_CHARS
    ]
    for line, at in long:
        line[at] = line[at][: MAX_CHARS - 1] + "…"
    cut = [f"first {MAX_ROWS} of {len(rows)} rows"] if len(rows) > MAX_ROWS else []
    cut += [f"{len(long)} text{'s' * (len(long) > 1)} cut to {MAX_CHARS} characters"] if long else []
    return Logged(tuple(columns), kept, "; ".join(filter(None, [note, *cut])))
