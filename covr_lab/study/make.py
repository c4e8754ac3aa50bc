"""A study from its file to its report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from covr_lab.results import plots
from covr_lab.results.folder import now, write_json
from covr_lab.results.summary import named
from covr_lab.results.tables import named_table, shared_naming
from covr_lab.study.export import clean, plain_table, to_csv, to_tex
from covr_lab.study.figures import make_panels
from covr_lab.study.page import Section, write_page
from covr_lab.study.play import Result, play
from covr_lab.study.published import compare_published, published_table
from covr_lab.study.relations import Verdict, claims_table, judge, relations_table
from covr_lab.study.results import Results
from covr_lab.study.spec import Played, Study
from covr_lab.study.tables import make_table, turn_zero

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Report:
    """What a study came to.

    Attributes:
        page: absolute path of the HTML report.
        left_out: run -> why it has no numbers in the tables.
        verdicts: the claims.
    """

    page: Path
    left_out: Mapping[Played, str]
    verdicts: tuple[Verdict, ...]


def play_all(plan: Sequence[Played], out: Path, jobs: int, say: Callable[[str], None]) -> dict[Played, str]:
    """Play what is left of ``plan``, with a line to ``say`` for each run; the runs that failed, with their reasons."""
    failed, spent, played, left = {}, 0.0, 0, unplayed(plan, out)
    for number, result in enumerate(play(plan, out, jobs), 1):
        left.pop(result.run, None)
        if result.error is not None:
            failed[result.run] = result.error
        elif not result.was_finished:
            spent, played = spent + result.seconds, played + 1
        rest = len(left) * spent / played / jobs if played else 0.0
        say(f"[{number}/{len(plan)}] {result.run}: {_words(result)}{f', about {_time(rest)} left' if rest else ''}")
    return failed


def _words(result: Result) -> str:
    if result.error is not None:
        return f"FAILED: {result.error}"
    if result.was_finished:
        return f"{result.sessions:,} sessions, finished before"
    misses = f", {result.failed} of them failed and count as misses" if result.failed else ""
    return f"{result.sessions:,} sessions{misses}, {_time(result.seconds)}"


def _time(seconds: float) -> str:
    """Seconds in the unit that reads best.

    >>> _time(42), _time(600), _time(8000)
    ('42 s', '10 min', '2.2 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def unplayed(plan: Sequence[Played], out: Path) -> dict[Played, str]:
    """Runs of ``plan`` without numbers."""
    return {run: "it was not played" for run in plan if not (out / run.folder / "metrics.json").is_file()}


def write_study(study: Study, plan: Sequence[Played], out: Path, missing: Mapping[Played, str]) -> Report:
    """Make tables, figures, page and ``study.json`` of the runs in ``out``.

    Args:
        study: what was to be played.
        plan: its runs.
        out: folder of the study.
        missing: run -> why it has no numbers.
    """
    results = Results(study, plan, out, missing)
    verdicts, published = judge(results), compare_published(results)
    sections = [*_opening(results, verdicts, published), *_items(results), *_closing(results, verdicts)]
    sections = [_named(section, results) for section in sections]
    for folder in ("tables", "figures"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for section in sections:
        _write(section, out)
    write_json(out / "study.json", clean(_document(results, sections, verdicts, published)))
    page = write_page(results, sections, out / "report.html")
    return Report(page.resolve(), results.left_out(), tuple(verdicts))


def _named(section: Section, results: Results) -> Section:
    """``section`` with its metrics named as the protocol of its runs has it."""
    conditions = {context.condition for context in section.contexts}
    runs = [run for name in conditions for run in results.conditions[name].runs.values()]
    naming = shared_naming(runs)
    panels = tuple(replace(panel, title=named(panel.title, naming)) for panel in section.panels)
    table = None if section.table is None else named_table(section.table, runs)
    return replace(section, table=table, panels=panels)


def _opening(results: Results, verdicts: Sequence[Verdict], published: Sequence[Mapping[str, Any]]) -> list[Section]:
    everything = results.contexts(list(results.conditions))
    main = results.contexts([results.study.main])
    sections = [Section("turn-0", "table", everything, table=turn_zero(results))]
    if verdicts:
        sections.insert(0, Section("claims", "table", main, table=claims_table(verdicts, results)))
    if published:
        sections.append(Section("published", "table", main, table=published_table(published)))
    return sections


def _closing(results: Results, verdicts: Sequence[Verdict]) -> list[Section]:
    main = results.contexts([results.study.main])
    return [Section("relations", "table", main, table=relations_table(verdicts))] if verdicts else []


def _items(results: Results) -> list[Section]:
    sections = []
    for kind, items in (("figure", results.study.figures), ("table", results.study.tables)):
        for item in items:
            made = {"table": make_table(item, results)} if kind == "table" else {"panels": make_panels(item, results)}
            lines = tuple(results.absent(item.systems, item.conditions))
            sections.append(Section(item.name, kind, results.contexts(item.conditions), lines, item, **made))
    return sections


def _write(section: Section, out: Path) -> None:
    name = section.name.replace("_", "-")
    if section.table is not None:
        (out / "tables" / f"{name}.csv").write_text(to_csv(section.table), encoding="utf-8", newline="")
        tex = to_tex(section.table, name, section.proxies)
        (out / "tables" / f"{name}.tex").write_text(tex, encoding="utf-8")
    if section.panels:
        stem = out / "figures" / name
        if len(section.panels) == 1:
            plots.save_panel(section.panels[0], section.caption, stem)
        else:
            plots.save_figure(section.panels, section.caption, stem)


def _document(
    results: Results, sections: Sequence[Section], verdicts: Sequence[Verdict], published: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    study = results.study
    runs = [
        {
            "system": run.system,
            "condition": run.condition,
            "folder": run.folder,
            "recipe": [str(path) for path in run.recipes],
            "overrides": list(run.overrides),
            "seconds": results.seconds(run),
        }
        for run in results.plan
        if results.get(run.system, run.condition)
    ]
    return {
        "schema": SCHEMA,
        "title": study.title,
        "name": study.name,
        "command": sys.argv,
        "spec": study.document,
        "finished": now(),
        "proxies": results.proxies(),
        "runs": runs,
        "missing": [
            {"system": one.system, "condition": one.condition, "reason": why} for one, why in results.left_out().items()
        ],
        "tables": [{"name": one.name, **plain_table(one.table)} for one in sections if one.table is not None],
        "relations": [verdict.record() for verdict in verdicts],
        "published": list(published),
    }
