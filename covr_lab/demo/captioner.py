"""Captions of demo clips from their pixels, by the heads of the small BLIP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from covr_lab.captioners.base import Captioner
from covr_lab.demo import wording
from covr_lab.demo.wording import Claims, phrase
from covr_lab.demo.world import BACKGROUNDS, COLOURS, LIGHTS, MOTIONS, SHAPES
from covr_lab.retrievers.blip import Blip
from covr_lab.retrievers.video import Part
from covr_lab.video import Uniform

if TYPE_CHECKING:
    from covr_lab.video import Clip

THINGS: Final = [Claims(((c, s, m),)) for c in COLOURS for s in SHAPES for m in MOTIONS]
AROUND: Final = [*(Claims((), name) for name in BACKGROUNDS), *(Claims((), "", name) for name in LIGHTS)]


def thing_vectors(blip: Blip) -> Tensor:
    """Unit vectors ``(448, D)`` of THINGS."""
    return blip.texts([phrase(claim) for claim in THINGS])


def read_tags(blip: Blip, things: Tensor, embeds: Tensor, tokens: Tensor) -> Tensor:
    """What the model sees in clips: int64 ``(N, 3)``, places of thing, background and light in THINGS and AROUND.

    The thing is the phrase whose embedding is nearest to the clip's; background and light are the phrases that the
    matching head holds for the truest.

    Args:
        blip: the model; it must have a matching head.
        things: :func:`thing_vectors`.
        embeds: ``(N, D)``, one image a clip.
        tokens: ``(N, T, W)`` of the same images.
    """
    asked = [phrase(claim) for claim in AROUND] * len(tokens)
    logits = blip.match(asked, tokens.repeat_interleave(len(AROUND), 0))
    scores = (logits[:, 1] - logits[:, 0]).reshape(len(tokens), -1)
    where, light = torch.split(scores, [len(BACKGROUNDS), len(LIGHTS)], dim=1)
    found = torch.stack([(things @ embed).argmax() for embed in embeds])  # clip by clip: no batch changes a bit
    return torch.stack([found, where.argmax(1), light.argmax(1)], dim=1).cpu()


class DemoCaptioner(Captioner):
    """Names the likeliest thing with its colour, shape and motion, the background and the light of a clip.

    Args:
        blip: the model; it must have a matching head.
    """

    def __init__(self, *, blip: Blip) -> None:
        super().__init__()
        self.blip = blip
        self.parts = {"tags": Part("all", Uniform(blip.storyboard**2))}
        self._things: Tensor | None = None

    def load(self) -> None:
        """Load BLIP."""
        self.blip.load()

    @property
    def fingerprint(self) -> str:
        """sha256 of BLIP and of the phrases, so that other phrases never read the places of these."""
        phrases = [phrase(claim) for claim in (*THINGS, *AROUND)]
        return hashlib.sha256(json.dumps([self.blip.fingerprint, *phrases]).encode()).hexdigest()

    def prepare(self, name: str, clip: Clip) -> Clip:
        """Frames at the size that BLIP reads."""
        del name
        return replace(clip, frames=self.blip.resized(clip.frames))

    def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
        """A row ``(3,)`` a clip, of :func:`read_tags`."""
        del name
        embeds, tokens = self.blip.images(torch.cat([self.blip.pixels(clip.frames) for clip in clips]))
        if self._things is None:
            self._things = thing_vectors(self.blip)
        return list(read_tags(self.blip, self._things, embeds, tokens).float())

    def caption(self, row: Tensor) -> str:
        """The row in words.

        >>> DemoCaptioner(blip=Blip(model="demo")).caption(torch.tensor([21.0, 2, 0]))
        'A red star moving left in front of a striped curtain in steady light'
        """
        thing, background, light = (int(value) for value in row)
        where, lit = wording.BACKGROUND[BACKGROUNDS[background]][0], wording.LIGHT[LIGHTS[light]][0]
        text = f"{phrase(THINGS[thing])} in front of {where} {lit}"
        return text[0].upper() + text[1:]
