"""Tables of a study: its kinds, and those that no other report has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from covr_lab.results import analysis
from covr_lab.results.compare import Run
from covr_lab.results.explanations import comparisons_table, doubts_table
from covr_lab.results.stage_tables import routing_table, stage_cost_table, stages_table
from covr_lab.results.tables import ABSENT, DIGITS, Table, cost_table, module_tables, number
from covr_lab.study.results import Results
from covr_lab.study.spec import Item
from covr_lab.types import RETRIEVAL

RECALLS = ("R@1", "R@5", "R@10", "R@50")
MATRIX = ("T1 R@1", "last R@1", "gain from T0", "last BRI")


def make_table(item: Item, results: Results) -> Table | None:
    """The table of ``item`` under its title and note; ``None`` when no run for it has numbers."""
    condition = item.conditions[0]
    runs = results.runs(item.systems, condition)
    several = item.kind in ("conditions", "agreement")
    if not several and (not runs or (item.kind == "disagreements" and len(runs) < 2)):
        return None
    if any(item.options.get("turn", 0) >= run.outcomes.ranks.shape[1] for run in runs):
        return None
    table = MAKERS[item.kind](item, results, runs)
    if table is None or not table.rows:
        return None
    return replace(table, title=item.title, note="; ".join(filter(None, (item.note, table.note))))


def turn_zero(results: Results) -> Table:
    """Turn 0 once for all systems of a condition: that it is the same was checked when the runs were let in."""
    rows, records = [], []
    for name, condition in results.conditions.items():
        if not condition.runs:
            continue
        run = next(iter(condition.runs.values()))
        values = _opening(run)
        cells = (number(value, DIGITS[metric]) for metric, value in values.items())
        rows.append((name, str(len(condition.runs)), f"{run.summary['n']:,}", f"{run.summary['n_gallery']:,}", *cells))
        sizes = {"systems": len(condition.runs), "n": run.summary["n"], "n_gallery": run.summary["n_gallery"]}
        records.append({"condition": name, **sizes, **values})
    note = (
        "percent; the opening, before the stages that a system may have, is the same for every system of a condition, "
        "session by session"
    )
    head = ("condition", "systems", "sessions", "videos", *RECALLS)
    return Table("Turn 0, all systems", note, head, tuple(rows), 1, tuple(records))


def _opening(run: Run) -> dict[str, float]:
    """Recalls of turn 0 as retrieval gave it."""
    found, shown = run.summary["stages"].get(RETRIEVAL, {}), run.summary["per_turn"]
    return {
        metric: shown[metric][0] if found.get(metric, [None])[0] is None else found[metric][0] for metric in RECALLS
    }


def turns_table(item: Item, results: Results, runs: Sequence[Run]) -> Table:
    """Metrics by turn, a row a system; turn 0 has a column when stages make it differ, and is else in the note."""
    metrics = item.options.get("metrics", (*RECALLS, "BRI"))
    turns = max(run.outcomes.ranks.shape[1] for run in runs)
    first = int(all((run.outcomes.ranks[:, 0] == runs[0].outcomes.ranks[:, 0]).all() for run in runs))
    rows: list[tuple[str, ...]] = []
    records: list[Mapping[str, Any]] = []
    for metric in metrics:
        for run in runs:
            values = run.summary["per_turn"][metric]
            cells = [number(value, DIGITS.get(metric, 1)) for value in values[first:]]
            rows.append((metric, run.name, *cells, *[ABSENT] * (turns - first - len(cells))))
            what = {"metric": metric, "run": run.name}
            records += [{**what, "turn": turn, "value": value} for turn, value in enumerate(values)]
    start = ", ".join(
        f"{metric} {number(runs[0].summary['per_turn'][metric][0], DIGITS.get(metric, 1))}"
        for metric in metrics
        if metric != "BRI"
    )
    note = f"{f'turn 0, all systems: {start}; ' if first else ''}R@K in percent, of BRI lower is better"
    head = ("metric", "system", *(f"turn {turn}" for turn in range(first, turns)))
    return Table("", note, head, tuple(rows), 2, tuple(records))


def conditions_table(item: Item, results: Results) -> Table:
    """Systems x conditions: R@1 after the first and the last turn, gain from turn 0, BRI."""
    rows, records = [], []
    pairs = [(system, condition) for system in item.systems for condition in item.conditions]
    found = {pair: results.get(*pair) for pair in pairs}
    for (system, condition), run in found.items():
        if run is None:
            rows.append((system, condition, *[ABSENT] * len(MATRIX)))
            continue
        recall, bri = run.summary["per_turn"]["R@1"], run.summary["per_turn"]["BRI"]
        values = (recall[1] if len(recall) > 1 else None, recall[-1], recall[-1] - recall[0], bri[-1])
        cells = (number(v, d, s) for v, d, s in zip(values, (1, 1, 1, 3), ("", "", "+", ""), strict=True))
        rows.append((system, condition, *cells))
        what = {"run": system, "condition": condition, "turns": len(recall) - 1}
        records.append(what | dict(zip(MATRIX, values, strict=True)))
    last = max((run.outcomes.ranks.shape[1] - 1 for run in found.values() if run), default=0)
    head = ("system", "condition", "R@1 T1", f"R@1 T{last}", f"gain T0 to T{last}", f"BRI@{last}")
    return Table("", "R@1 in percent, gain in points; of BRI lower is better", head, tuple(rows), 2, tuple(records))


def _differences(item: Item, results: Results, runs: Sequence[Run]) -> Table | None:
    base = _baseline(item, results)
    if base is None:
        return None
    options = {key: item.options[key] for key in ("metrics", "method") if key in item.options}
    return analysis.difference_table(runs, base, results.resamples(item.conditions[0]), **options)


def _baseline(item: Item, results: Results) -> Run | None:
    return results.get(results.baseline(item), item.conditions[0])


def _effects(item: Item, results: Results, runs: Sequence[Run]) -> Table | None:
    base = _baseline(item, results)
    return None if base is None else analysis.effect_table(runs, base, item.options.get("turn"))


def _agreement(item: Item, results: Results, runs: Sequence[Run]) -> Table | None:
    first, second = item.conditions
    pairs = [[(results.get(system, user), f"{system} · {user}") for user in (first, second)] for system in item.systems]
    named = [[replace(run, name=name) for run, name in pair if run is not None] for pair in pairs]
    both = [(pair[0], pair[1]) for pair in named if len(pair) == 2]
    return analysis.agreement_table(both) if both else None


def _chosen(function: Callable[..., Table]) -> Callable[[Item, Results, Sequence[Run]], Table]:
    """A maker that takes runs and the options of the item."""
    return lambda item, results, runs: function(runs, **item.options)


def _alone(function: Callable[[Sequence[Run]], Any]) -> Callable[[Item, Results, Sequence[Run]], Table | None]:
    return lambda item, results, runs: function(runs)


MAKERS: dict[str, Callable[[Item, Results, Sequence[Run]], Table | None]] = {
    "turns": turns_table,
    "differences": _differences,
    "effects": _effects,
    "failure_modes": _alone(analysis.failure_mode_table),
    "recovery": _alone(analysis.recovery_table),
    "rank_cap": _alone(analysis.rank_cap_table),
    "slices": _chosen(analysis.slice_table),
    "agreement": _agreement,
    "disagreements": lambda item, results, runs: analysis.disagreement_table(runs[0], runs[1], **item.options),
    "conditions": lambda item, results, runs: conditions_table(item, results),
    "cost": _alone(cost_table),
    "modules": _alone(lambda runs: next(iter(module_tables(runs)), None)),
    "stages": _alone(stages_table),
    "routing": _alone(routing_table),
    "stage_cost": _alone(stage_cost_table),
    "comparisons": _alone(comparisons_table),
    "doubts": _chosen(doubts_table),
}
