"""Two runs session by session: tables, a page with the dialogues side by side, and a list of all sessions."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from covr_lab.results import plots
from covr_lab.results.analysis import difference_table, effect_table
from covr_lab.results.analysis_slices import disagreements
from covr_lab.results.compare import Run, load_runs, objections
from covr_lab.results.examples import dialogue
from covr_lab.results.report import console, render, svg
from covr_lab.results.resample import METRICS, Method, Resamples
from covr_lab.results.summary import named
from covr_lab.results.tables import Table, named_table, shared_naming

SIDE = 20  # sessions of a kind in the page


def write_comparison(
    first: Path,
    second: Path,
    out: Path | None = None,
    *,
    turn: int | None = None,
    method: Method = "percentile",
    force: bool = False,
) -> tuple[str, list[Path]]:
    """Compare two run folders; write ``compare.html`` and ``sessions.csv``.

    Args:
        first: run A, of which B is subtracted.
        second: run B.
        out: output folder, by default ``compare`` in A.
        turn: at which a session is won or lost, by default the last.
        method: of the intervals.
        force: compare unfinished runs or runs of different protocols, under a warning.

    Returns:
        The tables as text, and the absolute paths of what was written.

    Raises:
        ValueError: the runs may not be compared, have different sessions (also with ``force``), or have no such turn.
    """
    a, b = load_runs([first, second], allow_partial=force)
    found = objections([a, b], a)
    if found and not force:
        raise ValueError(f"{'; '.join(found)} (--force compares them all the same)")
    last = min(run.outcomes.ranks.shape[1] for run in (a, b)) - 1
    if turn is not None and not 0 <= turn <= last:
        raise ValueError(f"turn {turn} is not one of 0 to {last}")
    at = last if turn is None else turn
    draws = Resamples([a, b])
    tables = [
        difference_table([a, b], b, draws, METRICS, method),
        wins_table(a, b),
        effect_table([a, b], b, at),
    ]
    out = (out or first / "compare").resolve()
    out.mkdir(parents=True, exist_ok=True)
    page, listing = out / "compare.html", out / "sessions.csv"
    page.write_text(_page(a, b, tables, _panels(a, b, draws, method), at, found), encoding="utf-8")
    _write_sessions(a, b, at, listing)
    return console([a, b], tables, found), [page, listing]


def wins_table(a: Run, b: Run) -> Table:
    """Sessions with rank 1 in ``a`` alone, in ``b`` alone, in both and in neither, by turn."""
    records = []
    for turn in range(min(run.outcomes.ranks.shape[1] for run in (a, b))):
        ours, theirs = (run.outcomes.ranks[:, turn] == 1 for run in (a, b))
        counts = {"won": ours & ~theirs, "lost": theirs & ~ours, "both": ours & theirs, "neither": ~ours & ~theirs}
        records.append(
            {"a": a.name, "b": b.name, "turn": turn} | {key: int(flag.sum()) for key, flag in counts.items()}
        )
    rows = tuple(
        (f"turn {one['turn']}", *(str(one[key]) for key in ("won", "lost", "both", "neither"))) for one in records
    )
    head = ("", f"only {a.name}", f"only {b.name}", "both", "neither")
    return Table("Wins and losses", "sessions with rank 1 at the turn", head, rows, 1, tuple(records))


def _panels(a: Run, b: Run, draws: Resamples, method: Method) -> list[plots.Panel]:
    found = []
    for metric in METRICS:
        curve = plots.Curve(a.name, *draws.difference(a, b, metric, method))
        if np.isfinite(curve.mean).any():
            unit = "lower is better" if metric == "BRI" else "points"
            name = named(metric, shared_naming([a, b]))
            found.append(plots.Panel(f"{name}, difference ({unit})", (curve,), zero=True))
    return found


def _page(
    a: Run, b: Run, tables: Sequence[Table], panels: Sequence[plots.Panel], turn: int, found: Sequence[str]
) -> str:
    lists, kinds = disagreements(a, b, turn), []
    for kind, winner in (("won", a), ("lost", b)):
        cases = [case | _sides(a, b, case, f"{kind}-{place}") for place, case in enumerate(lists[kind][:SIDE])]
        kinds.append((winner, len(lists[kind]), cases))
    rule = (
        f"Rank 1 at turn {turn} in one run alone. Chosen by rule, at most {SIDE} of a kind: the worst rank of the "
        "other run first, then by session id. All sessions are in sessions.csv."
    )
    shown = [named_table(table, [a, b]) for table in tables]
    parts = {"a": a, "b": b, "tables": shown, "figures": svg(panels), "kinds": kinds, "rule": rule}
    return render("compare_page.html", [a, b], found, parts)


def _sides(a: Run, b: Run, case: dict[str, Any], anchor: str) -> dict[str, Any]:
    return {"anchor": anchor, "sides": [(run, dialogue(run.table, case["session_id"])) for run in (a, b)]}


def _write_sessions(a: Run, b: Run, turn: int, path: Path) -> None:
    """Every session with its outcome at ``turn``, sorted by id."""
    edits = dict(zip(*(a.table[name].to_pylist() for name in ("session_id", "edit")), strict=True))
    ranks = zip(*(run.outcomes.ranks[:, turn].tolist() for run in (a, b)), strict=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["session_id", "edit", "turn", "outcome", "a_rank", "b_rank"])
        for session, (ours, theirs) in zip(a.outcomes.session_ids, ranks, strict=True):
            outcome = {(True, False): "won", (False, True): "lost", (True, True): "both"}
            rows.writerow(
                [session, edits[session], turn, outcome.get((ours == 1, theirs == 1), "neither"), ours, theirs]
            )
