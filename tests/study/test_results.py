"""Which runs may share a table, and that the numbers of a study are those of its rows."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from covr_lab.functional.bootstrap import paired_difference
from covr_lab.results.resample import METRICS as RESAMPLED
from covr_lab.results.schema import SCHEMA
from covr_lab.results.tables import Table
from covr_lab.study.checks import METRICS, PER_SESSION
from covr_lab.study.export import to_csv, to_tex
from covr_lab.study.make import unplayed, write_study
from covr_lab.study.results import Results

RunMaker = Callable[..., Path]
StudyMaker = Callable[..., Any]
RandomRanks = Callable[[int], Any]
EVERYTHING = {
    "tables": {
        "main": {"title": "Main <b>&", "paper": "table 1", "kind": "turns", "metrics": ["R@1", "MRR", "BRI"]},
        "differences": {"title": "D", "kind": "differences", "metrics": ["R@1", "BRI"], "method": "bca"},
        "effects": {"title": "E", "kind": "effects"},
        "failure_modes": {"title": "F", "kind": "failure_modes"},
        "recovery": {"title": "R", "kind": "recovery"},
        "rank_cap": {"title": "C", "kind": "rank_cap"},
        "slices": {"title": "S", "kind": "slices", "by": "opening_rank"},
        "agreement": {"title": "G", "kind": "agreement", "conditions": ["default", "other"], "systems": ["A", "B"]},
        "disagreements": {"title": "X", "kind": "disagreements", "systems": ["A", "B"], "size": 3},
        "users": {"title": "U", "kind": "conditions", "systems": ["A", "B"]},
        "cost": {"title": "K", "kind": "cost"},
        "modules": {"title": "M", "kind": "modules"},
    },
    "figures": {
        "curves": {"title": "Curves", "kind": "curves"},
        "differences": {"title": "Differences", "kind": "differences"},
        "groups": {"title": "G", "kind": "sensitivity", "metric": "R@1", "groups": {"g": {"B": 10, "A": 2, "C": 60}}},
        "over": {
            "title": "Words",
            "kind": "sensitivity",
            "metric": "BRI",
            "conditions": {"default": "two", "other": "one"},
            "systems": ["A", "B"],
        },
    },
    "relations": {
        "A above the others": {"above": "A", "below": ["B", "C"], "metric": "R@1", "turns": [1, 3]},
        "A within": {"system": "A", "within": ["B", "C"], "metric": "R@1", "turns": [3]},
        "B loses more": {
            "loses_more": "B",
            "loses_less": "A",
            "from": "default",
            "to": "other",
            "metric": "R@1",
            "turns": [3],
        },
        "C reported": {
            "note": "no sign is asked for",
            "above": "C",
            "below": "A",
            "metric": "R@1",
            "turns": [3],
            "report": True,
        },
        "beyond": {"above": "A", "below": "B", "metric": "R@1", "turns": [9]},
    },
    "published": {
        "margin": {
            "value": 7.2,
            "origin": "published",
            "ours": {"system": "A", "minus": "B", "metric": "R@1", "turn": 3},
        },
        "gain": {"value": 1, "origin": "derived", "ours": {"system": "A", "metric": "R@1", "turn": 3, "minus_turn": 0}},
        "drift": {"value": 12.69, "origin": "published", "ours": {"system": "A", "metric": "drift"}},
        "calls": {"value": "22,408", "origin": "published"},
    },
}


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory, make_run: RunMaker, make_study: StudyMaker, random_ranks: RandomRanks
) -> tuple[Any, ...]:
    """A study of everything whose runs lie in ``out``, their ranks, and the report."""
    study, out = make_study(**EVERYTHING), tmp_path_factory.mktemp("out")
    ranks = {}
    for number, run in enumerate(study.plan()):
        ranks[run.system, run.condition] = random_ranks(1 + number)
        make_run(out / run.folder, ranks[run.system, run.condition])
    report = write_study(study, study.plan(), out, {})
    return report, out, ranks, json.loads((out / "study.json").read_text())


def records(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return next(table["records"] for table in document["tables"] if table["name"] == name)


def test_the_numbers_are_those_of_the_rows(played: tuple[Any, ...]) -> None:
    _, _, ranks, document = played
    for record in records(document, "main"):
        if record["metric"] == "R@1":
            expected = 100 * (ranks[record["run"], "default"][:, record["turn"]] == 1).mean()
            assert record["value"] == pytest.approx(expected)
    for record in records(document, "users"):
        hits = 100 * (ranks[record["run"], record["condition"]] == 1).mean(axis=0)
        assert record["T1 R@1"] == pytest.approx(hits[1])
        assert record["last R@1"] == pytest.approx(hits[3])
        assert record["gain from T0"] == pytest.approx(hits[3] - hits[0])
    opening = ranks["A", "default"][:, 0]
    assert records(document, "turn-0")[0]["R@10"] == pytest.approx(100 * (opening <= 10).mean())


def test_claims_are_judged_by_their_paired_intervals(played: tuple[Any, ...]) -> None:
    report, _, ranks, document = played

    def hits(system: str, condition: str = "default") -> Any:
        return np.where(ranks[system, condition] == 1, 100.0, 0.0)

    found = {(one["claim"], one["compared"], one["turn"]): one for one in document["relations"]}
    assert len(found) == len(report.verdicts) == 8
    for other in ("B", "C"):
        mean, low, high = paired_difference(hits("A"), hits(other))
        for turn in (1, 3):
            one = found["A above the others", f"A - {other}", turn]
            assert [one["difference"], one["low"], one["high"]] == pytest.approx([mean[turn], low[turn], high[turn]])
            assert one["holds"] == (low[turn] > 0)
            assert one["required"]
    best = min(("B", "C"), key=lambda name: (hits("A") - hits(name)).mean(axis=0)[3])
    within = found["A within", f"A - {best} (the best of 2)", 3]
    assert within["holds"] == (paired_difference(hits("A"), hits(best)).high[3] >= 0)
    lost = [hits(name) - hits(name, "other") for name in ("B", "A")]
    cost = found["B loses more", "loss of B - loss of A, default to other", 3]
    assert cost["difference"] == pytest.approx((lost[0] - lost[1]).mean(axis=0)[3])
    assert cost["holds"] == (paired_difference(*lost).low[3] > 0)
    claims = {one["claim"]: one for one in records(document, "claims")}
    others = [found["A above the others", f"A - {name}", turn] for name in ("B", "C") for turn in (1, 3)]
    assert claims["A above the others"]["comparisons"] == 4
    assert claims["A above the others"]["hold"] == sum(one["holds"] for one in others)
    assert claims["A above the others"]["low"] == min(one["low"] for one in others)
    assert claims["C reported"]["verdict"] == "reported"
    assert claims["beyond"]["verdict"] == "numbers are missing"
    reported = found["C reported", "C - A", 3]
    assert (reported["holds"], reported["verdict"]) == (None, "reported")
    assert found["beyond", "A - B", 9]["verdict"] == "no numbers"


def test_published_numbers_stand_beside_ours_with_what_they_are(played: tuple[Any, ...]) -> None:
    _, _, ranks, document = played
    found = {one["label"]: one for one in document["published"]}
    first, second = (100 * (ranks[name, "default"] == 1).mean(axis=0) for name in ("A", "B"))
    assert found["margin"]["ours"] == pytest.approx(first[3] - second[3])
    assert found["gain"]["ours"] == pytest.approx(first[3] - first[0])
    later = ranks["A", "default"]
    assert found["drift"]["ours"] == pytest.approx(100 * (later[:, 1:] > later[:, :-1]).mean())
    assert found["margin"]["kind"] == "proxy: words for videos"
    assert (found["calls"]["ours"], found["calls"]["kind"]) == (None, None)


def test_the_page_needs_no_network_and_escapes_what_it_shows(played: tuple[Any, ...]) -> None:
    report, out, _, document = played
    page = report.page.read_text()
    fetched = re.findall(r"""(?:src|href|srcset|action)\s*=\s*["']?([^"'\s>]+)|url\(([^)]*)\)|(@import)""", page)
    assert fetched
    assert not [one for found in fetched for one in found if "//" in one or one == "@import"]
    assert not re.search(r"<(link|iframe|object|script src)", page)
    assert "Main &lt;b&gt;&amp;" in page
    assert "<b>red</b>" not in page
    assert "C reported: no sign is asked for" in page
    assert page.count("<svg") == 2 + 2 + 1 + 1
    assert page.count("Proxy: words for videos") > len(document["tables"])
    for link in re.findall(r'href="(?!#)([^"]+)"', page):
        assert (out / link).exists(), link
    for target in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{target}"' in page


def test_files_of_every_table_parse(played: tuple[Any, ...]) -> None:
    _, out, _, document = played
    kept = [table for table in document["tables"] if table["rows"]]
    assert {path.stem for path in (out / "tables").glob("*.csv")} == {table["name"].replace("_", "-") for table in kept}
    for table in kept:
        stem = out / "tables" / table["name"].replace("_", "-")
        lines = list(csv.reader(io.StringIO(stem.with_suffix(".csv").read_text(), newline="")))
        assert len({len(line) for line in lines}) == 1
        assert len(lines) == 1 + len(table["records"] or table["rows"])
        tex = stem.with_suffix(".tex").read_text()
        body = tex.split(r"\toprule")[1].split(r"\bottomrule")[0]
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(lines) == 1 + len(table["rows"])
        assert {len(re.split(r"(?<!\\)&", line)) for line in lines} == {len(table["head"])}
        assert "Proxy: words for videos" in tex
        assert not re.search(r"(?<!\\)[%#_]", re.sub(r"(?m)^% needs.*$|\\label\{.*\}", "", tex))
    assert {path.stem for path in (out / "figures").glob("*.png")} == {"curves", "differences", "groups", "over"}


def test_study_json_is_json(played: tuple[Any, ...]) -> None:
    _, out, _, document = played
    json.loads((out / "study.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert document["schema"] == 1
    assert document["missing"] == []
    assert [(run["system"], run["condition"]) for run in document["runs"]][:3] == [(x, "default") for x in "ABC"]
    assert all(run["seconds"] == 40 * 4 * 0.25 for run in document["runs"])
    assert document["spec"]["title"] == "Made up"


OTHER_USER = {"user": {"class_path": "RuleUser", "init_args": {"words_per_turn": 1}}}
REFUSALS: dict[str, tuple[dict[str, Any], Callable[[Any], Any], str]] = {
    "protocol": ({"protocol": {"ties": "stable"}}, lambda ranks: ranks, "protocol.ties is 'stable', and None in A"),
    "gallery": (
        {"protocol": {"gallery_sha256": "cd"}},
        lambda ranks: ranks,
        "protocol.gallery_sha256 is 'cd', and 'abab",
    ),
    "user": ({"protocol": OTHER_USER}, lambda ranks: ranks, "protocol.user.init_args.words_per_turn is 1, and 2 in A"),
    "degradation": (
        {"protocol": {"degradations": {"policy": {"class_path": "Policy"}}}},
        lambda ranks: ranks,
        "protocol.degradations.policy.class_path is 'Policy', and None in A",
    ),
    "proxy": ({"proxy": None}, lambda ranks: ranks, "proxy is None, and 'words for videos' in A"),
    "turns": ({}, lambda ranks: ranks[:, :3], "protocol.turns is 2, and 3 in A"),
    "sessions": ({}, lambda ranks: ranks[1:], "n is 39, and 40 in A"),
    "turn 0": (
        {},
        lambda ranks: np.hstack([ranks[:, :1] + (np.arange(40) < 3)[:, None], ranks[:, 1:]]),
        "in 3 sessions",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_an_unlike_run_stays_out_and_the_difference_is_named(
    case: str, tmp_path: Path, make_run: RunMaker, make_study: StudyMaker, random_ranks: RandomRanks
) -> None:
    fields, change, words = REFUSALS[case]
    study = make_study(
        tables={
            "main": {"title": "Main", "kind": "turns"},
            "users": {"title": "U", "kind": "conditions", "systems": ["A"]},
        },
        relations={"r": {"above": "A", "below": "B", "metric": "R@1", "turns": [1]}},
    )
    for run in study.plan():
        unlike = run.system == "B"
        ranks = random_ranks(2)
        make_run(tmp_path / run.folder, change(ranks) if unlike else ranks, **(fields if unlike else {}))
    report = write_study(study, study.plan(), tmp_path, {})
    assert [str(run) for run in report.left_out] == ["B · default"]
    (reason,) = report.left_out.values()
    assert words in reason, reason
    document = json.loads((tmp_path / "study.json").read_text())
    assert {record["run"] for record in records(document, "main")} == {"A", "C"}
    assert document["relations"][0]["verdict"] == "no numbers"
    assert document["missing"] == [{"system": "B", "condition": "default", "reason": reason}]
    assert "B · default" in report.page.read_text().split("<nav")[0]


def staged(path: Path, before: Any) -> None:
    """Lay stages over the stored turn 0 of a run: the target's rank was ``before`` when they got it."""
    table = pq.ParquetFile(path / "turns" / "part-0.parquet").read()
    rows = table.to_pylist(maps_as_pydicts="strict")
    for row in (row for row in rows if row["turn"] == 0):
        ranks = {"retrieval": int(before[int(row["session_id"][1:])]), "reranking": row["target_rank"]}
        row |= {"stage_target_rank": ranks, "routing": {"seed": 5.0, "pool": 5.0}, "stage_timing": {"reranking": 0.1}}
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path / "turns" / "part-0.parquet")


@pytest.mark.parametrize("moved", [0, 2])
def test_turn_0_is_compared_as_retrieval_gave_it(
    moved: int, tmp_path: Path, make_run: RunMaker, make_study: StudyMaker, random_ranks: RandomRanks
) -> None:
    kinds = {"main": "turns", "stages": "stages", "routing": "routing", "spent": "stage_cost"}
    tables = {name: {"title": name, "kind": kind, "systems": ["A", "B"]} for name, kind in kinds.items()}
    study = make_study(tables=tables)
    for run in study.plan():
        ranks = random_ranks(1)
        before = ranks[:, 0] + (np.arange(40) < moved)
        if run.system == "B":
            ranks[:, 0] = 1
        make_run(tmp_path / run.folder, ranks)
        if run.system == "B":
            staged(tmp_path / run.folder, before)
    report = write_study(study, study.plan(), tmp_path, {})
    document = json.loads((tmp_path / "study.json").read_text())
    names = {table["name"] for table in document["tables"]}
    if moved:
        assert "in 2 sessions" in next(iter(report.left_out.values()))
        assert not names & {"stages", "routing", "spent"}
        return
    assert report.left_out == {}
    main = next(table for table in document["tables"] if table["name"] == "main")
    assert main["head"] == ["metric", "system", "turn 0", "turn 1", "turn 2", "turn 3"]
    cells = {row[1]: row[2] for row in main["rows"] if row[0] == "R@1"}
    assert cells == {"A": "0.0", "B": "100.0"}
    opening = random_ranks(1)[:, 0]
    assert records(document, "turn-0")[0]["R@5"] == pytest.approx(100 * (opening <= 5).mean())
    gained = [one for one in records(document, "stages") if (one["stage"], one["metric"]) == ("reranking", "R@1")]
    assert [(one["run"], one["gain"], one["low"], one["high"]) for one in gained] == [("B", 100.0, 100.0, 100.0)]
    assert [one["run"] for one in records(document, "routing")] == ["B"]
    (spent,) = records(document, "spent")
    assert (spent["run"], spent["wall"], spent["reranking"]) == ("B", 0.25, pytest.approx(0.1))


def test_conditions_are_compared_although_their_users_differ(
    tmp_path: Path, make_run: RunMaker, make_study: StudyMaker, random_ranks: RandomRanks
) -> None:
    study = make_study(tables={"users": {"title": "U", "kind": "conditions", "systems": ["A"]}})
    for run in study.plan():
        make_run(tmp_path / run.folder, random_ranks(1), OTHER_USER if run.condition == "other" else {})
    report = write_study(study, study.plan(), tmp_path, {})
    assert report.left_out == {}
    document = json.loads((tmp_path / "study.json").read_text())
    assert [record["condition"] for record in records(document, "users")] == ["default", "other"]


def test_a_missing_run_and_a_turn_that_was_not_played_leave_the_rest(
    tmp_path: Path, make_run: RunMaker, make_study: StudyMaker, random_ranks: RandomRanks
) -> None:
    figures = {
        name: figure | {"turn": 2} if name == "over" else figure for name, figure in EVERYTHING["figures"].items()
    }
    tables = {name: EVERYTHING["tables"][name] for name in ("main", "users", "agreement")}
    late = {"title": "L", "kind": "effects", "turn": 7}
    study = make_study(**EVERYTHING | {"tables": tables | {"late": late}, "figures": figures})
    for run in study.plan():
        if str(run) not in ("C · default", "B · other"):
            make_run(tmp_path / run.folder, random_ranks(3))
    report = write_study(study, study.plan(), tmp_path, unplayed(study.plan(), tmp_path))
    assert {str(run) for run in report.left_out} == {"C · default", "B · other"}
    assert {path.stem for path in (tmp_path / "figures").glob("*.svg")} == {"curves", "differences", "groups", "over"}
    document = json.loads((tmp_path / "study.json").read_text())
    assert {table["name"] for table in document["tables"]} >= set(tables)
    assert "late" not in {table["name"] for table in document["tables"]}
    assert [one["verdict"] for one in document["relations"] if one["claim"] == "B loses more"] == ["no numbers"]


def test_a_study_without_any_numbers_still_has_a_page(tmp_path: Path, make_study: StudyMaker) -> None:
    study = make_study(**EVERYTHING)
    report = write_study(study, study.plan(), tmp_path, unplayed(study.plan(), tmp_path))
    assert len(report.left_out) == len(study.plan())
    assert "it was not played" in report.page.read_text()
    assert json.loads((tmp_path / "study.json").read_text())["runs"] == []


def test_the_metrics_of_a_study_are_those_there_are(
    tmp_path: Path, make_run: RunMaker, make_study: StudyMaker, random_ranks: RandomRanks
) -> None:
    study = make_study(tables={"main": {"title": "Main", "kind": "turns", "systems": ["A"]}})
    make_run(tmp_path / "runs/a/default", random_ranks(1))
    run = Results(study, study.plan(), tmp_path, {}).get("A", "default")
    assert run is not None
    assert set(METRICS) <= set(run.summary["per_turn"])
    assert PER_SESSION == RESAMPLED


def test_tex_of_evil_names() -> None:
    table = Table("50 % & more", "a_b", ("run", "R@1"), ((r"\x{$~^#", "1"),))
    tex = to_tex(table, "evil", [])
    assert r"\textbackslash{}x\{\$\textasciitilde{}\textasciicircum{}\# & 1 \\" in tex
    assert r"\caption{50 \% \& more. a\_b.}" in tex
    assert to_csv(table) == "run,R@1\r\n\\x{$~^#,1\r\n"
