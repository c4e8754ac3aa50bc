"""The benchmark prints its table; no threshold is tested, times belong to the machine."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

TOOL = Path(__file__).parents[1] / "tools" / "bench.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_two_quick_rows(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng():
            bench.main(["--only", "rank-cap", "--only", "start-up", "--rounds", "1"])
    finally:
        torch.set_num_threads(threads)
    head, rule, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()
    )
    assert head == ["work", "ours", "peer", "ratio median (min..max)", "must", "verdict"]
    assert set(rule) == {"---"}
    assert [row[0].split(",")[0] for row in rows] == ["rank-cap", "start-up"]
    for row in rows:
        assert len(row) == len(head)
        ratio = re.fullmatch(r"(\S+) \((\S+)\.\.(\S+)\)", row[3])
        assert ratio is not None
        middle, low, high = map(float, ratio.groups())
        assert 0 < low <= middle <= high < math.inf
        assert row[5] in ("holds", "misses")


@pytest.mark.parametrize(
    ("ratios", "must", "verdict"),
    [
        ([9.0, 4.0, 6.0], ">= 5", "holds"),
        ([9.0, 4.0, 4.5], ">= 5", "misses"),
        ([0.9, 0.1, 0.5], "<= 0.6", "holds"),
        ([0.9, 0.1, 0.7], "<= 0.6", "misses"),
        ([2.0], "", ""),
    ],
)
def test_the_verdict_is_that_of_the_median(bench: ModuleType, ratios: list[float], must: str, verdict: str) -> None:
    assert str(bench.Row("work", "ours", "peer", ratios, must)).split(" | ")[-1].strip(" |") == verdict


def test_a_missing_peer_is_a_note_and_a_broken_one_an_error(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def top(_: object) -> list[object]:
        raise ModuleNotFoundError("No module named 'x'", name=missing)

    monkeypatch.setattr(bench, "BENCHES", {"top-k": top})
    missing = "faiss"
    bench.main([])
    assert capsys.readouterr().out.splitlines()[-1] == "top-k: the rows of faiss are left out, it is not installed"
    missing = "covr_lab.gone"
    with pytest.raises(ModuleNotFoundError):
        bench.main([])
