"""Curves over turns: one figure as files, and its panels as SVG for a page that may be light or dark."""

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

Floats = npt.NDArray[np.float64]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito: safe for colour blindness
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚"}
INK, PAPER = "#1f2328", "#ffffff"
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
    """A metric of one run over turns 0 to T.

    Attributes:
        run: name in the legend.
        mean: float64 ``(T+1,)``, NaN where it is undefined.
        low: lower bound of the 95 % band, same shape.
        high: upper bound of the band.
    """

    run: str
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric of all runs; curve ``i`` is drawn in the style of run ``i``."""

    title: str
    curves: tuple[Curve, ...]


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
    """``panel`` as an ``<svg>`` element without background, its ink in the colour of the text around it."""
    with context(["default", STYLE | {"svg.hashsalt": panel.title}]):
        figure = Figure(figsize=(4.2, 3.0), layout="constrained")
        _draw(figure.subplots(), panel)
        svg = _svg(figure, transparent=True)
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    return re.sub(r'<g id="[^"]*"', "<g", svg)  # a page has many figures, and ids must be unique in it


def save_figure(panels: Sequence[Panel], note: str, stem: Path) -> tuple[Path, Path]:
    """Write all ``panels`` with a legend as ``stem.png`` and ``stem.svg``, the same bytes for the same values.

    Args:
        panels: at most five; the sixth cell of the figure is the legend.
        note: lines below the panels: what the numbers are (proxy, sessions, bands).
        stem: path without suffix.
    """
    with context(["default", STYLE]):
        figure = Figure(figsize=(11, 6.2), layout="constrained", facecolor=PAPER)
        cells = figure.subplots(2, 3).flat
        for panel, axes in zip(panels, cells, strict=False):
            _draw(axes, panel)
        for axes in list(figure.axes)[len(panels) :]:
            axes.axis("off")
        _legend(figure.axes[len(panels)], panels[0])
        figure.supxlabel(note, x=0.012, ha="left", multialignment="left", fontsize=8.5)
        png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
        figure.savefig(png, dpi=150, metadata={"Software": None})
        svg.write_text(_svg(figure), encoding="utf-8")
    return png, svg


def _svg(figure: Figure, **options: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, **options)
    return buffer.getvalue()


def _draw(axes: Axes, panel: Panel) -> None:
    for number, curve in enumerate(panel.curves):
        turns = np.flatnonzero(~np.isnan(curve.mean))
        mean, low, high = curve.mean[turns], curve.low[turns], curve.high[turns]
        axes.fill_between(turns, low, high, color=colour(number), alpha=0.15, linewidth=0)
        axes.plot(turns, mean, color=colour(number), marker=marker(number), markersize=4.5, linewidth=1.6)
    last = max(len(curve.mean) for curve in panel.curves) - 1
    axes.set_xticks(range(last + 1))
    axes.set_xlim(-0.25, last + 0.25)
    axes.set_xlabel("turn")
    axes.set_title(panel.title, loc="left", fontweight="bold", fontsize=10.5)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)


def _legend(axes: Axes, panel: Panel) -> None:
    lines = [
        Line2D([], [], color=colour(number), marker=marker(number), linewidth=1.6, label=curve.run)
        for number, curve in enumerate(panel.curves)
    ]
    size = min(10.0, 110 / len(lines))  # points, so that many runs still fit into the cell
    axes.legend(handles=lines, loc="upper left", frameon=False, borderaxespad=0, labelspacing=0.7, fontsize=size)
