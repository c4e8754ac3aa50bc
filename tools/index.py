"""Encode the videos of a recipe, once: ``python tools/index.py RECIPE [OVERLAY...] [--key value]``."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

EPILOG = """\
takes the recipe, overlays and --key value overrides of tools/eval.py, and makes what that command reads of the videos:
gallery vectors and, for composed queries, what is read of anchor videos. Lies in $COVR_CACHE/galleries. More processes
that encode: --trainer.devices 2.

Rows of earlier galleries are taken over where encoder and videos are the same: of a gallery that has grown only the new
videos are encoded. A folder of your own videos (recipes/my_videos.yaml) is compared with its last index.

exit status: 0 done; 1 refused, with one line that says why; 3 done, but some videos could not be read (the sessions
that need them count as misses); 130 interrupted, the same command goes on where it stopped.
"""


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="index.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="+", type=Path, metavar="RECIPE", help="recipe, then overlays over it")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that read videos (default: cores, up to 8)")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="clips a batch; changes no vector")
    parser.add_argument("--retry", action="store_true", help="read the videos again that failed before")
    options, overrides = parser.parse_known_args(argv)

    # Heavy imports (torch, Lightning) only from here on: --help has to be quick.
    from covr_lab.console import quiet
    from covr_lab.evaluate import prepare
    from covr_lab.gallery.build import index
    from covr_lab.recipe import Machine
    from covr_lab.types import Refused

    quiet()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        document, data, runner = prepare(options.recipes, overrides)
        print_news(data, runner.system)
        reports = index(
            runner.system,
            data.gallery,
            data.videos,
            Machine(**document["trainer"]),
            batch_size=options.batch,
            workers=options.workers,
            retry=options.retry,
        )
        if reports is not None:
            data.indexed([report.folder for report in reports])
    except Refused as error:
        sys.stderr.write(f"error: {error}\n")  # at once: processes share the terminal
        return 1
    except (KeyboardInterrupt, SystemExit):
        print("interrupted: encoded videos are stored, the same command goes on from there", file=sys.stderr)
        return 130
    if reports is None:
        return 0
    for report in reports:
        print(report)
    failed = {video for report in reports for video in report.failed}
    if not any(report.encoded or report.taken for report in reports):
        print("everything was encoded before: nothing to do")
    if failed:
        print(f"{len(failed)} videos could not be read or described (failed.tsv says why); --retry tries them again")
    return 3 if failed or data.unreadable else 0


def print_news(data: Any, system: Any) -> None:
    """What the media are, and what weights are no good for; once, whatever the number of processes."""
    from lightning.fabric.utilities.rank_zero import rank_zero_only

    if rank_zero_only.rank == 0:  # type: ignore[attr-defined]
        limits = dict.fromkeys(filter(None, (getattr(module, "limits", "") for module in system.modules())))
        for line in (*data.news(), *(f"note: {text}" for text in limits)):
            print(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
