"""Evaluate a recipe: ``python tools/eval.py RECIPE [OVERLAY...] [--key value]``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

EPILOG = """\
any key of the recipe can be overridden, with short paths into components:
  --data.annotations FILE      --data.limit 100          --data.batch_size 64
  --system.fusion.window 3     --simulator.words_per_turn 4
  --trainer.devices 2          --trainer.accelerator cpu --wandb.mode offline

--cold measures time: galleries, selections, answers, scores and frames are kept in an empty folder below $TMPDIR that
is removed afterwards, not in $COVR_CACHE, so nothing is known from earlier runs (add --build where the system sees
videos). It starts a new run folder; run.json says "cold": true once the whole run was played like this. Checkpoints
stay where they are.

exit status: 0 done; 1 refused, with one line that says why; 3 done, but more sessions failed than --allow_failures
(they are rows and count as misses); 130 interrupted, the same command goes on where it stopped.
"""


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="eval.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="+", type=Path, metavar="RECIPE", help="recipe, then overlays over it")
    parser.add_argument("--run_dir", type=Path, help="folder of the run (default: runs/<recipe>-<hash>)")
    parser.add_argument("--fresh", action="store_true", help="start a new folder instead of resuming")
    parser.add_argument("--build", action="store_true", help="index the videos first, as tools/index.py does")
    parser.add_argument("--cold", action="store_true", help="for timing: start with empty caches, see below")
    parser.add_argument("--print_config", action="store_true", help="print the resolved recipe and stop")
    parser.add_argument("--allow_failures", type=int, default=0, metavar="N", help="failed sessions that are all right")
    options, overrides = parser.parse_known_args(argv)

    # Heavy imports (torch, Lightning) only from here on: --help has to be quick.
    from covr_lab.console import quiet, summary_table
    from covr_lab.recipe import build_parser, plain, resolve
    from covr_lab.types import Refused, SessionError

    quiet()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        if options.print_config:
            import yaml

            schema = build_parser()
            print(yaml.safe_dump(plain(schema, resolve(schema, options.recipes, overrides)), sort_keys=False), end="")
            return 0
        from covr_lab.evaluate import evaluate
        from covr_lab.results.folder import RunFolder

        with cold_caches() if options.cold else nullcontext():
            fresh = options.fresh or options.cold
            outcome = evaluate(options.recipes, overrides, run_dir=options.run_dir, fresh=fresh, build=options.build)
        if options.cold and outcome is not None:
            RunFolder(outcome.folder).update(cold=True)
    except (Refused, SessionError) as error:
        sys.stderr.write(f"error: {error}\n")  # at once: processes share the terminal
        return 1
    except (KeyboardInterrupt, SystemExit):
        print("interrupted: finished sessions are stored, the same command goes on from there", file=sys.stderr)
        return 130
    if outcome is None:
        return 0
    print(summary_table(outcome))
    return 3 if len(outcome.failed) > options.allow_failures else 0


@contextmanager
def cold_caches() -> Iterator[None]:
    """Point all caches at an empty folder for a while; one that another process of this run set up stays."""
    from covr_lab.evaluate import FOLDER

    if FOLDER in os.environ:  # started by Lightning, whose first process chose the folder
        yield
        return
    with TemporaryDirectory(prefix="covr_cold_") as folder, mock.patch.dict(os.environ, COVR_CACHE=folder):
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
