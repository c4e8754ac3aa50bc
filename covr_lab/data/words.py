"""A small world in words: made-up clips with captions and edits, for a first run without files or videos."""

from __future__ import annotations

import random
from typing import Any

from covr_lab.data.base import Triplet, TripletDataModule

Scene = tuple[str, ...]  # one value for each attribute, in the order of WORDS

WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "size": {
        "tiny": ("tiny", "miniature"),
        "small": ("small", "little"),
        "large": ("large", "big"),
        "huge": ("huge", "enormous"),
    },
    "colour": {
        "red": ("red", "crimson"),
        "blue": ("blue", "navy"),
        "green": ("green", "emerald"),
        "yellow": ("yellow", "golden"),
        "white": ("white", "ivory"),
        "black": ("black", "jet-black"),
        "orange": ("orange", "amber"),
        "purple": ("purple", "violet"),
    },
    "object": {
        "ball": ("ball", "sphere"),
        "boat": ("boat", "dinghy"),
        "lamp": ("lamp", "lantern"),
        "car": ("car", "automobile"),
        "balloon": ("balloon",),
        "robot": ("robot", "android"),
        "umbrella": ("umbrella", "parasol"),
        "bird": ("bird", "parrot"),
    },
    "motion": {
        "spin": ("spin", "whirl"),
        "bounce": ("bounce", "hop"),
        "slide": ("slide", "glide"),
        "drift": ("drift", "float"),
        "shake": ("shake", "tremble"),
        "roll": ("roll", "tumble"),
        "rise": ("rise", "climb"),
        "swing": ("swing", "sway"),
    },
    "scene": {
        "snow": ("a snowy field", "a field of snow"),
        "garden": ("a sunlit garden", "a sunny garden"),
        "street": ("a busy street", "a crowded street"),
        "attic": ("a dusty attic", "an old attic"),
        "forest": ("a pine forest", "a pine wood"),
        "theatre": ("an empty theatre", "a deserted theatre"),
        "courtyard": ("a flooded courtyard", "a courtyard full of water"),
        "alley": ("a brick alley", "an alley of brick"),
    },
}
CAPTIONS = (
    "{thing} {motion}s in {scene}.",
    "in {scene}, {thing} {motion}s.",
    "{scene} where {thing} {motion}s.",
    "footage of {thing} that {motion}s in {scene}.",
    "close view of {thing}: it {motion}s in {scene}.",
)
EDITS = {
    "size": ("make it {new}", "show {a} {new} one", "it should be {new} rather than {old}"),
    "colour": ("make it {new}", "change the colour from {old} to {new}", "paint it {new}"),
    "object": ("replace the {old} with {a} {new}", "swap the {old} for {a} {new}", "use {a} {new} instead"),
    "motion": ("let it {new}", "have it {new} rather than {old}", "it should {new} now"),
    "scene": ("move it to {new}", "set the scene in {new}", "film it in {new} instead of {old}"),
}
JOINS = ("{} and {}", "{}, then {}", "{}; also {}")
FAMILY = 4  # targets that differ from one scene in one attribute: near-duplicates of each other


def varied(rng: random.Random, scene: Scene, count: int, taken: set[Scene]) -> Scene:
    """A new scene that differs from ``scene`` in exactly ``count`` attributes; it is added to ``taken``."""
    while True:
        values = list(scene)
        for place in rng.sample(range(len(scene)), count):
            values[place] = rng.choice([value for value in list(WORDS.values())[place] if value != scene[place]])
        if tuple(values) not in taken:
            taken.add(tuple(values))
            return tuple(values)


def caption(rng: random.Random, scene: Scene) -> str:
    """One of the ways to describe ``scene``; two scenes never share a caption."""
    size, colour, thing, motion, place = (
        rng.choice(WORDS[name][value]) for name, value in zip(WORDS, scene, strict=True)
    )
    words = rng.choice(CAPTIONS).format(thing=f"{_article(size)} {size} {colour} {thing}", motion=motion, scene=place)
    return words[0].upper() + words[1:]


def edit(rng: random.Random, reference: Scene, target: Scene) -> str:
    """One of the ways to say every change from ``reference`` to ``target`` (one or two attributes)."""
    clauses = []
    for (name, words), old, new in zip(WORDS.items(), reference, target, strict=True):
        if old != new:
            word = rng.choice(words[new])
            clauses.append(rng.choice(EDITS[name]).format(old=rng.choice(words[old]), new=word, a=_article(word)))
    return clauses[0] if len(clauses) == 1 else rng.choice(JOINS).format(*clauses)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def world(videos: int, queries: int, seed: int) -> list[Triplet]:
    """``queries`` triplets over ``videos`` videos with ids ``words/0000``...; the same for the same arguments.

    A target differs from its reference in one or two attributes, from other targets of its family in at most two.
    Queries beyond half of the videos go back from a target to its reference.

    >>> world(8, 4, seed=0) == world(8, 4, seed=0)
    True
    """
    rng = random.Random(seed)
    taken: set[Scene] = set()
    pairs: list[tuple[Scene, Scene]] = []
    while len(pairs) < videos // 2:
        centre = tuple(rng.choice(list(words)) for words in WORDS.values())
        for _ in range(min(FAMILY, videos // 2 - len(pairs))):
            target = varied(rng, centre, 1, taken)
            pairs.append((varied(rng, target, rng.choice((1, 2)), taken), target))
    numbers = rng.sample(range(videos), videos)
    scenes = [scene for pair in pairs for scene in pair]
    ids = {scene: f"words/{number:04d}" for scene, number in zip(scenes, numbers, strict=True)}
    captions = {scene: caption(rng, scene) for scene in scenes}
    edges = (pairs + [(target, reference) for reference, target in pairs])[:queries]
    return [
        Triplet(str(number), ids[old], ids[new], edit(rng, old, new), captions[old], captions[new])
        for number, (old, new) in enumerate(edges)
    ]


class WordWorld(TripletDataModule):
    """Triplets of moving objects, made from a seed: captions and edits in words, no media.

    Args:
        videos: size of the world, an even number; each video is part of a triplet.
        queries: triplets, from half of ``videos`` up to ``videos``; use ``limit`` for fewer sessions.
        seed: another seed is another world.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(self, *, videos: int = 240, queries: int = 120, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        if videos % 2 or not 2 <= videos <= 4000:
            raise ValueError(f"data.videos must be even and from 2 to 4000, not {videos}")
        if not videos // 2 <= queries <= videos:
            raise ValueError(
                f"data.queries must be from {videos // 2} to {videos} for {videos} videos, not {queries} "
                "(use data.limit for fewer sessions)"
            )
        self.size = (videos, queries, seed)

    def read(self) -> list[Triplet]:
        """The triplets of the world."""
        return world(*self.size)
