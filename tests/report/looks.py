"""What stands on a pair of axes, as a reader would list it: every line, bar, area and word in turn, with its look."""

from __future__ import annotations

import numpy as np
from matplotlib import ticker
from matplotlib.colors import to_hex, to_rgba

from dmodels.report import style

#: How a colour is called here: by the number of its series, w and that number for words, or by its part of the page.
_CALLED = {colour.lower(): f"w{i}" for i, colour in enumerate(style.WRITING)}
_CALLED |= {colour.lower(): f"{i}" for i, colour in enumerate(style.COLOURS)}
_CALLED |= {getattr(style, name).lower(): name.lower() for name in ("INK", "SOFT", "GRID", "FILL", "PAPER")}
#: Where ticks stand unless it is said otherwise.
USUAL = (ticker.AutoLocator, ticker.LogLocator)


def looks(axes) -> list[str]:
    """Titles, axes with their limits and own ticks, lines, bars, areas, words, legend; four digits of every number."""
    title, right = axes.get_title(), axes.get_title(loc="right")
    found = [f"title: {title}"] * bool(title) + [f"above at the right: {right}"] * bool(right)
    found += [_axis(*pair) for pair in (("x", axes.xaxis), ("y", axes.yaxis))]
    found += [f"line {_points(line.get_xdata(), line.get_ydata())}: {_line(line)}" for line in axes.lines]
    bars = [bar for group in axes.containers for bar in getattr(group, "patches", ())]
    found += [_bar(bar) for bar in bars] + [_box(one) for one in axes.patches if one not in bars]
    for one in axes.collections:
        found += [_area(one)] if one.get_array() is None else _map(one)
    found += [_words(text) for text in axes.texts]
    if legend := axes.get_legend():
        told = "; ".join(text.get_text() for text in legend.get_texts())
        sizes = f"{legend._ncols} in a row, lines of {legend.handlelength:g}, {legend.borderpad:g} around"
        anchor = _point(*axes.transAxes.inverted().transform(legend.get_bbox_to_anchor().p0))
        found += [f"legend at {legend._loc} of the box from {anchor}, {sizes}", f"legend: {told}"]
    return found


def room(group) -> str:
    """What is named, or only kept free: its name and number, its points, and whether they are joined."""
    name = f"{group.name} {'ink' if group.place is None else group.place}" if group.name else "unnamed"
    return f"room of {name}: {_points(np.ravel(group.x), np.ravel(group.y))}" + ", joined" * group.line


def colour(one) -> str:
    """The number of a series (w: for words), ink, soft, grid, fill, paper, or none."""
    return "none" if to_rgba(one)[3] == 0.0 else _CALLED.get(to_hex(one), to_hex(one))


def _number(value) -> str:
    return f"{float(f'{float(value):.4g}') + 0.0:g}"


def _point(x, y) -> str:
    return f"({_number(x)}, {_number(y)})"


def _points(x, y) -> str:
    """All of a few; of many how many there are, the first, the middle and the last."""
    if len(x) > 20:
        return f"{len(x)} points, " + " ... ".join(_point(x[k], y[k]) for k in (0, len(x) // 2, -1))
    return " ".join(map(_point, x, y)) or "nowhere"


def _axis(name, axis) -> str:
    low, high = (float(end) for end in axis.get_view_interval())
    base = getattr(axis.get_transform(), "base", 10)
    scale = axis.get_scale() + f" {base:g}" * (base != 10)
    told = f"{name}: {axis.get_label_text()} [{scale}] {_number(low)} to {_number(high)}"
    told += ", no grid" * (not any(line.get_visible() for line in axis.get_gridlines()))
    if isinstance(axis.get_major_formatter(), ticker.ScalarFormatter) and type(axis.get_major_locator()) in USUAL:
        return told
    inside = lambda place: min(low, high) <= place <= max(low, high)
    labels = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    named = "; ".join(text.get_text().replace("\n", " / ") for place, text in labels if inside(place))
    return f"{told}: {named}" if named else told


def _line(line) -> str:
    """Colour, style and points of width, mark and its size; then what is not as usual."""
    look = [colour(line.get_color())]
    if line.get_linestyle() != "None":
        look += [line.get_linestyle(), f"{line.get_linewidth():g}"]
    if line.get_marker() not in ("None", "", None):
        look += [line.get_marker(), f"{line.get_markersize():g}"]
        look += ["hollow"] * (colour(line.get_markerfacecolor()) == "none")
        look += ["on paper"] * (colour(line.get_markerfacecolor()) == "paper")
    look += [f"pale {line.get_alpha()}"] * (line.get_alpha() is not None)
    look += ["steps"] * (line.get_drawstyle() == "steps-post")
    return " ".join([*look, *[f"layer {line.get_zorder():g}"] * (line.get_zorder() != 2)])


def _bar(bar) -> str:
    """From where to where, at which height, how high, its colour; then its edge and what it is hatched with."""
    left, width, high = bar.get_x(), bar.get_width(), bar.get_height()
    told = f"bar {_number(left)} to {_number(left + width)} at {_number(bar.get_y() + high / 2)}: {_number(high)}"
    told += f" {colour(bar.get_facecolor())}" + f" pale {bar.get_alpha()}" * (bar.get_alpha() is not None)
    if bar.get_edgecolor()[3] and bar.get_linewidth():
        told += f" edge {colour(bar.get_edgecolor())} {bar.get_linewidth():g}"
    return told + f" {bar.get_hatch()}" * bool(bar.get_hatch())


def _area(one) -> str:
    """The corners of an area, or the pieces of lines such as errors are drawn with."""
    wide = one.get_linewidths()[0]
    if not len(one.get_facecolor()):
        pieces = [piece for piece in one.get_segments() if len(piece)]
        return f"pieces {', '.join(_points(*piece.T) for piece in pieces)}: {wide:g}"
    corners = sorted({tuple(corner) for path in one.get_paths() for corner in path.vertices.round(6).tolist()})
    look = [
        colour(one.get_facecolor()[0]),
        *[f"edge {wide:g}"] * bool(wide),
        *[f"layer {one.get_zorder():g}"] * (one.get_zorder() != 1),
    ]
    return f"area {_points(*zip(*corners, strict=True))}: {' '.join(look)}"


def _box(one) -> str:
    """What lies behind: its corners in parts of the picture."""
    box = one.get_window_extent().transformed(one.axes.transAxes.inverted())
    look = f"{colour(one.get_facecolor())} {colour(one.get_edgecolor())} {one.get_hatch()} edge {one.get_linewidth():g}"
    return f"box {_point(*box.p0)} to {_point(*box.p1)}: {look} layer {one.get_zorder():g}"


def _map(one) -> list[str]:
    """Rows of values from below, and the scale of their colours beside them."""
    values, kind = one.get_array(), type(one.norm).__name__
    rows = " / ".join(" ".join(map(_number, row)) for row in np.ma.filled(values, np.nan))
    scale = one.colorbar.ax
    edge = colour(one.colorbar.outline.get_edgecolor())
    ends = f"{kind} {_number(one.norm.vmin)} to {_number(one.norm.vmax)}"
    return [f"map {rows}: {ends} in {one.get_cmap().name}", f"beside it, edge {edge}, {_axis('y', scale.yaxis)}"]


def _words(text) -> str:
    """Where they stand (where the search for an empty place put them is not told), how many points away and how
    aligned, their colour; then what is not as usual."""
    said, away = text.get_text().replace("\n", " / "), getattr(text, "xyann", (0, 0))
    place = _point(*(text.xy if hasattr(text, "xyann") else text.get_position()))
    by = getattr(text, "xycoords", "data")
    by = ("data", "axes fraction") if by == text.axes.get_xaxis_transform() else by
    by = {"data": "", "axes fraction": " of axes", ("data", "axes fraction"): " of data and axes"}.get(by, " of others")
    found = f" at {place}{by}, {text.get_ha()} {text.get_va()}" + f" by {_point(*away)}" * (away != (0, 0))
    searched = by == " of axes" and (text.get_ha(), text.get_va()) == ("center", "center")
    look = [colour(text.get_color())]
    look += ["halo"] * (text.get_bbox_patch() is not None)
    look += [f"{text.get_fontsize():g}"] * (text.get_fontsize() != style.SMALL)
    look += [str(text.get_weight())] * (text.get_weight() not in ("normal", 400))
    return f"words {said}{'' if searched else found}: {' '.join(look)}"
