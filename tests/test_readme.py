"""Every command of the README runs as it stands, made short where it reads annotations."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line]
ARGUMENTS = {"chat.py": "random\nmake it red\n/quit\n", "bench.py": ["--rounds", "1", "--only", "rank-cap"]}


def test_the_readme_starts_with_the_two_commands_of_the_makefile() -> None:
    assert COMMANDS[:2] == ["make demo", "make test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


@pytest.mark.skipif("COVR_DATA" not in os.environ, reason="COVR_DATA names the folder of real annotations")
@pytest.mark.timeout(900)
def test_every_tool_command_runs(tmp_path: Path) -> None:
    annotations = Path(os.environ["COVR_DATA"]) / "webvid-covr" / "webvid8m-covr_test.csv"
    for folder in ("tools", "recipes", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    rows = annotations.read_text(encoding="utf-8").splitlines(keepends=True)
    short = tmp_path / "short.csv"
    short.write_text("".join(rows[:41]), encoding="utf-8")  # 40 rows keep the gallery quick to encode
    tools = [shlex.split(line.replace("$A", str(short))) for line in COMMANDS if line.startswith("python tools/")]
    assert len(tools) >= 10
    for words in tools:
        name = Path(words[1]).name
        extra = ARGUMENTS.get(name, [])
        given = extra if isinstance(extra, str) else None
        command = [sys.executable, *words[1:], *(extra if isinstance(extra, list) else [])]
        done = subprocess.run(command, cwd=tmp_path, input=given, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        assert done.stdout.strip(), words
