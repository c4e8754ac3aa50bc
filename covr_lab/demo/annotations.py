"""Annotations of demo clips: from their pixels by the small BLIP, or from the generator (an oracle)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from covr_lab.captioners.annotations import AnnotationCaptioner
from covr_lab.captioners.tags import Annotation
from covr_lab.data.demo import rendered
from covr_lab.demo import wording
from covr_lab.demo.captioner import AROUND, THINGS, DemoCaptioner
from covr_lab.demo.wording import Claims
from covr_lab.demo.world import BACKGROUNDS, Scene, make_world
from covr_lab.retrievers.blip import Blip
from covr_lab.types import Refused

if TYPE_CHECKING:
    from covr_lab.gallery.gallery import Gallery
    from covr_lab.gallery.videos import VideoStore


def annotated(claims: Claims) -> Annotation:
    """The annotation of a clip with one thing.

    The sentences on single frames say what a single frame shows: no motion, and no change of light.

    >>> from covr_lab.captioners.tags import annotation_text
    >>> annotation_text(annotated(Claims((("red", "star", "left"),), "striped", "fading")))
    '1. A red star is moving left. 2. Behind it: a striped curtain. 3. The clip is seen as the light fades. \
Objects: red star. Actions: moving left. Scenes: striped curtain, as the light fades. \
Frames: a red star in front of a striped curtain.'
    """
    ((colour, shape, motion),) = claims.things
    noun, doing = f"{wording.COLOUR[colour][0]} {wording.SHAPE[shape][0]}", wording.MOTION[motion][0]
    where, light = wording.BACKGROUND[claims.background][0], wording.LIGHT[claims.light][0]
    thing = wording.article(noun)
    return Annotation(
        summary=[f"{thing[0].upper()}{thing[1:]} is {doing}.", f"Behind it: {where}.", f"The clip is seen {light}."],
        objects=[noun],
        actions=[doing],
        scenes=[where.removeprefix("a "), light],
        frame_captions=[f"{thing} in front of {where}"],
    )


class DemoAnnotator(AnnotationCaptioner, DemoCaptioner):
    """What the small BLIP sees in a clip; shares its artifact with :class:`DemoCaptioner`.

    Args:
        blip: the model; it must have a matching head.
        perturb: see :class:`~covr_lab.captioners.AnnotationCaptioner`.
        seed: likewise.
    """

    def __init__(self, *, blip: Blip, perturb: float = 0.0, seed: int = 0) -> None:
        super().__init__(perturb=perturb, seed=seed, blip=blip)

    def annotation(self, row: Tensor) -> Annotation:
        """The tags of a row as an annotation."""
        thing, background, light = (int(value) for value in row)
        around = AROUND[len(BACKGROUNDS) + light].light
        return annotated(Claims(THINGS[thing].things, BACKGROUNDS[background], around))


class OracleAnnotator(AnnotationCaptioner):
    """What the generator drew: no model sees a pixel.

    Args:
        seed: of the world, as in the data (``data.seed``).
        perturb: see :class:`~covr_lab.captioners.AnnotationCaptioner`; drawn with seed 0.

    Attributes:
        scenes: clip -> what it shows, once it has seen the gallery.
    """

    proxy = "annotations from the generator: an oracle"

    def __init__(self, *, seed: int = 0, perturb: float = 0.0) -> None:
        super().__init__(perturb=perturb)
        self.world_seed = seed
        self.scenes: Mapping[str, Scene] = {}
        self.parts = {}  # nothing is computed of videos

    def load(self) -> None:
        """There are no weights."""
        return

    @property
    def fingerprint(self) -> str:
        """sha256 of the clips and of what is said of them."""
        scenes = {video: (scene, annotated(wording.whole(scene))) for video, scene in self.scenes.items()}
        return hashlib.sha256(repr(sorted(scenes.items())).encode()).hexdigest()

    def annotation(self, row: Tensor) -> Annotation:
        """There are no rows."""
        raise NotImplementedError("an oracle has no artifact")

    def annotations(self, gallery: Gallery, videos: VideoStore | None) -> dict[str, Annotation]:
        """Video id -> annotation, of every clip of the world.

        Raises:
            Refused: the data is not a demo world of this seed in its own folder.
        """
        world = make_world("test", families=max(1, len(gallery) // 4), seed=self.world_seed)  # four clips each
        folder = rendered(world)
        known = videos is not None and all(folder in videos.paths(video).parents for video in gallery.ids)
        if not known or set(gallery.ids) != set(world.gallery):
            raise Refused(
                "OracleAnnotator knows another world than the data's: set its seed to data.seed, use it with a demo "
                "world, and leave data.folder unset"
            )
        self.scenes = world.clips
        return {video: annotated(wording.whole(scene)) for video, scene in world.clips.items()}
