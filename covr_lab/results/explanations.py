"""Why one video stands above another, from the stored judgements between candidates; and queries that they doubt."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal, get_args

from covr_lab.results.compare import Run
from covr_lab.results.tables import ABSENT, Table, number
from covr_lab.types import Outcome

SHOWN: Final = 5  # places of a ranking that are explained
DOUBTFUL: Final = 10  # queries of a run that a report lists
MADE: Final = ("comparisons", "compared_anew", "swaps")  # entries of the routing numbers
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Win:
    """That ``winner`` won against ``loser``, and how often each of the two did.

    Attributes:
        winner: video id.
        loser: video id.
        place: where the winner was shown when it won last: a reason speaks of the first and the second.
        reason: that of the last time, "" where none was given.
        won: times.
        lost: times that the other one won.
    """

    winner: str
    loser: str
    place: str
    reason: str
    won: int
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Why:
    """Why ``above`` stands above its neighbour ``below``.

    Attributes:
        above: video id.
        below: video id.
        kind: ``direct``: it won at least as many of their comparisons as it lost; ``against``: it lost more of them,
            and the order is that of all comparisons together; ``tie``: they met and neither won; ``chain``: they did
            not meet, and it beat one that beat the other, over the fewest steps; ``none``: nothing of that.
        steps: the wins: of the pair, or along the chain.
    """

    above: str
    below: str
    kind: Literal["direct", "against", "tie", "chain", "none"]
    steps: tuple[Win, ...] = ()

    @property
    def text(self) -> str:
        """In words, on one line."""
        steps = "; ".join(map(win_text, self.steps))
        if self.kind == "direct":
            return f"{self.above} above {self.below}: {steps}"
        if self.kind == "against":
            return f"{self.above} above {self.below} by all comparisons together, though {steps}"
        if self.kind == "chain":
            return f"{self.above} above {self.below} by way of others: {steps}"
        if self.kind == "tie":
            return f"{self.above} above {self.below}: they tied, and all comparisons or the order before decided"
        return f"{self.above} above {self.below}: no comparison decides between them"


def win_text(win: Win) -> str:
    """A win in words.

    >>> win_text(Win("a", "b", "second", "the second is red", 3, 1))
    'a beat b 3 to 1 (as the second: the second is red)'
    """
    why = f" (as the {win.place}: {win.reason})" if win.reason else ""
    return f"{win.winner} beat {win.loser} {win.won} to {win.lost}{why}"


def wins(comparisons: Iterable[Row]) -> dict[tuple[str, str], Win]:
    """(winner, loser) -> win, of every ordered pair that had one; ties and what could not be read count nothing."""
    found = dict[tuple[str, str], Win]()
    for one in comparisons:
        if one["outcome"] in ("first", "second"):
            other = "second" if one["outcome"] == "first" else "first"
            pair = (one[one["outcome"]], one[other])
            before = found.get(pair)
            reason = one["reason"] or (before.reason if before else "")
            found[pair] = Win(*pair, one["outcome"], reason, 1 + (before.won if before else 0))
    return {
        pair: replace(win, lost=found[pair[::-1]].won) if pair[::-1] in found else win for pair, win in found.items()
    }


def explain(row: Row, size: int = SHOWN) -> list[Why]:
    """Why each of the best ``size`` videos of a stored row stands above the next; empty where nothing was compared."""
    compared = row.get("comparisons")
    if not compared:
        return []
    known, met = wins(compared), {frozenset((one["first"], one["second"])) for one in compared}
    top = row["top_ids"][:size]
    return [_why(known, met, above, below) for above, below in pairwise(top)]


def _why(known: Mapping[tuple[str, str], Win], met: Collection[frozenset[str]], above: str, below: str) -> Why:
    won, lost = known.get((above, below)), known.get((below, above))
    if won is not None and won.won >= won.lost:
        return Why(above, below, "direct", (won,))
    if lost is not None:
        return Why(above, below, "against", (lost,))
    if frozenset((above, below)) in met:
        return Why(above, below, "tie")
    chain = _chain(known, above, below)
    return Why(above, below, "chain" if chain else "none", chain)


def _chain(known: Mapping[tuple[str, str], Win], above: str, below: str) -> tuple[Win, ...]:
    """Fewest wins that lead from ``above`` to ``below``, each by more than half; the earlier judged first."""
    beaten = dict[str, list[str]]()
    for winner, loser in (pair for pair, win in known.items() if win.won > win.lost):
        beaten.setdefault(winner, []).append(loser)
    came, waiting = dict[str, str](), deque([above])
    while waiting and below not in came:
        here = waiting.popleft()
        for there in beaten.get(here, ()):
            if there != above and there not in came:
                came[there] = here
                waiting.append(there)
    path = [below] if below in came else []
    while path and path[-1] != above:
        path.append(came[path[-1]])
    path.reverse()
    return tuple(known[step] for step in pairwise(path))


def explanation(row: Row, video: str) -> str:
    """All reasons for which ``video`` won, each once, in the order of the comparisons; "" where there is none."""
    judged = (one for one in row.get("comparisons") or () if one["outcome"] in ("first", "second"))
    found = (one["reason"] for one in judged if one[one["outcome"]] == video)
    return "; ".join(dict.fromkeys(filter(None, found)))


@dataclass(frozen=True, slots=True)
class Doubt:
    """A query whose target lost more than half of its decided comparisons, ``lost`` of ``won + lost``."""

    row: Row
    won: int
    lost: int
    reasons: tuple[str, ...]


def doubts(rows: Iterable[Row]) -> list[Doubt]:
    """Rows whose target was compared and mostly beaten, the most often beaten first.

    They are worth a look: the target may not be what its query says, or several videos are; or the judge errs.
    """
    found = list[Doubt]()
    for row in rows:
        right = {row["target"], *(row.get("other_targets") or ())}
        known = [win for win in wins(row["comparisons"] or ()).values() if not {win.winner, win.loser} <= right]
        won = sum(win.won for win in known if win.winner in right)
        beaten = [win for win in known if win.loser in right]
        lost = sum(win.won for win in beaten)
        if lost > won:
            reasons = tuple(f"{win.winner} as the {win.place}: {win.reason or 'no reason'}" for win in beaten)
            found.append(Doubt(row, won, lost, reasons))
    return sorted(found, key=lambda one: (-one.lost / (one.won + one.lost), -one.lost, one.row["session_id"]))


def compared_rows(run: Run) -> list[Row]:
    """Rows in which something was compared, with what the tables here need."""
    columns = ("session_id", "turn", "edit", "target", "other_targets", "target_rank")
    judged = ("stage_target_rank", "routing", "comparisons")
    rows = run.table.select([*columns, *judged]).to_pylist(maps_as_pydicts="strict")
    return [row for row in rows if row["comparisons"]]


def comparison_tables(runs: Sequence[Run]) -> list[Table]:
    """What the comparisons came to, and whom they doubt; nothing when no run has any."""
    return [table for table in (comparisons_table(runs), doubts_table(runs)) if table.rows]


def comparisons_table(runs: Sequence[Run]) -> Table:
    """How many comparisons a query took, and how they ended."""
    rows, records = list[tuple[str, ...]](), list[Mapping[str, Any]]()
    for run in runs:
        found = compared_rows(run)
        if not found:
            continue
        outcomes = [one["outcome"] for row in found for one in row["comparisons"]]
        shares = {str(kind): 100.0 * outcomes.count(kind) / len(outcomes) for kind in OUTCOMES}
        sums = {key: sum(row["routing"].get(key, 0.0) for row in found) / len(found) for key in MADE}
        doubtful = len(doubts(found))
        cells = [number(value, 1) for value in (*sums.values(), *shares.values())]
        rows.append((run.name, f"{len(found):,}", *cells, str(doubtful)))
        records.append({"run": run.name, "queries": len(found), **sums, **shares, "doubtful": doubtful})
    note = (
        "a query is a session-turn with comparisons; anew: judged and not remembered; swaps: the lower one won; first "
        "(the higher one), second, tie, unparseable: percent of the comparisons; doubtful: queries whose target lost "
        "more than half of the comparisons that someone won"
    )
    head = ("run", "queries", "comparisons", "anew", "swaps", *(f"{kind} %" for kind in OUTCOMES), "doubtful")
    return Table("Comparisons", note, head, tuple(rows), 1, tuple(records))


def doubts_table(runs: Sequence[Run], size: int = DOUBTFUL) -> Table:
    """The queries that the comparisons doubt most, of each run; the records have all of them with every reason."""
    rows, records = list[tuple[str, ...]](), list[Mapping[str, Any]]()
    for run in runs:
        found = doubts(compared_rows(run))
        for place, doubt in enumerate(found):
            row, before = doubt.row, next(iter((doubt.row["stage_target_rank"] or {}).values()), None)
            numbers = {"won": doubt.won, "lost": doubt.lost, "before": before, "after": row["target_rank"]}
            what = {"session_id": row["session_id"], "turn": row["turn"], "target": row["target"]}
            records.append({"run": run.name, **what, **numbers, "reasons": " | ".join(doubt.reasons)})
            if place < size:
                cells = (ABSENT if value is None else number(value, 0) for value in numbers.values())
                names = (run.name, row["session_id"], str(row["turn"]), row["target"])
                rows.append((*names, *cells, _short(doubt.reasons[-1]), _short(row["edit"])))
    note = (
        "queries whose target was compared and lost more than half of the comparisons that someone won: the target may "
        "not be what the query says, or others are, too, or the judge errs; before and after: rank of the target; the "
        f"reason is the last one; at most {size} of a run, the largest share lost first"
    )
    head = ("run", "session", "turn", "target", "won", "lost", "before", "after", "lost to", "query")
    return Table("Doubtful queries", note, head, tuple(rows), 4, tuple(records))


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 3].rstrip()}..."
