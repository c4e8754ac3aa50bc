"""Tables of what the stages of a cascade did: the order after each of them, and where the gates sent the queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covr_lab.functional import paired
from covr_lab.functional.bootstrap import Difference
from covr_lab.results.analysis import p_text
from covr_lab.results.compare import Run
from covr_lab.results.resample import stage_gains
from covr_lab.results.routing import stage_seconds
from covr_lab.results.summary import RECALLS
from covr_lab.results.tables import ABSENT, DIGITS, Table, number, plain, span

METRICS = (*(f"R@{k}" for k in RECALLS), "MRR")
# Heading -> entry of the routing summary and its digits.
RATES = {
    "gap skip %": ("gap_skip", 2),
    "expanded %": ("expanded", 2),
    "pages": ("mean_pages", 3),
    "rescued %": ("rescued", 2),
    "to top 5 %": ("rescued_top5", 2),
    "described %": ("described", 2),
    "concise %": ("concise", 2),
    "ambiguous %": ("ambiguous", 2),
    "verified %": ("verified", 2),
    "cluster": ("mean_cluster", 3),
    "scan": ("mean_scan", 3),
    "repaired %": ("repaired", 2),
    "regressed %": ("regressed", 2),
    "failed %": ("failed", 2),
}
COUNTS = ("pairs", "descriptions", "verifications")
GATED = {"reranking", "verification"}  # stages with gates


def stage_tables(runs: Sequence[Run]) -> list[Table]:
    """Everything about stages, nothing when no run has any."""
    found = [stages_table(runs), routing_table(runs), stage_cost_table(runs)]
    return [table for table in found if table.rows]


def stages_table(runs: Sequence[Run]) -> Table:
    """R@K and MRR after retrieval and after each stage, with the paired interval of what the stage added to R@1.

    Every turn at which a stage ran has its rows. The records have the gain of every metric.
    """
    rows: list[tuple[str, ...]] = []
    records: list[Mapping[str, Any]] = []
    for run in (run for run in runs if run.summary["stages"]):
        values, gains = run.summary["stages"], stage_gains(run.table, run.outcomes)
        turns = [turn for turn, value in enumerate(next(iter(values.values()))["R@1"]) if value is not None]
        for turn in turns:
            for stage, columns in values.items():
                cells = [number(columns[metric][turn], DIGITS[metric]) for metric in METRICS]
                gained = _gain_cells(columns, gains[stage], turn) if stage in gains else [ABSENT] * 5
                rows.append((run.name, str(turn), stage, *cells, *gained))
                records += _records(run, stage, columns, gains.get(stage, {}), turn)
    head = ("run", "turn", "after", *METRICS, "R@1 gain", "95 % interval", "won", "lost", "p")
    note = (
        "R@K in percent, gain in points over the order before the stage, with the paired bootstrap over sessions; won "
        "and lost: sessions that the stage brought to rank 1 or took from it, p: exact McNemar test"
    )
    return Table("Stages", note, head, tuple(rows), 3, tuple(records))


def _gain_cells(columns: Mapping[str, Sequence[Any]], gains: Mapping[str, Difference], turn: int) -> list[str]:
    mean, low, high = (part[turn : turn + 1] for part in gains["R@1"])
    won, lost = columns["won"][turn], columns["lost"][turn]
    interval = span(low, high, DIGITS["R@1"], "+")
    return [number(mean.item(), DIGITS["R@1"], "+"), *interval, str(won), str(lost), p_text(paired.mcnemar(won, lost))]


def _records(
    run: Run, stage: str, columns: Mapping[str, Sequence[Any]], gains: Mapping[str, Difference], turn: int
) -> list[dict[str, Any]]:
    found = []
    for metric in METRICS:
        record = {"run": run.name, "turn": turn, "stage": stage, "metric": metric, "value": columns[metric][turn]}
        difference = [plain(float(part[turn])) for part in gains[metric]] if gains else [None] * 3
        found.append(record | dict(zip(("gain", "low", "high"), difference, strict=True)))
    return found


def routing_table(runs: Sequence[Run]) -> Table:
    """Where the gates sent the queries, of all turns and, when several have stages, of each."""
    rows, records = [], []
    for run in (run for run in runs if GATED & run.summary["stages"].keys()):
        turns = {f"{at}": found for at, found in enumerate(run.summary["routing"]["per_turn"]) if found}
        parts = {"all": run.summary["routing"]["all"], **turns} if len(turns) > 1 else turns
        for turn, found in parts.items():
            cells = (number(found[key], digits) for key, digits in RATES.values())
            rows.append((run.name, turn, f"{found['queries']:,}", *cells))
            records.append({"run": run.name, "turn": turn, **found})
    note = (
        "in percent of the queries, a query is a session-turn; pages: mean of the expanded ones; cluster and scan: "
        "candidates of the verified ones, and those looked at; rescued: outside the seed, admitted by expansion, first "
        "in the end; repaired and regressed: brought to rank 1 by verification, and taken from it"
    )
    return Table("Routing", note, ("run", "turn", "queries", *RATES), tuple(rows), 2, tuple(records))


def stage_cost_table(runs: Sequence[Run]) -> Table:
    """What the stages cost a query: things asked, wall and busy seconds."""
    rows, records = [], []
    staged = [(run, stage_seconds(run.table)) for run in runs if run.summary["routing"]]
    names = list(dict.fromkeys(name for _, seconds in staged for name in seconds))
    for run, seconds in staged:
        found = run.summary["routing"]["all"]
        counts = [number(found[key], 2) for key in COUNTS]
        rows.append((run.name, *counts, *(number(seconds.get(name), 3) for name in names)))
        records.append({"run": run.name, **{key: found[key] for key in COUNTS}, **seconds})
    note = (
        "a query, all turns; pairs: scored by the reranking stage; wall: the whole turn, its share of the batch; busy: "
        "the system's engine calls and pair scoring, which overlap"
    )
    head = ("run", *COUNTS, *(f"{name} s" for name in names))
    return Table("Cost of the stages", note, head, tuple(rows), 1, tuple(records))
