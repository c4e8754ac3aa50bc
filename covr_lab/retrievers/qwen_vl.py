"""Qwen3-VL-Embedding: one vector for a video, a text, or an edit read together with the video that it changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from covr_lab.engines.chat import Chat, MediaKind, Parts, left_padded
from covr_lab.gallery.cache import VectorCache, cache_dir
from covr_lab.gallery.store import library_versions
from covr_lab.retrievers.backbone import Backbone, load_backbone, source_of
from covr_lab.retrievers.blip.model import full_precision
from covr_lab.retrievers.video import Part, VideoRetriever
from covr_lab.types import Refused
from covr_lab.video.overlay import fitted
from covr_lab.video.samplers import Uniform
from covr_lab.views.base import FrameEmbedder

if TYPE_CHECKING:
    from covr_lab.engines.chat import Prompt
    from covr_lab.gallery.gallery import Gallery
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.video import Clip
    from covr_lab.video.base import Frames

UNLIMITED = 1 << 40  # frames come in their size: the chat has nothing left to shrink
CHANGED = "Represent the video that this video would become if it were changed as the text says."
DESCRIBED = "Represent the video that the text asks for."
Strategy = Literal["joint", "late", "text", "video"]


def whole_patches(frames: Frames, side: int | None, multiple: int) -> Frames:
    """Frames uint8 ``(F, H, W, 3)``, the longer side at most ``side``, both the nearest multiples of ``multiple``.

    >>> import numpy as np
    >>> whole_patches(np.zeros((2, 360, 640, 3), np.uint8), 512, 32).shape
    (2, 288, 512, 3)
    """
    from PIL import Image

    height, width = frames.shape[1:3]
    size = [max(multiple, (2 * edge + multiple) // (2 * multiple) * multiple) for edge in fitted(width, height, side)]
    if size == [width, height]:
        return frames
    small = torch.empty(len(frames), size[1], size[0], 3, dtype=torch.uint8).numpy()
    for place, frame in enumerate(frames):
        small[place] = Image.fromarray(frame).resize((size[0], size[1]), Image.Resampling.BICUBIC)
    return small


def last_attended(states: Tensor, mask: Tensor) -> Tensor:
    """The state of each row's last attended token, whichever side was padded.

    Args:
        states: ``(B, T, W)``.
        mask: ``(B, T)``, 1 where a token is attended.

    Returns:
        ``(B, W)``.

    >>> states = torch.arange(6.0).reshape(2, 3, 1)
    >>> last_attended(states, torch.tensor([[1, 1, 0], [0, 1, 1]])).flatten().tolist()
    [1.0, 5.0]
    """
    last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
    return states[torch.arange(len(states), device=states.device), last]


class RoleChat(Chat):
    """A chat whose system message is always there: an instruction that is empty is told as an empty one."""

    def check(self) -> None:
        """As for any chat.

        Raises:
            Refused: also when the chat template drops an empty system message, or replaces it.
        """
        super().check()
        content = [{"type": "text", "text": "?"}]
        told, other = self._render("", content), self._render("!!", content)
        if told == super()._render("", content) or other.count("!!") != 1 or told != other.replace("!!", ""):
            raise Refused(f"model '{self.name}': its chat template does not pass on an empty system message")

    def message(self, instruction: str, clip: Clip | None, text: str) -> Prompt:
        """An instruction, then frames and text, both where they are given."""
        parts = Parts()
        if clip is not None:
            self._add_clip(parts, clip)
        if text or clip is None:
            parts.add_text(self._plain(text))
        return self._prompt(self._plain(instruction), parts)

    def picture(self, instruction: str, frame: Frames) -> Prompt:
        """An instruction, then one frame uint8 ``(H, W, 3)``."""
        return self._prompt(self._plain(instruction), Parts([{"type": "image"}], [frame]))

    def _render(self, system: str, content: list[dict[str, str]]) -> str:
        messages = [
            {"role": "system", "content": [{"type": "text", "text": system}]},
            {"role": "user", "content": content},
        ]
        text: str = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        read = self.processor
        # Frames have marks of their own. transformers before 5.10, with which the model was made, put them in the place
        # of the template's marks around the video; newer ones put them between these.
        return text.replace(f"{read.vision_start_token}{read.video_token}{read.vision_end_token}", read.video_token)


class QwenVLEmbedder(FrameEmbedder):
    """The frozen embedding model: the state of the last token after the final norm, at unit length.

    An instruction is the system message. Each prompt goes through the network alone, frames for a selection in tiles of
    a fixed size: a vector does not depend on what else is encoded, to the bit in fp32 and in half precision alike. The
    vectors of two dtypes differ, so the dtype is part of the fingerprint and none is chosen by itself.

    Prompt and pooling follow the script that is released with the model; they were compared with transformers on random
    weights, not on the released ones.

    Args:
        model: folder of a Qwen3-VL model and its processor, or OWNER/NAME on the Hub together with ``revision``; the
            released ones are Qwen/Qwen3-VL-Embedding-2B and -8B.
        revision: commit on the Hub (40 digits); nothing is fetched without it, nor where ``model`` is a folder.
        dtype: of weights and activations. Half precision is for GPUs: on a CPU it is over 100 times slower.
        attention: implementation of attention.
        media: how a clip is shown: one ``video`` with the times of its frames, or ``images`` behind their times.
        tile: frames of a selection that go through the network together; costs memory, and pays on a GPU.

    Attributes:
        width: entries of a vector, D.
        encoded: prompts that went through the network.
        fingerprint: sha256 of all that can change a vector but instructions and frames; there before :meth:`load`.
    """

    network: Any
    chat: RoleChat

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa",
        media: MediaKind = "video",
        tile: int = 8,
    ) -> None:
        super().__init__()
        if tile < 1:
            raise ValueError(f"tile must be 1 or more, not {tile}")
        self.source = source_of(model, revision, dtype, attention)
        self.media, self.tile, self.encoded = media, tile, 0
        self._loaded: Backbone | None = None

    @property
    def fingerprint(self) -> str:
        """sha256 of weights, processor, dtype and libraries."""
        source = [self.source.identity, self.source.dtype, self.source.attention]
        how = ["last token, unit", 1, source, self.media, self.tile, library_versions()]
        return hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()

    def load(self) -> None:
        """Read weights and processor, once.

        Raises:
            Refused: see :func:`~covr_lab.retrievers.backbone.load_backbone` and :meth:`RoleChat.check`.
        """
        if self._loaded is not None:
            return
        loaded = load_backbone(self.source, ("qwen3_vl",), "a Qwen3-VL-Embedding model")
        processor, text = loaded.processor, loaded.module.config.get_text_config()
        for part in (processor.image_processor, processor.video_processor):
            part.do_resize = False  # its least number of pixels would enlarge small frames
        limit = int(text.max_position_embeddings)
        name = self.source.model
        self.chat = RoleChat(processor, name=name, media=self.media, frame_pixels=UNLIMITED, limit=limit)
        self.chat.check()
        self._loaded, self.network, self.width = loaded, loaded.module, int(text.hidden_size)
        self.freeze()

    def sized(self, frames: Frames, side: int | None) -> Frames:
        """Frames as the network reads them, see :func:`whole_patches`."""
        return whole_patches(frames, side, self.chat.patch)

    def embed(self, instruction: str, clip: Clip | None, text: str) -> Tensor:
        """Unit vector float32 ``(D,)``, on the CPU, of a clip, a text, or both; a clip as :meth:`sized` made it."""
        return self._encode([self.chat.message(instruction, clip, text)])[0]

    def embed_frames(self, frames: Frames) -> Tensor:
        """Unit vectors float32 ``(F, D)``, on the CPU, each frame an image behind an empty instruction."""
        prompts = [self.chat.picture("", frame) for frame in self.sized(frames, None)]
        found = [torch.empty(0, self.width)]
        for start in range(0, len(prompts), self.tile):
            part = prompts[start : start + self.tile]
            found.append(self._encode(part + part[-1:] * (self.tile - len(part)))[: len(part)])
        return torch.cat(found)

    @torch.inference_mode()
    def _encode(self, prompts: Sequence[Prompt]) -> Tensor:
        device = next(self.network.parameters()).device
        inputs = {key: value.to(device) for key, value in left_padded(prompts, 0).items()}
        with full_precision(device):
            states = self.network(**inputs, use_cache=False).last_hidden_state
        self.encoded += len(prompts)
        return normalize(last_attended(states, inputs["attention_mask"]).float(), dim=-1).cpu()


@dataclass(frozen=True, slots=True)
class Input:
    """What is embedded for a query: an instruction, a video and a text, one of both perhaps missing."""

    instruction: str
    video: str | None
    text: str


class QwenVLRetriever(VideoRetriever):
    """Retrieval by Qwen3-VL-Embedding, the coarse stage of CoVRAGE (dossier, section 2.2).

    A gallery video is its frames behind the gallery's instruction; a composed query is the frames of its anchor and
    the edit, in one prompt behind the query's instruction; a description is a text alone. Frames of anchors are read
    when a query asks for them. Vectors of queries are kept on disk by content: a second run encodes nothing.

    Args:
        embedder: the model.
        frames: of a video, at uniform segment midpoints.
        side: pixels that the longer side of a frame may have; each side is then the nearest multiple of a patch.
        strategy: what a composed query is: ``joint``, anchor and edit in one prompt; ``text`` or ``video``, one of them
            alone; ``late``, the weighted sum of the vectors of these two.
        text_weight: weight of the text in ``late``; the video has the rest.
        query_instruction: of prompts with a video.
        text_instruction: of prompts without one.
        gallery_instruction: an empty one is told as an empty one, never left out for the model's default.
    """

    videos: VideoStore

    def __init__(
        self,
        *,
        embedder: QwenVLEmbedder,
        frames: int = 15,
        side: int = 512,
        strategy: Strategy = "joint",
        text_weight: float = 0.5,
        query_instruction: str = CHANGED,
        text_instruction: str = DESCRIBED,
        gallery_instruction: str = "",
    ) -> None:
        super().__init__()
        if side < 1 or not 0 < text_weight < 1:
            raise ValueError(f"side must be above 0 and text_weight in (0, 1), not {side} and {text_weight}")
        self.embedder, self.side, self.strategy = embedder, side, strategy
        self.weight = {"text": 1.0, "video": 0.0}.get(strategy, text_weight)
        self.query_instruction, self.text_instruction = query_instruction, text_instruction
        self.gallery_instruction = gallery_instruction
        self.parts = {"gallery": Part("gallery", Uniform(frames))}

    def load(self) -> None:
        """Load the model."""
        self.embedder.load()

    @property
    def row_fingerprint(self) -> str:
        """That of the model, the gallery's instruction and the size of frames."""
        return self._digest(self.gallery_instruction)

    @property
    def fingerprint(self) -> str:
        """Also that of queries."""
        queries = [self.query_instruction, self.text_instruction, self.strategy, str(self.weight)]
        return self._digest(self.gallery_instruction, *queries, self.parts["gallery"].sampler.describe())

    def _digest(self, *settings: str) -> str:
        return hashlib.sha256(json.dumps([self.embedder.fingerprint, self.side, *settings]).encode()).hexdigest()

    def prepare(self, name: str, clip: Clip) -> Clip:
        """Frames at the size that the model reads, so that less is sent between processes."""
        del name
        return replace(clip, frames=self.embedder.sized(clip.frames, self.side))

    def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
        """Unit vectors ``(D,)`` behind the gallery's instruction."""
        del name
        return [self.embedder.embed(self.gallery_instruction, clip, "") for clip in clips]

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """See :meth:`~covr_lab.retrievers.video.VideoRetriever.bind`."""
        super().bind(gallery, videos)
        assert videos is not None  # bind refuses it
        self.videos = videos
        # Side and sampler are in the keys: the same query has the same vector whatever the retriever's other settings.
        self.cache = VectorCache(cache_dir() / "queries.sqlite", self.embedder.fingerprint, self.embedder.width)

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        """Unit vectors ``(B, D)``: descriptions where there is no anchor, composed queries where there is one.

        Raises:
            SessionError: an anchor cannot be read, or a text is longer than the model reads.
        """
        sums = [self.inputs(text, anchor) for text, anchor in zip(texts, anchors, strict=True)]
        vectors = self._vectors(dict.fromkeys(item for weights in sums for item in weights))
        found = torch.empty(len(sums), self.embedder.width)
        for row, weights in zip(found, sums, strict=True):  # one by one: a batch changes no bit
            row[:] = normalize(
                sum((vectors[item] * weight for item, weight in weights.items()), row.new_zeros(())), dim=0
            )
        return found.to(next(self.embedder.network.parameters()).device)

    def inputs(self, text: str, anchor: str | None) -> dict[Input, float]:
        """What is embedded for one query, and its weights."""
        said = Input(self.text_instruction, None, text)
        if anchor is None:
            return {said: 1.0}
        if self.strategy == "joint":
            return {Input(self.query_instruction, anchor, text): 1.0}
        weights = {said: self.weight, Input(self.query_instruction, anchor, ""): 1 - self.weight}
        return {item: weight for item, weight in weights.items() if weight}

    def _vectors(self, items: Iterable[Input]) -> dict[Input, Tensor]:
        """Vectors by input, those that were embedded before from disk."""
        keys = {item: self._key(item) for item in items}
        stored = self.cache.get(list(keys.values()))
        vectors = {item: torch.from_numpy(stored[key].copy()) for item, key in keys.items() if key in stored}
        made = dict[str, Any]()
        try:
            for item, key in keys.items():
                if key not in stored:
                    clip = None if item.video is None else self._clip(item.video)
                    vectors[item] = self.embedder.embed(item.instruction, clip, item.text)
                    made[key] = vectors[item].numpy()
        finally:
            self.cache.put(made)  # also when one fails: the batch is then tried again
        return vectors

    def _clip(self, video: str) -> Clip:
        return self.prepare("gallery", self.videos.clip(video, self.parts["gallery"].sampler))

    def _key(self, item: Input) -> str:
        """All that makes the vector of ``item``, the media in place of the video's name."""
        if item.video is None:
            return json.dumps(astuple(item))
        reader = f"{self.videos.reader.fingerprint}, min_decodable {self.videos.reader.min_decodable}"
        media = [self.videos.digest([item.video]), self.parts["gallery"].sampler.describe(), self.side, reader]
        return json.dumps([item.instruction, media, item.text])
