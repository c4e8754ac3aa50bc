"""Tables of runs: text once, shown on a terminal and on a page alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from covr_lab.results.calls import COUNTS, OUTCOMES, module_seconds
from covr_lab.results.compare import Run
from covr_lab.results.plots import Curve
from covr_lab.results.summary import ANY, RECALLS, SUBSET_RECALLS, named

Floats = npt.NDArray[np.float64]
DIGITS = (
    {f"R@{k}": 1 for k in sorted({*RECALLS, 2, 3})}
    | {f"Rs@{k}": 1 for k in SUBSET_RECALLS}
    | {
        "MeanR3": 1,
        "MeanR4": 1,
        "MRR": 3,
        "BRI": 3,
        "MnR": 1,
        "coverage": 1,
        "ties": 0,
    }
)
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under ``head``.

    Attributes:
        title: heading.
        note: what the numbers are: units, denominators, intervals.
        head: of the columns.
        rows: cells as they are read.
        labels: the first columns, which name the row.
        records: the numbers behind the cells, unrounded and tidy: plain values that JSON keeps, ``None`` where absent.
    """

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1
    records: tuple[Mapping[str, Any], ...] = ()

    def text(self) -> str:
        """Plain columns."""
        lines = (self.head, *self.rows)
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        pads = [str.ljust] * self.labels + [str.rjust] * (len(widths) - self.labels)
        cells = ([pad(cell, width) for pad, cell, width in zip(pads, line, widths, strict=True)] for line in lines)
        return "\n".join([f"{self.title} ({self.note})", *("  ".join(line).rstrip() for line in cells)])


def named_table(table: Table, runs: Sequence[Run]) -> Table:
    """``table`` with its metrics named as the protocol of ``runs`` has it (:func:`~covr_lab.results.summary.named`)."""
    protocol = shared_naming(runs)
    if not protocol:
        return table
    rows = tuple(
        (*(_label(cell, protocol) for cell in row[: table.labels]), *row[table.labels :]) for row in table.rows
    )
    records = tuple(
        {named(key, protocol): named(value, protocol) if key == "metric" else value for key, value in record.items()}
        for record in table.records
    )
    title, note = (named(text, protocol) for text in (table.title, table.note))
    head = tuple(named(cell, protocol) for cell in table.head)
    return replace(table, title=title, note=note, head=head, rows=rows, records=records)


def _label(cell: str, protocol: Mapping[str, Any]) -> str:
    """A cell that is a metric, named; other cells are names of runs and stay."""
    name = named(cell, protocol)
    return name if name == cell + ANY else cell


def shared_naming(runs: Sequence[Run]) -> Mapping[str, Any]:
    """The protocol that names the metrics of ``runs``: one with several targets, if there is any.

    To a run with one target a query, "any relevant" says nothing new.
    """
    protocols = (run.summary["protocol"] for run in runs)
    return next((protocol for protocol in protocols if "relevant" in protocol), {})


def number(value: float | None, digits: int, sign: str = "") -> str:
    """``value`` as text, ``-`` where it is ``None`` or NaN.

    >>> number(1.25, 1, "+"), number(None, 1)
    ('+1.2', '-')
    """
    return ABSENT if value is None or value != value else f"{value:{sign}.{digits}f}"


def plain(value: float) -> float | None:
    """``value`` as JSON keeps it: ``None`` where it is no finite number."""
    return value if isfinite(value) else None


def span(low: Floats, high: Floats, digits: int, sign: str = "") -> list[str]:
    """Intervals as text, one a column of ``low`` and ``high`` ``(M,)``."""
    pairs = zip(low.tolist(), high.tolist(), strict=True)
    return [ABSENT if a != a else f"{number(a, digits, sign)} to {number(b, digits, sign)}" for a, b in pairs]


def turn_table(runs: Sequence[Run], bands: Sequence[dict[str, Curve]]) -> Table:
    """Metrics by turn, with the chance level of the recalls and the 95 % band of R@1."""
    width, rows = max(run.outcomes.ranks.shape[1] for run in runs), []
    records: list[Mapping[str, Any]] = []
    for metric, digits in DIGITS.items():
        there = [(run, band) for run, band in zip(runs, bands, strict=True) if metric in run.summary["per_turn"]]
        for run, band in there:
            rows.append([metric, run.name, *(number(value, digits) for value in run.summary["per_turn"][metric])])
            values = enumerate(run.summary["per_turn"][metric])
            records += [{"metric": metric, "run": run.name, "turn": turn, "value": value} for turn, value in values]
            if metric == "R@1":
                rows.append(["", "  95 % band", *span(band[metric].low, band[metric].high, digits)])
        if metric.startswith("R@"):
            k = int(metric[2:])
            single = (run.summary for run, _ in there if "relevant" not in run.summary["protocol"])
            for n in sorted({summary["n_gallery"] for summary in single}):
                rows.append([metric, f"chance, {k} of {n}", *[number(100 * min(k / n, 1), 2)] * width])
    cells = tuple(tuple(row + [ABSENT] * (width + 2 - len(row))) for row in rows)
    subsets = any("Rs@1" in run.summary["per_turn"] for run in runs)
    note = (
        "R@K in percent, MeanR3 over K = 1, 5, 10, MeanR4 with 50; MnR is the mean rank; coverage: percent of sessions "
        "whose target was ranked; ties: sessions with another video at exactly the target's score"
        f"{'; Rs@K: recall within the subset of the query' if subsets else ''}"
    )
    head = ("metric", "run", *(f"turn {turn}" for turn in range(width)))
    return Table("Retrieval by turn", note, head, cells, 2, tuple(records))


def failures_table(runs: Sequence[Run]) -> Table:
    """What went wrong, in counts."""
    head = ("run", *(key.replace("_", " ") for key in runs[0].summary["failures"]))
    rows = tuple((run.name, *map(str, run.summary["failures"].values())) for run in runs)
    records = tuple({"run": run.name, **run.summary["failures"]} for run in runs)
    return Table("Failures", "counts; a missing target was ranked at no turn and is a miss", head, rows, 1, records)


def cost_table(runs: Sequence[Run]) -> Table:
    """Calls, tokens and seconds of whole runs."""
    rows, records = [], []
    for run in runs:
        cost, seconds, n = run.summary["cost"], pc.sum(run.table["seconds"]).as_py() or 0.0, run.summary["n"]
        rate = n / seconds if seconds else None
        rows.append([*(f"{value:,}" for value in cost.values()), number(seconds, 1), number(rate, 2)])
        records.append({"run": run.name, **cost, "seconds": seconds, "sessions_per_second": rate})
    head = ("run", "calls", "tokens in", "tokens out", "seconds", "sessions/s")
    cells = tuple((run.name, *row) for run, row in zip(runs, rows, strict=True))
    note = "of the system in all sessions; seconds are summed over the rows"
    return Table("Cost", note, head, cells, 1, tuple(records))


def module_tables(runs: Sequence[Run]) -> list[Table]:
    """What each module asked of its engine, how often its answers could be read, and what that took."""
    rows, records = [], []
    for run in runs:
        spent = module_seconds(run.table)
        for module, counts in run.summary["modules"].items():
            shares = [number(100 * counts[name] / counts["asked"], 2) for name in OUTCOMES]
            session = [number(counts[name] / run.summary["n"], 1) for name in COUNTS]
            took = [number(spent[module]["seconds"] / counts["asked"], 2)]
            often = [f"{spent[module][name]:,.0f}" for name in ("retries", "cached")]
            records.append({"run": run.name, "module": module, **counts, **spent[module]})
            rows.append((run.name, module, f"{counts['asked']:,}", *shares, *session, *took, *often))
    head = ("run", "module", "asked", "valid %", "repaired %", "fallback %", "calls", "tokens in", "tokens out")
    note = (
        "calls and tokens a session, seconds a question; modules whose name begins with user are the simulated user's"
    )
    table = Table("Modules", note, (*head, "seconds", "sent again", "cached"), tuple(rows), 2, tuple(records))
    return [table] if rows else []
