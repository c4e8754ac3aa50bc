"""Gallery captions and metadata from a vision-language model: the long-term memory of ReCoVR (section 3.1).

The form of a description (caption, main objects, scene) is that of UMIVR, whose authors ReCoVR shares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from covr_lab.captioners.base import Captioner
from covr_lab.engines.base import Engine
from covr_lab.engines.consult import Consulted, ParseError, consult
from covr_lab.engines.request import Media, Request
from covr_lab.engines.schema import read_json
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.store import Address
from covr_lab.prompts.suite import load_prompt
from covr_lab.retrievers.video import Part
from covr_lab.video import Uniform
from covr_lab.video.samplers import Listed
from covr_lab.views.quality import FrameChoice

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video import Clip

T = TypeVar("T")
WORDS: Final = 80  # of a caption, that others read; the bounds below are on what an engine may write


class Description(BaseModel):
    """What an engine says of a video."""

    model_config = ConfigDict(extra="forbid")

    caption: str = Field(min_length=1, max_length=640)
    main_objects: list[Annotated[str, Field(max_length=40)]] = Field(max_length=5)
    scene: str = Field(max_length=60)

    @property
    def text(self) -> str:
        """All of it as prose of some hundred words at most.

        >>> Description(caption="A dog runs.", main_objects=["dog", "ball"], scene="beach").text
        'A dog runs. Objects: dog, ball. Scene: beach.'
        """
        caption = " ".join(self.caption.split()[:WORDS])
        objects = ", ".join(filter(None, (" ".join(name.split()) for name in self.main_objects)))
        labelled = {"": caption, "Objects: ": objects, "Scene: ": " ".join(self.scene.split())}
        return " ".join(f"{label}{text.rstrip('.')}." for label, text in labelled.items() if text)


# JSON writes a control character as six bytes (\u0007), which is the most that any character takes.
WIDTH: Final = len(
    Description(caption="\a" * 640, main_objects=["\a" * 40] * 5, scene="\a" * 60).model_dump_json().encode()
)


def read_description(text: str) -> Description:
    """The description in an engine's answer.

    Raises:
        ParseError: there is none, or its caption is blank.
    """
    found = read_json(text, Description)
    if not found.caption.strip():
        raise ParseError("caption: is blank")
    return found


def bytes_of(record: BaseModel, width: int) -> Tensor:
    """A row of bytes: uint8 ``(width,)``, JSON in UTF-8 and then zeros; JSON has no zero byte."""
    row = torch.zeros(width, dtype=torch.uint8)
    text = record.model_dump_json().encode()
    row[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return row


def json_of(row: Tensor) -> bytes:
    """The JSON that :func:`bytes_of` made a row of."""
    return row.numpy().tobytes().rstrip(b"\0")


def pack(description: Description) -> Tensor:
    """A row of a description."""
    return bytes_of(description, WIDTH)


def unpack(row: Tensor) -> Description:
    """The description of a row."""
    return Description.model_validate_json(json_of(row))


@dataclass(frozen=True, slots=True)
class HeldMedia(Media):
    """Frames that were read before the prompt was made; their digest is that of the same frames read later."""

    held: Clip = field(repr=False, compare=False)

    def clip(self) -> Clip:
        """The frames."""
        return self.held


class VLMCaptioner(Captioner):
    """Asks an engine for a :class:`Description` of each video, once for a gallery.

    Args:
        engine: name of an engine of the recipe.
        prompts: suite of prompts (its ``describe`` is used), by name or folder.
        frames: how many the engine sees, uniformly spaced.
        choice: chooses them by what they show instead; there may be fewer.
    """

    def __init__(
        self, *, engine: str, prompts: str = "default", frames: int = 8, choice: FrameChoice | None = None
    ) -> None:
        super().__init__()
        if frames < 1:
            raise ValueError(f"VLMCaptioner.frames must be 1 or more, not {frames}")
        self.engine, self.frames, self.choice = engine, frames, choice
        self.prompt = load_prompt(prompts, "describe", {"video": "video"}, required=("video",))
        self.parts = {"descriptions": Part("all", Uniform(frames) if choice is None else choice.sampler)}

    def connect(self, engine: Engine) -> None:
        """Take the engine."""
        self.describer = engine

    def load(self) -> None:
        """Load the engine and what the choice of frames needs."""
        self.describer.load()
        if self.choice is not None:
            self.choice.load()

    @property
    def fingerprint(self) -> str:
        """sha256 of engine, prompt, form of the answer and choice of frames."""
        parts: list[Any] = [self.describer.fingerprint, self.prompt.digest, Description.model_json_schema()]
        parts += [] if self.choice is None else [self.choice.fingerprint, self.frames]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def locate(self, gallery: Gallery, videos: VideoStore) -> dict[str, Address]:
        """Where the descriptions lie; the media are kept in mind, as they identify the frames of a request."""
        self.videos = videos
        return super().locate(gallery, videos)

    def encode_clips(self, name: str, clips: Mapping[str, Clip]) -> dict[str, Tensor | str]:
        """Ask for all descriptions as one list; after :meth:`locate`."""
        del name
        if self.choice is not None:
            clips = {video: self.choice.pick(video, clip, self.frames) for video, clip in clips.items()}
        requests = [self.render(video, clip) for video, clip in clips.items()]
        found = consult(requests, [read_description] * len(requests), self.describer)
        return {video: row_of(one, pack) for video, one in zip(clips, found, strict=True)}

    def render(self, video: str, clip: Clip) -> Request:
        """What to ask about a video; no session asks for it, its id stands there."""
        chosen: dict[str, Any] = {}
        if self.choice is not None:
            chosen = {"sampler": Listed(clip.indices.tolist()), "side": self.choice.sampler.side}
        held = HeldMedia(video, len(clip.frames), self.videos, clip, **chosen)
        system, content = self.prompt.render({"video": held})
        return Request("describe", content, video, 0, system, Description)

    def caption(self, row: Tensor) -> str:
        """The description in words."""
        return unpack(row).text


def row_of(found: Consulted[T], pack: Callable[[T], Tensor]) -> Tensor | str:
    """The row that ``pack`` makes of an answer, or why there is none."""
    if found.answer is not None:
        return pack(found.answer)
    last = found.calls[-1].response
    return last.error or f"its description could not be read, even asked twice: {last.text[:80]!r}"
