"""Play a study and write its report: ``python tools/study.py STUDY.yaml [MORE.yaml...] [--key value]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covr_lab.recipe import Wandb

EPILOG = """\
overrides go to every run, as those of tools/eval.py:
  --data.annotations FILE    --simulator.words_per_turn 4    --trainer.accelerator cpu
what a system or condition of the study sets itself stays; --wandb.mode and the like say how the study is logged.

What is finished in OUT is not played again, so the same command goes on where a study was stopped.

exit status: 0 done; 1 refused, with one line that says why, or done with runs that failed or may not share a table
(the report says which and why); 130 interrupted. A claim that does not hold is no error.
"""


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="study.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="+", type=Path, metavar="STUDY", help="study file, then files laid over it")
    parser.add_argument("--out", type=Path, help="output folder (default: runs/studies/<study>)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs played at once (default 1)")
    parser.add_argument("--plan", action="store_true", help="list the runs, and whether they are finished, and stop")
    parser.add_argument("--report", action="store_true", help="play nothing, only write the report of what is there")
    options, overrides = parser.parse_known_args(argv)

    from covr_lab.study.spec import read_study
    from covr_lab.types import Refused

    try:
        if options.jobs < 1:
            raise Refused(f"--jobs must be 1 or more, not {options.jobs}")
        study = read_study(options.studies)
        ours, ours_of_wandb = split(overrides)
        plan, out = study.plan(ours), options.out or Path("runs") / "studies" / study.name
        if options.plan:
            for run in plan:
                state = "finished" if (out / run.folder / "metrics.json").is_file() else "to play"
                print(f"{state:9} {run}  {' '.join(map(str, run.recipes))} {' '.join(run.overrides)}".rstrip())
            return 0
        # Heavy imports only from here on: --help and a wrong file have to be quick.
        from covr_lab.results.wandb_study import log_study
        from covr_lab.study.make import play_all, unplayed, write_study
        from covr_lab.study.relations import word_of

        logging = wandb_options(ours_of_wandb)
        failed = {} if options.report else play_all(plan, out, options.jobs, lambda line: print(line, flush=True))
        report = write_study(study, plan, out, unplayed(plan, out) | failed)
        log_study(out, logging)
    except Refused as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        print("interrupted: finished sessions are stored, the same command goes on from there", file=sys.stderr)
        return 130
    for run, reason in report.left_out.items():
        print(f"in no table: {run}: {reason}", file=sys.stderr)
    for claim in dict.fromkeys(verdict.claim for verdict in report.verdicts):
        print(f"{claim}: {word_of([verdict for verdict in report.verdicts if verdict.claim == claim])}")
    print(report.page)
    return 1 if report.left_out else 0


def split(overrides: list[str]) -> tuple[list[str], list[str]]:
    """Overrides of the runs, and those of logging."""
    runs: list[str] = []
    ours: list[str] = []
    into = runs
    for word in overrides:
        if word.startswith("--"):
            into = ours if word.startswith("--wandb.") else runs
        into.append(word)
    return runs, ours


def wandb_options(overrides: list[str]) -> Wandb:
    """Options of logging from ``--wandb.KEY VALUE``; a wrong one is refused."""
    from covr_lab.recipe import Wandb
    from covr_lab.types import Refused

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--wandb.mode", dest="mode", choices=("auto", "online", "offline", "disabled"))
    parser.add_argument("--wandb.project", dest="project")
    parser.add_argument("--wandb.group", dest="group")
    try:
        options, rest = parser.parse_known_args(overrides)
    except argparse.ArgumentError as error:
        raise Refused(str(error)) from error
    if rest:
        raise Refused(f"{rest[0]}: no such key of wandb (there are mode, project, group)")
    return Wandb(**{key: value for key, value in vars(options).items() if value is not None})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
