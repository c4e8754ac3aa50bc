"""Where systems, or users, differ: slices of the sessions, agreement, and the sessions that only one solves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow.compute as pc

from covr_lab.functional import paired
from covr_lab.functional.paired import Flags
from covr_lab.results.compare import Run
from covr_lab.results.resample import Floats, Resamples, rate_samples, session_values
from covr_lab.results.tables import DIGITS, Table, number, plain

By = Literal["edit_length", "opening_rank", "actions"]
BANDS: Final = ((1, 1), (2, 5), (6, 10), (11, 50))  # of the rank at turn 0; beyond them is the last
NAMES: Final = {
    "edit_length": "words of the edit",
    "opening_rank": "rank at turn 0",
    "actions": "actions of the feedback",
}


def slice_table(runs: Sequence[Run], by: By = "edit_length", turn: int | None = None, metric: str = "R@1") -> Table:
    """One metric of each run within slices of its sessions, with the number of sessions and its 95 % interval.

    Args:
        runs: each is sliced by its own rows.
        by: ``edit_length``: thirds by the words of the edit (equal lengths stay together); ``opening_rank``: rank at
            turn 0; ``actions``: which actions the session's feedback had.
        turn: of the metric, by default the last.
        metric: of :data:`~covr_lab.results.resample.METRICS`; BRI has no value at turn 0.
    """
    if by not in NAMES:
        raise ValueError(f"slices by {by!r}: choose one of {', '.join(NAMES)}")
    turns = [run.outcomes.ranks.shape[1] - 1 if turn is None else turn for run in runs]
    values = [session_values(run.outcomes)[metric][:, at] for run, at in zip(runs, turns, strict=True)]
    if any(np.isnan(value).any() for value in values):
        raise ValueError(f"{metric} has no value at turn {turn}: take a later turn")
    masks = [_SLICES[by](run) for run in runs]
    bounds = _bounds(values, masks)
    records = []
    for label in dict.fromkeys(label for mask in masks for label in mask):
        for run, at, value, mask, bound in zip(runs, turns, values, masks, bounds, strict=True):
            if label not in mask:
                continue
            record: dict[str, Any] = {"by": by, "slice": label, "run": run.name, "n": int(mask[label].sum())}
            record |= {"metric": metric, "turn": at, "value": float(value[mask[label]].mean())}
            records.append(record | dict(zip(("low", "high"), bound[label], strict=True)))
    digits = DIGITS[metric]
    cells = [
        (number(record["value"], digits), f"{number(record['low'], digits)} to {number(record['high'], digits)}")
        for record in records
    ]
    rows = [(one["slice"], one["run"], str(one["n"]), *cell) for one, cell in zip(records, cells, strict=True)]
    when = "the last turn" if turn is None else f"turn {turn}"
    note = f"{metric} at {when} in the n sessions of each slice; 95 % interval: session bootstrap, 10,000 resamples"
    head = (NAMES[by], "run", "n", metric, "95 % interval")
    return Table(f"{metric} by {NAMES[by]}", note, head, tuple(rows), 2, tuple(records))


def _bounds(values: Sequence[Floats], masks: Sequence[dict[str, Flags]]) -> list[dict[str, tuple[float, float]]]:
    """Interval of the mean in each slice of each run; how many sessions of a slice are drawn varies, too."""
    pairs = []
    for value, mask in zip(values, masks, strict=True):
        among = np.column_stack(list(mask.values())).astype(np.float64)
        pairs.append((among * value[:, None] / 100, among))
    found = []
    for samples, mask in zip(rate_samples(pairs), masks, strict=True):
        low, high = np.nanpercentile(samples, [2.5, 97.5], axis=0).tolist()  # NaN: no session of the slice was drawn
        found.append(dict(zip(mask, zip(low, high, strict=True), strict=True)))
    return found


def _first_rows(run: Run, column: str) -> list[Any]:
    """One column of the rows of turn 0, by session."""
    found: list[Any] = run.table.filter(pc.equal(run.table["turn"], 0))[column].to_pylist()
    return found


def _by_edit_length(run: Run) -> dict[str, Flags]:
    words = np.array([len(edit.split()) for edit in _first_rows(run, "edit")])
    cuts = np.unique(np.quantile(words, [1 / 3, 2 / 3, 1], method="inverted_cdf"))
    band = np.searchsorted(cuts, words)
    masks = [band == place for place in range(len(cuts))]
    return {_range(int(words[mask].min()), int(words[mask].max())): mask for mask in masks}


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _by_opening_rank(run: Run) -> dict[str, Flags]:
    ranks = run.outcomes.ranks[:, 0]
    masks = {_range(low, high): (ranks >= low) & (ranks <= high) for low, high in BANDS}
    masks[f"over {BANDS[-1][1]}"] = ranks > BANDS[-1][1]
    return {label: mask for label, mask in masks.items() if mask.any()}


def _by_actions(run: Run) -> dict[str, Flags]:
    found: dict[str, set[str]] = {session: set() for session in run.outcomes.session_ids}
    for session, action in zip(*(run.table[name].to_pylist() for name in ("session_id", "action")), strict=True):
        if action not in (None, "stop"):
            found[session].add(action)
    labels = np.array([" + ".join(sorted(actions)) or "no feedback" for actions in found.values()], dtype=object)
    return {label: labels == label for label in sorted(set(labels), key=lambda label: (label.count("+"), label))}


_SLICES: Final = {"edit_length": _by_edit_length, "opening_rank": _by_opening_rank, "actions": _by_actions}


def agreement_table(pairs: Sequence[tuple[Run, Run]]) -> Table:
    """Two users (or any two runs) on the same sessions at the last turn: do the same sessions end well?

    Args:
        pairs: runs of the same sessions, usually of one system with two users.

    Raises:
        ValueError: the runs of a pair have different sessions.
    """
    rows, records = [], []
    for a, b in pairs:
        difference = Resamples((a, b), metrics=("R@1",)).difference(a, b, "R@1")
        record: dict[str, Any] = {"a": a.name, "b": b.name, "n": len(a.outcomes.session_ids)} | _agreement(a, b)
        record |= {key: float(part[-1]) for key, part in difference._asdict().items()}
        records.append(record)
        shown = [number(record["agreement"], 1), number(record["kappa"], 2), number(record["spearman"], 2)]
        bounds = f"{number(record['low'], 1, '+')} to {number(record['high'], 1, '+')}"
        rows.append((a.name, b.name, str(record["n"]), *shown, number(record["mean"], 1, "+"), bounds))
    note = (
        "at the last turn; agreement: percent of sessions that both or neither solve, kappa corrects it for chance; "
        "rho: Spearman of the last ranks; difference: R@1 of a minus b, 95 % paired session bootstrap"
    )
    head = ("a", "b", "n", "agreement", "kappa", "rho", "difference", "95 % interval")
    return Table("Agreement", note, head, tuple(rows), 2, tuple(records))


def _agreement(a: Run, b: Run) -> dict[str, Any]:
    ranks = [run.outcomes.ranks[:, -1] for run in (a, b)]
    solved = [rank == 1 for rank in ranks]
    return {
        "agreement": 100 * float((solved[0] == solved[1]).mean()),
        "kappa": plain(paired.cohens_kappa(*solved)),
        "spearman": plain(paired.spearman(*ranks)),
    }


def disagreements(a: Run, b: Run, turn: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Sessions with rank 1 at ``turn`` in one run and not in the other, the worst rank of the other first.

    Returns:
        "won": those that ``a`` solves and ``b`` does not, and "lost": the reverse; each a list of dictionaries with
        ``session_id``, ``edit``, ``turn``, ``a_rank``, ``b_rank``; equal ranks in the order of their ids.

    Raises:
        ValueError: the runs have different sessions.
    """
    if a.outcomes.session_ids != b.outcomes.session_ids:
        raise ValueError(f"runs {a.name} and {b.name} have different sessions: they cannot be joined")
    at = min(run.outcomes.ranks.shape[1] for run in (a, b)) - 1 if turn is None else turn
    ours, theirs, edits = a.outcomes.ranks[:, at], b.outcomes.ranks[:, at], _first_rows(a, "edit")
    found = {}
    for kind, solver, other in (("won", ours, theirs), ("lost", theirs, ours)):
        places = np.flatnonzero((solver == 1) & (other > 1))
        places = places[np.argsort(-other[places], kind="stable")]
        found[kind] = [
            {"session_id": a.outcomes.session_ids[place], "edit": edits[place], "turn": at}
            | {"a_rank": int(ours[place]), "b_rank": int(theirs[place])}
            for place in places.tolist()
        ]
    return found


def disagreement_table(a: Run, b: Run, turn: int | None = None, size: int = 20) -> Table:
    """Sessions that ``a`` solves and ``b`` does not, and the reverse: at most ``size`` of each, by a fixed rule."""
    found, rows, records = disagreements(a, b, turn), [], []
    for kind, winner in (("won", a), ("lost", b)):
        for one in found[kind][:size]:
            rows.append((f"only {winner.name}", *(str(one[key]) for key in ("session_id", "edit", "a_rank", "b_rank"))))
            records.append({"solved_by": winner.name, "a": a.name, "b": b.name, **one})
    when = "the last turn" if turn is None else f"turn {turn}"
    note = (
        f"rank 1 at {when} in one run alone: {len(found['won'])} sessions only in {a.name}, {len(found['lost'])} only "
        f"in {b.name}; at most {size} of each, the worst rank of the other run first, then by session id"
    )
    head = ("solved by", "session", "edit", f"rank {a.name}", f"rank {b.name}")
    return Table(f"{a.name} against {b.name}, session by session", note, head, tuple(rows), 3, tuple(records))
