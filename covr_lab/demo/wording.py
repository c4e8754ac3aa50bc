"""Captions, edits, short phrases and search texts about scenes, in varied English."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from covr_lab.demo.world import Scene, Thing

COLOUR: Final = {
    "red": ("red",),
    "orange": ("orange",),
    "yellow": ("yellow", "golden"),
    "green": ("green",),
    "turquoise": ("turquoise", "cyan"),
    "blue": ("blue",),
    "purple": ("purple", "violet"),
    "pink": ("pink",),
}
SHAPE: Final = {
    "circle": ("circle", "disc"),
    "square": ("square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "cross": ("cross", "plus"),
    "ring": ("ring", "hoop"),
    "heart": ("heart",),
    "moon": ("moon", "crescent"),
}
MOTION: Final = {
    "left": ("moving left", "gliding to the left", "drifting leftwards"),
    "right": ("moving to the right", "gliding to the right", "drifting rightwards"),
    "rise": ("rising", "climbing upwards", "floating upwards"),
    "fall": ("falling", "sinking downwards", "dropping downwards"),
    "grow": ("growing", "swelling", "getting bigger"),
    "shrink": ("shrinking", "dwindling", "getting smaller"),
    "still": ("resting", "standing still", "staying in place"),
}
VERB: Final = {
    "left": ("move left", "glide to the left", "drift leftwards"),
    "right": ("move to the right", "glide to the right", "drift rightwards"),
    "rise": ("rise", "climb upwards", "float upwards"),
    "fall": ("fall", "sink downwards", "go downwards"),
    "grow": ("grow", "swell", "get bigger"),
    "shrink": ("shrink", "dwindle", "get smaller"),
    "still": ("stand still", "stay in place"),
}
BACKGROUND: Final = {
    "plain": ("a plain wall", "a blank wall", "a plain backdrop"),
    "dark": ("a dark room", "a dark backdrop", "a pitch-dark hall"),
    "striped": ("a striped curtain", "a striped backdrop", "stripes"),
    "checkered": ("a checkered floor", "a checkered backdrop", "a chessboard"),
    "dotted": ("a dotted cloth", "a dotted backdrop", "polka dots"),
    "brick": ("a brick wall", "bricks", "a wall of bricks"),
    "wavy": ("a wavy sea", "waves", "wavy water"),
    "starry": ("a starry sky", "a starry night", "the night sky"),
}
LIGHT: Final = {
    "steady": ("in steady light", "under steady light", "in even light"),
    "fading": ("as the light fades", "while it gets darker", "in fading light"),
    "brightening": ("as the light brightens", "while it gets brighter", "in brightening light"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a scene: of an attribute from ``old`` to ``new``, or a ``thing`` that comes or goes."""

    kind: str
    old: str = ""
    new: str = ""
    thing: Thing | None = None
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Claims:
    """What a text says: ("", "", "") and "" stand for what it leaves open."""

    things: tuple[tuple[str, str, str], ...] = ()
    background: str = ""
    light: str = ""

    def true_of(self, scene: Scene) -> bool:
        """Whether ``scene`` fits; two things of a text are two things of the scene."""
        if (self.background not in ("", scene.background)) or self.light not in ("", scene.light):
            return False
        shown = [(t.colour, t.shape, t.motion) for t in scene.things]
        if len(self.things) > len(shown):
            return False
        orders = [shown, shown[::-1]]
        return any(
            all(
                all(c in ("", v) for c, v in zip(claim, values, strict=True))
                for claim, values in zip(self.things, order, strict=False)
            )
            for order in orders
        )


def article(words: str) -> str:
    """``words`` after "a" or "an"."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _noun(rng: random.Random, colour: str, shape: str) -> str:
    words = [rng.choice(COLOUR[colour])] if colour else []
    return " ".join([*words, rng.choice(SHAPE[shape]) if shape else rng.choice(("thing", "object", "shape"))])


def _big(rng: random.Random, noun: str) -> str:
    return article(f"{rng.choice(('big', 'large'))} {noun}" if rng.random() < 0.25 else noun)


def _motion(rng: random.Random, motion: str) -> str:
    words = rng.choice(MOTION[motion])
    return words if rng.random() < 0.7 else f"that is {words}"


def _joined(rng: random.Random, parts: list[str]) -> str:
    return rng.choice((" and ", ", ", " beside ", " with ")).join(parts)


def say(rng: random.Random, claims: Claims) -> str:
    """One sentence or phrase that says ``claims`` and nothing else, in lower case without a full stop."""
    parts = []
    for colour, shape, motion in claims.things:
        noun = _big(rng, _noun(rng, colour, shape))
        parts.append(f"{noun} {_motion(rng, motion)}" if motion else noun)
    rng.shuffle(parts)
    text = _joined(rng, parts)
    where = rng.choice(BACKGROUND[claims.background]) if claims.background else ""
    light = rng.choice(LIGHT[claims.light]) if claims.light else ""
    if not text:
        return " ".join(filter(None, (where, light)))
    before = where and rng.random() < 0.3
    if before:
        text = f"{rng.choice(('on', 'in front of', 'over'))} {where}, {text}"
    elif where:
        text = f"{text}{rng.choice((' on', ' in front of', ' over', ', behind it'))} {where}"
    if light:
        text = f"{light}, {text}" if not before and rng.random() < 0.25 else f"{text}{rng.choice((' ', ', '))}{light}"
    return text


def whole(scene: Scene) -> Claims:
    """All that can be said about ``scene``."""
    return Claims(tuple((t.colour, t.shape, t.motion) for t in scene.things), scene.background, scene.light)


def phrase(claims: Claims) -> str:
    """The one short text that stands for a tag.

    >>> phrase(Claims((("red", "", ""),))), phrase(Claims((("red", "star", "left"),)))
    ('a red thing', 'a red star moving left')
    """
    if claims.background:
        return BACKGROUND[claims.background][0]
    if claims.light:
        return LIGHT[claims.light][0]
    colour, shape, motion = claims.things[0]
    noun = SHAPE[shape][0] if shape else "thing"
    words = article(f"{COLOUR[colour][0]} {noun}" if colour else noun)
    return f"{words} {MOTION[motion][0]}" if motion else words


def caption(rng: random.Random, scene: Scene) -> str:
    """A caption that names all attributes of ``scene``."""
    text = say(rng, whole(scene))
    if rng.random() < 0.3:
        text = f"{rng.choice(('a clip of', 'a video with', 'footage of'))} {text}" if text.startswith("a") else text
    return text[0].upper() + text[1:] + "."


def part(rng: random.Random, claims: Claims, keep: float) -> Claims:
    """A part of ``claims``: each attribute stays with probability ``keep``; at least one does."""
    while True:
        things = tuple(tuple(v if rng.random() < keep else "" for v in thing) for thing in claims.things)
        left = tuple(thing for thing in things if any(thing))
        found = Claims(
            left,  # type: ignore[arg-type]
            claims.background if rng.random() < keep else "",
            claims.light if rng.random() < keep else "",
        )
        if found != Claims():
            return found


def search_text(rng: random.Random, claims: Claims) -> str:
    """``claims`` as a search engine may get them: phrases in any order, rough joins, missing articles, odd words."""
    rough = rng.random()
    if rough < 0.4:
        return say(rng, claims)
    phrases: list[str] = []
    for colour, shape, motion in claims.things:
        if rng.random() < 0.6:
            noun = _noun(rng, colour, shape) if colour or shape else ""
            phrases.append(" ".join(filter(None, (noun, rng.choice(MOTION[motion]) if motion else ""))))
        else:
            phrases.append(_noun(rng, colour, shape) if colour or shape else "")
            phrases.append(rng.choice((*MOTION[motion], *VERB[motion])) if motion else "")
    phrases.append(rng.choice(BACKGROUND[claims.background]) if claims.background else "")
    phrases.append(rng.choice(LIGHT[claims.light]) if claims.light else "")
    phrases = list(filter(None, phrases))
    if len(claims.things) < 2:
        rng.shuffle(phrases)
    words = rng.choice((", ", "; ", " ", " and ")).join(phrases).split()
    kept = [w for w in words if w not in ("a", "an", "the", "is", "it", "as") or rng.random() < 0.5]
    for _ in range(rng.choice((0, 0, 1, 2))):
        kept.insert(rng.randrange(len(kept) + 1), rng.choice(("please", "the", "video", "with", "also", "xx", "more")))
    return " ".join(kept)


_EDITS: Final = {
    "shape": (
        "replace the {it} with {a_new}",
        "swap the {it} for {a_new}",
        "turn the {it} into {a_new}",
        "change the {it} to {a_new}",
        "make the {it} {a_new}",
        "show {a_new} instead of the {it}",
    ),
    "colour": (
        "make the {it} {new}",
        "change the colour of the {it} to {new}",
        "paint the {it} {new}",
        "the {it} should be {new}",
        "turn the {it} {new}",
        "change the {it} from {old} to {new}",
    ),
    "motion": (
        "make the {it} {verb}",
        "have the {it} {verb}",
        "let the {it} {verb}",
        "the {it} should be {doing}",
        "the {it} should {verb}",
        "the {it} is {doing} instead",
    ),
    "background": (
        "change the background to {new}",
        "put it in front of {new}",
        "replace the background with {new}",
        "replace {old} with {new}",
        "swap {old} for {new}",
        "with {new} in the background",
    ),
    "add": ("add {it}", "put {it} beside it", "there should also be {it}", "add {it} to the scene"),
    "remove": ("remove the {it}", "take the {it} away", "without the {it}", "get rid of the {it}"),
}
_LIGHT: Final = {
    "steady": ("show it in steady light", "show it in even light", "make the light steady", "use steady light"),
    "fading": ("let it get darker", "show it in fading light", "make the light fade", "the light should fade"),
    "brightening": (
        "let it get brighter",
        "show it in brightening light",
        "the light should brighten",
        "let it brighten",
    ),
}
_ALONE: Final = {
    "colour": ("make it {new}", "change the colour to {new}", "paint it {new}", "it should be {new}"),
    "motion": ("make it {verb}", "have it {verb}", "let it {verb}", "it should be {doing}", "it should {verb}"),
    "shape": ("make it {a_new}", "use {a_new} instead", "it should be {a_new}"),
}


def _named(rng: random.Random, thing: Thing, kind: str) -> str:
    """``thing`` by its shape, by its colour or by both, as an edit of ``kind`` may call it."""
    if kind == "colour":
        return _noun(rng, "", thing.shape)
    return _noun(rng, thing.colour if rng.random() < 0.5 else "", thing.shape)


def _clause(rng: random.Random, change: Change) -> str:
    kind, thing = change.kind, change.thing
    if kind == "light":
        return rng.choice(_LIGHT[change.new])
    if thing is None:
        old, new = (rng.choice(BACKGROUND[value]) for value in (change.old, change.new))
        return rng.choice(_EDITS[kind]).format(old=old, new=new)
    words = {"it": _named(rng, thing, kind)}
    if kind == "add":
        words["it"] = f"{article(_noun(rng, thing.colour, thing.shape))} {rng.choice(MOTION[thing.motion])}"
    elif kind == "colour":
        words |= {"new": rng.choice(COLOUR[change.new]), "old": rng.choice(COLOUR[change.old])}
    elif kind == "shape":
        words["a_new"] = article(rng.choice(SHAPE[change.new]))
    elif kind == "motion":
        words |= {"verb": rng.choice(VERB[change.new]), "doing": rng.choice(MOTION[change.new])}
    short = change.alone and kind in _ALONE and rng.random() < 0.6
    return rng.choice((_ALONE if short else _EDITS)[kind]).format(**words)


def edit(rng: random.Random, changes: list[Change]) -> str:
    """One of the ways to say all ``changes``."""
    return rng.choice((" and ", ", then ", "; also ")).join(_clause(rng, change) for change in changes)


def templates() -> list[str]:
    """All wordings of this file with holes, and the small words between them: what a vocabulary needs."""
    small = "a an the big large thing object shape that is and beside with on in front of over behind it as while gets"
    rest = "clip video footage scene also then please more instead from to"
    return [text for table in (_EDITS, _ALONE, _LIGHT) for texts in table.values() for text in texts] + [small, rest]
