"""BLIPs of transformers that look at frames and write a few words: answers to questions, and captions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import torch
from torch import Tensor

from covr_lab.engines.network import check_weights, quiet
from covr_lab.frozen import Frozen
from covr_lab.retrievers.backbone import source_of
from covr_lab.retrievers.blip.images import Frames, preprocess
from covr_lab.retrievers.blip.model import full_precision
from covr_lab.retrievers.blip.tokens import TextReader, load_tokenizer
from covr_lab.retrievers.blip.weights import check_heads, towers
from covr_lab.types import Refused

QUESTION = 35  # tokens read of a question (BLIP)


class BlipWriter(Frozen):
    """A BLIP with a text decoder: frozen, fp32, beam search. All passes have few fixed shapes: no batch changes a word.

    Args:
        model: folder with a saved model and its tokenizer, or OWNER/NAME on the Hub together with ``revision``.
        revision: commit on the Hub (40 digits).
        beams: of the search.
        lengths: fewest and most tokens that are written; as in BLIP's code the one that starts a text counts.
        repetition_penalty: above 1, words that stand there already become less likely.
        tile: texts that are written together; costs memory, and pays on a GPU.

    Attributes:
        kind: class of the model in transformers.
    """

    kind: ClassVar[str]
    network: Any

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        beams: int = 3,
        lengths: tuple[int, int],
        repetition_penalty: float = 1.0,
        tile: int = 8,
    ) -> None:
        super().__init__()
        for name, value in {"beams": beams, "tile": tile}.items():
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        self.source = source_of(model, revision, "float32", "eager")  # transformers has no other attention for it
        self.beams, self.lengths, self.repetition_penalty, self.tile = beams, lengths, repetition_penalty, tile
        self._loaded = False

    @property
    def fingerprint(self) -> str:
        """sha256 of weights and settings; a folder's files are read for it, a model on the Hub is not fetched."""
        settings = [self.beams, *self.lengths, self.repetition_penalty, self.tile, "pillow bicubic, squashed"]
        libraries = [version(name) for name in ("torch", "transformers", "pillow")]
        parts = [1, self.kind, self.source.identity, settings, libraries]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def load(self) -> None:
        """Read tokenizer and weights, once.

        Raises:
            Refused: they cannot be read, are those of another model, or one is missing, unknown or of a wrong shape.
        """
        if self._loaded:
            return
        import transformers

        folder = self.source.folder()
        told = {"output_loading_info": True, "ignore_mismatched_sizes": True}
        try:
            with quiet():
                kind: Any = getattr(transformers, self.kind)
                network, report = kind.from_pretrained(
                    folder, dtype=torch.float32, attn_implementation=self.source.attention, **told
                )
        except Exception as error:  # of transformers, safetensors, the operating system: without a common base
            reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
            raise Refused(f"model '{self.source.model}' cannot be loaded: {reason}") from error
        # A buffer that published folders store and newer versions of transformers do not.
        check_weights(self.source.model, report, lambda name: name.endswith("embeddings.position_ids"))
        vision, text = towers(network.config)
        check_heads(folder, vision, text, named=False)
        self.tokenizer, enc_token = load_tokenizer(folder, text.vocab_size)
        self.reader = TextReader(self.tokenizer, enc_token, None, QUESTION)
        self.network, self.side, self._loaded = network, int(vision.image_size), True  # type: ignore[arg-type]
        self.freeze()

    @torch.inference_mode()
    def see(self, frames: Frames) -> Tensor:
        """Visual tokens float32 ``(F, T, W)`` of frames uint8 ``(F, H, W, 3)``."""
        pixels = preprocess(frames, self.side).to(self.network.device)
        with full_precision(pixels.device):
            states: Tensor = self.network.vision_model(pixel_values=pixels).last_hidden_state
        return states

    @torch.inference_mode()
    def _written(self, states: Tensor) -> list[str]:
        """A text for each row of ``states`` ``(tile, L, W)``, which the decoder attends to."""
        from transformers import GenerationConfig

        text = towers(self.network.config)[1]
        shortest, longest = self.lengths
        kind: Any = GenerationConfig  # has no types
        settings = kind(
            num_beams=self.beams,
            min_length=shortest,
            max_length=longest,
            repetition_penalty=self.repetition_penalty,
            do_sample=False,
            eos_token_id=text.sep_token_id,
            pad_token_id=text.pad_token_id,
        )
        starts = torch.full((len(states), 1), int(text.bos_token_id or 0), device=states.device)
        with full_precision(states.device):
            rows = self.network.text_decoder.generate(
                input_ids=starts, encoder_hidden_states=states, generation_config=settings
            )
        return [" ".join(line.split()) for line in self.tokenizer.batch_decode(rows, skip_special_tokens=True)]

    def _tiles(self, shapes: Sequence[object]) -> Iterator[tuple[list[int], list[int]]]:
        """Places of equal shape in groups, and each group once more, filled up to a tile by repeating its first."""
        groups: dict[object, list[int]] = {}
        for place, shape in enumerate(shapes):
            groups.setdefault(shape, []).append(place)
        for members in groups.values():
            for start in range(0, len(members), self.tile):
                places = members[start : start + self.tile]
                yield places, [*places, *places[:1] * (self.tile - len(places))]

    @staticmethod
    def _stacked(places: Sequence[int], filled: Sequence[int], see: Callable[[int], Tensor]) -> Tensor:
        """Tokens ``(tile, F * T, W)``, the frames of a video one after another."""
        seen = {place: see(place).flatten(0, 1) for place in places}
        return torch.stack([seen[place] for place in filled])


class BlipVQA(BlipWriter):
    """Answers questions about frames, whose tokens the question attends to side by side (BLIP; IVR for several)."""

    kind = "BlipForQuestionAnswering"

    def answers(self, questions: Sequence[str], frames: Sequence[int], see: Callable[[int], Tensor]) -> list[str]:
        """An answer each.

        A question is read without padding: the decoder would attend to it, in BLIP's code as in transformers'.
        [ENC] stands for [CLS], as the weights were trained; transformers' own processor leaves [CLS].

        Args:
            questions: B texts.
            frames: how many frames each one is about.
            see: place of a question -> visual tokens ``(F, T, W)`` of its frames; asked for tile by tile.
        """
        ids, found = self.reader.ids(questions, grounded=True), [""] * len(questions)
        for places, filled in self._tiles([(len(tokens), count) for tokens, count in zip(ids, frames, strict=True)]):
            visual = self._stacked(places, filled, see)
            read = torch.tensor([ids[place] for place in filled], device=visual.device)
            with torch.inference_mode(), full_precision(visual.device):
                states = self.network.text_encoder(input_ids=read, encoder_hidden_states=visual).last_hidden_state
            for place, text in zip(places, self._written(states), strict=False):  # the rest fills the tile
                found[place] = text
        return found


class BlipDescriber(BlipWriter):
    """Describes frames, whose tokens the decoder attends to side by side."""

    kind = "BlipForConditionalGeneration"

    def captions(self, frames: Sequence[int], see: Callable[[int], Tensor]) -> list[str]:
        """A caption for each of several videos.

        Args:
            frames: how many frames are seen of each.
            see: place of a video -> visual tokens ``(F, T, W)`` of its frames; asked for tile by tile.
        """
        found = [""] * len(frames)
        for places, filled in self._tiles(frames):
            for place, text in zip(places, self._written(self._stacked(places, filled, see)), strict=False):
                found[place] = text
        return found
