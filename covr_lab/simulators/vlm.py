"""A user who is played by a vision-language model (ReCoVR, App. D.2).

It keeps a caption of the target in mind, compares it with the video on display, and modifies, rewrites, answers or
stops. The prompts of the paper are not published; these are our own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from covr_lab.captioners.vlm import Description, read_description
from covr_lab.engines.base import Engine, borrow
from covr_lab.engines.consult import ParseError, consult
from covr_lab.engines.request import Call, Media, Rehearsal, Request
from covr_lab.engines.schema import read_json
from covr_lab.functional.text import content_words
from covr_lab.gallery.gallery import Gallery
from covr_lab.prompts.suite import Kind, load_prompt
from covr_lab.simulators.base import CHOICES, Choice, UserSimulator, permitted, shows
from covr_lab.simulators.rules import RuleUser
from covr_lab.types import Action, Feedback, Refused, Session, SessionError, Target

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

FIELDS: Final[Mapping[str, Kind]] = {
    "target": "text",  # what the user remembers
    "shown": "video",
    "shown_caption": "text",
    "edit": "text",
    "dialogue": "lines",
    "question": "text",
    "restriction": "text",  # of what the user may do
}
RESTRICTIONS: Final[Mapping[Choice, str]] = {  # what a user is told who may not do so
    "modify": "However close the video on display is, say afresh what you want to see; never ask for a change to it.",
    "rewrite": "However far off the video on display is, ask for a change to it; never describe another video afresh.",
}


class UserAnswer(BaseModel):
    """What a user thinks of the video on display, and says about it."""

    model_config = ConfigDict(extra="forbid")

    discrepancy: Literal["none", "minor", "major"]
    answers_question: bool
    feedback: str = Field(min_length=1, max_length=300)


def read_answer(text: str) -> UserAnswer:
    """The user's judgement and words in an engine's answer.

    Raises:
        ParseError: there is none, or the user says nothing.
    """
    found = read_json(text, UserAnswer)
    if not found.feedback.strip():
        raise ParseError("feedback: is blank")
    return found


def action_of(answer: UserAnswer, *, asked: bool, judged: bool, allowed: frozenset[Choice] = CHOICES) -> Action:
    """What a user does: the choice of ReCoVR's simulator.

    Args:
        answer: judgement of the video on display.
        asked: whether a question is open.
        judged: whether a video without a discrepancy ends the session; otherwise the user goes on modifying.
        allowed: the actions to choose from, beside stopping.

    >>> action_of(UserAnswer(discrepancy="major", answers_question=True, feedback="snow"), asked=True, judged=False)
    'answer'
    """
    if answer.discrepancy == "none" and judged:
        return "stop"
    if answer.discrepancy != "major":
        return permitted("modify", allowed)
    return permitted("answer" if asked and answer.answers_question else "rewrite", allowed)


@dataclass(frozen=True, slots=True)
class View:
    """One user's turn: the dialogue, the video in mind, the video on display, the open question."""

    session: Session
    target: str
    shown: str
    question: str | None

    @property
    def name(self) -> str:
        """Id of the session."""
        return self.session.query.session_id

    @property
    def dialogue(self) -> list[str]:
        """What was said since the edit, one line an utterance."""
        lines = []
        for turn in self.session.turns:
            lines += [f"System: {turn.question}"] if turn.question else []
            lines += [f"You: {turn.feedback.text}"] if turn.feedback is not None else []
        return lines


class VLMUser(UserSimulator):
    """Asks an engine what a user says.

    The caption of the target is made in the first turn of each session, from frames that no system is shown; it stays
    in this object. An answer that cannot be read is replaced by the words of the rule-based user.
    """

    def __init__(
        self,
        *,
        engine: str,
        prompts: str = "default",
        frames: int = 8,
        target_frames: int = 8,
        captions: Literal["model", "annotation"] = "model",
        stop: Literal["identity", "judged"] = "identity",
    ) -> None:
        """Name the engine and read the prompts.

        Args:
            engine: name of an engine of the recipe; no system may name the same one.
            prompts: suite of prompts (its ``user_caption`` and ``user`` are used), by name or folder.
            frames: of the video on display in each judgement; 0: the user knows its caption alone.
            target_frames: of the target, for ``captions: model``.
            captions: what the user remembers of the target: what the engine sees in it, or its annotation.
            stop: when a session ends: as soon as the target is on display, without a call, or as soon as the engine
                sees no discrepancy.

        Raises:
            ValueError: a value out of range, or prompts that do not fit.
        """
        super().__init__()
        if frames < 0 or target_frames < 1:
            raise ValueError(f"VLMUser needs frames >= 0 and target_frames >= 1, not {frames} and {target_frames}")
        self.engine, self.frames, self.target_frames = engine, frames, target_frames
        self.captions, self.stop = captions, stop
        self.watching = load_prompt(prompts, "user_caption", {"video": "video"}, required=("video",))
        self.judging = load_prompt(prompts, "user", FIELDS, required=("target", "shown", "shown_caption"))
        digests = [self.watching.digest, self.judging.digest]
        self.fingerprint = hashlib.sha256(json.dumps(digests).encode()).hexdigest()

    def restrict(self, allowed: frozenset[Choice]) -> None:
        """Choose among ``allowed`` alone; the engine is told so.

        Raises:
            ValueError: the prompts have no place to tell it.
        """
        if RESTRICTIONS.keys() - allowed and "restriction" not in self.judging.used:
            raise ValueError("the prompt user.yaml of simulator.prompts lacks {restriction}: a policy needs it")
        self.allowed = allowed

    def connect(self, engines: Mapping[str, Engine]) -> frozenset[str]:
        """Take the engine."""
        self.speaker = borrow(engines, {"simulator.engine": self.engine})[self.engine]
        return frozenset({self.engine})

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take gallery and media, and forget all targets.

        Raises:
            Refused: there are no videos to look at.
        """
        if videos is None and (self.frames or self.captions == "model"):
            raise Refused(
                "simulator VLMUser looks at videos: set data.videos_dir, or simulator.frames to 0 and "
                "simulator.captions to annotation"
            )
        self.gallery, self.videos, self._memory = gallery, videos, dict[str, str]()

    def rehearse(self, session: Session, target: Target) -> Rehearsal:
        """The first look at the target, and a judgement."""
        view = View(session, target.video, self._shown(session), None)
        judgement = self._judgement(view, " ".join(["word"] * 80))  # as long as a description may be
        return Rehearsal((self._first_look(view),) if self.captions == "model" else (), (judgement,))

    def satisfied(self, sessions: Sequence[Session], targets: Sequence[Target]) -> list[bool]:
        """Who has the target on display, if identity is what ends a session."""
        identity = self.stop == "identity"
        return [identity and shows(*each, self.gallery) for each in zip(sessions, targets, strict=True)]

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        """Feedback for each session (see :meth:`UserSimulator.respond`); all that are judged, as one list.

        Raises:
            SessionError: a target cannot be read or has no caption, or nothing is known of a shown video.
            ValueError: a session shows no video.
        """
        said: list[Feedback] = [Feedback("stop", "")] * len(sessions)
        views = dict[int, View]()
        for at, (session, target, question) in enumerate(zip(sessions, targets, questions, strict=True)):
            view = View(session, target.video, self._shown(session), question)
            if self.stop == "judged" or view.shown not in target.videos:
                views[at] = view
        spent = self._remember(list(views.values()))
        requests = [self._judgement(view, self._memory[view.name]) for view in views.values()]
        found = consult(requests, [read_answer] * len(requests), self.speaker)
        for (at, view), before, one in zip(views.items(), spent, found, strict=True):
            words = self._plain(view) if one.answer is None else self._words(view, one.answer)
            said[at] = replace(words, calls=(*before, *one.calls))
        return said

    def _shown(self, session: Session) -> str:
        if session.shown is None:
            name = session.query.session_id
            raise ValueError(f"session {name}: no video is shown; end the session when turn 0 fails")
        return self.gallery.ids[session.shown]

    def _remember(self, views: Sequence[View]) -> list[tuple[Call, ...]]:
        """See to it that each user has its target in mind; returns the calls that it took.

        Every session asks for itself, in its first turn: what it pays does not depend on other sessions or earlier
        runs. Engines that keep answers spare the work.
        """
        spent: list[tuple[Call, ...]] = [()] * len(views)
        new = [at for at, view in enumerate(views) if len(view.session.turns) == 1 or view.name not in self._memory]
        if self.captions == "annotation":
            self._memory |= {views[at].name: self._annotation(views[at].target) for at in new}
            return spent
        requests = [self._first_look(views[at]) for at in new]
        for at, one in zip(new, consult(requests, [read_description] * len(requests), self.speaker), strict=True):
            view, spent[at] = views[at], one.calls
            self._memory[view.name] = self._look_again(view.target) if one.answer is None else one.answer.text
        return spent

    def _first_look(self, view: View) -> Request:
        assert self.videos is not None  # bind refuses it
        system, content = self.watching.render({"video": Media(view.target, self.target_frames, self.videos)})
        return Request("user_caption", content, view.name, len(view.session.turns), system, Description)

    def _look_again(self, target: str) -> str:
        """The annotation of a target that the engine could not describe, if the video is sound."""
        assert self.videos is not None
        Media(target, self.target_frames, self.videos).clip()
        return self._annotation(target)

    def _annotation(self, target: str) -> str:
        caption = self.gallery.caption(target)
        if not content_words(caption):
            raise SessionError(f"video {target}: no caption with a content word; add one to the annotation file")
        return caption

    def _judgement(self, view: View, remembered: str) -> Request:
        caption = self.gallery.caption(view.shown)
        if not self.frames and not caption:
            raise SessionError(f"video {view.shown}: no caption to judge by; add one, or set simulator.frames above 0")
        shown = Media(view.shown, self.frames, self.videos) if self.frames and self.videos is not None else None
        values = {
            "target": remembered,
            "shown": shown,
            "shown_caption": caption,
            "edit": view.session.query.text,
            "dialogue": view.dialogue,
            "question": view.question,
            "restriction": " ".join(text for choice, text in RESTRICTIONS.items() if choice not in self.allowed),
        }
        system, content = self.judging.render(values)
        return Request("user", content, view.name, len(view.session.turns), system, UserAnswer)

    def _words(self, view: View, answer: UserAnswer) -> Feedback:
        asked, judged = view.question is not None, self.stop == "judged"
        action = action_of(answer, asked=asked, judged=judged, allowed=self.allowed)
        return Feedback(action, "" if action == "stop" else " ".join(answer.feedback.split()))

    def _plain(self, view: View) -> Feedback:
        """What the rule-based user says who knows what this one does."""
        wanted = self._memory[view.name]
        if not content_words(wanted):
            raise SessionError(f"session {view.name}: neither answer nor caption of the target can be read")
        captions = {view.shown: self.gallery.caption(view.shown), view.target: wanted}
        user = _Plain(stop=False)
        user.restrict(self.allowed)
        user.bind(replace(self.gallery, captions=captions))
        return user.respond([view.session], [Target(view.name, view.target)], [view.question])[0]


class _Plain(RuleUser):
    """The rule-based user, who takes a shown video without a caption for one that has nothing of the target."""

    def _caption(self, video: str) -> str:
        return self.gallery.caption(video)
