"""Recipes: YAML files merged first, then one typed document, then command-line overrides.

The only module that knows jsonargparse. Layering files with repeated ``--config`` would drop entries of dict slots and
keep stale ``init_args``, so files are merged here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from covr_lab.types import Refused

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

Document = dict[str, Any]


class RecipeError(Refused):
    """A recipe, overlay or override that does not fit; the message names file and key."""


@dataclass(frozen=True)
class Machine:
    """Where a run happens; changes no row (Lightning's ``Trainer`` options of the same names).

    Attributes:
        accelerator: "cpu", "gpu", "auto".
        devices: processes or GPUs on this machine.
        num_nodes: machines.
    """

    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1

    def __post_init__(self) -> None:
        for key in ("devices", "num_nodes"):
            if getattr(self, key) < 1:
                raise ValueError(f"trainer.{key} must be 1 or more, not {getattr(self, key)}")


@dataclass(frozen=True)
class Wandb:
    """Logging to Weights & Biases; results on disk never depend on it.

    Attributes:
        mode: ``auto`` is online with a key and a network, else offline.
        project: project name.
        group: group of runs shown together.
    """

    mode: Literal["auto", "online", "offline", "disabled"] = "disabled"
    project: str = "covr_lab"
    group: str | None = None


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> Document:
    """``overlay`` over ``base``: mappings merge, lists and scalars replace, another ``class_path`` replaces its node.

    >>> merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    >>> merge({"f": {"class_path": "A", "init_args": {"k": 1}}}, {"f": {"class_path": "B"}})
    {'f': {'class_path': 'B'}}
    """
    merged = dict(base)
    for key, value in overlay.items():
        old: Any = base.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        swap = both and "class_path" in value and value["class_path"] != old.get("class_path")
        merged[key] = merge(old, value) if both and not swap else value
    return merged


def load(paths: Sequence[Path]) -> Document:
    """Recipe and overlays as one document, later files over earlier ones."""
    document: Document = {}
    for path in paths:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RecipeError(
                f"{path}: cannot be read: {error.strerror} (name a recipe, e.g. recipes/recovr_words.yaml)"
            ) from error
        except yaml.YAMLError as error:
            raise RecipeError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
        if not isinstance(content, dict):
            raise RecipeError(f"{path}: a recipe is a mapping with keys such as `data` and `system`")
        document = merge(document, content)
    return document


def build_parser() -> ArgumentParser:
    """The typed schema of a recipe: the type of a slot is its contract, a dotted path is a component's name."""
    from jsonargparse import ArgumentParser

    from covr_lab.data.base import TripletDataModule
    from covr_lab.engines.base import Engine
    from covr_lab.protocol import EvalProtocol
    from covr_lab.simulators.base import UserSimulator
    from covr_lab.simulators.degraded import Degradation
    from covr_lab.system import System

    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(TripletDataModule, "data", required=True)
    parser.add_argument("--engines", type=dict[str, Engine], default={})
    parser.add_subclass_arguments(System, "system", required=True)
    parser.add_subclass_arguments(UserSimulator, "simulator", required=True)
    parser.add_argument("--degradations", type=dict[str, Degradation], default={})
    parser.add_class_arguments(EvalProtocol, "protocol")
    parser.add_class_arguments(Machine, "trainer")
    parser.add_class_arguments(Wandb, "wandb")
    return parser


def resolve(parser: ArgumentParser, paths: Sequence[Path], overrides: Sequence[str] = ()) -> Namespace:
    """Merge the files, check every key and type, apply the overrides. Builds nothing.

    Raises:
        RecipeError: one line that names the key.
    """
    document, source = load(paths), " + ".join(map(str, paths))
    config = _checked(source, lambda: parser.parse_object(document, defaults=True))
    dropped = dropped_keys(document, plain(parser, config))
    if dropped:
        raise RecipeError(f"{source}: {dropped[0]}: no such key")
    return _checked("command line", lambda: parser.parse_args(list(overrides), namespace=config))


def _checked(place: str, parse: Callable[[], Namespace]) -> Namespace:
    from jsonargparse import ArgumentError

    try:
        return parse()
    except (ArgumentError, TypeError, KeyError, SystemExit) as error:
        raise RecipeError(f"{place}: {explain(str(error))}") from error


def dropped_keys(document: Mapping[str, Any], resolved: Mapping[str, Any]) -> list[str]:
    """Keys of ``document`` that ``resolved`` lacks: jsonargparse passes over an unknown key with an empty value.

    >>> dropped_keys({"data": {"a": 1}, "sytem": {}}, {"data": {"a": 1, "b": 2}})
    ['sytem']
    """
    dropped = []
    for key, value in document.items():
        found = resolved.get(key)
        if key not in resolved:
            dropped.append(key)
        elif isinstance(value, Mapping) and isinstance(found, Mapping):
            dropped += [f"{key}.{inner}" for inner in dropped_keys(value, found)]
    return dropped


def explain(message: str) -> str:
    """The key and the reason of a jsonargparse error, which nests one paragraph in another.

    >>> explain('Parser key "system": Does not validate ... Parser key "fusion": Problem with given class_path '
    ...         "'a.B': Option 'windw' is not accepted - Expected a <class 'NoneType'>")
    "system.fusion: option 'windw' is not accepted"
    """
    text = " ".join(message.split()).split(" - Expected a <class 'NoneType'>")[0]
    keys = re.findall(r'Parser key "([^"]+)"', text)
    reason = re.split(r'Parser key "[^"]+": |Problem with given class_path \'[^\']+\': |Errors: - ', text)[-1]
    return f"{'.'.join(keys)}: {reason[:1].lower()}{reason[1:]}" if keys else reason


def plain(parser: ArgumentParser, config: Namespace) -> Document:
    """The resolved recipe as plain values."""
    document: Document = yaml.safe_load(parser.dump(config, skip_unset=False))
    return document


def digest(document: Mapping[str, Any]) -> str:
    """Eight hex digits of everything that can change a row: machine, batch size, frames kept and logging are not."""
    data, idle = document["data"], ("batch_size", "bundles")
    kept = {
        **{key: value for key, value in document.items() if key not in ("trainer", "wandb")},
        "data": {**data, "init_args": {k: v for k, v in data.get("init_args", {}).items() if k not in idle}},
        "order": list(document["degradations"]),  # they apply in order: another order is another user
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]
