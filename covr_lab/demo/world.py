"""Scenes of one or two moving things, and splits made of families of near-duplicates; nothing is drawn here."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from covr_lab.demo import wording

Split = Literal["train", "test"]

COLOURS: Final = ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink")
SHAPES: Final = ("circle", "square", "triangle", "star", "cross", "ring", "heart", "moon")
MOTIONS: Final = ("left", "right", "rise", "fall", "grow", "shrink", "still")
BACKGROUNDS: Final = ("plain", "dark", "striped", "checkered", "dotted", "brick", "wavy", "starry")
LIGHTS: Final = ("steady", "fading", "brightening")

REACH: Final = 0.25  # of the frame side: how far a path leads to either side of the middle
LANES: Final = (0.28, 0.72)  # where a path that does not move in x (or y) lies, with a jitter
STRAYS: Final = 3  # clips of a family that fit the edit but differ in one attribute that it does not speak of


@dataclass(frozen=True, slots=True)
class Thing:
    """One moving shape. ``x``, ``y``: middle of its path, ``radius``: both in parts of the frame side."""

    colour: str
    shape: str
    motion: str
    x: float = 0.5
    y: float = 0.5
    radius: float = 0.23

    def at(self, time: float) -> tuple[float, float, float]:
        """Centre and radius at ``time`` in [0, 1].

        >>> Thing("red", "star", "left").at(0.0)
        (0.75, 0.5, 0.23)
        """
        go = 2 * time - 1
        along = {"left": -REACH, "right": REACH}.get(self.motion, 0.0) * go
        down = {"rise": -REACH, "fall": REACH}.get(self.motion, 0.0) * go
        swell = {"grow": 0.45, "shrink": -0.45}.get(self.motion, 0.0) * go
        return self.x + along, self.y + down, self.radius * (1 + swell)


@dataclass(frozen=True, slots=True)
class Scene:
    """What one clip shows. ``phase``: shift of the background's pattern in parts of the frame side."""

    things: tuple[Thing, ...]
    background: str
    light: str
    phase: tuple[float, float] = (0.0, 0.0)

    @property
    def attributes(self) -> tuple[object, ...]:
        """What a caption can speak of; equal for two scenes that only differ in where things are."""
        return (frozenset((t.colour, t.shape, t.motion) for t in self.things), self.background, self.light)


class Query(NamedTuple):
    """One composed query: the reference clip, the edit, and the clip that both describe."""

    session_id: str
    reference_id: str
    target_id: str
    edit: str


@dataclass(frozen=True)
class World:
    """One split. ``captions`` are true and whole: for the user and for training, never for the system under test."""

    clips: dict[str, Scene]
    captions: dict[str, str]
    queries: list[Query]
    gallery: list[str]


def belongs(split: Split, colour: str, shape: str, motion: str) -> bool:
    """Whether ``split`` may show such a thing: a fifth of all combinations are held out for the test split.

    Any two values of two attributes meet in both splits: no colour, shape or motion gives another away.

    >>> len([1 for c in COLOURS for s in SHAPES for m in MOTIONS if belongs("test", c, s, m)])
    90
    """
    c, s, m = COLOURS.index(colour), SHAPES.index(shape), MOTIONS.index(motion)
    held_out = (c + s + m) % 2 == 0 and (c + 2 * s + m) % 5 < 2
    return held_out == (split == "test")


def _place(rng: random.Random, thing: Thing) -> Thing:
    x, y = (rng.choice(LANES) + rng.uniform(-0.04, 0.04) for _ in "xy")
    if thing.motion in ("left", "right"):
        x = 0.5 + rng.uniform(-0.04, 0.04)
    elif thing.motion in ("rise", "fall"):
        y = 0.5 + rng.uniform(-0.04, 0.04)
    return replace(thing, x=x, y=y, radius=rng.uniform(0.21, 0.25))


def _clash(things: tuple[Thing, ...]) -> float:
    """How deep two things overlap at worst, in parts of the frame side; 0 or less: they never touch."""
    if len(things) < 2:
        return 0.0
    worst = -1.0
    for step in range(5):
        (ax, ay, ar), (bx, by, br) = (thing.at(step / 4) for thing in things)
        worst = max(worst, ar + br - ((ax - bx) ** 2 + (ay - by) ** 2) ** 0.5)
    return worst


def placed(rng: random.Random, scene: Scene) -> Scene:
    """``scene`` with new paths and another shift of the background; things keep clear of each other."""
    best: tuple[float, tuple[Thing, ...]] | None = None
    for _ in range(12):
        things = tuple(_place(rng, thing) for thing in scene.things)
        clash = _clash(things)
        if best is None or clash < best[0]:
            best = (clash, things)
        if clash <= 0.03:
            break
    assert best is not None
    return replace(scene, things=best[1], phase=(rng.random(), rng.random()))


def _thing(rng: random.Random, split: Split, others: Collection[Thing]) -> Thing:
    """A thing whose colour and shape no other thing of the scene has."""
    while True:
        colour, shape, motion = rng.choice(COLOURS), rng.choice(SHAPES), rng.choice(MOTIONS)
        new = all(colour != other.colour and shape != other.shape for other in others)
        if new and belongs(split, colour, shape, motion):
            return Thing(colour, shape, motion)


def scene(rng: random.Random, split: Split, count: int | None = None) -> Scene:
    """A scene of ``count`` things (drawn when None), of one in the test split; not yet placed.

    The model cannot tell which shape belongs to which colour when there are two things, so no test text asks it to.
    """
    things: tuple[Thing, ...] = ()
    for _ in range(1 if split == "test" else count or rng.choice((1, 2))):
        things += (_thing(rng, split, things),)
    return Scene(things, rng.choice(BACKGROUNDS), rng.choice(LIGHTS))


def _other(rng: random.Random, values: tuple[str, ...], old: str) -> str:
    return rng.choice([value for value in values if value != old])


def _with(thing: Thing, kind: str, value: str) -> Thing:
    if kind == "colour":
        return replace(thing, colour=value)
    return replace(thing, shape=value) if kind == "shape" else replace(thing, motion=value)


def changed(rng: random.Random, old: Scene, split: Split) -> tuple[Scene, wording.Change]:
    """``old`` with one change, and the change itself; not placed anew."""
    kinds = ("colour", "shape", "motion", "motion", "background", "light", "count")
    kind = rng.choice(kinds[:-1] if split == "test" else kinds)  # one thing stays one thing
    if kind == "background":
        new = replace(old, background=_other(rng, BACKGROUNDS, old.background))
        return new, wording.Change(kind, old=old.background, new=new.background)
    if kind == "light":
        new = replace(old, light=_other(rng, LIGHTS, old.light))
        return new, wording.Change(kind, old=old.light, new=new.light)
    place = rng.randrange(len(old.things))
    thing, rest = old.things[place], old.things[:place] + old.things[place + 1 :]
    if kind == "count":
        if rest:
            return replace(old, things=rest), wording.Change("remove", thing=thing)
        more = _thing(rng, split, old.things)
        return replace(old, things=(*old.things, more)), wording.Change("add", thing=more)
    values = {"colour": COLOURS, "shape": SHAPES, "motion": MOTIONS}[kind]
    taken = {getattr(other, kind) for other in rest} if kind != "motion" else set()
    variants = [_with(thing, kind, value) for value in values if value not in {*taken, getattr(thing, kind)}]
    allowed = [t for t in variants if belongs(split, t.colour, t.shape, t.motion)]
    if not allowed:
        return changed(rng, old, split)
    new_thing = rng.choice(allowed)
    things = (*old.things[:place], new_thing, *old.things[place + 1 :])
    change = wording.Change(kind, getattr(thing, kind), getattr(new_thing, kind), thing, not rest)
    return replace(old, things=things), change


def edited(rng: random.Random, old: Scene, split: Split, count: int) -> tuple[Scene, list[wording.Change]]:
    """``old`` with ``count`` changes of different kinds that do not touch each other; placed anew."""
    while True:
        new, changes = old, list[wording.Change]()
        for _ in range(count):
            new, change = changed(rng, new, split)
            changes.append(change)
        kinds = {change.kind for change in changes}
        if len(kinds) == count and new.attributes != old.attributes and not (count > 1 and kinds & {"add", "remove"}):
            return placed(rng, new), changes


def strayed(
    rng: random.Random, base: Scene, wanted: Scene, split: Split, changes: Collection[wording.Change]
) -> Scene | None:
    """``wanted`` with one more change, of something that ``changes`` leave open; placed anew. None: draw again."""
    new, more = changed(rng, wanted, split)
    said = {change.kind for change in changes}
    if more.kind in said or more.kind in ("add", "remove"):
        return None
    if more.thing is not None:
        untouched = {(t.colour, t.shape, t.motion) for t in base.things}
        same = (more.thing.colour, more.thing.shape, more.thing.motion) in untouched
        if not same and (more.kind != "motion" or "add" in said):
            return None
    return placed(rng, new)


def _family(
    rng: random.Random, split: Split, taken: Collection[tuple[object, ...]]
) -> tuple[Scene, list[Scene], list[wording.Change]] | None:
    """A reference, the clip that an edit asks for with its strays, and the changes; None: draw again."""
    base = scene(rng, split)
    wanted, changes = edited(rng, base, split, rng.choice((1, 1, 2)))
    members = {wanted.attributes: wanted}
    for _ in range(40):
        stray = strayed(rng, base, wanted, split, changes)
        if stray is not None and len(members) <= STRAYS:
            members.setdefault(stray.attributes, stray)
    fresh = not {base.attributes, *members} & set(taken) and base.attributes not in members
    return (base, list(members.values()), changes) if fresh and len(members) == STRAYS + 1 else None


def make_world(split: Split = "test", *, families: int = 150, seed: int = 0) -> World:
    """``families`` times four gallery clips and two queries, whose references stand beside the gallery.

    A family holds the clip that the edit asks for and three strays: they fit the edit too, but differ in one attribute
    that it leaves open. One query wants the first, the other one of the strays, so that turn 0 cannot settle it, as in
    sets of real videos; the two differ in wording and in the reference clip. No two clips of the gallery are described
    alike. The same arguments give the same world.

    >>> world = make_world(families=2)
    >>> len(world.gallery), len(world.queries), len(world.clips)
    (8, 4, 12)
    >>> world == make_world(families=2)
    True
    """
    rng = random.Random(f"{split} {seed}")
    taken: set[tuple[object, ...]] = set()
    found: list[tuple[Scene, Scene | None, str]] = []  # gallery clip, its reference, the edit
    while len(found) < families * (STRAYS + 1):
        family = _family(rng, split, taken)
        if family is None:
            continue
        base, members, changes = family
        taken.update([base.attributes, *(member.attributes for member in members)])
        for place, member in enumerate(members):
            asked = place < 2
            found.append((member, placed(rng, base) if asked else None, wording.edit(rng, changes) if asked else ""))
    rng.shuffle(found)
    clips = {f"demo/{number:04d}": clip for number, (clip, _, _) in enumerate(found)}
    gallery, queries = list(clips), list[Query]()
    for target, (_, reference, text) in zip(gallery, found, strict=True):
        if reference is not None:
            clip = f"demo/{len(clips):04d}"
            clips[clip] = reference
            queries.append(Query(str(len(queries)), clip, target, text))
    captions = {clip: wording.caption(rng, each) for clip, each in clips.items()}
    return World(clips, captions, queries, gallery)
