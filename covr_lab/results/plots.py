"""Curves over turns or numbers: figures as files, and panels as SVG for a page that may be light or dark.

A :class:`Panel` of :class:`Curve` values is a figure of its own (:func:`save_panel`), one of several
(:func:`save_figure`) or part of a page (:func:`panel_svg`): metrics by turn, differences by turn (``zero=True``), or
the sensitivity to a number (``x=...``, ``x_label=...``).
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.style import context
from matplotlib.text import Annotation

Floats = npt.NDArray[np.float64]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito: safe for colour blindness
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚"}
INK, PAPER = "#1f2328", "#ffffff"
LABELLED = 8  # curves that a panel names at their ends
NAME = 22  # characters of such a name
LABEL: dict[str, Any] = {
    "textcoords": ("axes fraction", "offset points"),
    "verticalalignment": "center",
    "annotation_clip": False,
    "fontsize": 8.5,
}
STYLE: dict[Any, Any] = {
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.1,
    "svg.hashsalt": "covr_lab",  # ids in the file are then the same every time
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a run may have a $ in its name
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A metric, or a difference, of one run over turns 0 to T, or over the numbers ``Panel.x``.

    Attributes:
        run: name at its end, or in the legend.
        mean: float64 ``(M,)``, NaN where it is undefined; the curve goes over such points.
        low: lower bound of the 95 % band, same shape.
        high: upper bound of the band.
        style: number of its colour and marker; by default its place in the panel. Give it where a panel leaves a run
            out (a difference has no curve of its baseline), so that a run looks the same everywhere.
    """

    run: str
    mean: Floats
    low: Floats
    high: Floats
    style: int | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves with common axes; curve ``i`` has the style ``i`` unless it says otherwise.

    Up to :data:`LABELLED` curves are named at their right end, more in a legend.

    Attributes:
        title: above the panel, with the unit.
        curves: at least one.
        x: places of the points, increasing, as long as every curve; by default turns 0, 1, 2, ...
        x_label: below the axis.
        ticks: texts at ``x``; by default the numbers.
        zero: draw a line at 0, for differences.
    """

    title: str
    curves: tuple[Curve, ...]
    x: tuple[float, ...] | None = None
    x_label: str = "turn"
    ticks: tuple[str, ...] | None = None
    zero: bool = False

    @property
    def places(self) -> Floats:
        """float64 ``(M,)``, the ``x`` of the longest curve."""
        longest = max(len(curve.mean) for curve in self.curves)
        return np.arange(longest, dtype=np.float64) if self.x is None else np.asarray(self.x, dtype=np.float64)

    @property
    def labelled(self) -> bool:
        """Whether the curves are named at their ends; a single one is named by the title."""
        return 1 < len(self.curves) <= LABELLED


def colour(run: int) -> str:
    """Hex colour of run number ``run``.

    >>> colour(0), colour(6) == colour(0)
    ('#0072B2', True)
    """
    return COLOURS[run % len(COLOURS)]


def marker(run: int) -> str:
    """Matplotlib marker of run number ``run``; with the colour it tells 36 runs apart."""
    return list(MARKERS)[(run + run // len(COLOURS)) % len(MARKERS)]


def glyph(run: int) -> str:
    """The marker of run number ``run`` as a character, for a legend in text."""
    return MARKERS[marker(run)]


def panel_svg(panel: Panel) -> str:
    """``panel`` as an ``<svg>`` element without background, its ink in the colour of the text around it.

    Curves too many to be named at their ends need a legend in the page: :func:`colour` and :func:`glyph`.
    """
    with context(["default", STYLE | {"svg.hashsalt": panel.title}]):
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")
        _draw(figure.subplots(), panel)
        _place_labels(figure)
        svg = _svg(figure, transparent=True)
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    return re.sub(r'<g id="[^"]*"', "<g", svg)  # a page has many figures, and ids must be unique in it


def save_figure(panels: Sequence[Panel], note: str, stem: Path) -> tuple[Path, Path]:
    """Write all ``panels`` as ``stem.png`` and ``stem.svg``, the same bytes for the same values.

    Args:
        panels: three in a row; a legend comes after them, unless the ends of the curves have their full names.
        note: lines below the panels: what the numbers are (proxy, sessions, bands).
        stem: path without suffix.
    """
    with context(["default", STYLE]):
        named = panels[0].labelled and all(_short(curve.run) == curve.run for curve in panels[0].curves)
        cells = len(panels) + (not named)
        columns, rows = min(cells, 3), -(-cells // 3)
        figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained", facecolor=PAPER)
        grid = figure.subplots(rows, columns, squeeze=False).flat
        for panel, axes in zip(panels, grid, strict=False):
            _draw(axes, panel)
        for axes in list(figure.axes)[len(panels) :]:
            axes.axis("off")
        if not named:
            _legend(figure.axes[len(panels)], panels[0])
        return _write(figure, note, stem)


def save_panel(panel: Panel, note: str, stem: Path) -> tuple[Path, Path]:
    """Write one ``panel`` as ``stem.png`` and ``stem.svg``, the same bytes for the same values.

    Args:
        panel: with a legend beside it when it has too many curves to be named at their ends.
        note: lines below it, as in :func:`save_figure`.
        stem: path without suffix.
    """
    with context(["default", STYLE]):
        figure = Figure(figsize=(7.2, 4.4), layout="constrained", facecolor=PAPER)
        if len(panel.curves) <= LABELLED:
            _draw(figure.subplots(), panel)
        else:
            axes, key = figure.subplots(1, 2, width_ratios=[3, 1])
            _draw(axes, panel)
            key.axis("off")
            _legend(key, panel)
        return _write(figure, note, stem)


def _write(figure: Figure, note: str, stem: Path) -> tuple[Path, Path]:
    figure.supxlabel(note, x=0.012, ha="left", multialignment="left", fontsize=8.5)
    _place_labels(figure)
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    figure.savefig(png, dpi=150, metadata={"Software": None})
    svg.write_text(_svg(figure), encoding="utf-8")
    return png, svg


def _svg(figure: Figure, **options: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, **options)
    return buffer.getvalue()


def _draw(axes: Axes, panel: Panel) -> None:
    places, faint = panel.places, 0.15 if len(panel.curves) <= 4 else 0.07
    if panel.zero:
        axes.axhline(0, color=INK, linewidth=1, alpha=0.6)
    for number, curve in enumerate(panel.curves):
        style = number if curve.style is None else curve.style
        at = np.flatnonzero(~np.isnan(curve.mean))
        mean, low, high = curve.mean[at], curve.low[at], curve.high[at]
        axes.fill_between(places[at], low, high, color=colour(style), alpha=faint, linewidth=0)
        axes.plot(places[at], mean, color=colour(style), marker=marker(style), markersize=4.5, linewidth=1.6)
        if panel.labelled and len(at):
            line = {"arrowstyle": "-", "color": colour(style), "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 4}
            axes.annotate(_short(curve.run), (places[at[-1]], mean[-1]), (1.03, 0), arrowprops=line, **LABEL)
    margin = 0.05 * (places[-1] - places[0]) or 0.25
    axes.set_xticks(places, panel.ticks or [f"{place:g}" for place in places])
    axes.set_xlim(places[0] - margin, places[-1] + margin)
    axes.set_xlabel(panel.x_label)
    axes.set_title(panel.title, loc="left", fontweight="bold", fontsize=10.5)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def _place_labels(figure: Figure) -> None:
    """Move the names at the ends of curves apart, now that the layout has given the axes their size."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        labels = [text for text in axes.texts if isinstance(text, Annotation)]
        if not labels:
            continue
        box, points = axes.get_window_extent(), 72 / figure.dpi
        ends = np.array([axes.transData.transform((0, label.xy[1]))[1] * points for label in labels])
        gap = 1.25 * float(labels[0].get_fontsize())
        for label, end, place in zip(labels, ends, spread(ends, gap, box.y0 * points, box.y1 * points), strict=True):
            label.set_position((1.03, place - end))


def spread(wanted: Floats, gap: float, low: float, high: float) -> Floats:
    """Places closest to ``wanted`` ``(M,)`` that are ``gap`` apart, between ``low`` and ``high`` where they fit.

    >>> spread(np.array([5.0, 5.0, 20.0]), gap=2, low=0, high=30)
    array([ 4.,  6., 20.])
    """
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(wanted))
    blocks: list[tuple[float, int]] = []  # (mean of wanted - steps, size): least squares under an order
    for value in (wanted[order] - steps).tolist():
        size = 1
        while blocks and blocks[-1][0] > value:
            other, others = blocks.pop()
            value, size = (value * size + other * others) / (size + others), size + others
        blocks.append((value, size))
    top = max(high - float(steps[-1]), low)
    places = np.empty(len(wanted))
    places[order] = np.clip([value for value, size in blocks for _ in range(size)], low, top) + steps
    return places


def _legend(axes: Axes, panel: Panel) -> None:
    lines = [
        Line2D([], [], color=colour(style), marker=marker(style), linewidth=1.6, label=curve.run)
        for number, curve in enumerate(panel.curves)
        for style in [number if curve.style is None else curve.style]
    ]
    size = min(10.0, 110 / len(lines))  # points, so that many runs still fit into the cell
    axes.legend(handles=lines, loc="upper left", frameon=False, borderaxespad=0, labelspacing=0.7, fontsize=size)
