"""Judges of pairs: which of two candidates fits a query better, and why (X-CoT; dossier, section 4)."""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Media, Request
from covr_lab.engines.schema import read_json
from covr_lab.prompts.suite import Kind, Value, load_prompt
from covr_lab.reasoning.asking import tidy
from covr_lab.reasoning.base import Reasoner
from covr_lab.reasoning.cascade import read_description
from covr_lab.reasoning.schemas import CompareAnswer
from covr_lab.types import Context, Outcome, Refused

# What a prompt of a judge may show: what is wanted, and both candidates in words and in frames.
FIELDS: Final[Mapping[str, Kind]] = {
    "wanted": "text",
    "source_caption": "text",
    "first": "text",
    "second": "text",
    "first_video": "video",
    "second_video": "video",
    "reasons": "lines",
}
# Module -> placeholders without which its prompt misses its point; those of videos count where frames are shown.
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    name: ("wanted", "source_caption", "first", "second", "first_video", "second_video")
    for name in ("compare", "choose")
} | {"explain": ("wanted", "source_caption", "first", "reasons")}
REASONS: Final = 10  # that an explanation is made of
CHOICES: Final = ("A", "B")
_BARE: Final = "\"'`*_.:()[] \t\r\n"  # around a letter


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said of a pair.

    Attributes:
        outcome: who fits better, or that the answer says neither.
        probability: that the first one does: 1, 0.5 or 0 for a hard judgement.
        reason: why, in one line; "" where none was given.
    """

    outcome: Outcome
    probability: float
    reason: str = ""


VERDICTS: Final = {"A": Verdict("first", 1.0), "B": Verdict("second", 0.0), "tie": Verdict("tie", 0.5)}
UNPARSEABLE: Final = Verdict("unparseable", 0.5)


def read_letter(text: str) -> Verdict:
    """The verdict of an answer that is one letter, or "tie", and nothing else but marks around it.

    Raises:
        ParseError: it is anything else.

    >>> read_letter("**B**.").outcome, read_letter("Tie").outcome
    ('second', 'tie')
    """
    bare = text.strip(_BARE)
    if (verdict := VERDICTS.get(bare.lower() if len(bare) > 1 else bare)) is None:
        raise ParseError(f"neither A nor B: {tidy(text)[:40]!r}")
    return verdict


def read_weights(text: str) -> Verdict:
    """The verdict of probabilities of A and of B, as an engine answers to choices.

    Raises:
        ParseError: the answer would have been neither.
        Refused: these are no probabilities.

    >>> read_weights('{"A": 0.25, "B": 0.75}')
    Verdict(outcome='second', probability=0.25, reason='')
    """
    try:
        first, second = (float(json.loads(text)[choice]) for choice in CHOICES)
    except (ValueError, TypeError, KeyError):
        raise Refused(
            "a judge that is `soft` needs an engine that tells probabilities (HFEngine, a server with logprobs), this "
            f"one answered {tidy(text)[:40]!r}: name another engine, or set `soft: false`"
        ) from None
    if not first + second > 0:
        raise ParseError("the answer begins with neither A nor B")
    share = first / (first + second)
    return Verdict("first" if share > 0.5 else "second" if share < 0.5 else "tie", share)


class PairJudge(Reasoner[Verdict], ABC):
    """Which of ``candidate`` and ``rival`` of a context fits its ``text`` better: as a description, or as a change.

    A text is a change where the context has a source. The judge sees captions (and frames), never a target.
    """

    def fallback(self, context: Context) -> Verdict:
        """Unparseable; what that counts is the ranking's business."""
        del context
        return UNPARSEABLE


class Explainer(Reasoner[str], ABC):
    """Why ``candidate`` of a context is the best, from the ``reasons`` for which it won its comparisons."""

    def fallback(self, context: Context) -> str:
        """The first reasons as they are."""
        return " ".join(context.reasons[:2])


class ModelExplainer(Explainer):
    """Explanation by a model, in one or two sentences.

    Args:
        engine: name of the engine to ask.
        prompts: packaged prompt suite, or a folder with ``explain.yaml``.
        characters: of a caption that the prompt shows; longer ones are cut.
    """

    def __init__(self, *, engine: str, prompts: str = "default", characters: int = 4000) -> None:
        super().__init__()
        self.engine, self.characters = engine, characters
        self.prompt = load_prompt(prompts, "explain", FIELDS, REQUIRED["explain"])
        self.fingerprint = self.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask for the explanation."""
        told = {**_told(context, self.characters), "reasons": context.reasons[:REASONS]}
        system, content = self.prompt.render(told)
        session = context.session
        return Request("explain", content, session.query.session_id, len(session.turns), system)

    def parse(self, text: str, context: Context) -> str:
        """The explanation."""
        del context
        if not (explanation := read_description(text)):
            raise ParseError("no explanation")
        return explanation


class ModelJudge(PairJudge):
    """Judgement by a model that reads both captions, and sees frames of both where it should.

    Args:
        engine: name of the engine to ask.
        prompts: packaged prompt suite, or a folder with ``compare.yaml`` (``choose.yaml`` without reasons).
        reasons: ask for JSON with the winner and a reason (the paper's explanations); otherwise for one letter.
        soft: take the probability of the letter in place of the letter. The engine has to tell probabilities of
            tokens, and there are no reasons.
        frames: frames of either candidate in the prompt, 0 for their captions alone.
        characters: of a caption that the prompt shows; longer ones are cut.

    Raises:
        ValueError: a setting is out of its range, or a soft judge is to give reasons.
    """

    def __init__(
        self,
        *,
        engine: str,
        prompts: str = "default",
        reasons: bool = True,
        soft: bool = False,
        frames: int = 0,
        characters: int = 4000,
    ) -> None:
        super().__init__()
        if frames < 0 or characters < 1:
            raise ValueError(f"a judge needs frames >= 0 and characters >= 1, not {frames} and {characters}")
        if soft and reasons:
            raise ValueError("a judge that is `soft` gives no reasons: set `reasons: false`")
        self.engine, self.module = engine, "compare" if reasons else "choose"
        self.reasons, self.soft, self.frames, self.characters = reasons, soft, frames, characters
        required = [name for name in REQUIRED[self.module] if frames or FIELDS[name] != "video"]
        self.prompt = load_prompt(prompts, self.module, FIELDS, required)
        self.fingerprint = self.prompt.digest

    def render(self, context: Context) -> Request:
        """Ask about one pair.

        Raises:
            Refused: frames are wanted of data without videos.
        """
        if self.frames and context.videos is None:
            raise Refused(f"the prompt `{self.module}` wants {self.frames} frames, the data has no videos: frames: 0")
        media = {
            "first_video": self._shown(context, context.candidate),
            "second_video": self._shown(context, context.rival),
        }
        system, content = self.prompt.render({**_told(context, self.characters), **media})
        session = context.session
        return Request(
            self.module,
            content,
            session.query.session_id,
            len(session.turns),
            system,
            CompareAnswer if self.reasons else None,
            choices=CHOICES if self.soft else (),
            draw=context.encounter,
        )

    def parse(self, text: str, context: Context) -> Verdict:
        """The verdict."""
        del context
        if self.soft:
            return read_weights(text)
        if not self.reasons:
            return read_letter(text)
        answer = read_json(text, CompareAnswer)
        return replace(VERDICTS[answer.winner], reason=tidy(answer.reason))

    def _shown(self, context: Context, video: str | None) -> Media | None:
        return Media(video, self.frames, context.videos) if self.frames and video and context.videos else None


def _told(context: Context, characters: int) -> dict[str, Value]:
    """The values of the fields in words."""
    return {
        "wanted": context.text,
        "source_caption": context.source_caption[:characters],
        "first": context.candidate_caption[:characters],
        "second": context.rival_caption[:characters],
    }
