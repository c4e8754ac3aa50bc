"""Tables, figures and a page of one or more runs: ``python tools/report.py RUN [RUN ...]``.

With a run of people among them, all are cut to the instances that these had.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> None:
    """Print the tables, then the absolute paths of what was written."""
    parser = argparse.ArgumentParser(description="Tables, figures and an HTML page from the stored rows of runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder that tools/eval.py wrote")
    parser.add_argument("--out", type=Path, help="output folder (default: report/ in the first RUN)")
    parser.add_argument("--baseline", metavar="NAME", help="run that differences are taken to (default: the first)")
    parser.add_argument("--force", action="store_true", help="compare unfinished or unlike runs, under a warning")
    args = parser.parse_args()
    from covr_lab.results.people import has_people, write_people  # heavy: not for --help
    from covr_lab.results.report import write_report

    try:
        if any(map(has_people, args.runs)):
            if args.baseline is not None:
                raise ValueError("--baseline has no meaning for a run of people: leave it out")
            text, paths = write_people(args.runs, args.out, force=args.force)
        else:
            text, paths = write_report(args.runs, args.out, force=args.force, baseline=args.baseline)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"report: {error}")
    sys.stdout.write("\n".join([text, "", *map(str, paths)]) + "\n")


if __name__ == "__main__":
    main()
