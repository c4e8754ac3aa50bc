"""TREC files: other people's tools read from them what our metrics say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import ir_measures
import numpy as np
import pytest
import ranx

from covr_lab.protocol import Ties
from covr_lab.results.reader import densify, read_rows, read_run
from covr_lab.results.rows import rank_of
from covr_lab.results.summary import summarise
from covr_lab.results.trec import escape, export_trec, placed
from covr_lab.types import RankedList

TOOL = Path(__file__).parents[2] / "tools" / "export_trec.py"
KS = (1, 5, 10, 50)
GALLERY = 150
VIDEOS = [f"{row}" if row % 3 else f"dir {row % 7}/clip%20 {row}\tü.mp4" for row in range(GALLERY)]
SESSIONS = ("7", "q-07", "07", "q 07", "q%2007", *(f"s{number}" for number in range(35)))


def rows_of(ties: Ties, turns: int = 2) -> list[dict[str, Any]]:
    """Turn 0 has scores of few values, so that ties decide; later turns are orders. One session fails at once, one
    session stops early, one target is not in the gallery."""
    rng, rows = np.random.default_rng(3), []
    for number, session in enumerate(SESSIONS):
        target = -1 if session == "s0" else int(rng.integers(GALLERY))
        for turn in range(1 if session == "s1" else turns + 1):
            scores = rng.integers(0, 4, GALLERY).astype(np.float32) if turn == 0 else None
            order = rng.permutation(GALLERY) if scores is None else np.lexsort((np.arange(GALLERY), -scores))
            if turn == 2 and number % 2 and target >= 0:  # a good ending, so that small K see something
                order = np.concatenate([[target], order[order != target]])
            failed = session == "s2"
            ranking = RankedList(order[:0] if failed else order, None if scores is None or failed else scores[order])
            rank, tied = rank_of(ranking, target, GALLERY, ties)
            known = {"session_id": session, "turn": turn, "target": VIDEOS[target] if target >= 0 else "elsewhere"}
            found = {"target_rank": rank, "target_ties": tied, "top_ids": [VIDEOS[row] for row in ranking.rows[:100]]}
            rows.append(known | found | {"n_gallery": GALLERY, "action": "modify" if turn else None, "calls": 0})
    return rows


@pytest.fixture(params=get_args(Ties))
def run(request: pytest.FixtureRequest, make_run: Callable[..., Path]) -> Path:
    rows = rows_of(request.param)
    return make_run(rows=rows, n_sessions=len(SESSIONS), ties=request.param, n_gallery=GALLERY, name="my run")


def test_ir_measures_and_ranx_find_our_numbers(run: Path) -> None:
    written, record, table = export_trec(run), read_run(run), read_rows(run)
    ranks = densify(table, 2).ranks
    ours = summarise(table, record)["per_turn"]
    assert 0 < ours["R@1"][2] < 100
    assert (ranks[:, 0] > 100).any(), "no target stands behind the stored ids: RR@100 is not put to the test"
    for turn, path in enumerate(written.runs):
        wanted = {f"R@{k}": ours[f"R@{k}"][turn] / 100 for k in KS}
        wanted["RR"] = float(np.where(ranks[:, turn] <= 100, 1 / ranks[:, turn], 0).mean())
        measures = [ir_measures.parse_measure(name) for name in (*wanted, *(f"Success@{k}" for k in KS))]
        qrels, found = ir_measures.read_trec_qrels(str(written.qrels)), ir_measures.read_trec_run(str(path))
        values = {str(key): value for key, value in ir_measures.calc_aggregate(measures, qrels, found).items()}
        for name, value in wanted.items():
            assert values[name] == pytest.approx(value, abs=1e-9), (turn, name)
            if name != "RR":
                assert values[f"Success@{name[2:]}"] == pytest.approx(value, abs=1e-9)
        names = {**{f"recall@{k}": f"R@{k}" for k in KS}, **{f"hit_rate@{k}": f"R@{k}" for k in KS}, "mrr": "RR"}
        pair = ranx.Qrels.from_file(str(written.qrels), kind="trec"), ranx.Run.from_file(str(path), kind="trec")
        scored = ranx.evaluate(*pair, list(names), make_comparable=True)
        for theirs, name in names.items():
            assert scored[theirs] == pytest.approx(wanted[name], abs=1e-9), (turn, theirs)


def test_every_session_is_in_the_qrels_and_all_but_the_failed_one_in_every_turn(run: Path) -> None:
    written = export_trec(run)
    assert written.empty == ("s2",)
    lines = [line.split(" ") for line in written.qrels.read_text(encoding="utf-8").splitlines()]
    assert sorted(line[0] for line in lines) == sorted(map(escape, SESSIONS))
    assert len({line[0] for line in lines}) == len(SESSIONS)
    for path in written.runs:
        found = [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines()]
        assert {line[0] for line in found} == {escape(session) for session in SESSIONS if session != "s2"}
        assert {len(line) for line in found} == {6}
        assert {line[5] for line in found} == {"my%20run"}
        for query in ("s1", "q-07"):
            mine = [line for line in found if line[0] == query]
            assert [int(line[3]) for line in mine] == list(range(1, len(mine) + 1))
            assert (np.diff([float(line[4]) for line in mine]) < 0).all()
            assert len({line[2] for line in mine}) == len(mine)


def test_a_session_that_stopped_keeps_its_last_ranking(run: Path) -> None:
    files = [path.read_text(encoding="utf-8").splitlines() for path in export_trec(run).runs]
    first, *later = [[line for line in lines if line.startswith("s1 ")] for lines in files]
    assert first
    assert later == [first, first]


def test_the_tie_rule_decides_where_the_target_stands() -> None:
    """Scores 2, 1, 1, 1: the target is the third of them in the row order."""
    ranking = RankedList(np.array([0, 1, 2, 3], np.int32), np.array([2, 1, 1, 1], np.float32))
    places: tuple[tuple[Ties, list[str]], ...] = (
        ("optimistic", ["0", "2", "1", "3"]),
        ("stable", ["0", "1", "2", "3"]),
        ("pessimistic", ["0", "1", "3", "2"]),
    )
    for ties, order in places:
        rank, _ = rank_of(ranking, 2, 4, ties)
        assert placed(["0", "1", "2", "3"], "2", rank, 4) == order
    with pytest.raises(ValueError, match="target 9 has rank 4, but 2 ids are stored"):
        placed(["0", "1"], "9", rank=4, n_gallery=50)


def test_an_id_is_one_word_and_no_two_become_one() -> None:
    names = ["a b", "a%20b", "a  b", "a\u00a0b", "a\tb", "a\x85b", "ab", "a%b"]
    escaped = [escape(name) for name in names]
    assert len(set(escaped)) == len(names)
    assert all(len(word.split()) == 1 and word.isprintable() for word in escaped)
    assert escape("q-07/ü#'\"") == "q-07/ü#'\""
    with pytest.raises(ValueError, match="an id is empty"):
        escape("")


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *map(str, arguments)], capture_output=True, text=True)


def test_command_line(run: Path, make_run: Callable[..., Path], tmp_path: Path) -> None:
    done = call(run, "--turn", 1, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    *paths, note = done.stdout.splitlines()
    assert [Path(path).name for path in paths] == ["qrels.txt", "turn-1.run"]
    assert sorted(map(str, (tmp_path / "out").iterdir())) == sorted(paths)
    assert note == "1 sessions rank nothing at some turn and have no line there: s2"
    for folder, words in ((run, "has turns 0 to 2, not 3"), (make_run("short", n_sessions=9), "1 of 9 sessions")):
        refused = call(folder, "--turn", 3)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
        assert words in refused.stderr
