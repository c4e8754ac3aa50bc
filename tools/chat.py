"""Talk to the system of a recipe: ``python tools/chat.py RECIPE [OVERLAY...] [--key value]``."""

from __future__ import annotations

import argparse
import io
import itertools
import logging
import random
import shutil
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill

from covr_lab.chat import Conversation, Desk, find_videos, listed, open_desk, results_text, state_text, why_text
from covr_lab.types import Query, SessionError

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


class Restart(Exception):
    """This dialogue is over, another one begins."""


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
        try:
            while True:
                with suppress(Restart):
                    self.talk = self.begin()
                    self.show(self.talk)
                    while True:
                        self.talk = self.turn(self.talk)
                self.keep()
        except (EOFError, KeyboardInterrupt):
            self.say("")
        finally:
            self.keep()

    def begin(self) -> Conversation:
        """Turn 0, once there is a reference and a text that the system can answer."""
        while True:
            reference = self.pick()
            text = self.line("query> " if reference is None else "edit> ")
            while not text and reference is None:
                self.say("without a reference the query needs words: describe the video, or /new to pick a reference")
                text = self.line("query> ")
            try:
                return Conversation.start(self.desk.system, Query(next(self.names), reference, text))
            except SessionError as error:
                self.say(f"this query cannot be answered: {error}")

    def pick(self) -> str | None:
        """A reference, ``None`` for a query in words alone."""
        gallery, numbered = self.desk.gallery, dict[str, str]()
        self.say("\nreference video: an id, words of its caption, `random`, or nothing for a query in words alone")
        while text := self.line("reference> "):
            video = numbered.get(text, text)
            if video == "random" and video not in self.known:
                video = random.choice(self.desk.references or gallery.ids)
            if video in self.known:
                self.say(f"{video}  {gallery.caption(video)}")
                return video
            found = find_videos(text, gallery.captions)
            numbered = {str(number): video for number, video in enumerate(found, 1)}
            print(listed(found, gallery, self.width) if found else f"no video has this id, and no caption has these words")
        return None

    def turn(self, talk: Conversation) -> Conversation:
        """The conversation after one more text; the same one if that cannot be answered."""
        text = self.line("feedback> ")
        talk = self.talk or talk  # a command may have changed it
        if not text:
            self.say("say what should change, or /found, /undo, /help")
            return talk
        try:
            talk = talk.say(text)
        except SessionError as error:
            self.say(f"this feedback cannot be answered: {error} (the dialogue stands as it was)")
        else:
            self.show(talk)
        return talk
