"""Direct ranking in the demo world: all candidates at once, by the attributes that their captions name."""

from __future__ import annotations

from covr_lab.engines.consult import ParseError
from covr_lab.reasoning.listwise import ListRanker, Order
from covr_lab.scorers.attributes import agreement, attributes, named
from covr_lab.types import Context


class DemoRanker(ListRanker):
    """The candidates by how many of the wanted attributes they have; equal ones stay in order."""

    def render(self, context: Context) -> Order:
        """The order."""
        wanted = {**attributes(context.source_caption), **named(context.text)}
        if not wanted:
            raise ParseError(f"no attribute in {context.text!r}")
        scores = [agreement(wanted, attributes(caption), {}) for caption in context.candidates]
        return tuple(sorted(range(len(scores)), key=lambda place: -scores[place]))
