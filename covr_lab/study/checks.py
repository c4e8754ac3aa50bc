"""What a study file may say; every refusal is one line with file and key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from covr_lab.types import Refused

PER_SESSION = ("R@1", "R@5", "R@10", "R@50", "BRI")  # metrics of single sessions, so that they have bands
METRICS = (*PER_SESSION, "MRR", "MdR", "MnR", "MeanR3", "MeanR4", "Hits@1", "Hits@10", "coverage")
COMMON = frozenset({"kind", "title", "paper", "note", "systems", "condition"})
SEVERAL = frozenset({"conditions"})
# Kinds and the keys that they have beside the common ones.
TABLES: dict[str, frozenset[str]] = {
    "turns": frozenset({"metrics"}),
    "differences": frozenset({"metrics", "method", "baseline"}),
    "effects": frozenset({"turn", "baseline"}),
    "failure_modes": frozenset(),
    "recovery": frozenset(),
    "rank_cap": frozenset(),
    "slices": frozenset({"by", "turn", "metric"}),
    "agreement": SEVERAL,
    "disagreements": frozenset({"turn", "size"}),
    "conditions": SEVERAL,
    "cost": frozenset(),
    "modules": frozenset(),
    "stages": frozenset(),
    "routing": frozenset(),
    "stage_cost": frozenset(),
    "comparisons": frozenset(),
    "doubts": frozenset({"size"}),
}
FIGURES: dict[str, frozenset[str]] = {
    "curves": frozenset({"metrics"}),
    "differences": frozenset({"metrics", "baseline"}),
    "sensitivity": frozenset({"metric", "turn", "groups", "conditions"}),
}
CLAIMS: dict[str, frozenset[str]] = {  # the key that tells the form -> its other keys
    "above": frozenset({"below", "condition", "strict"}),
    "within": frozenset({"system", "condition"}),
    "loses_more": frozenset({"loses_less", "from", "to"}),
}
BY = ("edit_length", "opening_rank", "actions")
METHODS = ("percentile", "bca")
PANELS = 5  # of one figure


class StudyError(Refused):
    """A study file that does not fit; the message names file and key."""


def mapping(place: str, content: Any) -> Mapping[str, Any]:
    """``content``, which has to be a mapping."""
    if not isinstance(content, Mapping):
        raise StudyError(f"{place}: must be a mapping, not {content!r}")
    return content


def at_most(place: str, content: Mapping[str, Any], keys: Collection[str]) -> None:
    """No other key than ``keys``."""
    for key in content:
        if key not in keys:
            raise StudyError(f"{place}: {key}: no such key (there are {', '.join(sorted(keys))})")


def known(place: str, name: Any, names: Collection[str]) -> None:
    """``name`` is one of ``names``."""
    if name not in names:
        raise StudyError(f"{place}: {name!r} is unknown (there are {', '.join(map(str, names))})")


def listed(place: str, content: Any, names: Collection[str]) -> None:
    """``content`` is a list, or the keys of a mapping, out of ``names``."""
    if not isinstance(content, list | Mapping) or not content:
        raise StudyError(f"{place}: must be a list, not {content!r}")
    for name in content:
        known(place, name, names)


def check_item(
    place: str,
    content: Any,
    kinds: Mapping[str, frozenset[str]],
    systems: Collection[str],
    conditions: Collection[str],
) -> None:
    """A table or figure names what exists."""
    kind = mapping(place, content).get("kind")
    known(f"{place}.kind", kind, kinds)
    at_most(place, content, COMMON | kinds[str(kind)])
    if not isinstance(content.get("title"), str):
        raise StudyError(f"{place}: title is missing")
    if "condition" in content and "conditions" in content:
        raise StudyError(f"{place}: condition and conditions exclude each other")
    for key, names in (("systems", systems), ("conditions", conditions)):
        if key in content:
            listed(f"{place}.{key}", content[key], names)
    for key, one_of in (("condition", conditions), ("baseline", systems), ("by", BY), ("method", METHODS)):
        if key in content:
            known(f"{place}.{key}", content[key], one_of)
    if "metrics" in content:
        listed(f"{place}.metrics", content["metrics"], METRICS if kind == "turns" else PER_SESSION)
    if "metric" in content:
        known(f"{place}.metric", content["metric"], PER_SESSION)
    if kind == "sensitivity":
        _check_sensitivity(place, content, systems, conditions)
    needed = {"agreement": ("conditions", 2), "disagreements": ("systems", 2)}.get(str(kind))
    if needed and len(content.get(needed[0], ())) != needed[1]:
        raise StudyError(f"{place}: {kind} takes {needed[1]} {needed[0]}")


def _check_sensitivity(
    place: str, content: Mapping[str, Any], systems: Collection[str], conditions: Collection[str]
) -> None:
    """Either groups of systems or conditions, each with its place on an axis."""
    if ("groups" in content) == ("conditions" in content):
        raise StudyError(f"{place}: sensitivity takes either groups (of systems) or conditions")
    if "metric" not in content:
        raise StudyError(f"{place}: metric is missing")
    groups = mapping(f"{place}.groups", content.get("groups", {}))
    if len(groups) > PANELS:
        raise StudyError(f"{place}.groups: at most {PANELS}, not {len(groups)}")
    for title, group in groups.items():
        listed(f"{place}.groups.{title}", mapping(f"{place}.groups.{title}", group), systems)
    if "conditions" in content:
        listed(f"{place}.conditions", mapping(f"{place}.conditions", content["conditions"]), conditions)


def names_in(claim: Mapping[str, Any]) -> list[str]:
    """Systems of a claim, in order, each once."""
    names: list[str] = []
    for key in ("above", "below", "system", "within", "loses_more", "loses_less"):
        names += as_list(claim.get(key, []))
    return list(dict.fromkeys(names))


def as_list(value: Any) -> list[Any]:
    """``value``, or a list of it."""
    return value if isinstance(value, list) else [value]


def claim_form(place: str, claim: Any, systems: Collection[str], conditions: Collection[str]) -> str:
    """Which of the :data:`CLAIMS` it is, checked."""
    forms = [form for form in CLAIMS if form in mapping(place, claim)]
    if len(forms) != 1:
        raise StudyError(f"{place}: must have one of {', '.join(CLAIMS)}")
    keys = CLAIMS[forms[0]]
    at_most(place, claim, {forms[0], "metric", "turns", "report", "note"} | keys)
    optional = {"condition", "strict"}
    for key in sorted({"metric", "turns"} | keys - optional):
        if key not in claim:
            raise StudyError(f"{place}: {key} is missing")
    known(f"{place}.metric", claim["metric"], PER_SESSION)
    if not isinstance(claim["turns"], list) or not all(isinstance(turn, int) for turn in claim["turns"]):
        raise StudyError(f"{place}: turns must be a list of numbers, not {claim['turns']!r}")
    for name in names_in(claim):
        known(place, name, systems)
    for key in ("condition", "from", "to"):
        if key in claim:
            known(f"{place}.{key}", claim[key], conditions)
    return forms[0]
