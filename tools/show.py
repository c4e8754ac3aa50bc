"""Prompts, frames and answers of a stored session: ``python tools/show.py RUN SESSION [TURN]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Print every call that the turns made; returns the exit status."""
    parser = argparse.ArgumentParser(prog="show.py", description="What engines were asked in a session, and answered.")
    parser.add_argument("run", type=Path, metavar="RUN", help="folder that tools/eval.py wrote")
    parser.add_argument("session", metavar="SESSION", help="session id")
    parser.add_argument("turn", nargs="?", type=int, metavar="TURN", help="turn (default: all)")
    options = parser.parse_args(argv)

    from covr_lab.console import quiet
    from covr_lab.results.examples import dialogue
    from covr_lab.results.reader import read_rows, read_run
    from covr_lab.results.shown import calls_text, videos_of, wanted, write_frames
    from covr_lab.types import Refused

    quiet()
    try:
        run, rows = read_run(options.run), dialogue(read_rows(options.run), options.session)
        rows = [row for row in rows if options.turn in (None, row["turn"])]
        if not rows:
            raise Refused(f"{options.run}: no session '{options.session}' with such a turn: see its turns/")
        shown = wanted(rows)
        frames = write_frames(options.run, videos_of(run), shown) if shown else {}
    except (Refused, ValueError, FileNotFoundError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    print("\n\n".join(calls_text(row, frames) for row in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
