"""The figures' style: told apart by everyone, read on light and dark paper, words that do not meet."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba

from dmodels.report import html, naming, style

#: Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLIND = {
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "none": np.eye(3),
}


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2.2 contrast ratio."""
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB, D65."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ light.clip(0, 1)
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 0.008856))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_black_on_white_is_21_to_1():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)


@pytest.mark.parametrize("sight", BLIND)
@pytest.mark.parametrize("palette", [style.COLOURS[:4], style.ON_DARK[:4]], ids=["light", "dark"])
def test_the_first_four_series_are_told_apart_by_everyone(sight, palette):
    seen = [lab(np.array(BLIND[sight]) @ linear(colour)) for colour in palette]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 12  # 2.3 is just noticeable


def test_lines_and_words_have_contrast_on_both_papers():
    dark = "#0D1117"
    assert all(contrast(colour, "#FFFFFF") >= 3 for colour in style.COLOURS[:4])
    assert all(contrast(colour, "#FFFFFF") >= 4.5 for colour in (*style.WRITING, style.INK, style.SOFT))
    assert all(contrast(colour, dark) >= 4.5 for colour in style.ON_DARK)
    for paper, of in ((style.PAPER, lambda colour: colour), (dark, style._DARK.get)):
        stand_out = [contrast(of(colour), paper) for colour in (style.INK, style.SOFT, style.GRID, style.FILL)]
        assert stand_out == sorted(stand_out, reverse=True) and stand_out[1] >= 4.5 > 2.0 > stand_out[2]
    assert len(set(style.MARKERS)) == len(style.COLOURS)
    assert len({style.marker(k) for k in range(len(style.COLOURS))}) == len(style.COLOURS)


def test_series_begin_again_after_the_last_and_words_have_the_hue_of_their_line():
    for looks in (style.colour, style.writing, style.marker):
        assert len({looks(k) for k in range(8)}) == 8 and [looks(k) for k in (8, 17)] == [looks(0), looks(1)]
    hues = [
        [np.degrees(np.arctan2(*lab(linear(colour))[:0:-1])) for colour in palette]
        for palette in (style.COLOURS, style.WRITING, style.ON_DARK)
    ]
    for line, *others in list(zip(*hues, strict=True))[:7]:  # the eighth is grey
        assert all(abs((other - line + 180) % 360 - 180) < 25 for other in others)


def test_every_colour_of_a_picture_follows_the_page():
    def draw(axes):
        for i in range(len(style.COLOURS)):
            axes.plot([0, 1], [i, i], color=style.colour(i))
        naming.name_lines(axes, [(i, f"line {i}", i) for i in range(len(style.COLOURS))])
        axes.set(xlabel="time [s]", ylabel="load [req/s]")

    svg = html.picture(style.figure(draw), "caption", 0, "what it shows")
    body = svg[svg.index("<g id") :]
    for colour in (*style.COLOURS, *style.WRITING, style.INK):
        assert body.count(colour.lower()) == body.count(f", {colour.lower()})")  # only as a variable's fallback
    assert 'aria-label="what it shows"' in svg and "time [s]</text>" in svg and "caption</figcaption>" in svg
    assert 'aria-label="of &quot;x&quot;"' in html.picture(style.figure(lambda axes: None), 'of "x"', 1)
    assert "width=" not in svg[: svg.index(">")]


@given(st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=7))
def test_names_of_lines_keep_apart_and_in_order(wanted):
    wanted, room = np.array(wanted), np.full(len(wanted), 0.1)
    placed = naming._apart(wanted, room)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(placed[order]) >= 0.1 - 1e-9).all()
    assert placed.min() >= 0.05 - 1e-9 and placed.max() <= 0.95 + 1e-9


def test_a_name_with_room_stays_where_its_line_ends():
    assert naming._apart(np.array([0.2, 0.8]), np.array([0.1, 0.1])) == pytest.approx([0.2, 0.8])


def test_figures_leave_matplotlib_as_it_was():
    import matplotlib

    before = dict(matplotlib.rcParams)
    html.picture(style.figure(lambda axes: axes.plot([1, 2])), "caption", 0)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("seed", range(3))
def test_names_of_clouds_hide_no_point_and_no_other_words_and_stand_by_their_own(seed):
    draws = np.random.default_rng(seed)
    middles = [(1.0, 1.0), (5.0, 8.0), (9.0, 2.0)]
    clouds = [middle + draws.normal(0.0, 0.6, (40, 2)) for middle in middles]
    axes = style.panel()
    for cloud in clouds:
        axes.plot(*cloud.T, ".")
    axes.annotate("words that were there", (5.0, 5.0))
    naming.name_groups(axes, [naming.Group(*cloud.T, f"cloud {i}", i) for i, cloud in enumerate(clouds)])
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    points = axes.transData.transform(np.concatenate(clouds))
    assert not any(box.contains(*point) for box in boxes[1:] for point in points)
    for i, box in enumerate(boxes[1:]):
        middle = axes.transData.inverted().transform((box.min + box.max) / 2)
        assert np.argmin([np.hypot(*(middle - other)) for other in middles]) == i


@pytest.mark.parametrize("start", [0.0, 2.0, 9.5])
def test_a_name_keeps_away_from_other_clouds_where_there_is_room(start):
    """From the nearest of them, also where another is far."""
    axes = style.panel()
    row, other = np.stack([np.linspace(0, 10, 40), np.zeros(40)], 1), start + np.array([[0, 0], [0.2, 0.1], [0.4, 0]])
    other[:, 1] += 0.4 - start
    axes.set(xlim=(-2, 12), ylim=(-2, 4))
    far = naming.Group([11.5], [3.5])
    naming.name_groups(axes, [naming.Group(*row.T, "row", 0), naming.Group(*other.T, "", 1), far])
    axes.figure.draw_without_rendering()
    (box,) = [text.get_window_extent() for text in axes.texts]
    points = axes.transData.transform(other)
    away = [max(box.x0 - x, x - box.x1, box.y0 - y, y - box.y1) for x, y in points]
    assert min(away) > 25 * axes.figure.dpi / 72


def test_a_picture_without_lines_needs_no_names():
    axes = style.panel()
    naming.name_lines(axes, [])
    assert not axes.texts


def test_lines_marks_and_gaps_are_small_beside_letters_each_kind_larger_than_the_last():
    """Lines at most a quarter as wide as second words are high; a mark about as high as they are, one of many half."""
    letters = style.SMALL
    lines = (style.EDGE, style.THIN, style.FINE, style.CURVE)
    marks = (style.DOT, style.MARK, style.STAR, style.BEST)
    assert list(lines) == sorted(set(lines)) and lines[0] >= 0.5 and lines[-1] < letters / 4
    assert list(marks) == sorted(set(marks)) and marks[0] > lines[-1] and marks[0] < letters / 2.4
    assert 0.7 * letters < style.MARK < 0.9 * letters and letters < style.STAR < 1.15 * letters
    assert 1.4 * letters < style.BEST < 1.6 * letters
    assert 0.3 * letters < style.GAP < 0.45 * letters and letters < style.TEXT < 1.2 * letters


def test_sizes_in_full():
    """Points of text, lines, marks and gaps; inches of pictures on a page, alone and on a sheet; shapes in turn."""
    assert (style.TEXT, style.SMALL, style.GAP) == (9.5, 8.5, 3.0)
    assert (style.EDGE, style.THIN, style.FINE, style.CURVE) == (0.6, 0.9, 1.2, 1.8)
    assert (style.DOT, style.MARK, style.STAR, style.BEST) == (3.0, 7.0, 9.0, 13.0)
    assert (style.COLUMN, style.HEIGHT, style.ALONE, style.ON_SHEET) == (4.1, 3.2, (7.0, 4.0), (6.0, 4.1))
    assert "".join(map(style.marker, range(8))) == "os^DvPX*"
    quick = style.figure(lambda axes: None, 4.1, 3.2, quick=True).axes[0].get_position()
    edges = (quick.x0 * 4.1, quick.y0 * 3.2, (1.0 - quick.x1) * 4.1, (1.0 - quick.y1) * 3.2)
    assert edges == pytest.approx((0.82, 0.52, 0.85, 0.12))  # left, below, right, above
    assert style.figure(lambda axes: None).get_layout_engine() is not None  # words are measured unless it must be quick


def test_pictures_are_as_wide_as_what_shows_them():
    """Words of 10 px on a phone; on a notebook's column and on two columns of a sheet wider than high."""
    assert 10 < 390 * style.SMALL / 72 / style.COLUMN < 12
    for wide, high in ((style.COLUMN, style.HEIGHT), style.ALONE, style.ON_SHEET):
        assert 1.25 < wide / high < 1.8 and high > 3
    assert 6.5 < style.ALONE[0] < 7.5 and 11 < 2 * style.ON_SHEET[0] < 13
    made, axes = style.panels(2, 3)
    assert made.get_size_inches() == pytest.approx((3 * style.ON_SHEET[0], 2 * style.ON_SHEET[1]))
    assert axes.shape == (2, 3) and len(made.axes) == 6
    for one in axes.flat:  # each row has the whole width, and all are on one sheet
        assert one.get_figure().bbox.width == made.bbox.width and style.paper(one) is made


@pytest.mark.parametrize("side", ["right", "left", "above", "below"])
def test_words_stand_beside_what_they_tell_of(side):
    axes = style.panel()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    style.words(axes, "said", (0.5, 0.5), side, gap=10.0)
    axes.figure.draw_without_rendering()
    (text,), (x, y) = axes.texts, axes.transData.transform((0.5, 0.5))
    box, point = text.get_window_extent(), axes.figure.dpi / 72
    away = {"right": box.x0 - x, "left": x - box.x1, "above": box.y0 - y, "below": y - box.y1}
    beside = (box.y0 + box.y1) / 2 - y if side in ("left", "right") else (box.x0 + box.x1) / 2 - x
    assert away[side] == pytest.approx(10 * point, abs=2 * point) and abs(beside) < 2 * point


def test_words_without_a_side_stand_at_their_place_and_others_a_gap_away():
    axes = style.panel()
    for side in ("", "right", "left", "above", "below"):
        style.words(axes, side, (0.5, 0.25), side)
    gap, at = style.GAP, {text.get_text(): text.get_position() for text in axes.texts}
    assert at == {"": (0, 0), "right": (gap, 0), "left": (-gap, 0), "above": (0, gap), "below": (0, -gap)}
    looks = {(text.xy, text.get_fontsize(), text.get_color()) for text in axes.texts}
    assert looks == {((0.5, 0.25), style.SMALL, style.INK)}


def test_axes_have_two_spines_a_grid_behind_and_words_in_ink():
    made = style.figure(lambda axes: axes.set(xlabel="x", ylabel="y", title="t"))
    assert made.get_size_inches() == pytest.approx((style.COLUMN, style.HEIGHT))
    (axes,) = made.axes
    spines = {name: spine.get_edgecolor() for name, spine in axes.spines.items() if spine.get_visible()}
    assert spines == dict.fromkeys(("left", "bottom"), to_rgba(style.SOFT))
    assert axes.get_axisbelow() is True and axes.get_facecolor()[3] == 0
    (grid, *_) = axes.get_xgridlines()
    assert (grid.get_visible(), grid.get_color(), grid.get_linewidth()) == (True, style.GRID, style.EDGE)
    words = [axes.xaxis.label, axes.yaxis.label, axes.xaxis.offsetText, axes.yaxis.offsetText]
    words += [axes.get_xticklabels()[0], axes.get_yticklabels()[0]]
    assert {text.get_color() for text in (*words, axes.title)} == {style.INK}
    text, small = style.TEXT, style.SMALL
    assert [one.get_fontsize() for one in words] == [text, text, small, small, small, small]
    assert axes.xaxis.get_major_ticks()[0].tick1line.get_color() == style.SOFT
    naming.note(axes, "hollow: flagged")
    (told,) = [one for one in axes.get_children() if getattr(one, "get_text", str)() == "hollow: flagged"]
    assert (told.get_color(), told.get_fontsize(), told.get_weight()) == (style.SOFT, small, "normal")


def test_words_on_lines_have_paper_behind_them():
    axes = style.panel()
    style.words(axes, "said", (0.5, 0.5), bbox=style.HALO)
    axes.plot([0, 1], label="line")
    for behind in (axes.texts[0].get_bbox_patch(), axes.legend(**style.LEGEND).get_frame()):
        assert behind.get_facecolor() == to_rgba(style.PAPER, 0.85) and behind.get_edgecolor()[:3] == (0, 0, 0)
        assert 0.5 < behind.get_alpha() < 1.0
    assert 0.9 < axes.texts[0].get_bbox_patch().get_boxstyle().pad * style.SMALL < 1.1  # a point around


def test_a_saved_picture_has_150_dots_an_inch(tmp_path):
    where = style.save(style.figure(lambda axes: axes.plot([1, 2]), 2.0, 1.5, quick=True), tmp_path / "x.png")
    assert where == tmp_path / "x.png" and where.read_bytes()[16:24] == bytes([0, 0, 1, 44, 0, 0, 0, 225])  # 300 x 225


def test_a_page_has_a_colour_for_each_of_a_picture_on_light_and_on_dark_paper():
    light, dark = (dict(re.findall(r"(--[\w-]+): (#\w+)", block)) for block in style.css().split("@media screen"))
    series = [f"--{of}-{k}" for of in ("series", "writing") for k in range(8)]
    assert [*light] == [*dark] == [*series, *(f"--fig-{name}" for name in ("ink", "soft", "grid", "fill", "paper"))]
    for k in range(8):
        assert (light[f"--series-{k}"], light[f"--writing-{k}"]) == (style.COLOURS[k], style.WRITING[k])
        assert dark[f"--series-{k}"] == dark[f"--writing-{k}"] == style.ON_DARK[k]
    ink = [light[f"--fig-{name}"] for name in ("ink", "soft", "grid", "fill", "paper")]
    assert ink == [style.INK, style.SOFT, style.GRID, style.FILL, style.PAPER]
    bright = [linear(dark[f"--fig-{name}"]).sum() for name in ("ink", "soft", "grid", "fill", "paper")]
    assert bright == sorted(bright, reverse=True)  # on dark paper the other way round


def test_lines_to_read_off_lie_behind_marks_and_cross_the_picture():
    axes = style.panel()
    style.across(axes, x=0.25)
    style.across(axes, y=4.0, color=style.INK, linestyle="-")
    style.mark(axes, 1.0, 4.0, 2)
    upright, level, point = axes.lines
    assert list(upright.get_xdata()) == [0.25, 0.25] and list(upright.get_ydata()) == [0, 1]
    assert list(level.get_ydata()) == [4.0, 4.0] and list(level.get_xdata()) == [0, 1]
    assert (upright.get_linestyle(), level.get_linestyle(), level.get_color()) == ("--", "-", style.INK)
    assert point.get_xydata().tolist() == [[1.0, 4.0]] and point.get_zorder() > level.get_zorder()
    assert (point.get_marker(), point.get_color()) == (style.marker(2), style.colour(2))


@pytest.mark.parametrize(
    "ends, wide, told",
    [
        ((0.9, 25.0), True, ["1", "2", "5", "10", "20"]),
        ((4e-3, 0.3), True, ["0.005", "0.01", "0.02", "0.05", "0.1", "0.2"]),
        ((900.0, 5500.0), True, ["1,000", "2,000", "5,000"]),
        ((1.0, 3.0), False, ["1", "1.5", "2", "2.5", "3"]),
        ((10.0, 60.0), False, ["10", "20", "30", "40", "50", "60"]),
    ],
)
def test_logarithmic_axes_have_round_numbers(ends, wide, told):
    """Ones, twos and fives over decades; at equal steps within one; no powers, no words at what lies between."""
    axes = style.panel()
    axes.set(yscale="log", ylim=ends)
    style.plain(axes.yaxis, wide=wide)
    axes.figure.draw_without_rendering()
    low, high = ends
    named = [t.label1.get_text() for t in axes.yaxis.get_major_ticks() if low <= t.get_loc() <= high]
    assert named == told and not any(t.label1.get_text() for t in axes.yaxis.get_minor_ticks())


def test_ticks_are_for_decades_unless_told_otherwise():
    axes = style.panel()
    axes.set(yscale="log", ylim=(0.9, 25.0))
    style.plain(axes.yaxis)
    assert [f"{tick:g}" for tick in axes.get_yticks() if 0.9 < tick < 25.0] == ["1", "2", "5", "10", "20"]


def test_drawings_of_an_answer_are_pictures_with_their_first_line_as_words(monkeypatch):
    def one(answer, axes):
        """What it shows. And more.

        At length.
        """
        axes.plot(answer)
        axes.set_title("a title")

    monkeypatch.setattr(html, "picture", lambda made, told, number: (made.axes, told, number))
    (((first,), told, number), (_, _, second)) = html.drawn([1.0, 4.0], [one, one])
    assert (told, number, second) == ("What it shows. And more", 0, 1)
    assert first.get_title() == "" and first.lines[0].get_ydata().tolist() == [1.0, 4.0]
