"""Rankings of a run as TREC files: ``python tools/export_trec.py RUN``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EPILOG = """\
one ranking file a turn (turn-N.run, the best 100) and qrels.txt: Success@K and R@K equal those of the run for K up to
100, RR is RR@100. Blanks and % in ids are percent codes. A session whose turn 0 failed has no line in turn-N.run and
counts as a miss where a tool reads it so: ir-measures does, ranx with make_comparable=True, trec_eval with -c.
"""


def main(argv: list[str]) -> int:
    """Write the files and print their paths; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="export_trec.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder that tools/eval.py wrote")
    parser.add_argument("--turn", type=int, action="append", metavar="N", help="this turn (may be repeated)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write to (default: RUN/trec)")
    options = parser.parse_args(argv)

    from covr_lab.results.trec import export_trec

    try:
        written = export_trec(options.run, options.out, options.turn)
    except (FileNotFoundError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    print("\n".join(str(path.resolve()) for path in (written.qrels, *written.runs)))
    if written.empty:
        some = ", ".join(written.empty[:5])
        print(f"{len(written.empty)} sessions rank nothing at some turn and have no line there: {some}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
