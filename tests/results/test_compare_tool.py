from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from covr_lab.results import compare_page
from covr_lab.results.compare_page import write_comparison
from covr_lab.results.strips import strip_file
from tests.results.test_report import Page

TOOL = Path(__file__).parents[2] / "tools" / "compare.py"


@pytest.fixture
def folders(make_run: Any, hand: list[Any]) -> tuple[Path, Path]:
    """The hand-scored run, and one that solves s4 and s5 at the last turn, and s3 no more."""
    ranks = {("s4", 2): 1, ("s5", 2): 1, ("s3", 2): 2}
    rows = [row | {"target_rank": ranks.get((row["session_id"], row["turn"]), row["target_rank"])} for row in hand]
    return make_run("old", name="old"), make_run("new", name="new", rows=rows)


def call(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_line(folders: tuple[Path, Path], tmp_path: Path, make_run: Any) -> None:
    old, new = folders
    done = call(new, old, "--out", tmp_path / "out", "--bca")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [str(tmp_path / "out" / name) for name in ("compare.html", "sessions.csv")]
    assert "95 % interval: bca" in done.stdout
    refused = call(new, make_run("other", ties="stable"))
    assert refused.returncode == 1
    assert refused.stderr.startswith("compare: runs differ in protocol.ties: they do not share a protocol")
    assert len(refused.stderr.splitlines()) == 1
    assert not (new / "compare").exists()


def test_wins_and_losses_by_turn(folders: tuple[Path, Path]) -> None:
    old, new = folders
    text, _ = write_comparison(new, old)
    lines = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    assert ["turn 2", "2", "1", "2", "3"] in lines
    assert ["turn 1", "0", "0", "2", "6"] in lines
    assert ["R@1", "new", "+0.0", "+0.0", "+12.5"] in lines
    assert any(line[:3] == ["new", "2", "2"] for line in lines)  # effects at the last turn


def test_the_list_has_every_session(folders: tuple[Path, Path]) -> None:
    old, new = folders
    _, (_, path) = write_comparison(new, old)
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    assert [row["session_id"] for row in rows] == [f"s{number}" for number in range(1, 9)]
    assert [row["outcome"] for row in rows] == ["both", "both", "lost", "won", "won", *["neither"] * 3]
    assert (rows[4]["a_rank"], rows[4]["b_rank"], rows[4]["turn"]) == ("1", "12", "2")
    _, (_, path) = write_comparison(new, old, turn=0)
    assert {row["outcome"] for row in csv.DictReader(path.open(encoding="utf-8"))} == {"both", "neither"}


def test_the_page_links_to_both_dialogues(folders: tuple[Path, Path]) -> None:
    old, new = folders
    _, (path, _) = write_comparison(new, old)
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert (page.loads, page.open) == ([], [])
    links = re.findall(r'<a href="#([^"]+)"', source)
    assert links == ["won-0", "won-1", "lost-0"]
    assert set(links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert '<script>alert("x")</script> & co' in page.text  # an edit, shown as text
    dialogue = source[source.index('id="won-0"') : source.index('id="won-1"')]
    assert dialogue.index("<h3>new</h3>") < dialogue.index("target at rank 1") < dialogue.index("<h3>old</h3>")
    assert "target at rank 12" in dialogue[dialogue.index("<h3>old</h3>") :]  # s5: the worst rank of the other first
    assert source.count("<svg") == 5


def test_a_long_list_is_cut_by_rule_and_says_so(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_page, "SIDE", 1)
    old, new = folders
    _, (path, _) = write_comparison(new, old)
    page = Page(path.read_text(encoding="utf-8"))
    assert "Only new solves: 2 sessions, the first 1 below" in page.text
    assert "at most 1 of a kind: the worst rank of the other run first" in page.text
    assert "s5" in page.text
    assert "session s4" not in page.text


def test_film_strips_are_those_of_the_run(folders: tuple[Path, Path]) -> None:
    old, new = folders
    strip = strip_file(old, "s5-2")  # what old showed in s5 at turn 2
    strip.parent.mkdir()
    strip.write_bytes(b"picture")
    _, (path, _) = write_comparison(new, old)
    assert path.read_text(encoding="utf-8").count('src="data:image/jpeg;base64,') == 1


def test_runs_that_cannot_be_joined_are_refused(folders: tuple[Path, Path], make_run: Any, hand: list[Any]) -> None:
    rows = [row | {"session_id": row["session_id"].replace("s8", "s9")} for row in hand]
    other = make_run("other", rows=rows)
    with pytest.raises(ValueError, match="2 sessions are in only one of toy and new"):
        write_comparison(folders[1], other)
    with pytest.raises(ValueError, match="other sessions"):
        write_comparison(folders[1], other, force=True)
    with pytest.raises(ValueError, match="turn 3 is not one of 0 to 2"):
        write_comparison(*folders, turn=3)


def test_equal_runs_give_equal_pages(folders: tuple[Path, Path], tmp_path: Path) -> None:
    pages = [write_comparison(*folders, tmp_path / name)[1] for name in ("one", "two")]
    assert [path.read_bytes() for path in pages[0]] == [path.read_bytes() for path in pages[1]]
