"""What people did in ``tools/app.py``, as a run folder: ``python tools/people.py FOLDER RUN``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EPILOG = """\
FOLDER is the one that tools/app.py names when it starts. Of a study the finished instances are written, of free
searches all; turns that were taken back are left out. RUN is for tools/report.py, tools/show.py and tools/compare.py;
writing it again brings it up to date.

exit status: 0 done; 1 refused, with one line that says why.
"""


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="people.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="searches of a server")
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder to write")
    parser.add_argument("--participant", metavar="ID", help="whose searches (default: all)")
    options = parser.parse_args(argv)

    import json

    from covr_lab.app.export import export
    from covr_lab.app.journal import Journal
    from covr_lab.app.state import SEARCHES, STUDY
    from covr_lab.app.study import finished
    from covr_lab.results.folder import RunFolder

    record = RunFolder(options.folder).record
    if not record:
        print(f"error: {options.folder} holds no run.json: give the folder that tools/app.py names", file=sys.stderr)
        return 1
    plan = record.get("study")
    captions = json.loads((options.folder / "captions.json").read_text(encoding="utf-8"))
    try:
        of_study = {"sessions": finished(Journal(options.folder / STUDY)), "turns": plan["turns"]} if plan else {}
        journal = Journal(options.folder / SEARCHES)
        folder = export(journal, record, captions, options.run, participant=options.participant, **of_study)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{folder.record['n_sessions']} searches: {folder.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
