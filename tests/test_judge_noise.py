"""The tool says what its docstring promises, in a study of a few queries."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "judge_noise.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("judge_noise_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_start_is_that_of_a_retriever(tool: ModuleType) -> None:
    orders = tool.retrieved(2000, 20, 8.0, 0)
    assert all(sorted(order) == list(range(20)) for order in orders)
    places = [sum(order.index(candidate) for order in orders) / 2000 for candidate in range(20)]
    assert places == sorted(places)  # on average the better one stands higher
    assert tool.retrieved(1, 5, 0.0, 0) == [[0, 1, 2, 3, 4]]
    clear, blurred = (tool.mean_rank(tool.retrieved(2000, 20, blur, 0)) for blur in (3.0, 12.0))
    assert clear < 3 < 6 < blurred


def test_the_table_of_a_small_study(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    tool.main(["--queries", "200"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert [cell.split(":")[0] for cell in head] == ["pass", *["fresh"] * 3, *["fixed"] * 3]
    assert [row[0] for row in rows] == [*map(str, range(11)), "of the start"]
    table = [[float(cell.split(" ")[0]) for cell in row[1:]] for row in rows]
    start, first, *_, last, shares = table
    assert len(set(start)) == 1
    assert first[1] > start[1]  # after one pass the strengths know less than retrieval did
    assert first[2] < first[1]  # a prior mends that
    fresh = [row[1] for row in table[1:-1]]
    assert fresh == sorted(fresh, reverse=True)
    assert shares == pytest.approx([end / begin for end, begin in zip(last, start, strict=True)], abs=0.01)
    assert max(shares[:3]) < 0.4 < 0.5 < min(shares[3:])  # asking again helps, repeating an answer does not


def test_a_judge_that_never_errs_puts_the_best_first(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    tool.main(["--queries", "20", "--error", "0", "--candidates", "8", "--passes", "4"])
    rows = capsys.readouterr().out.splitlines()
    assert [cell.split(" ")[1] for cell in rows[-2].split(" |")[1:-1]] == ["1.00"] * 6
