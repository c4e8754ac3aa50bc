"""Intervals of runs over the same sessions: one set of resamples for every turn, metric and system."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covr_lab.functional.bootstrap import (
    Difference,
    Interval,
    bca_interval,
    bootstrap_rates,
    bootstrap_sums,
    interval,
    paired_difference,
)
from covr_lab.functional.metrics import bri_per_session
from covr_lab.results.reader import Outcomes
from covr_lab.results.routing import stage_outcomes
from covr_lab.results.summary import RECALLS

if TYPE_CHECKING:
    from covr_lab.results.compare import Run

Floats = npt.NDArray[np.float64]
Method = Literal["percentile", "bca"]
METRICS: Final = (*(f"R@{k}" for k in RECALLS), "BRI")
STEP = 2.0**-30  # session values are multiples of it: their sums then are exact, in whatever order they are added


def session_values(outcomes: Outcomes) -> dict[str, Floats]:
    """Metric -> value of each session and turn, float64 ``(S, T+1)``: 100 or 0 for R@K; BRI is NaN at turn 0."""
    recalls = {f"R@{k}": np.where(outcomes.ranks <= min(k, outcomes.n_gallery), 100.0, 0.0) for k in RECALLS}
    return recalls | {"BRI": bri_per_session(outcomes.ranks)}


class Resamples:
    """Paired bootstrap over the sessions of several runs (ReCoVR, appendix A.3; dossier, section 1.15).

    Sessions are drawn once and the draws serve every column, so any two columns are paired. Only the sums of the
    resamples are kept: ``resamples x runs x metrics x turns`` float64. Two objects over equally many sessions with one
    seed have the same draws, so runs of many conditions need not be in one object.

    Args:
        runs: with the same sessions; they may differ in their number of turns.
        metrics: of :data:`METRICS`.
        resamples: number of bootstrap resamples.
        seed: of the draws.

    Raises:
        ValueError: no run, a run with other sessions, or a metric that is none of :data:`METRICS`.
    """

    def __init__(
        self, runs: Sequence[Run], metrics: Sequence[str] = METRICS, resamples: int = 10_000, seed: int = 0
    ) -> None:
        if not runs or not metrics or set(metrics) - set(METRICS):
            raise ValueError(f"resamples need a run, and metrics of {', '.join(METRICS)}, not {', '.join(metrics)}")
        for run in runs:
            if run.outcomes.session_ids != runs[0].outcomes.session_ids:
                raise ValueError(f"run {run.name} has other sessions than run {runs[0].name}: no paired interval")
        self._values: dict[tuple[Run, str], Floats] = {}
        for run in runs:
            values = session_values(run.outcomes)
            self._values |= {(run, metric): np.round(values[metric] / STEP) * STEP for metric in metrics}
        sums = bootstrap_sums(np.hstack(list(self._values.values())), resamples, seed)
        ends = np.cumsum([value.shape[1] for value in self._values.values()])[:-1]
        self._sums = dict(zip(self._values, np.split(sums, ends, axis=1), strict=True))

    def band(self, run: Run, metric: str, method: Method = "percentile") -> Interval:
        """95 % interval of the metric of one run, a column a turn; NaN for BRI at turn 0."""
        return _bounds(self._sums[run, metric], self._values[run, metric], method)

    def difference(self, a: Run, b: Run, metric: str, method: Method = "percentile") -> Difference:
        """``a - b`` with its 95 % interval over the turns that both have; exactly 0 to 0 where no session differs."""
        width = min(self._values[one, metric].shape[1] for one in (a, b))
        values, sums = (of[a, metric][:, :width] - of[b, metric][:, :width] for of in (self._values, self._sums))
        return Difference(values.mean(axis=0), *_bounds(sums, values, method))


def _bounds(sums: Floats, values: Floats, method: Method) -> Interval:
    if method == "percentile":
        low, high = interval(sums)
    elif method == "bca":
        low, high = bca_interval(sums, values.sum(axis=0), values)
    else:
        raise ValueError(f"method {method!r} is neither percentile nor bca")
    return Interval(low / len(values), high / len(values))


def shared_resamples(runs: Sequence[Run]) -> dict[Run, Resamples]:
    """The resamples of each run: one object for all runs over the same sessions."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(run.outcomes.session_ids, []).append(run)
    return {run: resamples for group in groups.values() for resamples in [Resamples(group)] for run in group}


def stage_gains(table: pa.Table, outcomes: Outcomes) -> dict[str, dict[str, Difference]]:
    """Stage -> metric -> what it added to R@K and MRR by turn, float64 ``(T+1,)``, with its paired 95 % interval.

    Args:
        table: rows of one run.
        outcomes: of these rows.

    Returns:
        Nothing for retrieval, which is before the first stage.
    """
    values = {name: _stage_values(after) for name, after in stage_outcomes(table, outcomes).items()}
    found = {}
    for (_, before), (name, after) in pairwise(values.items()):
        gain = paired_difference(np.hstack(list(after.values())), np.hstack(list(before.values())))
        parts = zip(*(np.split(part, len(after)) for part in gain), strict=True)
        found[name] = {metric: Difference(*columns) for metric, columns in zip(after, parts, strict=True)}
    return found


def _stage_values(outcomes: Outcomes) -> dict[str, Floats]:
    """Metric -> value of each session and turn; 1 / rank is 0 for a miss."""
    values = {name: value for name, value in session_values(outcomes).items() if name != "BRI"}
    inverse = np.round(1.0 / outcomes.ranks / STEP) * STEP
    return values | {"MRR": np.where(outcomes.ranks <= outcomes.n_gallery, inverse, 0.0)}


def rate_samples(pairs: Sequence[tuple[Floats, Floats]]) -> list[Floats]:
    """:func:`~covr_lab.functional.bootstrap.bootstrap_rates` of many at once, drawn once for each number of sessions.

    Args:
        pairs: (events, among), each float64 ``(S, M)``.

    Returns:
        Percent, float64 ``(10,000, M)`` of each pair.
    """
    found: list[Floats] = [np.empty(0)] * len(pairs)
    for sessions in {len(events) for events, _ in pairs}:
        some = [place for place, (events, _) in enumerate(pairs) if len(events) == sessions]
        events, among = (np.hstack([pairs[place][part] for place in some]) for part in (0, 1))
        ends = np.cumsum([pairs[place][0].shape[1] for place in some])[:-1]
        for place, samples in zip(some, np.split(bootstrap_rates(events, among), ends, axis=1), strict=True):
            found[place] = samples
    return found
