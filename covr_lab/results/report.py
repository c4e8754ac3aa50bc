"""Runs side by side: the same tables as text and as a page that needs no other file."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from textwrap import fill

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from covr_lab.results import examples, plots
from covr_lab.results.compare import Run, contexts, curves, load_runs, objections
from covr_lab.results.strips import strip_file
from covr_lab.results.summary import RECALLS
from covr_lab.results.tables import Table, count_tables, paired_table, turn_table

TITLES = {f"R@{k}": f"R@{k} (%)" for k in RECALLS} | {"BRI": "BRI (lower is better)"}


def console(runs: Sequence[Run], tables: Sequence[Table], found: Sequence[str]) -> str:
    """The tables as text, each under its protocol and proxy label."""
    lines = [": ".join(filter(None, (names, words))) for names, words, _ in contexts(runs)]
    labels = [": ".join(filter(None, ("PROXY", names, proxy))) for names, _, proxy in contexts(runs) if proxy]
    above = "\n".join([*(f"WARNING: {line}" for line in found), *labels, *lines])
    return "\n\n".join(f"{above}\n{table.text()}" for table in tables)


def write_report(
    folders: Sequence[Path], out: Path | None = None, *, force: bool = False, baseline: str | None = None
) -> tuple[str, list[Path]]:
    """Score ``folders``; write ``report.html``, ``curves.png`` and ``curves.svg``.

    Args:
        folders: run folders, in the order of the tables.
        out: output folder, by default ``report`` in the first run.
        force: compare unfinished runs or runs of different protocols, under a warning.
        baseline: name of the run that differences are taken to, by default the first.

    Returns:
        The tables as text, and the absolute paths of what was written.

    Raises:
        ValueError: the runs may not share a table, or no run is called ``baseline``.
    """
    runs = load_runs(folders, allow_partial=force)
    base = next((run for run in runs if baseline in (None, run.name)), None)
    if base is None:
        raise ValueError(f"no run is called {baseline}: choose one of {', '.join(run.name for run in runs)}")
    found = objections(runs, base)
    if found and not force:
        raise ValueError(f"{'; '.join(found)} (--force compares them all the same)")
    bands = [curves(run) for run in runs]
    tables = [turn_table(runs, bands), paired_table(runs, base), *count_tables(runs)]
    kept = [table for table in tables if table]
    panels = [plots.Panel(title, tuple(band[metric] for band in bands)) for metric, title in TITLES.items()]
    panels = [panel for panel in panels if any(np.isfinite(curve.mean).any() for curve in panel.curves)]
    out = (out or folders[0] / "report").resolve()
    out.mkdir(parents=True, exist_ok=True)
    paths = plots.save_figure(panels, _caption(runs, found), out / "curves")
    page = out / "report.html"
    page.write_text(_page(runs, kept, panels, found), encoding="utf-8")
    return console(runs, kept, found), [page, *paths]


def _caption(runs: Sequence[Run], found: Sequence[str]) -> str:
    labels = dict.fromkeys(f"Proxy: {run.summary['proxy']}" for run in runs if run.summary["proxy"])
    sessions = "/".join(str(n) for n in dict.fromkeys(run.summary["n"] for run in runs))
    lines = [*(f"Warning: {line}" for line in found), *labels, f"{sessions} sessions; bands: 95 %, session bootstrap"]
    return "\n".join(fill(line, 150) for line in lines)


def _strip(run_dir: Path, video: str) -> str:
    """The film strip of a video as a data address, "" when the run has none."""
    path = strip_file(run_dir, video)
    return f"data:image/jpeg;base64,{base64.b64encode(path.read_bytes()).decode()}" if path.is_file() else ""


def _page(runs: Sequence[Run], tables: Sequence[Table], panels: Sequence[plots.Panel], found: Sequence[str]) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files("covr_lab.results").joinpath("report.html").read_text(encoding="utf-8"))
    legend = [
        (run.name, plots.colour(number), plots.glyph(number), shlex.join(run.run["command"]))
        for number, run in enumerate(runs)
    ]
    cases = [
        (run, kind, [examples.dialogue(run.table, session) for session in sessions])
        for run in runs
        for kind, sessions in examples.choose(run.outcomes).items()
    ]
    figures = [Markup(plots.panel_svg(panel)) for panel in panels]  # matplotlib escapes the text in it
    parts = {"legend": legend, "tables": tables, "figures": figures, "cases": cases, "warnings": found, "strip": _strip}
    return template.render(parts, contexts=contexts(runs))
