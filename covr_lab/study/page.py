"""The report of a study: one page that needs no other file and no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from covr_lab.results import plots
from covr_lab.results.report import svg
from covr_lab.results.tables import Table
from covr_lab.study.results import Context, Results
from covr_lab.study.spec import Item

SHOWN = {  # by kind of figure
    "curves": "mean over sessions by turn",
    "differences": "difference of the means by turn, sessions paired",
    "sensitivity": "mean over sessions after the last turn, unless another is named",
}
BANDS = "bands: 95 % of the session bootstrap, 10,000 resamples"


@dataclass(frozen=True, slots=True)
class Section:
    """One table or figure of the page.

    Attributes:
        name: key in the study file, and name of its files.
        kind: "table" or "figure".
        contexts: protocol and proxy label of each condition in it.
        absent: lines on runs that should be in it.
        item: what the study file says of it, ``None`` for those that every study has.
        table: of a table, ``None`` when it has no numbers.
        panels: of a figure.
    """

    name: str
    kind: str
    contexts: Sequence[Context]
    absent: tuple[str, ...] = ()
    item: Item | None = None
    table: Table | None = None
    panels: Sequence[plots.Panel] = ()

    @property
    def title(self) -> str:
        """Heading."""
        return self.item.title if self.item else self.table.title if self.table else self.name

    @property
    def paper(self) -> str:
        """Where the paper has it."""
        return self.item.paper if self.item else ""

    @property
    def note(self) -> str:
        """Line below the heading."""
        if self.table is not None:
            return self.table.note
        said = [self.item.note] if self.item else []
        if self.item and self.panels:
            said += [SHOWN[self.item.kind], BANDS]
        return "; ".join(filter(None, said))

    @property
    def anchor(self) -> str:
        """Address in the page."""
        return f"{self.kind}-{self.name}"

    @property
    def proxies(self) -> list[str]:
        """Labels of the proxies in it."""
        return [f"Proxy: {label}" for label in dict.fromkeys(one.proxy for one in self.contexts) if label]

    @property
    def caption(self) -> str:
        """Lines below the picture of a figure, as wide as it is."""
        width = 90 if len(self.panels) == 1 else 150
        return "\n".join(fill(line, width) for line in (*self.absent, *self.proxies, self.note))

    @property
    def files(self) -> list[str]:
        """What was written of it, relative to the page."""
        stem = self.name.replace("_", "-")
        if self.table is not None:
            return [f"tables/{stem}.csv", f"tables/{stem}.tex"]
        return [f"figures/{stem}.png", f"figures/{stem}.svg"] if self.panels else []

    def svgs(self) -> list[Markup]:
        """Pictures for the page."""
        return svg(self.panels)

    def legend(self) -> list[tuple[str, str, str]]:
        """(name, colour, glyph) of curves too many to be named at their ends."""
        if not self.panels or len(self.panels[0].curves) <= plots.LABELLED:
            return []
        numbered = enumerate(self.panels[0].curves)
        styles = [(curve.run, place if curve.style is None else curve.style) for place, curve in numbered]
        return [(name, plots.colour(style), plots.glyph(style)) for name, style in styles]


def write_page(results: Results, sections: Sequence[Section], path: Path) -> Path:
    """Write the page of a study.

    Args:
        results: its runs.
        sections: in the order of the page.
        path: of the page, in the folder of the study.
    """
    environment = Environment(
        loader=PackageLoader("covr_lab", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = {"study": results.study, "results": results, "sections": sections}
    text = environment.get_template("study/study.html").render(parts)
    path.write_text(text, encoding="utf-8")
    return path
