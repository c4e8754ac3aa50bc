"""Figures of a study: curves over turns, differences to the baseline, sensitivity to a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from covr_lab.results.compare import Run, curves
from covr_lab.results.plots import Curve, Panel
from covr_lab.results.resample import session_values
from covr_lab.study.results import Results
from covr_lab.study.spec import Item


def make_panels(item: Item, results: Results) -> list[Panel]:
    """The panels of ``item``, none when no run for it has numbers."""
    if item.kind == "sensitivity":
        return _sensitivity(item, results)
    runs = results.runs(item.systems, item.conditions[0])
    metrics = item.options.get("metrics", ("R@1", "BRI"))
    make = _curves if item.kind == "curves" else _differences
    return make(item, results, runs, metrics) if runs else []


def styles(results: Results) -> dict[str, int]:
    """System -> number of its colour and marker, the same in every figure of the study."""
    drawn = {name for item in results.study.figures if "groups" not in item.options for name in item.systems}
    return {name: number for number, name in enumerate(name for name in results.study.systems if name in drawn)}


def unit(metric: str, difference: bool = False) -> str:
    """What the numbers of a metric are.

    >>> unit("R@1"), unit("R@1", difference=True), unit("BRI")
    ('%', 'points', 'lower is better')
    """
    if metric == "BRI":
        return "lower is better"
    return "points" if difference else "%"


def _curves(item: Item, results: Results, runs: Sequence[Run], metrics: Sequence[str]) -> list[Panel]:
    style, resamples = styles(results), results.resamples(item.conditions[0])
    bands = [curves(run, resamples) for run in runs]
    return [
        Panel(
            f"{metric} ({unit(metric)})",
            tuple(replace(band[metric], style=style[run.name]) for run, band in zip(runs, bands, strict=True)),
        )
        for metric in metrics
    ]


def _differences(item: Item, results: Results, runs: Sequence[Run], metrics: Sequence[str]) -> list[Panel]:
    name, resamples, style = results.baseline(item), results.resamples(item.conditions[0]), styles(results)
    base = results.get(name, item.conditions[0])
    others = [run for run in runs if run is not base]
    if base is None or not others:
        return []
    return [
        Panel(
            f"{metric} - that of {name} ({unit(metric, difference=True)})",
            tuple(Curve(run.name, *resamples.difference(run, base, metric), style[run.name]) for run in others),
            zero=True,
        )
        for metric in metrics
    ]


def _sensitivity(item: Item, results: Results) -> list[Panel]:
    """A panel for each group of systems, or one with a curve for each system over the conditions."""
    metric, main = item.options["metric"], item.conditions[0]
    groups: Mapping[str, Mapping[str, Any]] = item.options.get("groups", {})
    panels = []
    for label, places in groups.items():
        points = [(results.get(system, main), main, place) for system, place in places.items()]
        panels.append(_panel(item, results, label, {results.study.baseline: points}))
    if over := item.options.get("conditions"):
        lines = {
            system: [(results.get(system, condition), condition, place) for condition, place in over.items()]
            for system in item.systems
        }
        panels.append(_panel(item, results, f"{metric} ({unit(metric)})", lines))
    return [panel for panel in panels if panel is not None]


Points = Sequence[tuple[Run | None, str, Any]]


def _panel(item: Item, results: Results, title: str, lines: Mapping[str, Points]) -> Panel | None:
    """Curves over places: numbers where all are, else one after the other; a curve goes over runs without numbers."""
    there = {name: points for name, points in lines.items() if any(run is not None for run, _, _ in points)}
    if not there:
        return None
    metric, turn, style = item.options["metric"], item.options.get("turn", -1), styles(results)
    places = [place for _, _, place in next(iter(there.values()))]
    numbers = all(isinstance(place, int | float) for place in places)
    x = np.array(places if numbers else range(len(places)), dtype=np.float64)
    order = np.argsort(x, kind="stable")
    drawn = []
    for name, points in there.items():
        cells = [_point(results, run, condition, metric, turn) for run, condition, _ in points]
        mean, low, high = np.array(cells)[order].T
        drawn.append(Curve(name, mean, low, high, style.get(name)))
    grouped = "groups" in item.options
    return Panel(
        f"{metric} ({unit(metric)})" if grouped else title,
        tuple(drawn),
        x=tuple(x[order].tolist()),
        x_label=title if grouped else item.title.lower(),
        ticks=tuple(str(places[at]) for at in order),
    )


def _point(results: Results, run: Run | None, condition: str, metric: str, turn: int) -> tuple[float, float, float]:
    """Mean over sessions at a turn, and its band; NaN without numbers."""
    if run is None or turn >= run.outcomes.ranks.shape[1]:
        return float("nan"), float("nan"), float("nan")
    low, high = results.resamples(condition).band(run, metric)
    return float(session_values(run.outcomes)[metric].mean(axis=0)[turn]), float(low[turn]), float(high[turn])
