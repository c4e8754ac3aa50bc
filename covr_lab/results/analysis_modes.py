"""How sessions go from turn to turn: failure modes, recovery and the rank-cap (ReCoVR, appendix A.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from covr_lab.functional.bootstrap import interval
from covr_lab.functional.transitions import Counts, transition_counts
from covr_lab.results.compare import Run
from covr_lab.results.resample import rate_samples
from covr_lab.results.tables import ABSENT, Table, number, plain


def failure_mode_table(runs: Sequence[Run]) -> Table:
    """Rates over each run's own active transitions (``n``), and over its own denominator where there is another."""
    rows, records = [], []
    for run in runs:
        rates = run.summary["transitions"]
        records.append({"run": run.name, "n": rates["active"], **rates})
        rows.append((run.name, *(number(v, 0 if isinstance(v, int) else 1) for v in rates.values())))
    head = ("run", "n", *(key.replace("_", " ") for key in list(runs[0].summary["transitions"])[1:]))
    note = (
        "percent of the run's own n active transitions; recovery: of the recovery n not improved with a next turn, "
        "those whose next turn improves; improved when fired: of those in which the rank-cap fired"
    )
    return Table("Failure modes", note, head, tuple(rows), 1, tuple(records))


def recovery_table(runs: Sequence[Run]) -> Table:
    """Recovery beside the run's own base rate: P(improves | the turn before did not), and P(improves)."""
    note = (
        "percent of the run's own active transitions that improve: after one that did not, and of all (base rate); "
        "95 % interval of the difference: session bootstrap, 10,000 resamples"
    )
    head = ("run", "recovered", "n", "base rate", "n", "difference", "95 % interval")
    first, second = ("recovered", "stuck"), ("improved", "active")
    return _rates_table("Recovery against the base rate", note, head, runs, first, second)


def rank_cap_table(runs: Sequence[Run]) -> Table:
    """How often a transition improves when the rank-cap fired in it, and when not. An association, no effect."""
    note = (
        "percent of transitions that improve; an association, not an effect: the cap fires in sessions that stand "
        "otherwise; 95 % interval of the difference: session bootstrap, 10,000 resamples"
    )
    head = ("run", "improved, fired", "n", "improved, not fired", "n", "difference", "95 % interval")
    first, second = ("fired_improved", "fired"), ("unfired_improved", "unfired")
    return _rates_table("Rank-cap association", note, head, runs, first, second)


def _rates_table(
    title: str, note: str, head: tuple[str, ...], runs: Sequence[Run], first: tuple[str, str], second: tuple[str, str]
) -> Table:
    """Two rates of each run, (events, among) of :func:`transition_counts`, and ``first - second`` of each run."""
    counts = [transition_counts(*_arrays(run)) for run in runs]
    bounds = _differences(counts, first, second)
    rows, records = [], []
    for run, count, (low, high) in zip(runs, counts, bounds, strict=True):
        record: dict[str, Any] = {"run": run.name}
        for events, among in (first, second):
            total = int(count[among].sum())
            record |= {events: 100 * int(count[events].sum()) / total if total else None, f"{events}_n": total}
        both = record[first[0]] is not None and record[second[0]] is not None
        record |= {"difference": record[first[0]] - record[second[0]] if both else None, "low": low, "high": high}
        records.append(record)
        cells = [(number(record[events], 1), str(record[f"{events}_n"])) for events, _ in (first, second)]
        span = f"{number(low, 1, '+')} to {number(high, 1, '+')}" if low is not None else ABSENT
        rows.append((run.name, *cells[0], *cells[1], number(record["difference"], 1, "+"), span))
    return Table(title, note, head, tuple(rows), 1, tuple(records))


def _arrays(run: Run) -> tuple[Any, Any, Any, Any]:
    return run.outcomes.ranks, run.outcomes.executed, run.outcomes.shown, run.outcomes.fired


def _differences(
    counts: Sequence[dict[str, Counts]], first: tuple[str, str], second: tuple[str, str]
) -> list[tuple[float | None, float | None]]:
    """Interval of the difference of two rates of each run; ``None`` where a resample has no denominator."""
    pairs = []
    for count in counts:
        events, among = (np.column_stack([count[pair[part]] for pair in (first, second)]) for part in (0, 1))
        pairs.append((events.astype(np.float64), among.astype(np.float64)))
    bounds = []
    for rates in rate_samples(pairs):
        low, high = interval(rates[:, :1] - rates[:, 1:])
        bounds.append((plain(low.item()), plain(high.item())))
    return bounds
