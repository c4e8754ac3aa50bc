"""Why one video stands above another: ``python tools/explanations.py RUN [SESSION] [--similarity]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Print what comparisons say about a session, about a run, or how close reasons are to videos; exit status."""
    parser = argparse.ArgumentParser(
        prog="explanations.py",
        description="What the comparisons of a run say: reasons for the order of a session, queries that they doubt.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder that tools/eval.py wrote")
    parser.add_argument("session", nargs="?", metavar="SESSION", help="session id (default: tables of the whole run)")
    parser.add_argument("--top", type=int, default=5, metavar="K", help="places of the order to explain (default: 5)")
    parser.add_argument(
        "--similarity",
        action="store_true",
        help="cosine of explanations, and of queries, with the first video, in the space of the run's retriever",
    )
    options = parser.parse_args(argv)

    from covr_lab.console import quiet
    from covr_lab.results.compare import load_runs
    from covr_lab.results.examples import dialogue
    from covr_lab.results.explained import opening_retriever, similarities, similarity_text
    from covr_lab.results.explanations import comparison_tables, explain
    from covr_lab.types import Refused

    quiet()
    try:
        (run,) = load_runs([options.run], allow_partial=True)
        rows = run.table.to_pylist() if options.session is None else dialogue(run.table, options.session)
        if not rows:
            raise Refused(f"{options.run}: no session '{options.session}': see its turns/")
        if options.similarity:
            opening = [row for row in rows if row["turn"] == 0]
            lines = [similarity_text(similarities(opening, opening_retriever(run.run)), len(opening))]
        elif options.session is None:
            lines = [table.text() for table in comparison_tables([run])]
        else:
            lines = [f"turn {row['turn']}: {why.text}" for row in rows for why in explain(row, options.top)]
    except (Refused, ValueError, FileNotFoundError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    print("\n\n".join(lines) if options.session is None else "\n".join(lines) or "nothing was compared")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
