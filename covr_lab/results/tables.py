"""Tables of runs: text once, shown on a terminal and on a page alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from covr_lab.functional.bootstrap import paired_difference
from covr_lab.results.calls import COUNTS, OUTCOMES, module_seconds
from covr_lab.results.compare import Run, session_values
from covr_lab.results.plots import Curve
from covr_lab.results.summary import RECALLS

Floats = npt.NDArray[np.float64]
DIGITS = {f"R@{k}": 1 for k in RECALLS} | {
    "MeanR3": 1,
    "MeanR4": 1,
    "MRR": 3,
    "BRI": 3,
    "MnR": 1,
    "coverage": 1,
    "ties": 0,
}
PAIRED = ("R@1", "BRI")
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under ``head``; the first ``labels`` columns name the row."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1

    def text(self) -> str:
        """Plain columns."""
        lines = (self.head, *self.rows)
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        pads = [str.ljust] * self.labels + [str.rjust] * (len(widths) - self.labels)
        cells = ([pad(cell, width) for pad, cell, width in zip(pads, line, widths, strict=True)] for line in lines)
        return "\n".join([f"{self.title} ({self.note})", *("  ".join(line).rstrip() for line in cells)])


def _number(value: float | None, digits: int, sign: str = "") -> str:
    return ABSENT if value is None or value != value else f"{value:{sign}.{digits}f}"


def _span(low: Floats, high: Floats, digits: int, sign: str = "") -> list[str]:
    pairs = zip(low.tolist(), high.tolist(), strict=True)
    return [ABSENT if a != a else f"{_number(a, digits, sign)} to {_number(b, digits, sign)}" for a, b in pairs]


def turn_table(runs: Sequence[Run], bands: Sequence[dict[str, Curve]]) -> Table:
    """Metrics by turn, with the chance level of the recalls and the 95 % band of R@1."""
    width, rows = max(run.outcomes.ranks.shape[1] for run in runs), []
    for metric, digits in DIGITS.items():
        for run, band in zip(runs, bands, strict=True):
            rows.append([metric, run.name, *(_number(value, digits) for value in run.summary["per_turn"][metric])])
            if metric == "R@1":
                rows.append(["", "  95 % band", *_span(band[metric].low, band[metric].high, digits)])
        if metric.startswith("R@"):
            k = int(metric[2:])
            for n in sorted({run.summary["n_gallery"] for run in runs}):
                rows.append([metric, f"chance, {k} of {n}", *[_number(100 * min(k / n, 1), 2)] * width])
    cells = tuple(tuple(row + [ABSENT] * (width + 2 - len(row))) for row in rows)
    note = (
        "R@K in percent, MeanR3 over K = 1, 5, 10, MeanR4 with 50; MnR is the mean rank; coverage: percent of sessions "
        "whose target was ranked; ties: sessions with another video at exactly the target's score"
    )
    return Table(
        "Retrieval by turn", note, ("metric", "run", *(f"turn {turn}" for turn in range(width))), cells, labels=2
    )


def paired_table(runs: Sequence[Run], baseline: Run) -> Table | None:
    """Differences to ``baseline`` over the same sessions, ``None`` when no other run has them."""
    width, rows = min(run.outcomes.ranks.shape[1] for run in runs), []
    for run in runs:
        if run is baseline or run.outcomes.session_ids != baseline.outcomes.session_ids:
            continue
        ours, theirs = (
            np.hstack([session_values(one.outcomes)[m][:, :width] for m in PAIRED]) for one in (run, baseline)
        )
        difference = paired_difference(ours, theirs)  # both metrics at once: one set of resamples
        for metric, mean, low, high in zip(PAIRED, *(np.split(part, len(PAIRED)) for part in difference), strict=True):
            digits = DIGITS[metric]
            rows.append((metric, run.name, *(_number(value, digits, "+") for value in mean.tolist())))
            rows.append(("", "  95 % interval", *_span(low, high, digits, "+")))
    head = ("metric", "run", *(f"turn {turn}" for turn in range(width)))
    note = "R@1 in points; paired bootstrap over sessions, 10,000 resamples"
    return Table(f"Difference to {baseline.name}", note, head, tuple(rows), labels=2) if rows else None


def count_tables(runs: Sequence[Run]) -> list[Table]:
    """Failure modes, failures and cost."""
    tables = []
    for title, part, note in (
        (
            "Failure modes",
            "transitions",
            "percent of active transitions; recovery: of those not improved, the next improves",
        ),
        ("Failures", "failures", "counts; a missing target was ranked at no turn and is a miss"),
    ):
        head = ("run", *(key.replace("_", " ") for key in runs[0].summary[part]))
        rows = [[_number(v, 0 if isinstance(v, int) else 1) for v in run.summary[part].values()] for run in runs]
        tables.append(Table(title, note, head, tuple((run.name, *row) for run, row in zip(runs, rows, strict=True))))
    return [*tables, cost_table(runs), *module_tables(runs)]


def cost_table(runs: Sequence[Run]) -> Table:
    """Calls, tokens and seconds of whole runs."""
    rows = []
    for run in runs:
        cost, seconds, n = run.summary["cost"], pc.sum(run.table["seconds"]).as_py() or 0.0, run.summary["n"]
        rate = n / seconds if seconds else None
        rows.append([*(f"{value:,}" for value in cost.values()), _number(seconds, 1), _number(rate, 2)])
    head = ("run", "calls", "tokens in", "tokens out", "seconds", "sessions/s")
    cells = tuple((run.name, *row) for run, row in zip(runs, rows, strict=True))
    return Table("Cost", "of the system in all sessions; seconds are summed over the rows", head, cells)


def module_tables(runs: Sequence[Run]) -> list[Table]:
    """What each module asked of its engine, how often its answers could be read, and what that took."""
    rows = []
    for run in runs:
        spent = module_seconds(run.table)
        for module, counts in run.summary["modules"].items():
            shares = [_number(100 * counts[name] / counts["asked"], 2) for name in OUTCOMES]
            session = [_number(counts[name] / run.summary["n"], 1) for name in COUNTS]
            took = [_number(spent[module]["seconds"] / counts["asked"], 2)]
            often = [f"{spent[module][name]:,.0f}" for name in ("retries", "cached")]
            rows.append((run.name, module, f"{counts['asked']:,}", *shares, *session, *took, *often))
    head = ("run", "module", "asked", "valid %", "repaired %", "fallback %", "calls", "tokens in", "tokens out")
    note = (
        "calls and tokens a session, seconds a question; modules whose name begins with user are the simulated user's"
    )
    table = Table("Modules", note, (*head, "seconds", "sent again", "cached"), tuple(rows), labels=2)
    return [table] if rows else []
