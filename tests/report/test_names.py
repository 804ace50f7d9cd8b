"""Where names stand: as near what they name as the others leave room for, and not over it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg

from dmodels.report import naming, style

sizes = st.lists(st.tuples(st.floats(0, 1, width=32), st.sampled_from([0.05, 0.1, 0.2])), min_size=1, max_size=5)


def least_moved(wanted, room):
    """Of every way to push neighbours together, the one that moves names least (squares) without an overlap."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    best, found = np.inf, None
    for cuts in itertools.product((False, True), repeat=len(wanted) - 1):
        groups: list[list[int]] = [[order[0]]]
        for cut, k in zip(cuts, order[1:], strict=True):
            groups.append([k]) if cut else groups[-1].append(k)
        place = {}
        for group in groups:  # stacked, with the mean where the mean of what is wanted is
            stacked = np.cumsum([room[k] for k in group]) - np.array([room[k] for k in group]) / 2
            low = np.mean([wanted[k] for k in group]) - stacked.mean()
            place |= dict(zip(group, low + stacked, strict=True))
        apart = all(place[b] - place[a] >= (room[a] + room[b]) / 2 - 1e-9 for a, b in itertools.pairwise(order))
        moved = sum((place[k] - wanted[k]) ** 2 for k in order)
        if apart and moved < best - 1e-12:
            best, found = moved, place
    return [found[k] for k in range(len(wanted))]


@settings(max_examples=60)
@given(sizes)
def test_names_at_the_edge_are_moved_as_little_as_they_can_be(names):
    wanted, room = (np.array(column) for column in zip(*names, strict=True))
    found = naming._apart(wanted, room)
    low, high = (found - room / 2).min(), (found + room / 2).max()
    if room.sum() <= 1:
        assert low >= -1e-9 and high <= 1 + 1e-9  # inside the picture
    expected = least_moved(wanted, room)
    if min(e - r / 2 for e, r in zip(expected, room, strict=True)) >= 0 and max(expected + room / 2) <= 1:
        assert found.tolist() == pytest.approx(expected, abs=1e-6)
    spans = sorted(zip(found - room / 2, found + room / 2, strict=True))
    assert all(top <= bottom + 1e-6 for (_, top), (bottom, _) in itertools.pairwise(spans))


def told(axes):
    return {text.get_text(): text for text in axes.texts}


def test_lines_that_end_far_apart_are_named_where_they_end():
    """And one that leaves the picture where it leaves it; the colour is the line's."""
    axes = style.panel(6, 4)
    axes.set(xlim=(0, 1), ylim=(0, 10))
    naming.name_lines(axes, [(2.0, "low", 0), (6.0, "high\nof two rows", 3), (99.0, "beyond", 1)])
    words = told(axes)
    assert words["low"].xy == pytest.approx((1.0, 0.2)) and words["high\nof two rows"].xy == pytest.approx((1.0, 0.6))
    assert 0.9 < words["beyond"].xy[1] < 1.0
    colours = [words[name].get_color() for name in ("low", "high\nof two rows", "beyond")]
    assert colours == [style.writing(k) for k in (0, 3, 1)]
    assert all(text.get_ha() == "left" and text.get_va() == "center" for text in axes.texts)
    naming.name_lines(axes, [])
    assert len(axes.texts) == 3


def test_crowded_names_keep_the_order_and_a_line_of_letters_each():
    axes = style.panel(6, 4)
    axes.set(ylim=(0, 1))
    naming.name_lines(axes, [(0.5, "b", 0), (0.501, "c", 1), (0.499, "a", 2)])
    heights = {name: text.xy[1] for name, text in told(axes).items()}
    inches = 4 * axes.get_position().height
    step = style.SMALL / 72 / inches  # of the picture's height, of letters
    assert heights["a"] < heights["b"] < heights["c"] and heights["b"] == pytest.approx(0.5, abs=0.02)
    for low, high in (("a", "b"), ("b", "c")):
        assert step < heights[high] - heights[low] < 1.6 * step


@pytest.mark.parametrize(("places", "side"), [((1.0, 2.0, 3.0), "left"), ((7.0, 8.0, 9.0), "right")])
def test_upright_lines_are_named_towards_the_wider_side_each_at_a_height_of_its_own(places, side):
    axes = style.panel(6, 4)
    axes.set(xlim=(0, 10))
    naming.name_marks(axes, [(x, f"at {x:g}", style.writing(k)) for k, x in enumerate(places)])
    words = told(axes)
    for k, x in enumerate(places):
        text = words[f"at {x:g}"]
        assert text.xy[0] == x and text.get_ha() == side and text.get_color() == style.writing(k)
        assert (text.get_position()[0] > 0) == (side == "left")  # points beside the line
    heights = [words[f"at {x:g}"].xy[1] for x in places]
    assert len(set(heights)) == 3 and 0 < min(heights) and max(heights) < 0.4
    outermost = places[-1] if side == "left" else places[0]  # whose name crosses no other line
    assert min(words.values(), key=lambda text: text.xy[1]).xy[0] == outermost


def test_a_name_stands_where_no_words_are_written():
    """Four times, each where those before it are not; and between any two of the four."""
    point = [naming.Group([0.5], [0.5], "here", 0)]

    def named(times, *words):
        axes = style.panel(6, 4)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        for place in words:
            axes.annotate("here", place, xycoords="axes fraction", ha="center", va="center", fontsize=style.SMALL)
        for _ in range(times):
            naming.name_groups(axes, point)
        FigureCanvasAgg(axes.figure).draw()
        spans = [text.get_window_extent() for text in axes.texts]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(spans, 2))
        return [text.xy for text in axes.texts]

    places = named(4)
    assert len(set(places)) == 4
    for two in itertools.combinations(places, 2):
        named(1, *two)


def test_groups_are_named_at_their_own_points_and_hide_none():
    """Two clouds and a line: each name beside a point of its own, in the picture, over no other name and no point."""
    rng = np.random.default_rng(0)
    axes = style.panel(6, 4)
    axes.set(xlim=(0, 10), ylim=(0, 10))
    left, right = rng.uniform(1, 3, (2, 40)), rng.uniform(6, 9, (2, 40))
    rows = [
        naming.Group(*left, "left", 0),
        naming.Group(*right, "right", 1),
        naming.Group([0.0, 10.0], [10.0, 0.0], "the line", line=True),
        naming.Group([5.0], [5.0]),
        naming.Group([99.0], [99.0], "elsewhere", 2),
    ]
    naming.name_groups(axes, rows)
    words = told(axes)
    assert words.keys() == {"left", "right", "the line"}  # what is not in the picture has no name
    assert [words[name].get_color() for name in words] == [style.writing(0), style.writing(1), style.INK]
    place = {name: np.array(text.xy) * 10 for name, text in words.items()}
    gap = lambda name, points: min(np.hypot(*(np.array(points).T - place[name]).T))
    assert gap("left", left) < 1.2 < gap("left", right) and gap("right", right) < 1.2 < gap("right", left)
    assert abs(place["the line"].sum() - 10) < 1.5
    made = style.paper(axes)
    renderer = FigureCanvasAgg(made).get_renderer()
    made.draw(renderer)
    boxes = {name: text.get_window_extent(renderer) for name, text in words.items()}
    for name, box in boxes.items():
        assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1
        inside = [box.contains(*axes.transData.transform(p)) for cloud in (left, right) for p in cloud.T]
        assert not any(inside), name
    for one, other in itertools.combinations(boxes.values(), 2):
        assert not one.overlaps(other)


def test_what_a_mark_means_stands_above_at_the_right():
    axes = style.panel(6, 4)
    naming.note(axes, "hollow: flagged")
    assert axes.get_title(loc="right") == "hollow: flagged" and axes.get_title() == ""


#: Where a name may stand beside a point, as (right, up).
BESIDE = {"left": (-1, 0), "right": (1, 0), "above": (0, 1), "below": (0, -1)}


def covered(kind, axes, boxes):
    """Fill boxes (pixels) with words, points or a line through them; the groups that this makes."""
    inverse, groups = axes.transData.inverted(), []
    for low, high in boxes:
        (x0, y0), (x1, y1) = inverse.transform(low), inverse.transform(high)
        if kind == "words":
            axes.annotate("MMM", ((x0 + x1) / 2, (y0 + y1) / 2), ha="center", va="center", fontsize=7)
        elif kind == "points":
            x, y = np.meshgrid(np.linspace(x0, x1, 9), np.linspace(y0, y1, 9))
            groups.append(naming.Group(x, y))
        else:  # two ends, which lie far from the box between them
            groups.append(naming.Group([x0 - 3, x1 + 3], [(y0 + y1) / 2] * 2, line=True))
    return groups


@pytest.mark.parametrize("kind", ["words", "points", "line"])
@pytest.mark.parametrize("free", BESIDE)
def test_a_name_takes_the_side_that_is_free(free, kind):
    """A point with something on its other sides; lines, which run on to both ends, leave a side above or below."""
    if kind == "line" and free in ("left", "right"):
        return
    (axes,) = style.figure(lambda axes: axes.set(xlim=(0, 10), ylim=(0, 10)), 6, 4, quick=True).axes
    point = axes.transData.transform((5.0, 5.0))
    scale = axes.figure.dpi / 72
    # beside the room of its name, 26 x 11 points, and on it
    spots = {side: point + scale * np.array([22.0 * right, 13.0 * up]) for side, (right, up) in BESIDE.items()}
    corners = [point + scale * np.array([22.0 * i, 13.0 * j]) for i in (-1, 1) for j in (-1, 1)]
    beside = np.array(BESIDE[free])
    full = [spot for side, spot in spots.items() if side != free]
    full += [spot for spot in corners if (spot - point) @ beside < 0 or kind == "points"]
    half = scale * np.array([10.0, 5.0])
    others = covered(kind, axes, [(spot - half, spot + half) for spot in full])
    naming.name_groups(axes, [naming.Group([5.0], [5.0], "name", 0), *others])
    axes.figure.draw_without_rendering()
    (text,) = [one for one in axes.texts if one.get_text() == "name"]
    box = text.get_window_extent()
    way = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2]) - point
    assert way @ beside > 0, f"the name is {way} pixels from its point"
    assert not box.contains(*point)
    gap = max(box.x0 - point[0], point[0] - box.x1, box.y0 - point[1], point[1] - box.y1)
    assert 0 < gap < 8 * scale
    if kind == "words":
        assert not any(box.overlaps(one.get_window_extent()) for one in axes.texts if one is not text)


@pytest.mark.parametrize("dpi", [72, 400])
@pytest.mark.parametrize("free", BESIDE)
def test_a_name_keeps_away_from_what_it_would_not_hide(free, dpi):
    """All sides have room for it; the one is taken on which the points around are farther off; dots are no measure."""
    (axes,) = style.figure(lambda axes: axes.set(xlim=(0, 10), ylim=(0, 10)), 6, 4, quick=True).axes
    axes.figure.set_dpi(dpi)
    point, scale, beside = axes.transData.transform((5.0, 5.0)), axes.figure.dpi / 72, np.array(BESIDE[free])
    around = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j])
    far = np.where((around @ beside)[:, None] > 0, np.array([52.0, 34.0]), np.array([36.0, 22.0]))
    x, y = axes.transData.inverted().transform(point + scale * around * far).T
    naming.name_groups(axes, [naming.Group([5.0], [5.0], "name", 0), naming.Group(x, y)])
    axes.figure.draw_without_rendering()
    (text,) = axes.texts
    box = text.get_window_extent()
    way = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2]) - point
    assert way @ beside > 2 * scale and abs(way @ beside[::-1]) < 2 * scale


@pytest.mark.parametrize(
    ("point", "way"), [((5.0, 5.0), (-1, -1)), ((5.0, 0.4), (-1, 0)), ((0.4, 0.4), (0, 1)), ((0.4, 9.6), (0, -1))]
)
def test_of_places_that_are_as_good_a_name_takes_the_leftmost_and_then_the_lowest(point, way):
    axes = style.figure(lambda axes: axes.set(xlim=(0, 10), ylim=(0, 10)), 6, 4, quick=True).axes[0]
    naming.name_groups(axes, [naming.Group([point[0]], [point[1]], "name", 0)])
    (text,) = axes.texts
    away = axes.transAxes.transform(text.xy) - axes.transData.transform(point)
    assert np.sign(np.round(away, 6)).tolist() == list(way)


def of_points(axes, text):
    """Where a name stands, in points from the lower left corner of the picture."""
    return (axes.transAxes.transform(text.xy) - axes.bbox.min) * 72 / axes.figure.dpi


@pytest.mark.parametrize("dpi", [72, 200])
def test_a_name_stands_three_points_off_and_lines_of_letters_are_a_quarter_higher_than_these(dpi):
    """Of letters of 8.5 points; a name of four is taken to be 20.4 points wide and 11.05 high."""
    axes = style.figure(lambda axes: axes.set(xlim=(0, 10), ylim=(0, 10)), 6, 4, quick=True).axes[0]
    axes.figure.set_dpi(dpi)
    naming.name_groups(axes, [naming.Group([5.0], [5.0], "name", 0)])
    point = (axes.transData.transform((5.0, 5.0)) - axes.bbox.min) * 72 / dpi
    assert of_points(axes, axes.texts[0]) - point == pytest.approx([-13.2, -8.525])
    naming.name_lines(axes, [(5.0, "a\nb", 0), (5.0, "c", 1), (5.0, "d\ne\nf", 2)])
    low, middle, high = (of_points(axes, text)[1] for text in axes.texts[1:])
    assert (middle - low, high - middle) == pytest.approx((1.5 * 10.625, 2 * 10.625))


@pytest.mark.parametrize("way", [1, -1])
def test_of_many_points_the_first_and_the_last_may_be_named(way):
    """All others lie below words."""
    axes = style.figure(lambda axes: axes.set(xlim=(0, 10), ylim=(0, 10)), 6, 4, quick=True).axes[0]
    axes.annotate("\n".join(["words that cover much"] * 6), (2.0, 3.0), ha="center", va="center")
    x, y = np.array([2.0] * 199 + [8.0])[::way], np.array([3.0] * 199 + [7.0])[::way]
    naming.name_groups(axes, [naming.Group(x, y, "name", 0)])
    gap = of_points(axes, axes.texts[1]) - (axes.transData.transform((8.0, 7.0)) - axes.bbox.min) * 72 / axes.figure.dpi
    assert abs(gap).max() < 14


def test_long_words_are_kept_free_up_to_their_end():
    """Which begin far from the point, and end left of it and below."""
    axes = style.figure(lambda axes: axes.set(xlim=(0, 10), ylim=(0, 10)), 6, 4, quick=True).axes[0]
    axes.annotate("words of many letters", (5.0, 5.0), (-10, -8.5), textcoords="offset points", ha="right", va="center")
    naming.name_groups(axes, [naming.Group([5.0], [5.0], "name", 0)])
    away = axes.transAxes.transform(axes.texts[1].xy) - axes.transData.transform((5.0, 5.0))
    assert np.sign(np.round(away, 6)).tolist() == [-1, 1]
    there, name = (text.get_window_extent() for text in axes.texts)
    assert not there.overlaps(name)


def test_of_names_that_are_written_at_once_none_stands_over_another():
    """Four groups of one point; what is in the picture to one side of it only has no name."""
    axes = style.figure(lambda axes: axes.set(xlim=(0, 10), ylim=(0, 10)), 6, 4, quick=True).axes[0]
    beside = [naming.Group([5.0], [99.0], "above", 0), naming.Group([-9.0], [5.0], "left", 1)]
    naming.name_groups(axes, [*(naming.Group([5.0], [5.0], f"name {k}", k) for k in range(4)), *beside])
    assert [text.get_text() for text in axes.texts] == [f"name {k}" for k in range(4)]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
