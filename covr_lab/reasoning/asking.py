"""How model-backed reasoners ask: what a prompt may show of a session, and how a question is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Media, Request
from covr_lab.prompts.suite import Kind, Value, load_prompt
from covr_lab.reasoning.english import named
from covr_lab.types import Context, Refused

if TYPE_CHECKING:
    from pydantic import BaseModel

# What a prompt of the system may show: all of it is the user's own, the system's memory, or about videos on display.
FIELDS: Final[Mapping[str, Kind]] = {
    "edit": "text",
    "reference": "text",
    "shown": "text",
    "video": "video",
    "query": "text",
    "keep": "lines",
    "require": "lines",
    "avoid": "lines",
    "feedback": "text",
    "question": "text",
    "dialogue": "lines",
    "history": "lines",
    "candidates": "lines",
    "aim": "text",
    "said": "text",
}
# Module -> placeholders without which its prompt misses its point.
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "initial": ("edit", "reference"),
    "intent": ("query", "shown", "feedback", "question", "keep", "require", "avoid"),
    "reflection": ("query", "shown", "feedback", "question"),
    "question": ("query", "keep", "require", "avoid", "dialogue"),
    "question_ivr": ("edit", "dialogue", "candidates"),
    "question_auto": ("said",),
    "question_auto_vid": ("said", "candidates"),
    "question_umivr": ("aim", "edit", "dialogue", "candidates"),
    "question_merlin": ("edit", "dialogue", "shown"),
    "compress": ("said",),
    "history": ("edit", "reference", "shown", "history", "feedback"),
}
WORDS: Final = 20  # of a question
# Around a question: a number, "Question:", quotes, emphasis.
_BEFORE = re.compile(r"^(?:[\s\"'`*_#>\u201c\u2018-]|\(?\d+[.):]|(?:q|question)\s*\d*\s*:)+", re.I)
_AFTER = "\"'`*_\u201d\u2019"
_YES_OR_NO = re.compile(rf"(?:{named('AUX').pattern}|am|shall)(?:n?['\u2019]?t)?\b", re.I)


class Asking:
    """The request of one module.

    Args:
        module: its name: that of its prompt, and its role in the record.
        prompts: packaged suite, or folder of prompts.
        frames: frames of a video in the prompt, 0 for its caption alone.
        schema: form of the answer, ``None`` for free text.

    Raises:
        ValueError: the prompt breaks the contract, or has no place for the frames.
    """

    def __init__(self, module: str, prompts: str, frames: int, schema: type[BaseModel] | None = None) -> None:
        if frames < 0:
            raise ValueError(f"frames of `{module}` must be 0 (captions alone) or more, not {frames}")
        required = (*REQUIRED[module], "video") if frames else REQUIRED[module]
        self.prompt = load_prompt(prompts, module, FIELDS, required)
        self.module, self.frames, self.schema = module, frames, schema

    def request(self, context: Context, video: str | None, *, aim: str = "", said: str = "") -> Request:
        """The request for one session.

        Args:
            context: what may be seen of it.
            video: whose frames the prompt shows.
            aim: what a question is for.
            said: what was said so far, in one text.

        Raises:
            Refused: frames are wanted of data without videos.
        """
        if self.frames and context.videos is None:
            raise Refused(f"the prompt `{self.module}` wants {self.frames} frames, the data has no videos: frames: 0")
        media = Media(video, self.frames, context.videos) if self.frames and video and context.videos else None
        system, content = self.prompt.render({**told(context), "aim": aim, "said": said, "video": media})
        session = context.session
        return Request(self.module, content, session.query.session_id, len(session.turns), system, self.schema)


def told(context: Context) -> dict[str, Value]:
    """Values of the fields that the context holds, all but the video."""
    state, feedback = context.state, context.feedback
    return {
        "edit": context.session.query.text,
        "reference": context.reference_caption,
        "shown": context.shown_caption,
        "query": state.query,
        "keep": state.keep,
        "require": state.require,
        "avoid": state.avoid,
        "feedback": feedback.text if feedback else "",
        "question": context.question or "",
        "dialogue": [line for lines in dialogue(context) for line in lines],
        "history": history(context),
        "candidates": context.candidates,
    }


def dialogue(context: Context) -> list[list[str]]:
    """What was asked and said in each earlier turn, oldest first; the newest feedback is none of them."""
    turns = context.session.turns
    return [
        [
            *([f"asked: {turn.question}"] if turn.question else []),
            *([f"user: {turn.feedback.text}"] if turn.feedback and not turn.feedback.wordless else []),
        ]
        for turn in turns
    ]


def history(context: Context) -> list[str]:
    """The dialogue with the caption of the video that each feedback is about in front of it."""
    lines = list[str]()
    for before, said in zip(("", *context.displayed), dialogue(context), strict=False):
        lines += [f"shown: {before}"] * bool(before and said) + said
    return lines


def tidy(text: str) -> str:
    r"""``text`` on one line, without blanks at its ends.

    >>> tidy(' a dog\t in  snow ')
    'a dog in snow'
    """
    return " ".join(text.split())


def read_question(text: str) -> str:
    """The question in the first line of a free answer that has words (dossier, section 1.8).

    Raises:
        ParseError: it is no question, more than one, too long, or one that yes or no would answer.

    >>> read_question('1. "Where does it take place?"')
    'Where does it take place?'
    """
    lines = (tidy(_BEFORE.sub("", line, count=1)).rstrip(_AFTER) for line in text.splitlines())
    question = next(filter(None, lines), "")
    if not question.endswith("?") or question.count("?") > 1:
        raise ParseError(f"not one question: {question!r}")
    if len(question.split()) > WORDS:
        raise ParseError(f"more than {WORDS} words: {question!r}")
    if _YES_OR_NO.match(question):
        raise ParseError(f"yes or no would answer it: {question!r}")
    return question
