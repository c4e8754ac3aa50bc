"""An oracle of the demo world that errs at a known rate: what a cascade could gain from a scorer of that quality."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from covr_lab.demo.world import Scene, make_world
from covr_lab.gallery.gallery import Gallery
from covr_lab.scorers.attributes import Attributes, agreement, attributes, named
from covr_lab.scorers.base import Pair, PairScorer
from covr_lab.types import Refused

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


def scene_attributes(scene: Scene) -> Attributes:
    """Attributes of a scene with one thing, from the generator."""
    (thing,) = scene.things
    about = {"background": scene.background, "light": scene.light}
    return {"colour": thing.colour, "shape": thing.shape, "motion": thing.motion, **about}


def draws(*parts: object) -> tuple[float, float]:
    """Two numbers in [0, 1) that depend on ``parts`` alone.

    >>> draws(0, "a") == draws(0, "a"), draws(0, "a") == draws(1, "a")
    (True, False)
    """
    made = hashlib.sha256(json.dumps(parts).encode()).digest()
    one, two = (int.from_bytes(made[start : start + 8], "big") >> 11 for start in (0, 8))  # 53 bits: all below 1
    return one / 2**53, two / 2**53


class OracleScorer(PairScorer):
    """Knows the demo world from its generator, and judges a given share of pairs wrongly; for studies only.

    A candidate fits when it has every attribute that is wanted. A pair that is judged to fit scores in [0.75, 1), any
    other in [0, 0.25); where in there is drawn, so that some that are wrongly judged to fit stand before the right one.

    Args:
        error: share of pairs that are judged wrongly.
        seed: of errors and scores.
        knows: ``edit``: wanted is what source and text say, as a perfect reader of both would know it. ``wish``: wanted
            is what the user of the session has in mind, also what no text has said; an upper bound that no system has.
        world_seed: of the world, as in the data (``data.seed``).

    Raises:
        ValueError: the error is no share.
    """

    def __init__(
        self,
        *,
        error: float = 0.1,
        seed: int = 0,
        knows: Literal["edit", "wish"] = "edit",
        world_seed: int = 0,
    ) -> None:
        super().__init__()
        if not 0 <= error <= 1:
            raise ValueError(f"error is a share from 0 to 1, not {error}")
        self.error, self.seed, self.knows = error, seed, knows
        self.world_seed = world_seed
        self.by_session = knows == "wish"
        self.proxy = f"an oracle that reads the generator ({knows}) and errs on {100 * error:g} % of pairs"

    @property
    def fingerprint(self) -> str:
        """sha256 of the settings."""
        parts = [2, self.error, self.seed, self.knows, self.world_seed]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take the gallery.

        Raises:
            Refused: its ids are not those of the world, or most of its captions speak of another one.
        """
        super().bind(gallery, videos)
        self.world = make_world("test", families=max(1, len(gallery) // 4), seed=self.world_seed)  # four clips each
        targets = {query.session_id: query.target_id for query in self.world.queries}
        self._wishes = {session: scene_attributes(self.world.clips[target]) for session, target in targets.items()}
        clips, told = self.world.clips, [(video, attributes(gallery.caption(video))) for video in gallery.ids]
        ours = gallery.ids == tuple(sorted(self.world.gallery))
        agreed = [agreement(said, scene_attributes(clips[video]), {}) for video, said in told if ours and said]
        if not ours or sum(agreed) < len(agreed) / 2:
            raise Refused(
                f"OracleScorer: the gallery is not that of the demo world of world_seed {self.world_seed}: set it to "
                "data.seed, and use it with covr_lab.data.DemoWorld alone"
            )

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Judgements; NaN where nothing is wanted, or nothing is known of who wants it."""
        return [self._score(pair) for pair in pairs]

    def _score(self, pair: Pair) -> float:
        wanted, have = self._wanted(pair), scene_attributes(self.world.clips[pair.candidate])
        if not wanted:
            return float("nan")
        asker = pair.session if self.by_session else None
        wrong, place = draws(self.seed, pair.source, pair.text, pair.candidate, asker)
        fits = wanted.items() <= have.items()
        return place / 4 + (0.75 if fits != (wrong < self.error) else 0.0)

    def _wanted(self, pair: Pair) -> Attributes:
        if self.knows == "wish":
            return self._wishes.get(pair.session, {})
        source = {} if pair.source is None else scene_attributes(self.world.clips[pair.source])
        return {**source, **named(pair.text)}
