"""Search videos in a browser: ``python tools/app.py RECIPE [OVERLAY...] [--key value]``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import webbrowser
from pathlib import Path

EPILOG = """\
any key of the recipe can be overridden, with short paths into components: --data.folder ~/Videos

Only this machine reaches the server. --host 0.0.0.0 lets others in and needs a login: put NAME:PASSWORD into a variable
of the environment and name it (export COVR_LAB_LOGIN=anna:secret; ... --login COVR_LAB_LOGIN). Passwords and videos
then cross the network as they are: put a server with TLS in front of it.

What people do is kept below --data_dir: uploads, and for each state of recipe and videos a folder of searches, which
tools/people.py makes a run folder of. The API is described at /docs.

exit status: 0 ended; 1 refused, with one line that says why.
"""


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="app.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("recipes", nargs="+", type=Path, metavar="RECIPE", help="recipe, then overlays over it")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=7860, help="port, 0 for any that is free (default: 7860)")
    parser.add_argument("--data_dir", type=Path, help="folder of what people do (default: runs/app-<recipe>)")
    parser.add_argument("--login", metavar="VARIABLE", help="variable of the environment that holds NAME:PASSWORD")
    parser.add_argument("--upload_mb", type=int, default=200, metavar="N", help="largest upload (default: 200)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    study = parser.add_argument_group("a study with people, instead of free searches alone")
    study.add_argument("--study", type=int, metavar="N", help="instances, drawn from the queries of the data")
    study.add_argument("--each", type=int, default=20, metavar="N", help="most instances of a person (default: 20)")
    study.add_argument("--turns", type=int, default=3, metavar="N", help="feedback turns of an instance (default: 3)")
    study.add_argument("--seed", type=int, default=0, metavar="N", help="of the draw and the assignment (default: 0)")
    options, overrides = parser.parse_known_args(argv)
    for name in ("upload_mb", "study", "each", "turns"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name} must be 1 or more, not {value}")
    if not 0 <= options.port < 65536:
        parser.error(f"--port must be from 0 to 65535, not {options.port}")

    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    from covr_lab.types import Refused, SessionError

    try:
        run(options, overrides)
    except (Refused, SessionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    return 0


def run(options: argparse.Namespace, overrides: list[str]) -> None:
    """Load, listen, answer until the end."""
    from covr_lab.console import quiet
    from covr_lab.types import Refused

    try:
        from covr_lab.app.server import bound, create_app, guarded, serve, stay_silent

        stay_silent()  # before the page's libraries are imported
        from covr_lab.app.page import mount
    except ImportError as error:
        raise Refused(f"{error.name} is missing: pip install 'covr_lab[app]'") from error
    from covr_lab.app.state import StudyPlan, open_service

    quiet()
    login = None if options.login is None else password(options.login)
    listening = bound(options.host, options.port, login)  # before the models: a taken port is known at once
    plan = None if options.study is None else StudyPlan(options.study, options.each, options.turns, options.seed)
    service = open_service(
        options.recipes, overrides, folder=options.data_dir, plan=plan, upload_limit=options.upload_mb << 20
    )
    listening.listen()  # who comes from now on waits for the server
    host, port = listening.getsockname()[:2]
    print(f"{len(service.desk.gallery)} videos are searched; what people do is kept in {service.folder}")
    for note in service.notes:
        print(f"note: {note}")
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(url, flush=True)
    if options.open:
        webbrowser.open(url)
    serve(guarded(create_app(service, mount), service, host=options.host, login=login), listening)


def password(variable: str) -> str:
    """NAME:PASSWORD from the environment.

    Raises:
        Refused: there is none.
    """
    from covr_lab.types import Refused

    found = os.environ.get(variable, "")
    name, _, secret = found.partition(":")
    if not name or not secret:
        raise Refused(f"--login {variable}: the environment has no NAME:PASSWORD of that name (export {variable}=...)")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
