"""Describer and verifier of the demo world: captions and edits by rule, in the words of the world."""

from __future__ import annotations

from collections.abc import Mapping

from covr_lab.demo.wording import BACKGROUND, COLOUR, LIGHT, MOTION, SHAPE, article
from covr_lab.engines.consult import ParseError
from covr_lab.reasoning.cascade import Describer, Verifier
from covr_lab.scorers.attributes import attributes, named
from covr_lab.types import Context


def caption(values: Mapping[str, str]) -> str:
    """Attributes in the words of the captioner.

    >>> caption({"colour": "orange", "shape": "star", "background": "wavy"})
    'An orange star in front of a wavy sea'
    """
    noun = SHAPE[values["shape"]][0] if "shape" in values else "thing"
    said = [article(f"{COLOUR[values['colour']][0]} {noun}" if "colour" in values else noun)]
    said += [MOTION[values["motion"]][0]] if "motion" in values else []
    said += [f"in front of {BACKGROUND[values['background']][0]}"] if "background" in values else []
    said += [LIGHT[values["light"]][0]] if "light" in values else []
    text = " ".join(said)
    return text[0].upper() + text[1:]


class DemoDescriber(Describer):
    """The attributes of the source's caption with those of the text in their place, as one caption."""

    def render(self, context: Context) -> str:
        """The caption of the wanted clip."""
        return caption({**_known(context.source_caption), **_known(context.text, edit=True)})


class DemoVerifier(Verifier):
    """Whether the candidate's caption names every attribute that is wanted.

    Args:
        strict: what the text leaves as in the source counts, too.
    """

    def __init__(self, *, strict: bool = True) -> None:
        super().__init__()
        self.strict = strict

    def render(self, context: Context) -> bool:
        """The verdict."""
        wanted = {**attributes(context.source_caption if self.strict else ""), **_known(context.text, edit=True)}
        return wanted.items() <= _known(context.candidate_caption).items()


def _known(text: str, *, edit: bool = False) -> dict[str, str]:
    found = named(text) if edit else attributes(text)
    if not found:
        raise ParseError(f"no attribute in {text!r}")
    return found
