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

    from covr_lab.data.check import report
    from covr_lab.evaluate import prepare
    from covr_lab.types import Refused

    try:
        print(report(prepare(options.recipes, overrides)[1]))
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
