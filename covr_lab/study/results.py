"""The runs of a study, read, scored and let into its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from covr_lab.results.compare import Run, contexts, load_runs
from covr_lab.results.resample import Resamples
from covr_lab.results.routing import stage_outcomes
from covr_lab.study.spec import Item, Played, Study
from covr_lab.types import RETRIEVAL

HEAVY = ["top_ids", "top_scores", "channel_top_ids", "channel_target_rank", "prompts"]  # columns that no table reads


class Condition:
    """Runs of one condition; those that may not share a table with the reference run stay out.

    Args:
        runs: system -> run, named by its system.
        reference: system that the others are held against; the first when there is no run of it.
    """

    def __init__(self, runs: Mapping[str, Run], reference: str) -> None:
        base = runs.get(reference) or next(iter(runs.values()), None)
        found = {name: refusal(run, base) for name, run in runs.items() if base is not None}
        self.runs = {name: run for name, run in runs.items() if not found[name]}
        self.refused = {name: reason for name, reason in found.items() if reason}

    @cached_property
    def resamples(self) -> Resamples:
        """One set of draws for all systems, turns and metrics."""
        return Resamples(list(self.runs.values()))


def refusal(run: Run, base: Run) -> str:
    """What keeps ``run`` out of a table with ``base``, "" when nothing does: the first difference, with both values."""
    if run.summary["n"] < run.run["n_sessions"]:
        return f"it is unfinished: {run.summary['n']} of {run.run['n_sessions']} sessions"
    ours, theirs = flat(run.conditions), flat(base.conditions)
    different = [key for key in ours | theirs if ours.get(key) != theirs.get(key)]
    if different:
        key = different[0]
        more = f" (and {', '.join(different[1:])})" if different[1:] else ""
        return f"{key} is {ours.get(key)!r}, and {theirs.get(key)!r} in {base.name}{more}"
    if run.outcomes.session_ids != base.outcomes.session_ids:
        odd = set(run.outcomes.session_ids) ^ set(base.outcomes.session_ids)
        return f"its sessions are not those of {base.name}: {len(odd)} are in only one of the two"
    moved = int((retrieved(run) != retrieved(base)).sum())
    return f"its turn 0 is not that of {base.name}: other target ranks in {moved} sessions" if moved else ""


def retrieved(run: Run) -> npt.NDArray[np.int64]:
    """Target ranks of turn 0 as retrieval gave them, before any stage, int64 ``(S,)``."""
    found = stage_outcomes(run.table.filter(pc.equal(run.table["turn"], 0)), run.outcomes)
    return found.get(RETRIEVAL, run.outcomes).ranks[:, 0]


def flat(node: Any, at: str = "") -> dict[str, Any]:
    """Leaves of nested mappings by dotted key.

    >>> flat({"user": {"seed": 0}, "n": 2})
    {'user.seed': 0, 'n': 2}
    """
    if not isinstance(node, Mapping):
        return {at: node}
    return {key: leaf for name, inner in node.items() for key, leaf in flat(inner, f"{at}.{name}".strip(".")).items()}


@dataclass(frozen=True, slots=True)
class Context:
    """What stands above a table: in which condition, under which protocol, whether a proxy."""

    condition: str
    protocol: str
    proxy: str | None


class Results:
    """All runs of ``study`` that have numbers.

    Args:
        study: what was to be played.
        plan: its runs.
        out: folder of the study.
        missing: run -> why it has no numbers.
    """

    def __init__(self, study: Study, plan: Sequence[Played], out: Path, missing: Mapping[Played, str]) -> None:
        self.study, self.plan, self.out, self.missing = study, tuple(plan), out, missing
        self.conditions = dict(self._read())

    def _read(self) -> Iterator[tuple[str, Condition]]:
        for name in self.study.conditions:
            played = [run for run in self.plan if run.condition == name and run not in self.missing]
            runs = {run.system: _light(self.out / run.folder, run.system) for run in played}
            yield name, Condition(runs, self.study.baseline)

    def get(self, system: str, condition: str) -> Run | None:
        """A run, ``None`` when it has no numbers or stays out."""
        return self.conditions[condition].runs.get(system)

    def runs(self, systems: Sequence[str], condition: str) -> list[Run]:
        """Those of ``systems`` that have numbers, in that order."""
        return [run for run in (self.get(system, condition) for system in systems) if run is not None]

    def baseline(self, item: Item) -> str:
        """Name of the system that ``item`` takes differences to."""
        return str(item.options.get("baseline", self.study.baseline))

    def resamples(self, condition: str) -> Resamples:
        """The draws of a condition; equally many sessions have equal draws."""
        return self.conditions[condition].resamples

    def seconds(self, run: Played) -> float:
        """Summed over the rows of a run that has numbers."""
        return float(pc.sum(self.conditions[run.condition].runs[run.system].table["seconds"]).as_py())

    def left_out(self) -> dict[Played, str]:
        """Run -> why it has no numbers, or why they stay out of the tables."""
        refused = {run: self.conditions[run.condition].refused.get(run.system) for run in self.plan}
        return {run: reason for run in self.plan if (reason := self.missing.get(run) or refused[run])}

    def absent(self, systems: Sequence[str], conditions: Sequence[str]) -> list[str]:
        """A line for each run that a table was to have and has not."""
        return [
            f"{run} is not in it: {reason}"
            for run, reason in self.left_out().items()
            if run.system in systems and run.condition in conditions
        ]

    def contexts(self, conditions: Sequence[str]) -> list[Context]:
        """One for each of ``conditions`` that has runs."""
        found = []
        for name in conditions:
            if runs := list(self.conditions[name].runs.values()):
                _, words, proxy = contexts(runs[:1])[0]
                found.append(Context(name, words, proxy))
        return found

    def proxies(self) -> list[str]:
        """Labels of all proxies among the runs, each once."""
        labels = (run.summary["proxy"] for condition in self.conditions.values() for run in condition.runs.values())
        return list(dict.fromkeys(label for label in labels if label))


def _light(folder: Path, name: str) -> Run:
    """A run under the name of its system, without the columns that no table reads: a study holds many runs."""
    run = load_runs([folder])[0]
    return replace(run, name=name, table=run.table.drop_columns(HEAVY), captions={})
