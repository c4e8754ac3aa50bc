"""Answers to questions about demo clips, from their pixels, by the heads of the small BLIP."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from covr_lab.demo.captioner import AROUND, THINGS, read_tags, thing_vectors
from covr_lab.demo.wording import BACKGROUND, COLOUR, LIGHT, MOTION, SHAPE, Claims, phrase
from covr_lab.demo.world import BACKGROUNDS, LIGHTS
from covr_lab.gallery.gallery import Gallery
from covr_lab.reasoning.english import named
from covr_lab.retrievers.blip import Blip
from covr_lab.scorers.attributes import attributes
from covr_lab.simulators.answering import Answer, AnsweringUser, Asked
from covr_lab.simulators.videoqa import frames_of
from covr_lab.types import Part, Refused
from covr_lab.video import Uniform

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

# Words of a question -> what it is about; the first line that has one of its words decides.
ABOUT: Final = {
    "thing": ("else",),
    "colour": ("colour", "colours", "color", "colors"),
    "light": ("light", "time", "day", "weather", "season", "filmed", "made"),
    "motion": ("doing", "happening", "happens", "move", "moves", "moving", "motion", "action"),
    "place": ("where", "place", "background", "behind", "scene", "setting"),
    "shape": ("who", "object", "objects", "thing", "shape", "subject", "character", "item"),
}
_YES_OR_NO = re.compile(rf"(?:{named('AUX').pattern})\b", re.I)


def words_of(thing: Claims, background: str, light: str) -> dict[str, str]:
    """What a clip shows, in words for each thing that a question can be about.

    >>> words_of(Claims((("red", "star", "left"),)), "brick", "steady")["place"]
    'in front of a brick wall'
    """
    colour, shape, motion = thing.things[0]
    return {
        "thing": phrase(thing),
        "colour": COLOUR[colour][0],
        "light": LIGHT[light][0],
        "motion": MOTION[motion][0],
        "place": f"in front of {BACKGROUND[background][0]}",
        "shape": SHAPE[shape][0],
    }


def reply(question: str, words: Mapping[str, str]) -> str:
    """The answer to an English question.

    Yes or no where that is asked: whether the clip shows all of the world that the question names. A question about
    nothing that the world has is answered with the thing on display.

    >>> words = words_of(Claims((("red", "star", "left"),)), "brick", "steady")
    >>> [reply(text, words) for text in ("What is the star doing?", "Is it a cartoon?", "Does a red star move left?")]
    ['moving left', 'no', 'yes']
    """
    if _YES_OR_NO.match(question):
        wanted = attributes(question)
        return "yes" if wanted and wanted.items() <= attributes(" ".join(words.values())).items() else "no"
    asked = set(re.findall(r"[a-z]+", question.lower()))
    return words[next((about for about, cues in ABOUT.items() if asked.intersection(cues)), "thing")]


class DemoUser(AnsweringUser):
    """Answers questions about what the small BLIP sees in its target, or in a half of it; it may see it wrong.

    A whole clip is seen in as many frames as a storyboard has cells, a half in as many of its own.
    """

    def __init__(self, *, blip: Blip, stop: bool = False) -> None:
        """Name the model; it is loaded later.

        Args:
            blip: the model; it must have a matching head.
            stop: see :class:`~covr_lab.simulators.answering.AnsweringUser`.
        """
        super().__init__(stop=stop)
        self.blip, self.cells = blip, blip.storyboard**2

    def load(self) -> None:
        """Read the weights."""
        self.blip.load()
        known = [self.blip.fingerprint, ABOUT, [phrase(claim) for claim in (*THINGS, *AROUND)]]
        self.fingerprint = hashlib.sha256(json.dumps(known).encode()).hexdigest()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take gallery and media.

        Raises:
            Refused: there are no videos to look at.
        """
        if videos is None:
            raise Refused("simulator DemoUser looks at videos: take data that has some (covr_lab.data.DemoWorld)")
        self.gallery, self.videos = gallery, videos
        self._seen, self._things = dict[tuple[str, Part], dict[str, str]](), thing_vectors(self.blip)

    def answer(self, asked: Sequence[Asked]) -> list[Answer]:
        """Answers in order (see :meth:`AnsweringUser.answer`)."""
        new = sorted({(each.video, each.probe.part) for each in asked} - self._seen.keys())
        if new:
            self._seen |= dict(zip(new, self._look(new), strict=True))
        return [Answer(reply(each.probe.text, self._seen[each.video, each.probe.part])) for each in asked]

    def _look(self, new: Sequence[tuple[str, Part]]) -> list[dict[str, str]]:
        pixels = torch.cat([self._pixels(video, part) for video, part in new])
        tags = read_tags(self.blip, self._things, *self.blip.images(pixels)).tolist()
        return [words_of(THINGS[thing], BACKGROUNDS[where], LIGHTS[light]) for thing, where, light in tags]

    def _pixels(self, video: str, part: Part) -> Tensor:
        """One storyboard ``(1, 3, S, S)``."""
        whole = part == "whole"
        frames = self.videos.clip(video, Uniform(self.cells if whole else 2 * self.cells)).frames
        return self.blip.pixels(frames if whole else frames[frames_of(part, 2 * self.cells)])
