"""A study file, read and checked: systems, conditions, and what to make of their runs.

A study file may be laid over others (``layout``), as overlays are laid over recipes; ``null`` takes an entry out, and
with it every mention of that entry in a table, figure, claim or published number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import relpath
from pathlib import Path
from typing import Any

from covr_lab.recipe import Document, load, merge
from covr_lab.study.checks import FIGURES, TABLES, StudyError, at_most, check_item, claim_form, known, mapping, names_in

KEYS = "title data baseline overrides systems conditions tables figures relations published".split()
PART_KEYS = ("recipes", "overrides", "data")
PUBLISHED_KEYS = ("value", "origin", "source", "ours")
OURS_KEYS = ("system", "condition", "metric", "turn", "minus", "minus_condition", "minus_turn")
ORIGINS = ("published", "derived")


@dataclass(frozen=True, slots=True)
class Part:
    """One system or one condition.

    Attributes:
        recipes: recipe and overlays, or overlays alone; ``{data}`` stands for the data set.
        overrides: recipe key -> value.
        data: of a condition: the data set in the place of the study's.
    """

    recipes: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A table or figure.

    Attributes:
        name: key in the study file, and name of the written files.
        kind: one of :data:`covr_lab.study.checks.TABLES` or ``FIGURES``.
        title: heading.
        paper: where the paper has it, "" when it has not.
        note: a line below the heading.
        systems: in order.
        conditions: in order; most kinds take one.
        options: the keys of this kind.
    """

    name: str
    kind: str
    title: str
    paper: str
    note: str
    systems: tuple[str, ...]
    conditions: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """One run of a study.

    Attributes:
        system: name.
        condition: name.
        folder: of the run, relative to the study's output.
        recipes: recipe, then overlays.
        overrides: ``--key value`` pairs.
    """

    system: str
    condition: str
    folder: str
    recipes: tuple[Path, ...]
    overrides: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.system} · {self.condition}"


@dataclass(frozen=True, slots=True)
class Study:
    """A checked study. ``relations`` and ``published`` are as in the file, by claim and by label."""

    name: str
    title: str
    data: str
    baseline: str
    systems: Mapping[str, Part]
    conditions: Mapping[str, Part]
    tables: tuple[Item, ...]
    figures: tuple[Item, ...]
    relations: Mapping[str, Document]
    published: Mapping[str, Document]
    overrides: Mapping[str, Any]
    document: Document

    @property
    def main(self) -> str:
        """The first condition."""
        return next(iter(self.conditions))

    def pairs(self) -> list[tuple[str, str]]:
        """(system, condition) of every run that something is made of, the main condition first."""
        wanted: set[tuple[str, str]] = set()
        for item in (*self.tables, *self.figures):
            wanted |= {(system, condition) for system in item.systems for condition in item.conditions}
        for claim in self.relations.values():
            places = [claim["from"], claim["to"]] if "from" in claim else [claim.get("condition", self.main)]
            wanted |= {(system, place) for system in names_in(claim) for place in places}
        for scalar in self.published.values():
            if ours := scalar.get("ours"):
                place = ours.get("condition", self.main)
                wanted.add((ours["system"], place))
                wanted.add((ours.get("minus", ours["system"]), ours.get("minus_condition", place)))
        return [(system, place) for place in self.conditions for system in self.systems if (system, place) in wanted]

    def plan(self, overrides: Sequence[str] = ()) -> list[Played]:
        """The runs. ``overrides`` go to each; what a system or a condition says of the same key comes later and wins.

        Raises:
            StudyError: a recipe does not exist.
        """
        return [self._played(system, condition, overrides) for system, condition in self.pairs()]

    def _played(self, system: str, condition: str, overrides: Sequence[str]) -> Played:
        what, where = self.systems[system], self.conditions[condition]
        data = where.data or self.data
        paths = tuple(Path(recipe.replace("{data}", data)) for recipe in (*what.recipes, *where.recipes))
        for path in paths:
            if not path.is_file():
                raise StudyError(f"{self.name}: systems.{system} in condition {condition}: there is no recipe {path}")
        pairs = (*_pairs(self.overrides), *overrides, *_pairs(what.overrides), *_pairs(where.overrides))
        return Played(system, condition, f"runs/{slug(system)}/{slug(condition)}", paths, pairs)


def slug(name: str) -> str:
    """``name`` as a file name.

    >>> slug("IVR + rank-cap"), slug("k = 10")
    ('ivr-rank-cap', 'k-10')
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x"


def read_study(paths: Sequence[Path]) -> Study:
    """The study of ``paths``, later files over earlier ones.

    Raises:
        StudyError: one line that names file and key.
        RecipeError: a file cannot be read.
    """
    document: Document = {}
    for path in paths:
        document = merge(document, _layers(path))
    source = " + ".join(map(str, paths))
    return build(document, source, "+".join(path.stem for path in paths))


def _layers(path: Path) -> Document:
    """``path`` over its layout; recipe names become paths, for each file has its own folder."""
    content = load([path])
    folder = path.resolve().parent
    root = folder.parent if folder.name == "studies" else folder
    for section in ("systems", "conditions"):
        entries = mapping(f"{path}: {section}", content.get(section, {}))
        content[section] = {name: _anchored(f"{path}: {section}.{name}", part, root) for name, part in entries.items()}
    layout = content.pop("layout", None)
    return content if layout is None else merge(_layers(folder / layout), content)


def _anchored(place: str, part: Any, root: Path) -> Any:
    if isinstance(part, list):
        return _anchored(place, {"recipes": part, "overrides": {}}, root)
    if part is None or "recipes" not in mapping(place, part):
        return part
    if not isinstance(part["recipes"], list) or not all(isinstance(name, str) for name in part["recipes"]):
        raise StudyError(f"{place}: recipes must be a list of file names, not {part['recipes']!r}")
    return {**part, "recipes": [relpath(root / name) for name in part["recipes"]]}


def build(document: Document, source: str, name: str) -> Study:
    """The checked study of a merged ``document``."""
    at_most(source, document, KEYS)
    for section in KEYS[3:]:
        mapping(f"{source}: {section}", document.get(section, {}))
    document = _pruned(document)
    for key in ("title", "data", "baseline", "systems", "conditions"):
        if not document.get(key):
            raise StudyError(f"{source}: {key} is missing")
    systems, conditions = (
        {name: _part(f"{source}: {section}.{name}", part) for name, part in document[section].items()}
        for section in ("systems", "conditions")
    )
    _check_parts(source, systems, conditions)
    known(f"{source}: baseline", document["baseline"], systems)
    items = {
        section: tuple(
            _item(f"{source}: {section}.{key}", key, content, kinds, systems, conditions)
            for key, content in document.get(section, {}).items()
        )
        for section, kinds in (("tables", TABLES), ("figures", FIGURES))
    }
    relations, published = document.get("relations", {}), document.get("published", {})
    for claim, content in relations.items():
        claim_form(f"{source}: relations.{claim}", content, systems, conditions)
    for label, content in published.items():
        _check_published(f"{source}: published.{label}", content, systems, conditions)
    return Study(
        name=name,
        title=document["title"],
        data=document["data"],
        baseline=document["baseline"],
        systems=systems,
        conditions=conditions,
        relations=relations,
        published=published,
        overrides=document.get("overrides", {}),
        document=document,
        **items,
    )


def _part(place: str, content: Any) -> Part:
    at_most(place, mapping(place, content), PART_KEYS)
    return Part(**{**content, "recipes": tuple(content.get("recipes", ()))})


def _check_parts(source: str, systems: Mapping[str, Part], conditions: Mapping[str, Part]) -> None:
    """Systems have recipes, and no two names become one folder, which would mix two runs."""
    for system, part in systems.items():
        if not part.recipes:
            raise StudyError(f"{source}: systems.{system}: names no recipe")
    for section, names in (("systems", systems), ("conditions", conditions)):
        taken: dict[str, str] = {}
        for name in names:
            other = taken.setdefault(slug(name), name)
            if other != name:
                raise StudyError(f"{source}: {section}: {other!r} and {name!r} would share the folder {slug(name)}")


def _item(
    place: str,
    name: str,
    content: Any,
    kinds: Mapping[str, frozenset[str]],
    systems: Mapping[str, Part],
    conditions: Mapping[str, Part],
) -> Item:
    check_item(place, content, kinds, systems, conditions)
    groups = content.get("groups", {})
    grouped = tuple(dict.fromkeys(system for group in groups.values() for system in group))
    several = content.get("conditions", list(conditions) if content["kind"] == "conditions" else None)
    return Item(
        name=name,
        kind=content["kind"],
        title=content["title"],
        paper=content.get("paper", ""),
        note=content.get("note", ""),
        systems=grouped or tuple(content.get("systems", systems)),
        conditions=tuple(several) if several else (content.get("condition", next(iter(conditions))),),
        options={key: value for key, value in content.items() if key in kinds[content["kind"]]},
    )


def _check_published(place: str, content: Any, systems: Mapping[str, Part], conditions: Mapping[str, Part]) -> None:
    at_most(place, mapping(place, content), PUBLISHED_KEYS)
    if content.get("origin") not in ORIGINS:
        raise StudyError(f"{place}: origin must be one of {', '.join(ORIGINS)}, not {content.get('origin')!r}")
    ours = mapping(f"{place}.ours", content.get("ours") or {"system": next(iter(systems)), "metric": "R@1"})
    at_most(f"{place}.ours", ours, OURS_KEYS)
    for key, names in (("system", systems), ("minus", systems), ("condition", conditions)):
        if key in ours or key == "system":
            known(f"{place}.ours.{key}", ours.get(key), names)
    if "minus_condition" in ours:
        known(f"{place}.ours.minus_condition", ours["minus_condition"], conditions)
    if "metric" not in ours:
        raise StudyError(f"{place}.ours: metric is missing")


def _pruned(document: Document) -> Document:
    """``document`` without what is null, and without the mention of systems and conditions that are."""
    parts = [pair for section in ("systems", "conditions") for pair in document.get(section, {}).items()]
    gone = {name for name, part in parts if part is None}
    pruned: Document = {}
    for section, content in document.items():
        if not isinstance(content, Mapping) or section == "overrides":
            pruned[section] = content
            continue
        kept = {key: value for key, value in content.items() if value is not None and key not in gone}
        if section in ("tables", "figures", "relations", "published"):
            kept = {key: _without(value, gone) for key, value in kept.items()}
            kept = {key: value for key, value in kept.items() if value is not None}
        pruned[section] = kept
    return pruned


def _without(node: Any, gone: set[str]) -> Any:
    """``node`` without the names in ``gone``; ``None`` when something that needs one of them is left without."""
    if isinstance(node, list):
        kept = [one for one in node if not (isinstance(one, str) and one in gone)]
        return None if node and not kept else kept
    if isinstance(node, Mapping):
        inner = {key: _without(value, gone) for key, value in node.items() if key not in gone}
        lost = [key for key, value in inner.items() if value is None and node[key] is not None]
        return None if lost or (node and not inner) else inner
    return None if isinstance(node, str) and node in gone else node


def _pairs(overrides: Mapping[str, Any]) -> Iterator[str]:
    for key, value in overrides.items():
        yield f"--{key}"
        yield value if isinstance(value, str) else json.dumps(value)
