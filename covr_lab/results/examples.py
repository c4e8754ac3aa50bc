"""Which sessions a report shows: a fixed rule, so that nobody picks them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covr_lab.results.reader import Outcomes


def choose(outcomes: Outcomes, size: int = 3) -> dict[str, list[str]]:
    """At most ``size`` session ids of each kind, no session in two kinds.

    *Drifted* ended with a worse rank than it began with, the largest ratio of the two first. *Solved late* reached
    rank 1 after turn 0, the latest first. *Never solved* never had rank 1, the worst last rank first. Equal cases are
    in the order of their ids.

    Returns:
        kind -> session ids.
    """
    ranks, last = outcomes.ranks, outcomes.ranks[:, -1]
    solved = (ranks == 1).any(axis=1)
    first = np.where(solved, (ranks == 1).argmax(axis=1), 0)
    drifted = last > ranks[:, 0]
    kinds = {
        "Solved late": (~drifted & (first > 0), -first),
        "Drifted": (drifted, -last / ranks[:, 0]),
        "Never solved": (~drifted & ~solved, -last),
    }
    chosen = {
        kind: [row for row in np.argsort(key, kind="stable") if there[row]] for kind, (there, key) in kinds.items()
    }
    return {kind: [outcomes.session_ids[row] for row in rows[:size]] for kind, rows in chosen.items()}


def dialogue(table: pa.Table, session_id: str) -> list[dict[str, object]]:
    """Rows of one session as dictionaries, by turn."""
    rows: list[dict[str, object]] = table.filter(pc.equal(table["session_id"], session_id)).to_pylist()
    return rows
