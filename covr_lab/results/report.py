"""Runs side by side: the same tables as text and as a page that needs no other file."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from covr_lab.results import examples, plots
from covr_lab.results.analysis import difference_table, failure_mode_table, rank_cap_table, recovery_table
from covr_lab.results.compare import Run, contexts, curves, load_runs, objections
from covr_lab.results.explanations import comparison_tables, explain
from covr_lab.results.resample import Resamples, shared_resamples
from covr_lab.results.stage_tables import stage_tables
from covr_lab.results.strips import strip_file
from covr_lab.results.summary import RECALLS, named
from covr_lab.results.tables import (
    Table,
    cost_table,
    failures_table,
    module_tables,
    named_table,
    shared_naming,
    turn_table,
)

TITLES = {f"R@{k}": f"R@{k} (%)" for k in RECALLS} | {"BRI": "BRI (lower is better)"}


def console(runs: Sequence[Run], tables: Sequence[Table], found: Sequence[str]) -> str:
    """The tables as text, each under its protocol and proxy label."""
    lines = [": ".join(filter(None, (names, words))) for names, words, _ in contexts(runs)]
    labels = [": ".join(filter(None, ("PROXY", names, proxy))) for names, _, proxy in contexts(runs) if proxy]
    above = "\n".join([*(f"WARNING: {line}" for line in found), *labels, *lines])
    return "\n\n".join(f"{above}\n{named_table(table, runs).text()}" for table in tables)


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
    draws = shared_resamples(runs)
    bands = [curves(run, draws[run]) for run in runs]
    tables = _tables(runs, bands, base, draws)
    naming = shared_naming(runs)
    panels = [
        plots.Panel(named(title, naming), tuple(band[metric] for band in bands)) for metric, title in TITLES.items()
    ]
    panels = [panel for panel in panels if any(np.isfinite(curve.mean).any() for curve in panel.curves)]
    out = (out or folders[0] / "report").resolve()
    out.mkdir(parents=True, exist_ok=True)
    paths = plots.save_figure(panels, _caption(runs, found), out / "curves")
    page = out / "report.html"
    page.write_text(_page(runs, tables, panels, found), encoding="utf-8")
    return console(runs, tables, found), [page, *paths]


def _tables(
    runs: Sequence[Run], bands: Sequence[dict[str, plots.Curve]], base: Run, draws: Mapping[Run, Resamples]
) -> list[Table]:
    """All tables of the report; a difference only to runs over the sessions of ``base``."""
    paired = [run for run in runs if draws[run] is draws[base]]
    differences = [difference_table(paired, base, draws[base])] if len(paired) > 1 else []
    capped = [run for run in runs if run.outcomes.fired.any()]
    return [
        turn_table(runs, bands),
        *differences,
        *stage_tables(runs),
        *comparison_tables(runs),
        failure_mode_table(runs),
        recovery_table(runs),
        *([rank_cap_table(capped)] if capped else []),
        failures_table(runs),
        cost_table(runs),
        *module_tables(runs),
    ]


def _caption(runs: Sequence[Run], found: Sequence[str]) -> str:
    labels = dict.fromkeys(f"Proxy: {run.summary['proxy']}" for run in runs if run.summary["proxy"])
    sessions = "/".join(str(n) for n in dict.fromkeys(run.summary["n"] for run in runs))
    lines = [*(f"Warning: {line}" for line in found), *labels, f"{sessions} sessions; bands: 95 %, session bootstrap"]
    return "\n".join(fill(line, 150) for line in lines)


def _strip(run_dir: Path, video: str) -> str:
    """The film strip of a video as a data address, "" when the run has none."""
    path = strip_file(run_dir, video)
    return f"data:image/jpeg;base64,{base64.b64encode(path.read_bytes()).decode()}" if path.is_file() else ""


def render(template: str, runs: Sequence[Run], found: Sequence[str], parts: Mapping[str, object]) -> str:
    """A page of this package: a template beside this file, with what all pages show about ``runs``.

    Args:
        template: file name; it may import ``parts.html``; it gets contexts, warnings, legend, strip and explain.
        runs: in the order of their colours.
        found: objections that the page warns of.
        parts: what else the template needs. Text is escaped unless it is ``Markup``.
    """
    environment = Environment(
        loader=PackageLoader("covr_lab.results", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    legend = [
        (run.name, plots.colour(number), plots.glyph(number), shlex.join(run.run["command"]))
        for number, run in enumerate(runs)
    ]
    shared = {"contexts": contexts(runs), "warnings": found, "legend": legend, "strip": _strip, "explain": explain}
    return environment.get_template(template).render(shared | dict(parts))


def svg(panels: Sequence[plots.Panel]) -> list[Markup]:
    """Panels as they go into a page; matplotlib has escaped the text in them."""
    return [Markup(plots.panel_svg(panel)) for panel in panels]


def _page(runs: Sequence[Run], tables: Sequence[Table], panels: Sequence[plots.Panel], found: Sequence[str]) -> str:
    cases = [
        (run, kind, [examples.dialogue(run.table, session) for session in sessions])
        for run in runs
        for kind, sessions in examples.choose(run.outcomes).items()
    ]
    parts = {"tables": [named_table(table, runs) for table in tables], "figures": svg(panels), "cases": cases}
    return render("report.html", runs, found, parts)
