"""Every command of the README runs as it stands, on twelve rows of the annotations."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gallery.toy import write_clip
from tests.openai_server import OpenAIServer
from tests.tiny_blip import make_tiny_blip
from tests.tiny_vlm import make_tiny_vlm, packaged_prompts

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
SMALL = "--data.families 3"  # a demo world of twelve gallery clips
SHORTER = {
    "python tools/bench.py": "python tools/bench.py --rounds 1 --only rank-cap",
    "python tools/judge_noise.py": "python tools/judge_noise.py --queries 50",
    **{line: f"{line} {SMALL}" for line in COMMANDS if re.search(r"/demo\.yaml|/covrage\.yaml|_demo\.yaml", line)},
}


def test_the_readme_starts_with_the_two_commands_of_the_makefile() -> None:
    assert COMMANDS[:2] == ["make demo", "make test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


def test_the_recipe_of_the_readme_is_the_recipe() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert shown == (ROOT / "recipes" / "recovr_webvid_captions.yaml").read_text(encoding="utf-8")


@pytest.mark.skipif("COVR_DATA" not in os.environ, reason="COVR_DATA names the folder of real annotations")
@pytest.mark.timeout(1500)
def test_every_other_command_runs(tmp_path: Path) -> None:
    released = Path(os.environ["COVR_DATA"])
    annotations = released / "webvid-covr" / "webvid8m-covr_test.csv"
    for folder in ("tools", "recipes", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    rows = annotations.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "short.csv").write_text("".join(rows[:13]), encoding="utf-8")
    videos = sorted({row[key] for row in csv.DictReader(rows[:13]) for key in ("pth1", "pth2")})
    clips = [write_clip(tmp_path / f"{number}.mp4", number) for number in range(6)]
    for number, video in enumerate(videos):
        path = tmp_path / "videos" / f"{video}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.hardlink_to(clips[number % 6])
    clips_of_msvd = (released / "msvd" / "test_list.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "clips.txt").write_text("".join(clips_of_msvd[:12]), encoding="utf-8")
    model = str(make_tiny_blip(tmp_path / "blip"))
    vlm = make_tiny_vlm(tmp_path / "vlm", texts=packaged_prompts())
    script = "\n".join(["set -euo pipefail", *(SHORTER.get(line, line) for line in COMMANDS[2:])])
    assert script.count("python tools/") >= 18
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    values = {"A": "short.csv", "V": "videos", "B": model, "T": model, "Q": str(vlm), "PATH": path, "M": "clips.txt"}
    values["C"] = str(released / "msvd" / "captions_msvd.json")
    with OpenAIServer(models=("Qwen/Qwen3-VL-4B-Instruct",)) as server:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=os.environ | values | {"S": server.url},
            input="random\nmake it red\n/quit\n",
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    assert server.requests
    for run in ("recovr", "recovr_blip"):
        assert (tmp_path / "runs" / run / "report" / "report.html").is_file()
