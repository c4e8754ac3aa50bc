"""Two runs, session by session: ``python tools/compare.py RUN_A RUN_B``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covr_lab.results.resample import Method


def main() -> None:
    """Print the differences of A minus B, then the absolute paths of what was written."""
    parser = argparse.ArgumentParser(description="Differences of two runs by turn, and the sessions that one solves.")
    parser.add_argument("a", type=Path, metavar="RUN_A", help="folder that tools/eval.py wrote")
    parser.add_argument("b", type=Path, metavar="RUN_B", help="the run that is subtracted")
    parser.add_argument("--turn", type=int, help="turn at which a session is won or lost (default: the last)")
    parser.add_argument("--out", type=Path, help="output folder (default: compare/ in RUN_A)")
    parser.add_argument("--bca", action="store_true", help="bias-corrected and accelerated intervals, not percentile")
    parser.add_argument("--force", action="store_true", help="compare unfinished or unlike runs, under a warning")
    args = parser.parse_args()
    from covr_lab.results.compare_page import write_comparison  # heavy: not for --help

    try:
        method: Method = "bca" if args.bca else "percentile"
        text, paths = write_comparison(args.a, args.b, args.out, turn=args.turn, method=method, force=args.force)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"compare: {error}")
    sys.stdout.write("\n".join([text, "", *map(str, paths)]) + "\n")


if __name__ == "__main__":
    main()
