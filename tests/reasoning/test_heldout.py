"""The held-out phrasings are well formed, and the README prints the miss rates that the parser has on them."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from covr_lab.functional.text import content_words
from covr_lab.reasoning.language import parse_feedback

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "fixtures" / "heldout_feedback.jsonl"
PRINTED = re.compile(
    r"held-out phrasings: ([\d.]+) % misread, ([\d.]+) % keep misread, "
    r"([\d.]+) % satisfaction misread \(n = (\d+)\)"
)


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("heldout_tool", ROOT / "tools" / "heldout.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_phrasings_are_well_formed(lines: list[dict]) -> None:
    assert len(lines) >= 150
    assert len({line["text"].casefold() for line in lines}) == len(lines)
    tags = Counter(tag for line in lines for tag in line["tags"])
    assert set(tags) == {"multi", "negation", "typo"}
    assert tags["multi"] >= 40
    assert tags["negation"] >= 30
    assert tags["typo"] >= 15
    for line in lines:
        labels = [*line["require"], *line["avoid"], *line["keep"]]
        assert set(labels) <= set(content_words(line["text"])), line
        assert len(set(labels)) == len(labels), line
        assert line["satisfaction"] in {"positive", "neutral", "negative"}, line
        assert (line["kind"] == "answer") == (line["question"] is not None), line
        assert labels or line["kind"] in {"verdict", "answer"}, line


def test_readme_prints_the_measured_miss_rates(lines: list[dict], tool: ModuleType) -> None:
    parsed = [parse_feedback(line["text"], line["question"]) for line in lines]

    def rate(*fields: str) -> float:
        pairs = zip(lines, parsed, strict=True)
        return 100 * sum(any(set(line[f]) != set(getattr(p, f)) for f in fields) for line, p in pairs) / len(lines)

    miss_rate, keep_miss_rate = rate("require", "avoid"), rate("keep")
    agree = sum(p.satisfaction == line["satisfaction"] for line, p in zip(lines, parsed, strict=True))
    measured = (miss_rate, keep_miss_rate, 100 - 100 * agree / len(lines), len(lines))
    found = PRINTED.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found, "README.md lacks the line that `python tools/heldout.py` prints"
    # Half a printed digit, with room for binary rounding.
    assert [float(number) for number in found.groups()] == pytest.approx(measured, abs=0.05 + 1e-9)
    assert tool.count([tool.misread(line) for line in tool.load(FILE)]) == pytest.approx(measured)
