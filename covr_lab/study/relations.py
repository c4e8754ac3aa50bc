"""What a study is to show: each claim with its numbers and whether it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covr_lab.functional.bootstrap import paired_difference
from covr_lab.results.compare import Run
from covr_lab.results.resample import session_values
from covr_lab.results.tables import ABSENT, DIGITS, Table, number
from covr_lab.study.checks import as_list
from covr_lab.study.results import Results

CLAIMS_HEAD = ("claim", "verdict", "comparisons", "hold", "closest", "difference", "95 % interval")
HEAD = ("claim", "compared", "metric", "turn", "difference", "95 % interval", "holds")
NOTE = (
    "difference of the two sides with its paired interval; a claim of order holds where the interval lies above 0, one "
    "of staying within the best where it does not lie below 0; reported: no sign is asked for"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One comparison of a claim at one turn.

    Attributes:
        claim: in words.
        compared: the two sides.
        metric: of the difference.
        turn: of the difference.
        difference: of the means, ``None`` without numbers.
        low: lower end of its 95 % interval.
        high: upper end.
        holds: ``None`` without numbers, and where no sign is asked for.
        required: whether a sign is asked for.
    """

    claim: str
    compared: str
    metric: str
    turn: int
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    holds: bool | None = None
    required: bool = True

    @property
    def word(self) -> str:
        """How the table says it."""
        if self.difference is None:
            return "no numbers"
        return {True: "yes", False: "no", None: "reported"}[self.holds]

    def record(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__slots__} | {"verdict": self.word}


def judge(results: Results) -> list[Verdict]:
    """All claims of the study, in its order."""
    return [verdict for claim, form in results.study.relations.items() for verdict in _claim(claim, form, results)]


def _claim(claim: str, form: Mapping[str, Any], results: Results) -> Iterator[Verdict]:
    condition, metric = form.get("condition", results.study.main), form["metric"]
    if "above" in form:
        for above in as_list(form["above"]):
            for below in as_list(form["below"]):
                sides = (results.get(above, condition), results.get(below, condition))
                bounds = _difference(results, condition, metric, *sides)
                yield from _order(claim, form, metric, f"{above} - {below}", bounds)
    elif "within" in form:
        yield from _within(claim, form, metric, condition, results)
    else:
        more, less, start, end = (form[key] for key in ("loses_more", "loses_less", "from", "to"))
        runs = [results.get(system, place) for system in (more, less) for place in (start, end)]
        words = f"loss of {more} - loss of {less}, {start} to {end}"
        yield from _order(claim, form, metric, words, _loss(runs, metric))


Bounds = Sequence[tuple[float, float, float]]  # mean, low, high by turn


def _difference(results: Results, condition: str, metric: str, a: Run | None, b: Run | None) -> Bounds | None:
    if a is None or b is None:
        return None
    return _by_turn(results.resamples(condition).difference(a, b, metric))


def _by_turn(difference: Any) -> Bounds:
    return list(zip(*(part.tolist() for part in difference), strict=True))


def _loss(runs: Sequence[Run | None], metric: str) -> Bounds | None:
    """(a in the first condition - a in the second) - (the same of b), paired by session."""
    there = [run for run in runs if run is not None]
    if len(there) < len(runs) or len({run.outcomes.session_ids for run in there}) > 1:
        return None
    more_start, more_end, less_start, less_end = (session_values(run.outcomes)[metric] for run in there)
    return _by_turn(paired_difference(more_start - more_end, less_start - less_end))


def _order(claim: str, form: Mapping[str, Any], metric: str, words: str, bounds: Bounds | None) -> Iterator[Verdict]:
    required = not form.get("report", False)
    for turn in form["turns"]:
        if bounds is None or turn >= len(bounds):
            yield Verdict(claim, words, metric, turn, required=required)
            continue
        mean, low, high = bounds[turn]
        holds = (low if form.get("strict", True) else mean) > 0
        yield Verdict(claim, words, metric, turn, mean, low, high, holds if required else None, required)


def _within(claim: str, form: Mapping[str, Any], metric: str, condition: str, results: Results) -> Iterator[Verdict]:
    """At each turn against the best of the others there."""
    required, own = not form.get("report", False), results.get(form["system"], condition)
    others = [results.get(name, condition) for name in as_list(form["within"])]
    for turn in form["turns"]:
        bounds = [(run, _difference(results, condition, metric, own, run)) for run in others]
        here = [(found[turn], run) for run, found in bounds if run and found and turn < len(found)]
        if len(here) < len(others):
            yield Verdict(claim, f"{form['system']} - best of the others", metric, turn, required=required)
            continue
        (mean, low, high), best = min(here, key=lambda pair: pair[0][0])
        words = f"{form['system']} - {best.name} (the best of {len(others)})"
        yield Verdict(claim, words, metric, turn, mean, low, high, high >= 0 if required else None, required)


def word_of(verdicts: Sequence[Verdict]) -> str:
    """What the comparisons of one claim come to."""
    if not verdicts[0].required:
        return "reported"
    if any(verdict.holds is False for verdict in verdicts):
        return "does not hold"
    return "holds" if all(verdict.holds for verdict in verdicts) else "numbers are missing"


def claims_table(verdicts: Sequence[Verdict], results: Results) -> Table:
    """A row a claim: in how many of its comparisons it holds, and the one with the lowest interval."""
    rows, records = [], []
    for claim in dict.fromkeys(verdict.claim for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.claim == claim]
        held, known = [verdict for verdict in own if verdict.holds], [one for one in own if one.low is not None]
        closest = min(known, key=lambda one: one.low or 0.0, default=own[0])
        where = f"{closest.compared}, {closest.metric} at turn {closest.turn}"
        counts = (str(len(own)), str(len(held)) if own[0].required else ABSENT)
        rows.append((claim, word_of(own), *counts, where, *_numbers(closest)))
        records.append(closest.record() | {"verdict": word_of(own), "comparisons": len(own), "hold": len(held)})
    said = [f"{claim}: {form['note']}" for claim, form in results.study.relations.items() if "note" in form]
    note = "; ".join(
        ["closest: the comparison whose interval reaches lowest; all of them are in the last table", *said]
    )
    return Table("What the study is to show", note, CLAIMS_HEAD, tuple(rows), 2, tuple(records))


def relations_table(verdicts: Sequence[Verdict]) -> Table:
    """All verdicts; rows of one claim stand together."""
    rows = [(one.claim, one.compared, one.metric, str(one.turn), *_numbers(one), one.word) for one in verdicts]
    records = tuple(verdict.record() for verdict in verdicts)
    return Table("Claims, comparison by comparison", NOTE, HEAD, tuple(rows), 2, records)


def _numbers(verdict: Verdict) -> tuple[str, str]:
    """Difference and interval as text."""
    digits = max(2, DIGITS[verdict.metric])
    mean, low, high = (number(value, digits, "+") for value in (verdict.difference, verdict.low, verdict.high))
    return mean, ABSENT if verdict.low is None else f"{low} to {high}"
