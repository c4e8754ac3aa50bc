"""Talk to the system of a recipe: ``python tools/chat.py RECIPE [OVERLAY...] [--key value]``."""

from __future__ import annotations

import argparse
import io
import itertools
import logging
import random
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill

from covr_lab.chat import (
    Conversation,
    Desk,
    find_videos,
    listed,
    open_desk,
    probe_text,
    results_text,
    state_text,
    why_text,
)
from covr_lab.functional.text import side_by_side
from covr_lab.types import Exchange, Query, Refused, SessionError

EPILOG = """\
any key of the recipe can be overridden, with short paths into components: --system.fusion.window 3

exit status: 0 done; 1 refused, with one line that says why; 130 interrupted before the first prompt.
"""
HELP = """\
/found [N]  result N (1 without a number) is the video: ends the dialogue as solved
/undo       take the last turn back
/why N      result N over all turns: ranks in the channels, rank-caps, the texts that were sent
/state      what the system remembers: running query, keep, require, avoid
/new        end this dialogue and start another
/help       this list
/quit       leave (Ctrl-D and Ctrl-C do, too); the dialogue is stored"""

COMMANDS = ("/found", "/undo", "/why", "/state")  # those about a dialogue


class Restart(Exception):
    """This dialogue is over, another one begins."""


class Moved(Exception):
    """The dialogue is at another turn: what was being asked is no longer open."""


class Terminal:
    """Prompts, commands, and what they print.

    Args:
        desk: where the person talks.
        top: results on display.
    """

    def __init__(self, desk: Desk, top: int) -> None:
        self.desk, self.top = desk, top
        self.known = {*desk.gallery.ids, *desk.gallery.captions, *desk.references}
        self.names = (f"chat-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{number}" for number in itertools.count(1))
        self.talk: Conversation | None = None

    def run(self) -> None:
        """Dialogue after dialogue, until the person leaves."""
        self.say(f"{len(self.desk.gallery)} videos are searched; /help lists the commands")
        if self.desk.system.proxy:
            self.say(f"PROXY: {self.desk.system.proxy}")
        try:
            while True:
                with suppress(Restart):
                    self.begin()
                    while True:
                        with suppress(Moved):
                            self.turn()
                self.keep()
        except (EOFError, KeyboardInterrupt):
            print()
        finally:
            self.keep()

    def begin(self) -> None:
        """Turn 0, once there are a reference and a text that the system can answer."""
        while self.talk is None:
            reference = self.pick()
            text = self.line("query> " if reference is None else "edit> ")
            while not text and reference is None:
                self.say("without a reference the query needs words: describe the video, or /new to pick a reference")
                text = self.line("query> ")
            try:
                self.talk = Conversation.start(self.desk.system, Query(next(self.names), reference, text))
            except SessionError as error:
                self.say(f"this query cannot be answered: {error}")
        self.show(self.talk)

    def pick(self) -> str | None:
        """A reference, ``None`` for a query in words alone."""
        gallery, numbered = self.desk.gallery, dict[str, str]()
        print()
        self.say("reference video: an id, words of its caption, random, or nothing for a query in words alone")
        while text := self.line("reference> "):
            video = numbered.get(text, text)
            if video == "random" and video not in self.known:
                video = random.choice(self.desk.references or gallery.ids)
            if video in self.known:
                self.say(f"{video}: {gallery.caption(video) or '(no caption)'}")
                return video
            found = find_videos(text, gallery.captions)
            numbered = {str(number): video for number, video in enumerate(found, 1)}
            if found:
                print(listed(found, gallery, self.width), "a number, an id, or other words", sep="\n")
            else:
                self.say(f"no video has the id {text!r}, and no caption has one of these words")
        return None

    def turn(self) -> None:
        """Hear the feedback or, question by question, the answers of a round; then the system's answer.

        Raises:
            EOFError: the person leaves.
            Moved: a turn was taken back meanwhile.
            Restart: the dialogue is over.
        """
        said = list[Exchange]()
        while self.talk and (probes := self.talk.following(said)):
            for probe in probes:
                self.say(probe_text(probe))
                said.append(Exchange(probe, self.line("answer> ")))
        self.answer(side_by_side(each.answer for each in said) if said else self.line("feedback> "), said)

    def answer(self, text: str, exchanges: Sequence[Exchange] = ()) -> None:
        """One turn later, if the system can answer ``text``, the answers of a round where there are some."""
        if not text or self.talk is None:
            self.say("say what should change, or /found, /undo, /help")
            return
        try:
            self.talk = self.talk.say(text, exchanges)
        except SessionError as error:
            self.say(f"this feedback cannot be answered: {error} (the dialogue stands as it was)")
        else:
            self.show(self.talk)

    def line(self, prompt: str) -> str:
        """The next line that is not a command, stripped; commands are carried out.

        Raises:
            EOFError: the person leaves.
            Moved: a turn was taken back.
            Restart: the dialogue is over.
        """
        while True:
            text = input(prompt).strip()
            if not sys.stdin.isatty():
                print(text)  # a transcript shows what was piped in
            if not text.startswith("/") or text in self.known:
                return text
            name, _, number = text.partition(" ")
            if name == "/help":
                print(*(fill(line, self.width, subsequent_indent=" " * 12) for line in HELP.splitlines()), sep="\n")
            elif name == "/quit":
                raise EOFError
            elif name == "/new":
                raise Restart
            elif name not in COMMANDS:
                self.say(f"no command {name}: /help lists them")
            elif self.talk is None:
                self.say(f"{name} needs a dialogue: pick a reference, then say what should change")
            else:
                self.command(self.talk, name, number.strip())

    def command(self, talk: Conversation, name: str, number: str) -> None:
        """Carry out a command about the dialogue."""
        videos = talk.session.turns[-1].result.rows
        number = number or ("1" if name == "/found" else "")
        rank = int(number) if number.isdecimal() and len(number) < 9 else 0
        if name == "/state":
            print(state_text(talk.session, self.width))
        elif name == "/undo" and len(talk.session.turns) == 1:
            self.say("nothing to take back: /new starts another dialogue")
        elif name == "/undo":
            self.talk = talk.undo()
            self.show(self.talk)
            raise Moved
        elif not 0 < rank <= len(videos):
            self.say(f"{name} takes the number of a result, 1 to {len(videos)}")
        elif name == "/why":
            print(why_text(talk.session, self.desk.gallery, rank, self.width))
        else:
            video = self.desk.gallery.ids[videos[rank - 1]]
            self.talk = talk.found(video)
            self.say(f"solved at turn {len(talk.session.turns) - 1}: {video}")
            raise Restart

    def show(self, talk: Conversation) -> None:
        """Results and the question."""
        print("\n" + results_text(talk.session, self.desk.gallery, self.top, self.width))
        if talk.following(()):
            self.say("a round of questions: answer in a few words, with an empty line where you cannot tell")
        elif talk.question:
            self.say(f"question: {talk.question.text}")

    def keep(self) -> None:
        """Store the dialogue, if there is one."""
        if self.talk is not None:
            self.say(f"stored as {self.desk.keep(self.talk.session)}")
            self.talk = None

    def say(self, text: str) -> None:
        """Print one paragraph."""
        print(fill(text, self.width))

    @property
    def width(self) -> int:
        """Columns of the terminal, as they are now."""
        return max(shutil.get_terminal_size().columns, 30)


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="chat.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="+", type=Path, metavar="RECIPE", help="recipe, then overlays over it")
    parser.add_argument("--run_dir", type=Path, help="folder of the dialogues (default: runs/chat-<recipe>)")
    parser.add_argument("--fresh", action="store_true", help="start a new folder instead of adding to the old one")
    parser.add_argument("--participant", metavar="NAME", help="who talks, for the stored rows")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="results on display (default: 5)")
    options, overrides = parser.parse_known_args(argv)
    if options.top < 1:
        parser.error(f"--top must be 1 or more, not {options.top}")

    from covr_lab.console import quiet

    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a letter that the terminal lacks must not end a dialogue
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401 (arrow keys and history for input())
    quiet()
    kept = {"run_dir": options.run_dir, "fresh": options.fresh, "participant": options.participant}
    try:
        Terminal(open_desk(options.recipes, overrides, **kept), options.top).run()
    except (Refused, SessionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted before the first prompt: nothing was said, nothing is stored", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
