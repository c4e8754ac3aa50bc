"""The baseline of IVR after ViReD: a language model answers from a caption of the target (dossier, section 3.6)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from covr_lab.engines.base import Engine, borrow
from covr_lab.engines.consult import ParseError, consult
from covr_lab.engines.request import Rehearsal, Request
from covr_lab.functional.text import content_words
from covr_lab.gallery.gallery import Gallery
from covr_lab.prompts.suite import Kind, load_prompt
from covr_lab.retrievers.blip.images import Frames
from covr_lab.simulators.answering import Answer, AnsweringUser, Asked
from covr_lab.simulators.blip import BlipDescriber
from covr_lab.simulators.videoqa import frames_of
from covr_lab.types import Part, Probe, Refused, Session, SessionError, Target
from covr_lab.video import Uniform

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

FIELDS: Final[Mapping[str, Kind]] = {"caption": "text", "question": "text"}
WORDS: Final = 20  # of an answer
TYPICAL: Final = Probe("What is the person in the video doing?")  # for estimates


def read_reply(text: str) -> str:
    """The first line of a free answer that is not blank.

    Raises:
        ParseError: there is none, or it is too long for an answer.

    >>> read_reply(' Answer: "a dog" ')
    'a dog'
    """
    lines = (" ".join(line.split()).removeprefix("Answer:").strip(" \"'") for line in text.splitlines())
    reply = next(filter(None, lines), "")
    if not reply or len(reply.split()) > WORDS:
        raise ParseError(f"no answer of 1 to {WORDS} words: {text[:80]!r}")
    return reply


class CaptionQAUser(AnsweringUser):
    """Asks an engine what it would answer who knows a caption of the target, and no more of it.

    An answer that cannot be read is blank: the user does not know. It is recorded as an invalid call.
    """

    def __init__(
        self,
        *,
        engine: str,
        prompts: str = "default",
        captions: Literal["model", "annotation"] = "model",
        model: str | None = None,
        revision: str | None = None,
        frames: int = 8,
        tile: int = 2,
        stop: bool = False,
    ) -> None:
        """Name engine and captioner, and read the prompt.

        Args:
            engine: name of an engine of the recipe; no system may name the same one.
            prompts: suite of prompts (its ``user_answer`` is used), by name or folder.
            captions: what is known of the target: what BLIP says of it (3 beams, 5 to 20 tokens, repetition penalty
                1.1), of a half where a question is about one; or its annotation.
            model: for ``captions: model``, a folder with a saved ``BlipForConditionalGeneration`` and its tokenizer, or
                OWNER/NAME on the Hub.
            revision: commit on the Hub (40 digits).
            frames: of a whole video; a half has half of them.
            tile: videos that are described together; costs much memory, and pays on a GPU.
            stop: see :class:`~covr_lab.simulators.answering.AnsweringUser`.

        Raises:
            ValueError: a value out of range, no captioner, or a prompt that does not fit.
        """
        super().__init__(stop=stop)
        if frames < 2 or frames % 2:
            raise ValueError(f"CaptionQAUser needs even frames, not {frames}")
        if (captions == "model") != (model is not None):
            raise ValueError("CaptionQAUser: name a captioner in `model` for captions: model, and only there")
        self.engine, self.frames = engine, frames
        self.prompt = load_prompt(prompts, "user_answer", FIELDS, required=tuple(FIELDS))
        self.describer: BlipDescriber | None = None
        if model is not None:
            written = {"lengths": (5, 20), "repetition_penalty": 1.1, "tile": tile}
            self.describer = BlipDescriber(model=model, revision=revision, **written)  # type: ignore[arg-type]
        self.fingerprint = self.prompt.digest

    def connect(self, engines: Mapping[str, Engine]) -> frozenset[str]:
        """Take the engine."""
        self.speaker = borrow(engines, {"simulator.engine": self.engine})[self.engine]
        return frozenset({self.engine})

    def load(self) -> None:
        """Read the captioner's weights."""
        if self.describer is not None:
            self.describer.load()
            known = [self.prompt.digest, self.describer.fingerprint]
            self.fingerprint = hashlib.sha256(json.dumps(known).encode()).hexdigest()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take gallery and media, and forget all captions.

        Raises:
            Refused: there are no videos to look at.
        """
        if videos is None and self.describer is not None:
            raise Refused(
                "simulator CaptionQAUser looks at videos: set data.videos_dir, or simulator.captions to annotation"
            )
        self.gallery, self.videos, self._known = gallery, videos, dict[tuple[str, Part], str]()

    def rehearse(self, session: Session, target: Target) -> Rehearsal:
        """One question about a caption of twenty words, in each turn; a round of more asks more."""
        asked = Asked(session.query.session_id, len(session.turns), target.video, TYPICAL)
        return Rehearsal(turn=(self._request(asked, " ".join(["word"] * 20)),))

    def answer(self, asked: Sequence[Asked]) -> list[Answer]:
        """Answers in order (see :meth:`AnsweringUser.answer`), asked for as one list."""
        self._describe(sorted({(each.video, each.probe.part) for each in asked} - self._known.keys()))
        requests = [self._request(each, self._known[each.video, each.probe.part]) for each in asked]
        found = consult(requests, [read_reply] * len(requests), self.speaker)
        return [Answer(one.answer or "", one.calls) for one in found]

    def _request(self, asked: Asked, caption: str) -> Request:
        system, content = self.prompt.render({"caption": caption, "question": asked.probe.text})
        return Request("user_answer", content, asked.session_id, asked.turn, system)

    def _describe(self, new: Sequence[tuple[str, Part]]) -> None:
        """See to it that a caption of each part of each video is known."""
        if self.describer is None:
            self._known |= {(video, part): self._annotation(video) for video, part in new}
            return
        describer, parts = self.describer, [frames_of(part, self.frames) for _, part in new]
        describer.load()
        counts = [part.stop - part.start for part in parts]
        found = describer.captions(counts, lambda at: describer.see(self._frames(new[at][0])[parts[at]]))
        self._known |= dict(zip(new, found, strict=True))

    def _frames(self, video: str) -> Frames:
        assert self.videos is not None  # bind refuses it
        return self.videos.clip(video, Uniform(self.frames)).frames

    def _annotation(self, video: str) -> str:
        caption = self.gallery.caption(video)
        if not content_words(caption):
            raise SessionError(f"video {video}: no caption with a content word; add one to the annotation file")
        return caption
