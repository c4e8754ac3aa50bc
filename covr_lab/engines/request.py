"""What goes to an engine and what comes back: values without weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from covr_lab.gallery.videos import finish
from covr_lab.video.samplers import Uniform

if TYPE_CHECKING:
    from pydantic import BaseModel

    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video import Clip, FrameSampler


@dataclass(frozen=True, slots=True)
class Media:
    """Frames of one video in a prompt; they are read when an engine needs them, not before.

    Attributes:
        video: id.
        frames: how many.
        store: where the media lie.
        sampler: which, ``None`` for uniformly spaced.
        side: pixels that the longer side may have, ``None`` for any.
        timestamps: whether each frame shows its time (a prompt should say so:
            :data:`~covr_lab.video.overlay.TIMESTAMP_NOTE`).
    """

    video: str
    frames: int
    store: VideoStore = field(repr=False, compare=False)
    sampler: FrameSampler | None = field(default=None, kw_only=True)
    side: int | None = field(default=None, kw_only=True)
    timestamps: bool = field(default=False, kw_only=True)

    def clip(self) -> Clip:
        """The frames, uint8, with their times.

        Raises:
            SessionError: the video is unknown or cannot be read.
        """
        return self.store.shown(self.video, self.chosen, side=self.side, timestamps=self.timestamps)

    @property
    def chosen(self) -> FrameSampler:
        """Which frames."""
        return self.sampler or Uniform(self.frames)

    @property
    def digest(self) -> str:
        """sha256 of everything that can change a pixel or a time: media, choice of frames, reader, size, stamps."""
        parts = [self.store.digest([self.video]), self.chosen.describe(), self.store.reader.fingerprint]
        parts += finish(self.side, self.timestamps)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt of one module.

    Attributes:
        role: which module asks ("intent", "reflection", ...).
        content: the user's message: texts and videos in order.
        session_id: whose turn it is, for records and seeds; a video's id where no session asks.
        turn: which turn it is.
        system: the system message, "" for none.
        schema: what the answer has to look like as JSON; ``None`` for free text.
        attempt: 1, or 2 for a repair of an answer that could not be read.
        choices: where it has some, the answer is how probable each is to begin it, as JSON: ``{"A": 0.9, "B": 0.1}``.
            Their sum is 1, or 0 where no probability is known of any.
        draw: which of several sampled answers to the same request.
    """

    role: str
    content: tuple[str | Media, ...]
    session_id: str
    turn: int
    system: str = ""
    schema: type[BaseModel] | None = None
    attempt: int = 1
    choices: tuple[str, ...] = ()
    draw: int = 0

    @property
    def text(self) -> str:
        """System and user message in one string, videos named by id and number of frames."""
        shown = [part if isinstance(part, str) else f"[{part.frames} frames of {part.video}]" for part in self.content]
        return "\n\n".join(filter(None, (self.system, "".join(shown))))

    @property
    def digest(self) -> str:
        """sha256 of what an answer may depend on: messages, media and schema, not whose turn it is."""
        parts = [part if isinstance(part, str) else {"media": part.digest} for part in self.content]
        schema = None if self.schema is None else self.schema.model_json_schema()
        asked = [self.system, parts, schema, *([self.choices] if self.choices else [])]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Response:
    """What an engine answered, and what it took.

    Attributes:
        text: the answer, "" when there is none.
        tokens_in: of the prompt, frames included.
        tokens_out: generated.
        seconds: wall time, the request's share of its batch.
        retries: times that it was sent again (429, 5xx, time-out, dropped connection).
        cached: whether it was answered without a generation; the tokens are then those of the first time.
        error: why there is no answer, "" when there is one.
    """

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    retries: int = 0
    cached: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One request with its response; ``valid`` says whether the module could read the answer."""

    request: Request
    response: Response
    valid: bool


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What one session would ask, rendered and not sent.

    Attributes:
        once: requests of a session that goes on after turn 0.
        turn: requests of each of its turns.
        opening: requests of every session's turn 0.
    """

    once: tuple[Request, ...] = ()
    turn: tuple[Request, ...] = ()
    opening: tuple[Request, ...] = ()
