"""The saved view of a study on Weights & Biases: ``python tools/wandb_workspace.py STUDY_DIR``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Write the specification, or save the view; returns the exit status."""
    parser = argparse.ArgumentParser(prog="wandb_workspace.py", description=__doc__)
    parser.add_argument("study", nargs="?", type=Path, metavar="STUDY_DIR", help="folder that tools/study.py wrote")
    parser.add_argument("--group", metavar="G", help="group of the runs (default: the name of the study)")
    parser.add_argument("--entity", default="", metavar="E", help="user or team (default: that of the key)")
    parser.add_argument("--project", default="covr_lab", metavar="P", help="project of the runs (default: covr_lab)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the specification here (default: print it)")
    parser.add_argument("--save", action="store_true", help="save the view to W&B and print its address")
    options = parser.parse_args(argv)
    if options.study is None and options.group is None:
        parser.error("give STUDY_DIR or --group")

    from covr_lab.results.wandb_study import read_study, table_keys
    from covr_lab.results.workspace import save, specification, study_workspace
    from covr_lab.types import Refused

    try:
        study = {"runs": [], "tables": [], "name": None} if options.study is None else read_study(options.study)
        workspace = study_workspace(
            options.group or study["name"],
            options.project,
            entity=options.entity,
            systems=list(dict.fromkeys(run["system"] for run in study["runs"])),
            tables=table_keys(study),
        )
        text = json.dumps(specification(workspace), indent=1, ensure_ascii=False)
        lines = [save(workspace)] if options.save else []
    except (Refused, FileNotFoundError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
        lines.append(str(options.out.resolve()))
    print("\n".join(lines) or text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
