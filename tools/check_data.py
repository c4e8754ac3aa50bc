"""Say what a recipe's data holds, before any model is loaded: ``python tools/check_data.py RECIPE [--key value]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="check_data.py", description=__doc__)
    parser.add_argument("recipes", nargs="+", type=Path, metavar="RECIPE", help="recipe, then overlays over it")
    options, overrides = parser.parse_known_args(argv)

    from covr_lab.data.check import describe, report
    from covr_lab.evaluate import prepare
    from covr_lab.types import Refused

    try:
        facts = describe(prepare(options.recipes, overrides)[1])
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report(facts))
    media = facts["media"]
    if media is not None and media["failed"]:
        count = f"{media['referenced'] - media['readable']} of {media['referenced']} videos"
        mend = f"{media['failed_list']} says why (runs count them as misses)"
        print(f"error: {count} cannot be read: {mend}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
