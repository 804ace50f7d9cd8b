"""One style for every figure: colours, type, grid; set on each figure, never on matplotlib's globals.

The colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/). The first four keep 3:1 against white and
stay apart under simulated deuteranopia, protanopia and tritanopia; words in a colour take its darker `WRITING` (4.5:1).
On a page each colour is a CSS variable, so that a picture follows the reader's light or dark paper (`css`, `themed`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmodels.core.files import replacing

#: blue, vermilion, green, pink, orange, sky, brown, grey
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#666666")
#: The same for words.
WRITING = ("#00639B", "#A84600", "#00704F", "#9C4579", "#7F5800", "#1B6FA0", "#735822", "#545454")
#: The same on dark paper, for lines and words.
ON_DARK = ("#4AA8E8", "#FF8A3D", "#2FC79A", "#E39CC4", "#F0B93A", "#8FD0F5", "#C9A66B", "#A0A0A0")
#: A shape for each colour, so that colour never tells alone.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: Words and axes; second words; grid; the soft fill behind things.
INK, SOFT, GRID, FILL = "#1B1F24", "#57606A", "#D3D9E0", "#E8EBEF"
PAPER = "#FEFEFE"
_DARK = {INK: "#E6EDF3", SOFT: "#9DA7B3", GRID: "#30363D", FILL: "#262C34", PAPER: "#0D1117"}
_VARIABLES = {
    **{colour: f"--series-{i}" for i, colour in enumerate(COLOURS)},
    **{colour: f"--writing-{i}" for i, colour in enumerate(WRITING)},
    INK: "--fig-ink",
    SOFT: "--fig-soft",
    GRID: "--fig-grid",
    FILL: "--fig-fill",
    PAPER: "--fig-paper",
}
#: Points of text in figures.
TEXT, SMALL = 9.5, 8.5
#: Inches of a picture on a page: narrow enough that SMALL words are 10 px high on a screen of 390 px.
COLUMN, HEIGHT = 4.1, 3.2
#: Inches of a picture alone, as a notebook shows it, and of each on a sheet of several.
ALONE, ON_SHEET = (7.0, 4.0), (6.0, 4.1)
#: Points of lines: edges of bars, what is to be read off by, what runs through points, curves; of marks: one of many,
#: one by itself, an alternative's star, the recommended fleet's.
EDGE, THIN, FINE, CURVE = 0.6, 0.9, 1.2, 1.8
DOT, MARK, STAR, BEST = 3.0, 7.0, 9.0, 13.0
#: Points between words and what they tell of.
GAP = 3.0
LEGEND: dict[str, Any] = {
    "fontsize": SMALL,
    "labelcolor": INK,
    "facecolor": PAPER,
    "edgecolor": "none",
    "framealpha": 0.85,
    "borderpad": 0.3,
    "handlelength": 1.5,
}
#: Ring around the operating point, and the paper behind words that stand on lines.
HALO = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.85, "pad": 1.0}


def figure(draw: Callable[[Axes], Any], width: float = COLUMN, height: float = HEIGHT, quick: bool = False) -> Figure:
    """A figure of one picture. `quick` leaves fixed margins instead of measuring every word, in half the time."""
    if quick:
        made = Figure(figsize=(width, height))
        made.subplots_adjust(0.82 / width, 0.52 / height, 1.0 - 0.85 / width, 1.0 - 0.12 / height)
        axes = tidy(made.add_subplot())
    else:
        axes = panel(width, height)
    draw(axes)
    return paper(axes)


def paper(axes: Axes) -> Figure:
    """The figure that holds `axes`."""
    made = axes.get_figure(root=True)
    if made is None:
        raise ValueError("the axes were removed from their figure")
    return made


def panel(width: float = COLUMN, height: float = HEIGHT) -> Axes:
    """One pair of axes in this style."""
    return tidy(Figure(figsize=(width, height), layout="constrained").add_subplot())


def panels(rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    """A figure of `rows` x `columns` axes in this style; long labels in one row leave the others wide."""
    made = Figure(figsize=(ON_SHEET[0] * columns, ON_SHEET[1] * rows), layout="constrained")
    parts = made.subfigures(rows, 1, squeeze=False)[:, 0]
    axes = np.array([part.subplots(1, columns, squeeze=False)[0] for part in parts])
    for one in axes.flat:
        tidy(one)
    return made, axes


def tidy(axes: Axes) -> Axes:
    """Grid behind, two spines, our ink and type."""
    axes.set_prop_cycle(color=COLOURS)
    axes.grid(which="major", linewidth=EDGE, color=GRID)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(which="both", color=SOFT, labelcolor=INK, labelsize=SMALL)
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set(color=INK, fontsize=TEXT)
    axes.title.set(color=INK)
    for offset in (axes.xaxis.offsetText, axes.yaxis.offsetText):
        offset.set(color=INK, fontsize=SMALL)
    return axes


def colour(place: int) -> str:
    """The colour of series number `place`."""
    return COLOURS[place % len(COLOURS)]


def writing(place: int) -> str:
    """The colour for words about series number `place`."""
    return WRITING[place % len(WRITING)]


def marker(place: int) -> str:
    """The shape of series number `place`."""
    return MARKERS[place % len(MARKERS)]


#: Side of a point -> where words beside it begin, and how they are aligned.
_SIDES: dict[str, tuple[tuple[int, int], dict[str, str]]] = {
    "": ((0, 0), {}),
    "right": ((1, 0), {"ha": "left", "va": "center"}),
    "left": ((-1, 0), {"ha": "right", "va": "center"}),
    "above": ((0, 1), {"ha": "center", "va": "bottom"}),
    "below": ((0, -1), {"ha": "center", "va": "top"}),
}


def words(axes: Axes, text: str, at: Any, side: str = "", gap: float = GAP, **look: Any) -> None:
    """Small words at a point, or on a side of it, `gap` typographic points away."""
    (right, up), aligned = _SIDES[side]
    how: dict[str, Any] = {"fontsize": SMALL, "color": INK, **aligned, **look}
    axes.annotate(text, at, (gap * right, gap * up), textcoords="offset points", **how)


def across(axes: Axes, x: float | None = None, y: float | None = None, **look: Any) -> None:
    """A line across the picture at `x` or at `y`, to read off by: thin, grey and broken."""
    how: dict[str, Any] = {"color": SOFT, "linestyle": "--", "linewidth": THIN, **look}
    if x is not None:
        axes.axvline(x, **how)
    if y is not None:
        axes.axhline(y, **how)


def mark(axes: Axes, x: float, y: float, place: int) -> None:
    """One point of series number `place`, over the lines."""
    axes.plot([x], [y], marker(place), color=colour(place), markersize=MARK, zorder=4)


def plain(axis: Any, wide: bool = True) -> None:
    """Ticks of a logarithmic axis as plain numbers (20, 50, 100), not as powers; few enough to be read.

    `wide` is for axes over a factor of eight or so; narrower ones get ticks at steps that suit them.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    if wide:
        axis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0), numticks=12))
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_formatter(NullFormatter())


def number(value: float) -> str:
    """A tick: 0.5, 20, 5,000.

    >>> number(0.5), number(20.0), number(20_000.0)
    ('0.5', '20', '20,000')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def save(made: Figure, path: str | Path, dpi: float = 150) -> Path:
    """Write a figure, whole or not at all; the suffix picks the format."""
    with replacing(path) as draft:
        made.savefig(draft, dpi=dpi)
    return Path(path)


def themed(svg: str) -> str:
    """The SVG with its colours as CSS variables (with the colour itself for readers without them)."""
    for value, name in _VARIABLES.items():
        svg = svg.replace(value.lower(), f"var({name}, {value.lower()})")
    return svg


def css() -> str:
    """The variables' values, on light and on dark paper."""
    light = "; ".join(f"{name}: {value}" for value, name in _VARIABLES.items())
    dark = dict(zip((*COLOURS, *WRITING), (*ON_DARK, *ON_DARK), strict=True)) | _DARK
    shaded = "; ".join(f"{name}: {dark[value]}" for value, name in _VARIABLES.items())
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {shaded} }} }}\n"
