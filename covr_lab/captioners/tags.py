"""Structured annotations of videos: form, clean tags, text, and tags disturbed (X-CoT; dossier, section 4).

The paper has tags "filtered, deduplicated, proofed and normalised" and says no more. Our reading: a tag is dropped
where it is empty, too long or has no content word; its case, blanks, articles and plural go; of equal ones the first
stays; and one that no sentence of the same record bears out, word by word, is taken for made up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from covr_lab.functional.text import content_words
from covr_lab.reasoning.language import stems
from covr_lab.simulators.base import stream

CLEANER: Final = 2  # another number: other tags of the same answers
FRAMES: Final = 32  # that have a caption
TAG, WORDS = 40, 4  # characters and words that a tag may have
KINDS: Final = ("objects", "actions", "scenes")
_ARTICLE = re.compile(r"^(?:an?|the|some)\s+")

Sentence = Annotated[str, Field(max_length=240)]
Tag = Annotated[str, Field(max_length=TAG)]


class Annotation(BaseModel):
    """What is known of a video in words; the bounds are on what an engine may write."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: list[Sentence] = Field(min_length=3, max_length=3)
    objects: list[Tag] = Field(max_length=10)
    actions: list[Tag] = Field(max_length=8)
    scenes: list[Tag] = Field(max_length=5)
    frame_captions: list[Annotated[str, Field(max_length=120)]] = Field(max_length=FRAMES)

    @property
    def sentences(self) -> list[str]:
        """Summary and frame captions."""
        return [*self.summary, *self.frame_captions]


def clean_tags(tags: Iterable[str], sentences: Iterable[str] = ()) -> list[str]:
    """``tags`` filtered, normalised, without repeats, and proofed.

    Args:
        tags: as they were written; of those that differ in number alone the first stays.
        sentences: what a tag must be borne out by: each content word of it, in any form; none: nothing is proofed.

    >>> clean_tags(["Two Dogs", "the  dogs", "dog", "of the", "spaceship", "running"], ["Two dogs run over a beach."])
    ['two dogs', 'dogs', 'running']
    """
    said = {_base(word) for sentence in sentences for word in content_words(sentence)}
    found = dict[frozenset[str], str]()
    for tag in tags:
        text = _normalised(tag)
        fits = 0 < len(text) <= TAG and len(text.split()) <= WORDS and bool(content_words(text))
        if fits and (not said or said.issuperset(map(_base, content_words(text)))):
            found.setdefault(frozenset(stems(text)), text)
    return list(found.values())


def _normalised(tag: str) -> str:
    return " ".join(_ARTICLE.sub("", printable(tag).lower().strip(" .,;:!?'\"#*-_")).split())


def _base(word: str) -> str:
    """What the forms of a noun or verb have in common, roughly; to compare, never to show."""
    (stem,) = stems(word) or {word}
    bare = re.sub(r"(?<=\w{3})(?:ing|ed)$", "", stem)
    return re.sub(r"([^aeiou])\1$", r"\1", bare).removesuffix("e")


def printable(text: str) -> str:
    r"""``text`` on one line, without control characters.

    >>> printable(' a dog\t\x07 in  snow ')
    'a dog in snow'
    """
    return " ".join("".join(letter for letter in " ".join(text.split()) if letter.isprintable()).split())


def cleaned(annotation: Annotation) -> Annotation:
    """``annotation`` with clean tags and its sentences on one line each; blank frame captions are dropped."""
    summary = [printable(sentence) for sentence in annotation.summary]
    captions = [caption for caption in map(printable, annotation.frame_captions) if caption]
    said = [*summary, *captions]
    tags = {kind: clean_tags(getattr(annotation, kind), said) for kind in KINDS}
    return Annotation(summary=summary, frame_captions=captions, **tags)


def annotation_text(annotation: Annotation) -> str:
    """All of it as one line: numbered summaries, objects, actions, scenes, frame captions, in the order of the paper.

    >>> annotation_text(Annotation(summary=["A dog runs.", "", "By day."], objects=["dog"], actions=["running"],
    ...     scenes=[], frame_captions=["a dog", "a dog in snow"]))
    '1. A dog runs. 2. By day. Objects: dog. Actions: running. Frames: a dog; a dog in snow.'
    """
    summary = [f"{number}. {_stop(text)}" for number, text in enumerate(filter(None, annotation.summary), 1)]
    tags = [f"{kind.capitalize()}: {', '.join(found)}." for kind in KINDS if (found := getattr(annotation, kind))]
    shown = "; ".join(caption.rstrip(" .") for caption in annotation.frame_captions)
    return " ".join([*summary, *tags, *([f"Frames: {shown}."] if shown else [])])


def _stop(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def perturbed(annotations: Mapping[str, Annotation], share: float, seed: int = 0) -> dict[str, Annotation]:
    """``annotations`` with tags of other videos in the place of a ``share`` of their own, sentences as they are.

    Whether a tag is replaced depends on its video, kind and place and the seed alone, and what replaces it also on
    which tags there are; nothing depends on the order of the videos. A tag stays where no other video has another one.

    >>> some = Annotation(summary=["", "", ""], objects=["dog"], actions=[], scenes=[], frame_captions=[])
    >>> other = some.model_copy(update={"objects": ["cat"]})
    >>> [found.objects for found in perturbed({"a": some, "b": other}, 1.0).values()]
    [['cat'], ['dog']]
    """
    if not 0 <= share <= 1:
        raise ValueError(f"perturb is a share between 0 and 1, not {share}")
    if not share:
        return dict(annotations)
    pools = {kind: sorted({tag for one in annotations.values() for tag in getattr(one, kind)}) for kind in KINDS}
    found = {}
    for video, annotation in annotations.items():
        tags = {kind: _swapped(getattr(annotation, kind), pools[kind], share, (seed, video, kind)) for kind in KINDS}
        found[video] = annotation.model_copy(update=tags)
    return found


def _swapped(tags: list[str], pool: list[str], share: float, key: tuple[int, str, str]) -> list[str]:
    others = [tag for tag in pool if tag not in tags]
    swapped = list[str]()
    for place, tag in enumerate(tags):
        rng = stream(*key, place)
        swapped.append(rng.choice(others) if rng.random() < share and others else tag)
    return list(dict.fromkeys(swapped))
