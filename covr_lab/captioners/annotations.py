"""Structured annotations of videos as what a system knows of them in words (X-CoT; dossier, section 4)."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from covr_lab.captioners.base import Captioner
from covr_lab.captioners.tags import CLEANER, FRAMES, TAG, Annotation, annotation_text, cleaned, perturbed
from covr_lab.captioners.vlm import HeldMedia, bytes_of, json_of, row_of
from covr_lab.engines.base import Engine
from covr_lab.engines.consult import ParseError, consult
from covr_lab.engines.request import Request
from covr_lab.engines.schema import read_json
from covr_lab.functional.duplicates import distinct
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.store import Address
from covr_lab.prompts.suite import load_prompt
from covr_lab.retrievers.video import Part
from covr_lab.types import SessionError
from covr_lab.video.overlay import fit
from covr_lab.video.samplers import Listed, PerSecond
from covr_lab.views.base import FrameEmbedder

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video import Clip

# A clean record has printable characters alone: none takes more than four bytes, escapes included.
_WIDEST: Final = "\U00010000"
WIDTH: Final = len(
    Annotation(
        summary=[_WIDEST * 240] * 3,
        objects=[_WIDEST * TAG] * 10,
        actions=[_WIDEST * TAG] * 8,
        scenes=[_WIDEST * TAG] * 5,
        frame_captions=[_WIDEST * 120] * FRAMES,
    )
    .model_dump_json()
    .encode()
)


class AnnotationCaptioner(Captioner, ABC):
    """A captioner whose descriptions are the texts of annotations.

    Args:
        perturb: share of the tags that tags of other videos replace, to see what they are worth; no artifact changes.
        seed: of these draws.
        options: of the class that comes next, for one that shares an artifact.
    """

    def __init__(self, *, perturb: float = 0.0, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        perturbed({}, perturb)  # a share out of range is refused here
        self.perturb, self.seed = perturb, seed

    @abstractmethod
    def annotation(self, row: Tensor) -> Annotation:
        """The annotation that a row of the artifact stands for."""

    def caption(self, row: Tensor) -> str:
        """Its text."""
        return annotation_text(self.annotation(row))

    def annotations(self, gallery: Gallery, videos: VideoStore | None) -> dict[str, Annotation]:
        """Video id -> annotation, undisturbed, of every gallery and reference video that could be read."""
        artifact = self.opened(gallery, videos)
        return {video: self.annotation(artifact.row(video)) for video in artifact.ids}

    def describe(self, gallery: Gallery, videos: VideoStore | None) -> dict[str, str]:
        """Their texts, with the tags disturbed as wanted; see the base class."""
        found = perturbed(self.annotations(gallery, videos), self.perturb, self.seed)
        return {video: annotation_text(annotation) for video, annotation in found.items()}


def read_annotation(text: str, frames: int) -> Annotation:
    """The clean annotation in an engine's answer about so many ``frames``.

    Raises:
        ParseError: there is none, its summary is blank, or it has more frame captions than frames.
    """
    found = cleaned(read_json(text, Annotation))
    if not any(found.summary):
        raise ParseError("summary: is blank")
    if len(found.frame_captions) > frames:
        raise ParseError(f"frame_captions: {len(found.frame_captions)} for {frames} frames")
    return found


def pack(annotation: Annotation) -> Tensor:
    """A row of an annotation, which must be a clean one."""
    return bytes_of(annotation, WIDTH)


def unpack(row: Tensor) -> Annotation:
    """The annotation of a row."""
    return Annotation.model_validate_json(json_of(row))


class Annotator(AnnotationCaptioner):
    """Asks an engine for an :class:`Annotation` of each video, once for a gallery.

    Frames come at a fixed rate, those that look like a kept one are dropped, and the rest go into one request, which
    brings summary, tags and a caption of each frame: the paper asks a captioner frame by frame and does not say how the
    record is made of that.

    Args:
        engine: name of an engine of the recipe.
        embedder: sees the frames, to tell which look alike.
        prompts: suite of prompts (its ``annotate`` is used), by name or folder.
        rate: frames a second to look at. The paper leaves rate and bound open.
        frames: of them at most, equidistant; of a clip without a clock always so many.
        threshold: cosine from which on two frames are the same.
        side: pixels that the longer side of a frame may have, ``None`` for any.
        perturb: see :class:`AnnotationCaptioner`.
        seed: likewise.
    """

    def __init__(
        self,
        *,
        engine: str,
        embedder: FrameEmbedder,
        prompts: str = "default",
        rate: float = 1.0,
        frames: int = FRAMES,
        threshold: float = 0.95,
        side: int | None = 448,
        perturb: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(perturb=perturb, seed=seed)
        if not 1 <= frames <= FRAMES:
            raise ValueError(f"Annotator.frames must be from 1 to {FRAMES}, not {frames}")
        self.engine, self.embedder, self.threshold, self.side = engine, embedder, threshold, side
        self.prompt = load_prompt(prompts, "annotate", {"video": "video"}, required=("video",))
        self.parts = {"annotations": Part("all", PerSecond(rate, frames))}

    def connect(self, engine: Engine) -> None:
        """Take the engine."""
        self.describer = engine

    def load(self) -> None:
        """Load engine and embedder."""
        self.describer.load()
        self.embedder.load()

    @property
    def fingerprint(self) -> str:
        """sha256 of engine, embedder, prompt, form of the answer and what is made of it."""
        parts = [self.describer.fingerprint, self.embedder.fingerprint, self.prompt.digest, self.threshold, self.side]
        parts += [CLEANER, Annotation.model_json_schema()]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def locate(self, gallery: Gallery, videos: VideoStore) -> dict[str, Address]:
        """Where the annotations lie; the media are kept in mind, as they identify the frames of a request."""
        self.videos = videos
        return super().locate(gallery, videos)

    def prepare(self, name: str, clip: Clip) -> Clip:
        """Frames at the size that the prompt shows."""
        del name
        return replace(clip, frames=fit(clip.frames, self.side))

    def encode_clips(self, name: str, clips: Mapping[str, Clip]) -> dict[str, Tensor | str]:
        """Ask for all annotations as one list; after :meth:`locate`."""
        del name
        kept = {video: self.thinned(clip) for video, clip in clips.items()}
        shown = {video: clip for video, clip in kept.items() if not isinstance(clip, str)}
        requests = [self.render(video, clip) for video, clip in shown.items()]
        readers = [partial(read_annotation, frames=len(clip.frames)) for clip in shown.values()]
        found = consult(requests, readers, self.describer)
        rows: dict[str, Tensor | str] = {video: why for video, why in kept.items() if isinstance(why, str)}
        return rows | {video: row_of(one, pack) for video, one in zip(shown, found, strict=True)}

    def thinned(self, clip: Clip) -> Clip | str:
        """``clip`` without frames that look like a kept one, or why its frames cannot be told apart."""
        try:
            chosen = distinct(self.embedder.embed_frames(clip.frames).float().cpu().numpy(), self.threshold)
        except (SessionError, ValueError) as error:
            return f"its frames cannot be embedded: {error}"
        seconds = None if clip.seconds is None else clip.seconds[chosen]
        return replace(clip, frames=clip.frames[chosen], indices=clip.indices[chosen], seconds=seconds)

    def render(self, video: str, clip: Clip) -> Request:
        """What to ask about the frames of a video; no session asks for it, its id stands there."""
        chosen = Listed(clip.indices.tolist())
        held = HeldMedia(video, len(clip.frames), self.videos, clip, sampler=chosen, side=self.side)
        system, content = self.prompt.render({"video": held})
        return Request("annotate", content, video, 0, system, Annotation)

    def annotation(self, row: Tensor) -> Annotation:
        """The annotation of a row."""
        return unpack(row)
