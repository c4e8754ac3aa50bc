"""Describe the wanted video, verify one candidate: the reasoners of a cascade (CoVRAGE; dossier, sections 2.4, 2.5)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Final

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Media, Request
from covr_lab.prompts.suite import Kind, Prompt, load_prompt
from covr_lab.reasoning.asking import tidy
from covr_lab.reasoning.base import Reasoner
from covr_lab.reasoning.intent import initial_query
from covr_lab.reasoning.language import parse_feedback, stems
from covr_lab.types import Context, SessionError
from covr_lab.video.overlay import TIMESTAMP_NOTE
from covr_lab.views.base import FrameView

# What a prompt of the cascade may show: the text to be carried out, and both videos in frames and in words.
FIELDS: Final[Mapping[str, Kind]] = {
    "edit": "text",
    "source": "video",
    "source_caption": "text",
    "candidate": "video",
    "candidate_caption": "text",
    "timestamps": "text",
}
# Module -> placeholders without which its prompt misses its point; those of videos count where frames are shown.
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "decompose": ("edit", "source_caption", "source"),
    "verify": ("edit", "source_caption", "source", "candidate_caption", "candidate"),
    "verify_lenient": ("edit", "source_caption", "source", "candidate_caption", "candidate"),
}
_PAIRS: Final = ('""', "''", "\u201c\u201d", "\u2018\u2019", "\u00ab\u00bb")
_BEFORE: Final = "\"'`*\u201c\u201d\u2018\u2019 \t\r\n"


def read_description(text: str) -> str:
    """A free answer on one line, without one pair of matching quotes around it; "" is no description.

    >>> read_description(' "A dog in snow." ')
    'A dog in snow.'
    """
    text = text.strip()
    if len(text) > 1 and text[0] + text[-1] in _PAIRS:
        text = text[1:-1]
    return tidy(text)


def read_verdict(text: str) -> bool | None:
    """Whether a free answer begins with yes or with no; ``None`` where it begins with neither.

    >>> read_verdict("**Yes**, it does"), read_verdict("no."), read_verdict("maybe")
    (True, False, None)
    """
    text = text.strip().lower().lstrip(_BEFORE)
    return True if text.startswith("yes") else False if text.startswith("no") else None


class Describer(Reasoner[str], ABC):
    """One self-contained description of the wanted video from source and edit, "" where there is none."""

    def fallback(self, context: Context) -> str:
        """No description: the edit stands for itself."""
        del context
        return ""


class Verifier(Reasoner["bool | None"], ABC):
    """Whether a candidate is what source and edit ask for; ``None``: unclear, which accepts nothing."""

    def fallback(self, context: Context) -> bool | None:
        """Unclear."""
        del context
        return None


class VLMDescriber(Describer):
    """Description by a model (CoVRAGE's decomposer; dossier, section 2.4).

    Args:
        engine: name of the engine to ask; how it samples is its business.
        prompts: packaged prompt suite, or a folder with ``decompose.yaml``.
        view: which frames of the source the prompt shows, ``None`` for its caption alone.
    """

    def __init__(self, *, engine: str, prompts: str = "default", view: FrameView | None = None) -> None:
        super().__init__()
        self.engine, self.view, self.prompt = engine, view, _prompt("decompose", prompts, view)
        self.fingerprint = self.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask what the wanted video shows."""
        return _request("decompose", self.prompt, context, {"source": _shown(self.view, context.source)})

    def parse(self, text: str, context: Context) -> str:
        """The description."""
        del context
        if not (description := read_description(text)):
            raise ParseError("no description")
        return description


class VLMVerifier(Verifier):
    """Verdict by a model (CoVRAGE's verifier; dossier, section 2.5).

    Args:
        engine: name of the engine to ask; how it samples is its business.
        prompts: packaged prompt suite, or a folder with ``verify.yaml`` (``verify_lenient.yaml``).
        view: which frames of source and candidate the prompt shows, ``None`` for their captions alone.
        strict: a candidate that leaves any doubt is not accepted; otherwise small deviations do no harm.
    """

    def __init__(
        self, *, engine: str, prompts: str = "default", view: FrameView | None = None, strict: bool = True
    ) -> None:
        super().__init__()
        self.engine, self.view, self.module = engine, view, "verify" if strict else "verify_lenient"
        self.prompt = _prompt(self.module, prompts, view)
        self.fingerprint = self.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask about one candidate."""
        media = {"source": _shown(self.view, context.source), "candidate": _shown(self.view, context.candidate)}
        return _request(self.module, self.prompt, context, media)

    def parse(self, text: str, context: Context) -> bool:
        """The verdict."""
        del context
        if (verdict := read_verdict(text)) is None:
            raise ParseError("neither yes nor no")
        return verdict


class RuleDescriber(Describer):
    """The edit applied to the caption of the source."""

    def render(self, context: Context) -> str:
        """Description in the words of caption and edit."""
        if not context.source_caption or not parse_feedback(context.text).clauses:
            raise ParseError("no caption, or nothing understood of the edit")
        return initial_query(context.source_caption, context.text)


class RuleVerifier(Verifier):
    """Whether the words of the candidate's caption agree with caption and edit; see :func:`agrees`.

    Args:
        strict: what the edit leaves alone counts, too.
    """

    def __init__(self, *, strict: bool = True) -> None:
        super().__init__()
        self.strict = strict

    def render(self, context: Context) -> bool | None:
        """The verdict."""
        if not context.candidate_caption or not parse_feedback(context.text).clauses:
            raise ParseError("no caption, or nothing understood of the edit")
        return agrees(context.source_caption, context.text, context.candidate_caption, strict=self.strict)


def agrees(source: str, edit: str, candidate: str, *, strict: bool) -> bool:
    """Whether a caption has every content word that is wanted and none that is unwanted.

    Args:
        source: caption of the source, "" where there is none.
        edit: what is to change.
        candidate: caption of the candidate.
        strict: wanted are all words of the source's caption with the edit applied, not those of the edit alone.

    >>> agrees("A dog on a beach", "make it a cat", "A cat in a park", strict=False)
    True
    >>> agrees("A dog on a beach", "make it a cat", "A cat in a park", strict=True)
    False
    """
    parsed, have = parse_feedback(edit), stems(candidate)
    wanted = (
        stems(initial_query(source, edit)) if strict and source else stems(" ".join((*parsed.require, *parsed.keep)))
    )
    unwanted = stems(" ".join(parsed.avoid))
    return wanted - unwanted <= have and not unwanted & have


def _prompt(module: str, prompts: str, view: FrameView | None) -> Prompt:
    required = [name for name in REQUIRED[module] if view is not None or FIELDS[name] != "video"]
    return load_prompt(prompts, module, FIELDS, [*required, *(["timestamps"] if view is not None else [])])


def _shown(view: FrameView | None, video: str | None) -> Media | None:
    """Frames of a video; one that the view cannot show makes the answer unreadable, not the run."""
    try:
        return None if view is None or video is None else view.media(video)
    except SessionError as error:
        raise ParseError(str(error)) from error


def _request(module: str, prompt: Prompt, context: Context, media: Mapping[str, Media | None]) -> Request:
    timed = any(shown is not None and shown.timestamps for shown in media.values())
    system, content = prompt.render(
        {
            "edit": context.text,
            "source_caption": context.source_caption,
            "candidate_caption": context.candidate_caption,
            "timestamps": TIMESTAMP_NOTE if timed else "",
            **media,
        }
    )
    session = context.session
    return Request(module, content, session.query.session_id, len(session.turns), system)
