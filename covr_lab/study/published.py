"""Numbers of a paper beside those of the study; each says what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covr_lab.results.tables import Table, number
from covr_lab.study.results import Results

HEAD = ("quantity", "paper", "origin", "here", "kind", "source")
NOTE = (
    "published: stated in the paper; derived: computed from what it states; ours: measured here on its data; proxy: "
    "measured here on something that stands for its data, the two columns are not the same quantity"
)


def compare_published(results: Results) -> list[dict[str, Any]]:
    """One record a scalar of the study file: label, value, origin, source, ours, kind."""
    records = []
    for label, scalar in results.study.published.items():
        found = _ours(scalar.get("ours"), results)
        records.append(
            {
                "label": label,
                "value": scalar.get("value"),
                "origin": scalar["origin"],
                "source": scalar.get("source", ""),
                "ours": None if found is None else found[0],
                "kind": None if found is None else found[1],
            }
        )
    return records


def _ours(spec: Mapping[str, Any] | None, results: Results) -> tuple[float, str] | None:
    if spec is None:
        return None
    place = spec.get("condition", results.study.main)
    cell = _cell(results, spec["system"], place, spec["metric"], spec.get("turn"))
    if cell is None or not {"minus", "minus_condition", "minus_turn"} & set(spec):
        return cell
    other = (spec.get("minus", spec["system"]), spec.get("minus_condition", place))
    subtracted = _cell(results, *other, spec["metric"], spec.get("minus_turn", spec.get("turn")))
    return None if subtracted is None else (cell[0] - subtracted[0], cell[1])


def _cell(results: Results, system: str, condition: str, metric: str, turn: int | None) -> tuple[float, str] | None:
    """A metric at a turn (by default the last), or a rate over the transitions, and whether it is a proxy."""
    run = results.get(system, condition)
    if run is None:
        return None
    if metric in run.summary["transitions"]:
        value = run.summary["transitions"][metric]
    else:
        values = run.summary["per_turn"].get(metric, [])
        at = len(values) - 1 if turn is None else turn
        value = values[at] if 0 <= at < len(values) else None
    proxy = run.summary["proxy"]
    return None if value is None else (value, f"proxy: {proxy}" if proxy else "ours")


def published_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """The records as a table."""
    rows = tuple(
        (
            record["label"],
            str(record["value"]),
            record["origin"],
            number(record["ours"], 0 if isinstance(record["ours"], int) else 2),
            (record["kind"] or "-").split(":")[0],
            record["source"],
        )
        for record in records
    )
    return Table("Published numbers beside those of this study", NOTE, HEAD, rows, 1, tuple(records))
