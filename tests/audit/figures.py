"""An auditor of figures: what a reader would take for a slip of the pen, whatever the figure shows."""

from __future__ import annotations

import itertools
import math
from typing import Any

from tests.audit.findings import Findings

#: Inches of a figure's sides, and points of its letters.
SIDES, LETTERS = (1.0, 20.0), (5.0, 20.0)
#: Inches of one picture, and its width over its height: alone, and beside others.
PICTURES, SHAPES, BESIDE = (0.5, 12.0), (0.4, 8.0), (0.9, 3.5)
#: Points of lines and of the marks on them.
LINES, MARKS = (0.1, 6.0), (0.5, 14.0)
#: Points between words and the place that they tell of; and of marks that stand by themselves.
BESIDE_IT, LARGE = (2.0, 9.5), 6.5
#: Points of the lines of a grid, which lie behind all others, and of curves; colours of second words and of paper.
GRIDS, CURVES, GREY, PAPER = 1.0, 1.8, "#57606A", "#FEFEFE"
#: What tells an entry of a legend from another: colours, then the rest.
LOOKS = ("color", "facecolor", "edgecolor", "marker", "linestyle", "hatch", "linewidth")
#: Points by which boxes of words may overlap in height: letters fill less than their box.
OVER = 3.0
#: Inches by which marks may pass the edge: half a line's width.
PASSED = 0.06


def audit_figure(made: Any) -> None:
    """A figure has the size of a page, words that can be read and lie on it, and bars that stand at their ticks and
    beside each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    findings = Findings()
    sides = made.get_size_inches()
    findings.hold(all(SIDES[0] <= side <= SIDES[1] for side in sides), f"a figure of {sides} inches")
    words = [text for text in made.findobj(Text) if text.get_visible() and text.get_text().strip()]
    for text in words:
        size = text.get_fontsize()
        findings.hold(LETTERS[0] <= size <= LETTERS[1], f"{text.get_text()!r} in letters of {size} points")
    if not findings.found:
        renderer = FigureCanvasAgg(made).get_renderer()
        box = made.get_tightbbox(renderer)  # which puts the words in their places
        over = max(-box.x0, -box.y0, box.x1 - sides[0], box.y1 - sides[1])
        findings.hold(over <= PASSED, f"marks {over:.2f} inches beyond the figure of {sides}: {box}")
        _legible(set(words) - _apart(made), renderer, findings)
        for axes in made.axes:
            _named(axes, renderer, findings)
            _clear(axes, renderer, findings)
            _scaled(axes, renderer, findings)
    _shapes(made, findings)
    for axes in made.axes:
        findings.hold(axes.has_data() or bool(axes.texts), f"an empty picture beside {made.axes[0].get_title()!r}")
        for line in axes.lines:
            _in_view(axes, line, findings)
            wide, large = line.get_linewidth(), line.get_markersize()
            findings.hold(LINES[0] <= wide <= LINES[1], f"a line of {wide} points in {axes.get_title()!r}")
            marked = line.get_marker() not in ("None", "", " ", None)
            findings.hold(not marked or MARKS[0] <= large <= MARKS[1], f"marks of {large} points")
            _marked(axes, line, findings)
        _thin(axes, findings)
        for line in (*axes.get_xgridlines(), *axes.get_ygridlines()):
            wide = line.get_linewidth()
            findings.hold(wide <= GRIDS, f"a grid of {wide} points in {axes.get_title()!r}")
        for area in axes.collections:
            # what lies behind the data, in shares of the picture
            if hasattr(area, "set_verts") and not area.get_transform().contains_branch(axes.transData):
                ends = [y for path in area.get_paths() for y in path.vertices[:, 1]]
                findings.hold(all(-0.01 <= y <= 1.01 for y in ends), f"an area to {max(ends, default=0.0)} pictures")
        for group in axes.containers:
            _bars(axes, group, findings)
        _rows(axes, findings)
        _filled(axes, findings)
        _told_apart(axes, findings)
    findings.end()


def _shapes(made: Any, findings: Findings) -> None:
    """Every picture is large enough, and of several each is wider than high, as a page shows them."""
    pictures = [axes for axes in made.axes if axes.has_data() and axes.get_label() != "<colorbar>"]
    low, high = SHAPES if len(pictures) == 1 else BESIDE
    for axes in pictures:
        box = axes.get_window_extent()
        wide, tall = box.width / made.dpi, box.height / made.dpi
        findings.hold(all(PICTURES[0] <= side <= PICTURES[1] for side in (wide, tall)), f"{wide:.2f} x {tall:.2f} in")
        findings.hold(low <= wide / tall <= high, f"a picture of {wide:.2f} x {tall:.2f} inches")


def _in_view(axes: Any, line: Any, findings: Findings) -> None:
    """Of a long curve half of the points at least are in the picture, of a short one seven in ten."""
    points = line.get_xydata()
    if line.get_linestyle() != "None" and line.get_transform() == axes.transData:
        known = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        (left, right), (low, high) = map(sorted, (axes.get_xlim(), axes.get_ylim()))
        seen = sum(left <= x <= right and low <= y <= high for x, y in known)
        findings.hold(
            seen >= (0.5 if len(known) > 9 else 0.7) * len(known),
            f"{seen} of {len(known)} points of a curve in {axes.get_title()!r}",
        )


#: Shape of the marks of each series, by its colour: colour never tells alone.
_MARKERS = dict(zip(("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"), "os^DvP", strict=True))


def _marked(axes: Any, line: Any, findings: Findings) -> None:
    """One mark alone, if it is solid, is in the picture; marks without a line have the shape of their colour."""
    from matplotlib.colors import to_hex

    (left, right), (low, high) = map(sorted, (axes.get_xlim(), axes.get_ylim()))
    points, shape = line.get_xydata(), line.get_marker()
    hollow = line.get_markerfacecolor() == "none"
    edge = to_hex(line.get_markeredgecolor() if shape not in ("None", "", " ") else line.get_color()).upper()
    findings.hold(edge != PAPER, f"a line or marks in the colour of the paper in {axes.get_title()!r}")
    if len(points) == 1 and all(map(math.isfinite, points[0])) and not hollow:
        (x, y) = points[0]
        findings.hold(left <= x <= right and low <= y <= high, f"a mark at {x:g}, {y:g} is not in the picture")
    if line.get_linestyle() == "None" and shape in _MARKERS.values() and not hollow:
        own = _MARKERS.get(to_hex(line.get_color()).upper(), shape)
        findings.hold(shape == own, f"marks {shape!r} in the colour of {own!r}")


def _thin(axes: Any, findings: Findings) -> None:
    """Lines across a picture are at most as wide as a curve, and grey ones, to read off by, thinner than any curve."""
    from matplotlib.colors import to_hex

    drawn = [line for line in axes.lines if line.get_linestyle() != "None"]
    across = [line for line in drawn if line.get_transform() != axes.transData]
    curves = [line.get_linewidth() for line in drawn if line not in across]
    for line in across:
        wide, grey = line.get_linewidth(), to_hex(line.get_color()).upper() == GREY
        findings.hold(wide <= CURVES, f"a line of {wide} points across {axes.get_title()!r}")
        findings.hold(not grey or wide < min(curves, default=CURVES), f"a grey line of {wide} points, curves {curves}")


def _apart(made: Any) -> set[Any]:
    """Words of legends and of ticks, which may be there without being drawn."""
    keys = {text for axes in made.axes if axes.get_legend() for text in axes.get_legend().get_texts()}
    axis = [one for axes in made.axes for one in (axes.xaxis, axes.yaxis)]
    ticks = [tick for one in axis for tick in (*one.get_major_ticks(), *one.get_minor_ticks())]
    return keys | {label for tick in ticks for label in (tick.label1, tick.label2)}


def _legible(words: set[Any], renderer: Any, findings: Findings) -> None:
    """No word is written over another."""
    boxes = [(text.get_window_extent(renderer), text.get_text()) for text in words]
    points = renderer.points_to_pixels(1.0)
    for (a, said), (b, other) in itertools.combinations(boxes, 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        findings.hold(wide <= points or high <= OVER * points, f"{said!r} and {other!r} lie on each other")


def _named(axes: Any, renderer: Any, findings: Findings) -> None:
    """Words stand at what they name: in a line's colour beside it, at the right edge where it ends, at a bar's end
    where they tell what made it so long, in a part of a bar with its length, at a place on an axis beside its line."""
    from matplotlib.colors import to_hex

    drawn, ends = _drawn(axes)
    edge: list[tuple[Any, list[float]]] = []
    point = renderer.points_to_pixels(1.0)
    for text in axes.texts:
        box, said = text.get_window_extent(renderer), text.get_text()
        if getattr(text, "xycoords", None) == "data":  # beyond the picture such words are not drawn at all
            x, y = axes.transData.transform(text.xy)
            away = _gap(axes.bbox, x, y) / point
            findings.hold(not said or away <= 1.0, f"{said!r} stands {away:.0f} points beside the picture")
        series = _SERIES.get(to_hex(text.get_color()).upper())
        if box.x0 >= axes.bbox.x1 and ends.get(series):
            edge.append((text, ends[series]))
        elif drawn.get(series):
            near = min(_gap(box, x, y) for x, y in drawn[series])
            findings.hold(near <= NEAR * point, f"{said!r} is {near / point:.0f} points from what has its colour")
        upright = isinstance(getattr(text, "xycoords", None), tuple) and text.xycoords[0] == "data"
        lines = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2]
        beside = any(math.isclose(float(x), text.xy[0]) for both in lines for x in both) if upright else True
        findings.hold(beside, f"{said!r} at {getattr(text, 'xy', 0)}, where no line is")
        _at_a_bar(axes, text, series, box, findings)
    _in_order(edge, axes.bbox, renderer, findings)


def _clear(axes: Any, renderer: Any, findings: Findings) -> None:
    """Words and bars: the one lies in the other, or beside it; words beside a point are near it; a mark by itself lies
    over the lines."""
    point = renderer.points_to_pixels(1.0)
    bars = [bar.get_window_extent() for group in axes.containers for bar in getattr(group, "patches", ())]
    for text in axes.texts:
        box, said = text.get_window_extent(renderer), text.get_text()
        for bar in bars:
            wide, high = min(box.x1, bar.x1) - max(box.x0, bar.x0), min(box.y1, bar.y1) - max(box.y0, bar.y0)
            inside = bar.x0 <= box.x0 and box.x1 <= bar.x1 and bar.y0 <= box.y0 and box.y1 <= bar.y1
            findings.hold(wide <= OVER * point or high <= OVER * point or inside, f"{said!r} crosses a bar's edge")
        if getattr(text, "anncoords", None) == "offset points":
            away = math.hypot(*text.get_position())
            findings.hold(away == 0 or BESIDE_IT[0] <= away <= BESIDE_IT[1], f"{said!r} {away:g} points from its place")
    lines = [line.get_zorder() for line in axes.lines if len(line.get_xdata()) > 1 and line.get_linestyle() != "None"]
    for line in axes.lines:
        if len(line.get_xdata()) == 1 and line.get_markersize() >= LARGE:
            findings.hold(line.get_zorder() > max(lines, default=0), f"a line over a mark at {line.get_xydata()[0]}")


def _scaled(axes: Any, renderer: Any, findings: Findings) -> None:
    """An axis of numbers has two of them at least and a dozen at most, none on another."""
    from matplotlib.ticker import FixedLocator

    point = renderer.points_to_pixels(1.0)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high and tick.label1.get_text()]
        said = [tick.label1.get_text() for tick in ticks]
        spans = sorted(
            (b.x0, b.x1) if name == "x" else (b.y0, b.y1) for b in (t.label1.get_window_extent() for t in ticks)
        )
        for (_, before), (after, _) in itertools.pairwise(spans):
            findings.hold(after > before - OVER * point, f"words at {name} lie on each other: {said}")
        if axes.has_data() and axis.get_visible() and not isinstance(axis.get_major_locator(), FixedLocator):
            decade = axis.get_scale() == "log" and high < 20 * low
            findings.hold(1 + (not decade) <= len(said) <= 12, f"{len(said)} numbers at {name}: {said}")


#: Colour of words -> colour of the lines and bars that they tell of (Okabe and Ito's, the words' darker).
_SERIES = {
    "#00639B": "#0072B2",
    "#A84600": "#D55E00",
    "#00704F": "#009E73",
    "#9C4579": "#CC79A7",
    "#7F5800": "#E69F00",
    "#1B6FA0": "#56B4E9",
    "#735822": "#8C6D31",
    "#545454": "#666666",
}
#: Points between words and what has their colour.
NEAR = 30.0


def _drawn(axes: Any) -> tuple[dict[str, list[Any]], dict[str, list[float]]]:
    """Colour -> pixels of what is drawn in it; colour -> heights at which lines of it end, both within the picture."""
    from matplotlib.colors import to_hex

    drawn: dict[str, list[Any]] = {}
    ends: dict[str, list[float]] = {}
    inside = lambda y: min(max(y, axes.bbox.y0), axes.bbox.y1)
    for line in axes.lines:
        path = [(x, y) for x, y in line.get_transform().transform(line.get_xydata()) if math.isfinite(x + y)]
        steps = range(21) if line.get_linestyle() != "None" else (0,)
        for (x, y), (right, high) in itertools.pairwise([*path, path[-1]] if path else []):
            between = [(x + (right - x) * k / 20, inside(y + (high - y) * k / 20)) for k in steps]
            drawn.setdefault(to_hex(line.get_color()).upper(), []).extend(between)
        if path:
            ends.setdefault(to_hex(line.get_color()).upper(), []).append(inside(path[-1][1]))
    for bar in axes.patches:
        if hasattr(bar, "get_bbox"):
            box = bar.get_bbox().transformed(axes.transData)
            corners = [(x, y) for x in (box.x0, box.x1) for y in (box.y0, box.y1, (box.y0 + box.y1) / 2)]
            for colour in (bar.get_facecolor(), bar.get_edgecolor()):
                drawn.setdefault(to_hex(colour).upper(), []).extend(corners)
    return drawn, ends


def _gap(box: Any, x: float, y: float) -> float:
    """Pixels from a box to a point."""
    return max(box.x0 - x, x - box.x1, box.y0 - y, y - box.y1, 0.0)


def _at_a_bar(axes: Any, text: Any, series: str | None, box: Any, findings: Findings) -> None:
    """Words in a bar's colour are beside its end, at its height; a number in the middle of a bar is its length."""
    if getattr(text, "xycoords", None) != "data" or not any(axes.containers):
        return
    (x, y), said = text.xy, text.get_text()
    bars = [bar for group in axes.containers for bar in getattr(group, "patches", ())]
    if series is not None and bars:
        ends = [bar.get_x() + bar.get_width() for bar in bars if bar.get_y() <= y <= bar.get_y() + bar.get_height()]
        findings.hold(any(math.isclose(x, end, abs_tol=1e-9) for end in ends), f"{said!r} at {x}, bars end at {ends}")
        own = [bar.get_window_extent() for bar in bars if math.isclose(x, bar.get_x() + bar.get_width(), abs_tol=1e-9)]
        middle = axes.transData.transform((x, y))[1]
        over = [min(box.x1, bar.x1) - max(box.x0, bar.x0) for bar in own if bar.y0 <= middle <= bar.y1]
        findings.hold(max(over, default=0.0) <= 0, f"{said!r} lies over the end of its bar")
        off = (box.y0 + box.y1) / 2 - middle
        findings.hold(abs(off) < 0.2 * box.height, f"{said!r} is {off:.1f} pixels above the middle of its bar")
    elif said.replace(".", "", 1).isdigit():
        middles = {bar.get_x() + bar.get_width() / 2: bar.get_width() for bar in bars if abs(bar.get_y() - y) < 0.1}
        length = next((wide for middle, wide in middles.items() if math.isclose(x, middle)), None)
        findings.hold(length is None or math.isclose(float(said), length, rel_tol=6e-3), f"{said} in a bar of {length}")


def _in_order(edge: list[tuple[Any, list[float]]], picture: Any, renderer: Any, findings: Findings) -> None:
    """Names at the right edge: each as near the end of its line as its neighbours allow, none on the wrong side, and
    of those that are pushed apart as many up as down, unless the picture ends there."""
    found = [(text.get_window_extent(renderer), text.get_text(), ends) for text, ends in edge]
    found.sort(key=lambda one: one[0].y0)
    blocks: list[list[Any]] = []
    for one in found:
        if blocks and one[0].y0 - blocks[-1][-1][0].y1 <= 0.5 * one[0].height:
            blocks[-1].append(one)
        else:
            blocks.append([one])
    for block in blocks:
        most = block[-1][0].y1 - block[0][0].y0
        for box, said, ends in block:
            away = min(abs(end - (box.y0 + box.y1) / 2) for end in ends)
            findings.hold(away <= 1.1 * most, f"{said!r} is {away:.0f} pixels from where its line ends")
    inside = found and picture.y0 + 2 < found[0][0].y0 and found[-1][0].y1 < picture.y1 - 2
    if inside and all(len(ends) == 1 for *_, ends in found):
        off = sum(ends[0] - (box.y0 + box.y1) / 2 for box, _, ends in found) / len(found)
        findings.hold(abs(off) <= 0.35 * found[0][0].height, f"{[one[1] for one in found]}: {off:.0f} pixels off")
    known = [(said, ends[0]) for _, said, ends in found if len(ends) == 1]
    for (below, low), (above, high) in itertools.pairwise(known):
        findings.hold(low <= high + 2.0, f"{below!r} stands below {above!r}, and ends above it")


def _filled(axes: Any, findings: Findings) -> None:
    """On an axis that is not logarithmic, marks are not all in one third of what is shown; no bar is cut off."""
    marks, shown = axes.dataLim, axes.viewLim
    ends = {"x": (marks.x0, marks.x1, shown.x0, shown.x1), "y": (marks.y0, marks.y1, shown.y0, shown.y1)}
    for name, (low, high, start, end) in ends.items():
        if getattr(axes, f"get_{name}scale")() == "linear" and math.isfinite(high - low):
            least = min(high - min(start, end), max(start, end) - low)
            said = f"{name} from {start:g} to {end:g} for marks from {low:g} to {high:g}"
            findings.hold(least >= 0.33 * abs(end - start), said)

    for bar in axes.patches:
        if hasattr(bar, "get_bbox") and bar.get_transform().contains_branch(axes.transData):
            last, most = bar.get_bbox().x1, max(axes.get_xlim())
            findings.hold(last <= most * (1 + 1e-9), f"a bar to {last:g} in a picture to {most:g}")


def _told_apart(axes: Any, findings: Findings) -> None:
    """No two entries of a legend look the same."""
    from matplotlib.colors import to_rgba

    legend = axes.get_legend()
    if legend is None:
        return
    seen: dict[Any, str] = {}
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        said = {name: getattr(handle, f"get_{name}", lambda: None)() for name in LOOKS}
        colours = [to_rgba(said[name]) for name in LOOKS[:3] if isinstance(said[name], str | tuple)]
        look = (*colours, *(str(said[name]) for name in LOOKS[3:]))
        other = seen.setdefault(look, text.get_text())
        findings.hold(other == text.get_text(), f"{other!r} and {text.get_text()!r} look the same")


def _bars(axes: Any, group: Any, findings: Findings) -> None:
    """Of one group, no bar lies on another, and each is within half a place of a tick that has a name."""
    if getattr(group, "orientation", None) not in ("horizontal", "vertical"):
        return
    flat = group.orientation == "horizontal"
    axis = axes.yaxis if flat else axes.xaxis
    boxes = [bar.get_bbox() for bar in group.patches if bar.get_width() and bar.get_height()]
    spans = [(box.ymin, box.ymax) if flat else (box.xmin, box.xmax) for box in boxes]
    places = [float(place) for place in axis.get_majorticklocs()]
    for low, high in spans:
        middle = 0.5 * (low + high)
        near = min((abs(middle - place) for place in places), default=0.0)
        step = min((b - a for a, b in itertools.pairwise(sorted(places))), default=1.0)
        findings.hold(near <= 0.5 * step + 1e-9, f"a bar at {middle:g}, ticks at {places}")
    for (_, before), (after, _) in itertools.pairwise(sorted(spans)):
        findings.hold(after >= before - 1e-6 * abs(before), f"bars to {before:g} and from {after:g} overlap")


def _rows(axes: Any, findings: Findings) -> None:
    """Bars that lie flat are in one row, or one is above the other."""
    bars = {bar for group in axes.containers if getattr(group, "orientation", "") == "horizontal" for bar in group}
    heights = sorted({(box.ymin, box.ymax) for box in (bar.get_bbox() for bar in bars) if box.width}, key=sum)
    for (low, high), (after, last) in itertools.pairwise(heights):
        one_row = math.isclose(low + high, after + last, abs_tol=1e-9)
        findings.hold(one_row or after >= high - 1e-6, f"rows of bars to {high:g} and from {after:g} overlap")
