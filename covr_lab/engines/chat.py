"""A request as the inputs of a model: chat template, frames with their times, tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from covr_lab.engines.images import frame_labels
from covr_lab.engines.request import Request
from covr_lab.types import Refused, SessionError

if TYPE_CHECKING:
    from covr_lab.video import Clip
    from covr_lab.video.base import Frames

MediaKind = Literal["video", "images"]


@dataclass(slots=True)
class Parts:
    """A user's message in parts, and the frames that go with it, in order.

    Attributes:
        content: parts as chat templates know them.
        images: frames that are images, uint8 ``(H, W, 3)``.
        videos: frames of each video, uint8 ``(F, H, W, 3)``.
        seconds: times of them.
    """

    content: list[dict[str, str]] = field(default_factory=list)
    images: list[Frames] = field(default_factory=list)
    videos: list[Frames] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        """Append a text."""
        self.content.append({"type": "text", "text": text})

    def add_video(self, frames: Frames, seconds: Sequence[float], multiple: int) -> None:
        """Append a video; the last frame is repeated, at its time, up to a multiple of the model's temporal patch."""
        places = [*range(len(frames)), *[len(frames) - 1] * (-len(frames) % multiple)]
        self.content.append({"type": "video"})
        self.videos.append(frames[places])
        self.seconds.append([float(seconds[place]) for place in places])

    def add_images(self, frames: Frames, labels: Sequence[str]) -> None:
        """Append each frame behind its label."""
        for frame, label in zip(frames, labels, strict=True):
            self.add_text(label)
            self.content.append({"type": "image"})
            self.images.append(frame)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, ready for a model.

    Attributes:
        text: as the model reads it, placeholders of frames included.
        tensors: inputs by name; those a token are ``(1, T)``.
    """

    text: str
    tensors: dict[str, Tensor]

    @property
    def tokens(self) -> int:
        """T."""
        return self.tensors["input_ids"].shape[1]


class Chat:
    """Renders requests for one model.

    Args:
        processor: of transformers; a tokenizer where the model reads text only.
        name: what messages call the model.
        media: ``video``: clips with a clock go as one video with the exact times of its frames; ``images``: every frame
            is an image behind its time. Without a clock it is always images, behind "frame 1 of 8".
        frame_pixels: pixels that a frame may have.
        limit: tokens that the model reads.
    """

    def __init__(self, processor: Any, *, name: str, media: MediaKind, frame_pixels: int, limit: int) -> None:
        self.processor, self.name, self.limit = processor, name, limit
        self.media, self.frame_pixels = media, frame_pixels
        self.sees = hasattr(processor, "image_processor")
        self.tokenizer = processor.tokenizer if self.sees else processor
        added = self.tokenizer.added_tokens_decoder
        self.control = {token.content: index for index, token in added.items() if token.special}
        self._typed = any_of(self.control)
        images, videos = getattr(processor, "image_processor", None), getattr(processor, "video_processor", None)
        # Frames are scaled to whole patches at once; the model's own processor then has nothing left to scale.
        self.patch = getattr(images, "patch_size", 1) * getattr(images, "merge_size", 1) if self.sees else 1
        self.temporal = getattr(videos, "temporal_patch_size", 1)
        self.crops = {"crop_to_patches": False} if hasattr(images, "crop_to_patches") else {}
        if videos is not None and hasattr(videos, "cap_pixels_per_frame"):
            videos.cap_pixels_per_frame = False  # else it warns; frame_pixels is the cap

    def check(self) -> None:
        """Render a made-up request of every kind that may come.

        Raises:
            Refused: the chat template takes no system message, or the model's videos have no times.
        """
        parts = Parts()
        if self.sees and self.media == "video":
            parts.add_video(np.zeros((4, 64, 64, 3), np.uint8), (1.0, 2.0, 7.0, 9.0), self.temporal)
        parts.add_text("?")
        try:
            text = self._prompt("!", parts).text
        except Exception as error:  # of Jinja, or of any processor
            raise Refused(f"model '{self.name}': its processor fails: {str(error).splitlines()[0]}") from error
        if parts.videos and not all(f"<{second} seconds>" in text for second in ("1.5", "8.0")):
            raise Refused(f"model '{self.name}' is not told the times of a video's frames: set `media: images`")

    def prompt(self, request: Request) -> Prompt:
        """Read the frames of a request and tokenise it.

        Raises:
            SessionError: a video cannot be read, or the model cannot read the request; names the mend.
        """
        parts = Parts()
        for part in request.content:
            if isinstance(part, str):
                parts.add_text(self._plain(part))
            elif self.sees:
                self._add_clip(parts, part.clip())
            else:
                raise SessionError(
                    f"model '{self.name}' reads text only, but '{request.role}' shows frames of '{part.video}' (name a "
                    "vision-language model, or prompts without frames)"
                )
        prompt = self._prompt(self._plain(request.system), parts)
        if prompt.tokens >= self.limit:
            raise SessionError(
                f"model '{self.name}' reads {self.limit} tokens, '{request.role}' asks with {prompt.tokens} (show "
                "fewer frames, or lower frame_pixels)"
            )
        return prompt

    def _add_clip(self, parts: Parts, clip: Clip) -> None:
        frames = shrink(clip.frames, self.frame_pixels, self.patch)
        if self.media == "video" and clip.seconds is not None:
            parts.add_video(frames, clip.seconds.tolist(), self.temporal)
        else:
            parts.add_images(frames, frame_labels(clip))

    def _plain(self, text: str) -> str:
        """``text`` without control tokens: a user who types one cannot end the message or claim a picture."""
        return self._typed.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _prompt(self, system: str, parts: Parts) -> Prompt:
        text = self._render(system, parts.content)
        bos = self.tokenizer.bos_token
        options: dict[str, Any] = {"return_tensors": "pt", "add_special_tokens": not (bos and text.startswith(bos))}
        if not self.sees:
            read = self.tokenizer([text], **options)
            return Prompt(text, {key: read[key] for key in ("input_ids", "attention_mask")})
        if parts.images:
            options |= {"images": parts.images, **self.crops}
        if parts.videos:
            # Times are given as places of frames at one frame a second: exact, also at a variable frame rate.
            times = [
                {"total_num_frames": len(seconds), "fps": 1.0, "frames_indices": seconds} for seconds in parts.seconds
            ]
            options |= {"videos": parts.videos, "video_metadata": times, "do_sample_frames": False}
        tensors = dict(self.processor(text=[text], **options))
        if parts.videos and "video_grid_thw" in tensors:  # else they have no times either, see check()
            seen = tensors["video_grid_thw"][:, 0].tolist()
            assert [count * self.temporal for count in seen] == list(map(len, parts.videos)), "frames were resampled"
        return Prompt(self.tokenizer.decode(tensors["input_ids"][0]), tensors)

    def _render(self, system: str, content: list[dict[str, str]]) -> str:
        """Both messages as one text; plain text for a model without a chat template."""
        if not self.sees:
            told = "".join(part["text"] for part in content)
            if self.tokenizer.chat_template is None:
                return "\n\n".join(filter(None, (system, told))) + "\n"
        messages: list[dict[str, Any]] = [{"role": "user", "content": content if self.sees else told}]
        if system:
            words = [{"type": "text", "text": system}] if self.sees else system
            messages.insert(0, {"role": "system", "content": words})
        options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True}
        if "enable_thinking" in str(self.processor.chat_template):
            options["enable_thinking"] = False  # a hybrid model would begin to think aloud
        text: str = self.processor.apply_chat_template(messages, **options)
        return text


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Matches each of ``words``, the longest first; thousands cost no more than a look at each character.

    >>> any_of(["<a>", "<a>b"]).findall("<a>bc <a> a")
    ['<a>b', '<a>']
    """
    ordered = sorted(words, key=lambda word: (-len(word), word))
    first = "".join(sorted({re.escape(word[0]) for word in ordered}))
    return re.compile(f"(?=[{first}])(?:{'|'.join(map(re.escape, ordered))})" if ordered else "(?!)")


def shrink(frames: Frames, pixels: int, multiple: int) -> Frames:
    """Frames uint8 ``(F, H, W, 3)`` of at most ``pixels`` each, sides multiples of ``multiple``; small ones stay.

    >>> shrink(np.zeros((2, 360, 640, 3), np.uint8), 448 * 448, 32).shape
    (2, 320, 576, 3)
    >>> shrink(np.zeros((2, 100, 50, 3), np.uint8), 448 * 448, 32).shape
    (2, 100, 50, 3)
    """
    from PIL import Image

    _, height, width, _ = frames.shape
    if height * width <= pixels:
        return frames
    scale = math.sqrt(pixels / (height * width))
    high, wide = (max(multiple, math.floor(side * scale / multiple) * multiple) for side in (height, width))
    resized = [Image.fromarray(frame).resize((wide, high), Image.Resampling.BICUBIC) for frame in frames]
    return np.stack([np.asarray(image) for image in resized])


def left_padded(prompts: Sequence[Prompt], pad_token: int) -> dict[str, Tensor]:
    """Inputs of a batch: what is by token is padded on the left, frames follow each other.

    >>> ones = (torch.ones(1, tokens).long() for tokens in (1, 2))
    >>> left_padded([Prompt("", {"input_ids": row, "attention_mask": row}) for row in ones], 7)["input_ids"].tolist()
    [[7, 1], [1, 1]]
    """
    length, found = max(prompt.tokens for prompt in prompts), dict[str, list[Tensor]]()
    for prompt in prompts:
        for key, value in prompt.tensors.items():
            if value.shape == (1, prompt.tokens):
                value = pad(value, (length - prompt.tokens, 0), value=pad_token if key == "input_ids" else 0)
            found.setdefault(key, []).append(value)
    batch = {key: torch.cat(values) for key, values in found.items()}
    assert bool(batch["attention_mask"][:, -1].all()), "a prompt is padded on its right"
    return batch
