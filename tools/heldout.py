"""How often the rule-based feedback parser misreads hand-written phrasings that it was not built on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from covr_lab.reasoning.language import parse_feedback

FILE = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "heldout_feedback.jsonl"


class Rates(NamedTuple):
    """Shares of misread lines in percent, and the number of lines."""

    miss: float
    keep_miss: float
    satisfaction_miss: float
    lines: int

    def __str__(self) -> str:
        """The line that the project's README quotes."""
        return (
            f"held-out phrasings: {self.miss:.1f} % misread, {self.keep_miss:.1f} % keep misread, "
            f"{self.satisfaction_miss:.1f} % satisfaction misread (n = {self.lines})"
        )


def load(path: Path) -> list[dict[str, Any]]:
    """The labelled lines of ``path`` (JSON Lines; fields in tests/fixtures/README.md).

    Raises:
        ValueError: the file has no lines.
    """
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path}: no phrasings; give a JSON Lines file with one labelled phrasing a line")
    return lines


def misread(line: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Field -> (expected, got) for every field of ``line`` that the parser reads otherwise; words compare as sets."""
    parsed = parse_feedback(line["text"], line["question"])
    pairs: dict[str, tuple[Any, Any]] = {
        name: (sorted(line[name]), sorted(set(getattr(parsed, name)))) for name in ("require", "avoid", "keep")
    }
    pairs["satisfaction"] = (line["satisfaction"], parsed.satisfaction)
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def count(misses: Sequence[Mapping[str, Any]]) -> Rates:
    """Rates over the :func:`misread` values of all lines; ``miss`` counts a line once for ``require`` or ``avoid``."""

    def share(*names: str) -> float:
        return 100 * sum(any(name in found for name in names) for found in misses) / len(misses)

    return Rates(share("require", "avoid"), share("keep"), share("satisfaction"), len(misses))


def measure_demo() -> dict[str, float]:
    """Held-out numbers of the packaged BLIP, in percent; renders the test split first, a minute in all."""
    # Heavy imports (torch, transformers) only for this.
    from covr_lab.demo.heldout import measure
    from covr_lab.retrievers.blip import Blip

    blip = Blip(model="demo", storyboard=2, tile=32)
    blip.load()
    return measure(blip)


def main() -> None:
    """Print the rates and, if asked, every misread line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--demo", action="store_true", help="measure the packaged BLIP on the demo world instead")
    parser.add_argument("--misses", action="store_true", help="also print each misread line with expected and got")
    arguments = parser.parse_args()
    if arguments.demo:
        numbers = measure_demo()
        sys.stdout.write("".join(f"{name:22}{value:6.1f}\n" for name, value in numbers.items()))
        return
    lines = load(arguments.file)
    misses = [misread(line) for line in lines]
    sys.stdout.write(f"{count(misses)}\n")
    if arguments.misses:
        for line, found in zip(lines, misses, strict=True):
            for name, (expected, got) in found.items():
                sys.stdout.write(f"{line['text']!r}: {name} expected {expected}, got {got}\n")


if __name__ == "__main__":
    main()
