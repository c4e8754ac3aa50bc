"""What stored rows say about systems side by side; every function gives one :class:`~covr_lab.results.tables.Table`.

Differences are here; how sessions go is in :mod:`~covr_lab.results.analysis_modes`, where systems differ in
:mod:`~covr_lab.results.analysis_slices`. ``turn=None`` is the last turn, ``baseline`` is one of the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from covr_lab.functional import paired
from covr_lab.functional.bootstrap import Difference
from covr_lab.results.analysis_modes import failure_mode_table, rank_cap_table, recovery_table
from covr_lab.results.analysis_slices import agreement_table, disagreement_table, slice_table
from covr_lab.results.compare import Run
from covr_lab.results.resample import Floats, Method, Resamples, session_values
from covr_lab.results.tables import ABSENT, DIGITS, Table, number, plain, span

__all__ = [
    "agreement_table",
    "difference_table",
    "disagreement_table",
    "effect_table",
    "failure_mode_table",
    "rank_cap_table",
    "recovery_table",
    "slice_table",
]


def difference_table(
    runs: Sequence[Run],
    baseline: Run,
    resamples: Resamples,
    metrics: Sequence[str] = ("R@1", "BRI"),
    method: Method = "percentile",
) -> Table:
    """Difference of each other run to ``baseline`` by turn, with its paired interval and the significance per turn.

    Args:
        runs: of the same sessions; ``baseline`` among them is left out.
        baseline: what is subtracted.
        resamples: that have all the runs and metrics.
        metrics: in the order of the rows.
        method: of the intervals.

    Returns:
        A star marks differences whose interval excludes 0. Below R@K is the p value of the exact McNemar test on the
        discordant sessions, Holm-adjusted over the turns that have any.
    """
    rows, records, width = [], [], min(run.outcomes.ranks.shape[1] for run in runs)
    for metric in metrics:
        for run in runs:
            if run is baseline:
                continue
            difference = resamples.difference(run, baseline, metric, method)
            tests = _tests(run, baseline, metric) if metric.startswith("R@") else []
            rows += _difference_rows(metric, run, difference, tests)
            for turn, (mean, low, high) in enumerate(zip(*(part.tolist() for part in difference), strict=True)):
                record = {"metric": metric, "run": run.name, "baseline": baseline.name, "turn": turn, "method": method}
                record |= {"difference": plain(mean), "low": plain(low), "high": plain(high)}
                record |= {"significant": low > 0 or high < 0, "n": len(run.outcomes.session_ids)}
                records.append(record | (tests[turn] if tests else {}))
    head = ("metric", "run", *(f"turn {turn}" for turn in range(width)))
    note = (
        f"R@K in points; 95 % interval: {method}, paired bootstrap over sessions, 10,000 resamples; * it excludes 0; "
        "p: exact McNemar test, Holm-adjusted over the turns with a discordant session"
    )
    cells = tuple((*row, *[ABSENT] * (width + 2 - len(row))) if row[0] else row for row in rows)
    return Table(f"Difference to {baseline.name}", note, head, cells, 2, tuple(records))


def _tests(run: Run, baseline: Run, metric: str) -> list[dict[str, Any]]:
    """Wins, losses, p and Holm-adjusted p of ``run`` against ``baseline`` in R@K, by turn."""
    hits, others = (session_values(one.outcomes)[metric] > 0 for one in (run, baseline))
    turns = range(min(hits.shape[1], others.shape[1]))
    pairs = [paired.discordant(hits[:, turn], others[:, turn]) for turn in turns]
    p_values = np.array([paired.mcnemar(*pair) for pair in pairs])
    tested, adjusted = np.array([sum(pair) > 0 for pair in pairs]), np.ones(len(pairs))
    adjusted[tested] = paired.holm(p_values[tested])  # a turn without a discordant session tests nothing
    columns = zip(pairs, p_values.tolist(), adjusted.tolist(), strict=True)
    return [{"wins": won, "losses": lost, "p": p, "p_holm": p_holm} for (won, lost), p, p_holm in columns]


def _difference_rows(
    metric: str, run: Run, difference: Difference, tests: Sequence[dict[str, Any]]
) -> list[tuple[str, ...]]:
    digits = DIGITS[metric]
    cells = [
        number(mean, digits, "+") + ("*" if low > 0 or high < 0 else "")
        for mean, low, high in zip(*(part.tolist() for part in difference), strict=True)
    ]
    rows = [(metric, run.name, *cells), ("", "  95 % interval", *span(difference.low, difference.high, digits, "+"))]
    return [*rows, ("", "  p, adjusted", *(p_text(test["p_holm"]) for test in tests))] if tests else rows


def p_text(p: float) -> str:
    """A p value as text.

    >>> p_text(0.03), p_text(1e-9)
    ('0.030', '<0.001')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def effect_table(runs: Sequence[Run], baseline: Run, turn: int | None = None) -> Table:
    """Size of each other run's difference to ``baseline`` at one turn, in units that do not depend on the metric.

    Wins, losses, odds ratio of the discordant sessions, exact McNemar p and Cohen's h are of R@1; d_z is that of BRI,
    negative where the run is better.
    """
    rows, records = [], []
    for run in runs:
        if run is baseline:
            continue
        at = min(run.outcomes.ranks.shape[1], baseline.outcomes.ranks.shape[1]) - 1 if turn is None else turn
        record = _effects(session_values(run.outcomes), session_values(baseline.outcomes), at)
        records.append({"run": run.name, "baseline": baseline.name, "turn": at, "n": len(run.outcomes.ranks)} | record)
        cells = [number(record[key], digits, sign) for key, digits, sign in _EFFECTS]
        rows.append((run.name, str(records[-1]["turn"]), *cells, p_text(record["p"])))
    head = ("run", "turn", "wins", "losses", "odds ratio", "R@1", f"R@1 {baseline.name}", "Cohen's h", "BRI d_z", "p")
    note = (
        "wins: sessions with rank 1 at this turn where the baseline has it not; p: exact McNemar; h about 0.2 small, "
        "0.5 medium, 0.8 large; d_z: mean paired difference over its deviation, negative is better"
    )
    return Table(f"Effect sizes against {baseline.name}", note, head, tuple(rows), 1, tuple(records))


_EFFECTS = (
    ("wins", 0, ""),
    ("losses", 0, ""),
    ("odds_ratio", 2, ""),
    ("rate", 1, ""),
    ("baseline_rate", 1, ""),
    ("cohens_h", 2, "+"),
    ("d_z", 2, "+"),
)


def _effects(ours: dict[str, Floats], theirs: dict[str, Floats], turn: int) -> dict[str, Any]:
    hits, others = (values["R@1"][:, turn] > 0 for values in (ours, theirs))
    wins, losses = paired.discordant(hits, others)
    rate, other = float(hits.mean()), float(others.mean())
    return {
        "wins": wins,
        "losses": losses,
        "odds_ratio": plain(paired.odds_ratio(wins, losses)),
        "rate": 100 * rate,
        "baseline_rate": 100 * other,
        "cohens_h": paired.cohens_h(rate, other),
        "d_z": plain(paired.standardised_difference(ours["BRI"][:, turn] - theirs["BRI"][:, turn])) if turn else None,
        "p": paired.mcnemar(wins, losses),
    }
