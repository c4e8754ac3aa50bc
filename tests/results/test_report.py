from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

from covr_lab.results import plots
from covr_lab.results.compare import curves, load_runs
from covr_lab.results.examples import choose
from covr_lab.results.plots import Curve, colour, marker
from covr_lab.results.report import write_report

TOOL = Path(__file__).parents[2] / "tools" / "report.py"


@pytest.fixture
def better(hand: list[Any]) -> list[Any]:
    """The hand-scored run with s4 solved at turn 1 and no row after it."""
    return [
        row | ({"target_rank": 1} if (row["session_id"], row["turn"]) == ("s4", 1) else {})
        for row in hand
        if (row["session_id"], row["turn"]) != ("s4", 2)
    ]


def test_unlike_runs_share_no_table_unless_forced(make_run: Any) -> None:
    runs = [make_run("a", ties="stable"), make_run("b", proxy="no video was seen", mask_source=True)]
    with pytest.raises(ValueError, match=r"^runs differ in protocol\.ties, proxy, protocol\.mask_source: ") as error:
        write_report(runs)
    assert "\n" not in str(error.value)
    assert not (runs[0] / "report").exists()
    text, (page, *_) = write_report(runs, force=True)
    assert "WARNING: runs differ in protocol.ties, proxy, protocol.mask_source" in text
    assert "PROXY: b: no video was seen" in text
    assert "Warning: runs differ in protocol.ties" in page.read_text(encoding="utf-8")


def test_other_sessions_are_not_paired(make_run: Any, hand: list[Any]) -> None:
    renamed = [row | {"session_id": "s9" if row["session_id"] == "s8" else row["session_id"]} for row in hand]
    runs = [make_run("a"), make_run("b", rows=renamed)]
    with pytest.raises(ValueError, match="2 sessions are in only one of b and a"):
        write_report(runs)
    text, _ = write_report(runs, force=True)
    assert "Difference to" not in text


def test_an_unfinished_run_needs_force_and_says_so(make_run: Any) -> None:
    folder = make_run(n_sessions=9)
    with pytest.raises(ValueError, match="1 of 9 sessions missing"):
        write_report([folder])
    text, _ = write_report([folder], force=True)
    assert "WARNING: run toy is unfinished: 8 of 9 sessions" in text


def test_tables_hold_the_numbers(make_run: Any, better: list[Any]) -> None:
    text, _ = write_report([make_run("a", name="old"), make_run("b", name="new", rows=better)], baseline="old")
    lines = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    assert ["R@1", "old", "12.5", "25.0", "37.5"] in lines
    assert ["R@1", "new", "12.5", "37.5", "50.0"] in lines
    assert ["R@10", "chance, 10 of 100", "10.00", "10.00", "10.00"] in lines
    assert ["MnR", "old", "25.5", "18.2", "16.1"] in lines
    assert ["ties", "old", "2", "2", "3"] in lines
    after = lines[next(row for row, line in enumerate(lines) if line[0].startswith("Difference to old")) + 1 :]
    assert after[1] == ["R@1", "new", "+0.0", "+12.5", "+12.5"]
    # one of eight sessions differs, by 100 points: drawn Binomial(8, 1/8) times, whose 97.5 % point is 3
    assert after[2] == ["95 % interval", "+0.0 to +0.0", "+0.0 to +37.5", "+0.0 to +37.5"]
    assert after[3] == ["p, adjusted", "1.000", "1.000", "1.000"]
    # s4 only: best so far 3, 1, 1 against 3, 3, 3
    gain = [math.log(3) / 2 / 8, 3 * math.log(3) / 4 / 8]
    assert after[4] == ["BRI", "new", "-", *(f"{-value:+.3f}" for value in gain)]
    assert ["old", "50.0", "4", "46.2", "13", "+3.8", "-"] in lines  # recovery; too few sessions for an interval
    assert ["old", "13", "46.2", "53.8", "23.1", "15.4", "23.1", "50.0", "4", "23.1", "66.7"] in lines
    assert ["old", "26", "1,300", "130", "10.5", "0.76"] in lines
    with pytest.raises(ValueError, match="no run is called best: choose one of toy"):
        write_report([make_run("c")], baseline="best")


def test_bands_are_those_of_a_plain_resampling(make_run: Any) -> None:
    (run,) = load_runs([make_run()])
    band = curves(run)["R@10"]
    hits = 100.0 * (run.outcomes.ranks <= 10)
    drawn = np.random.default_rng(5).integers(0, 8, (40_000, 8))
    means = hits[drawn].mean(axis=1)  # discrete: multiples of 12.5
    assert np.array_equal(band.low, np.percentile(means, 2.5, axis=0))
    assert np.array_equal(band.high, np.percentile(means, 97.5, axis=0))


class Page(HTMLParser):
    """Collects what a page would load, its ids, its text and its unclosed tags."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.loads += [tag] if tag in {"link", "img", "iframe"} else []
        self.loads += [
            str(values[key]) for key in ("src", "href", "xlink:href") if str(values.get(key, "#"))[:1] != "#"
        ]
        self.ids += [values["id"]] if values.get("id") else []
        self.open += [] if tag in {"meta"} else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained_escaped_and_labelled(make_run: Any) -> None:
    _, (path, *_) = write_report([make_run(name="toy <b>$x$</b>", proxy="caption proxies: no video was seen")])
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert page.loads == []
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r"url\((?!#)|@import", source)
    assert '<script>alert("x")</script> & co' in page.text  # shown as text
    assert "toy <b>$x$</b>" in page.text
    assert "a dog <script>" in page.text  # a caption
    assert source.count("<svg") == 5
    tables = source.split("<table>")
    assert len(tables) == 7
    for above in tables[:-1]:
        assert "caption proxies: no video was seen" in above[above.rindex("<h2>") :]
        assert "ties optimistic" in above[above.rindex("<h2>") :]


def test_equal_runs_give_equal_files(make_run: Any) -> None:
    _, first = write_report([make_run("one")])
    _, second = write_report([make_run("two")])
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_examples_follow_the_rule(make_run: Any) -> None:
    (run,) = load_runs([make_run()])
    assert choose(run.outcomes) == {
        "Solved late": ["s3", "s2"],
        "Drifted": ["s4"],
        "Never solved": ["s7", "s5", "s8"],
    }
    assert choose(run.outcomes, size=1)["Never solved"] == ["s7"]


def test_names_are_unique(make_run: Any) -> None:
    runs = load_runs([make_run("x/a"), make_run("y/a"), make_run("x/b"), make_run("c", name="other")])
    assert [run.name for run in runs] == [str(runs[0].folder), str(runs[1].folder), "b", "other"]
    with pytest.raises(ValueError, match="a run is given twice"):
        load_runs([runs[0].folder, runs[0].folder / ".." / "a"])


def test_styles_tell_many_runs_apart() -> None:
    assert len({(colour(run), marker(run)) for run in range(36)}) == 36


def curve(name: str, end: float) -> Curve:
    mean = np.array([0.0, end])
    return Curve(name, mean, mean - 1, mean + 1)


@pytest.mark.parametrize("number", [2, 8])
def test_names_at_the_ends_of_curves_do_not_overlap(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All curves end at one place, the hardest case: boxes are measured in the figure that is written."""
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "_svg", lambda figure, **_: drawn.append(figure) or "<svg></svg>")
    curves = tuple(curve(f"system {place} of the study", 50) for place in range(number))
    plots.save_panel(plots.Panel("R@1 (%)", curves), "a note", tmp_path / "x")
    plots.save_figure([plots.Panel("R@1 (%)", curves)] * 5, "a note", tmp_path / "y")
    plots.panel_svg(plots.Panel("R@1 (%)", curves))
    assert len(drawn) == 3
    for figure in drawn:
        figure.draw_without_rendering()
        width, height = figure.get_size_inches() * figure.dpi
        for axes in figure.axes:
            boxes = [Text.get_window_extent(text) for text in axes.texts]
            assert not boxes or len(boxes) == number
            for place, box in enumerate(boxes):
                assert not any(box.overlaps(other) for other in boxes[:place])
                assert box.x0 > axes.get_window_extent().x1
                assert box.x1 <= width
                assert box.y0 >= 0
                assert box.y1 <= height


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_spread_names_keep_their_order_and_distance(wanted: list[float]) -> None:
    ends = np.array(wanted)
    places = plots.spread(ends, 10, 0, 100)
    order = np.argsort(ends, kind="stable")
    assert (np.diff(places[order]) >= 10 - 1e-9).all()
    assert places.min() >= -1e-9
    assert places.max() <= 100 + 1e-9
    if len(wanted) == 1 or np.diff(ends[order]).min() >= 10:
        np.testing.assert_allclose(places, ends, atol=1e-9)


def test_many_curves_have_a_legend_and_a_shared_style(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "_svg", lambda figure, **_: drawn.append(figure) or "<svg></svg>")
    plots.save_panel(plots.Panel("x", tuple(curve(f"s{place}", place) for place in range(9))), "", tmp_path / "many")
    (axes, key) = drawn[0].axes
    assert not axes.texts
    assert [text.get_text() for text in key.get_legend().get_texts()] == [f"s{place}" for place in range(9)]
    difference = replace(curve("third", 5), style=2)
    sensitivity = plots.Panel("x", (difference,), x=(1, 60), x_label="k", zero=True)
    plots.save_panel(sensitivity, "", tmp_path / "one")
    (axes,) = drawn[1].axes
    assert [line.get_color() for line in axes.lines][-1] == colour(2)
    assert axes.lines[-1].get_xdata().tolist() == [1, 60]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "60"]
    assert axes.get_xlabel() == "k"
    assert axes.lines[0].get_ydata() == [0, 0]  # the zero line


def test_a_run_without_feedback_turns_has_a_report(make_run: Any, hand: list[Any]) -> None:
    text, paths = write_report([make_run(rows=[row for row in hand if row["turn"] == 0], turns=0)])
    assert re.search(r"^BRI +toy", text, re.MULTILINE)
    assert all(path.stat().st_size for path in paths)


def test_command_line(make_run: Any, tmp_path: Path) -> None:
    def call(*arguments: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(TOOL), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = call(make_run("a"), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    written = [Path(line) for line in done.stdout.splitlines()[-3:]]
    assert written == [tmp_path / "out" / name for name in ("report.html", "curves.png", "curves.svg")]
    assert all(path.is_file() for path in written)
    refused = call(tmp_path / "a", make_run("b", ties="stable"))
    assert refused.returncode == 1
    assert refused.stderr.startswith("report: runs differ in protocol.ties")
    assert len(refused.stderr.splitlines()) == 1
