"""The auditor of figures notices what it is there for."""

from __future__ import annotations

import io

import pytest

from tests.audit.figures import audit_figure

figure = pytest.importorskip("matplotlib.figure")


def two(axes, colour):
    axes.plot([0, 1], [1, 1], color="k", label="one")
    axes.plot([0, 1], [2, 3], color=colour, label="two")
    axes.legend()


def bars(axes, *places):
    axes.barh(places, [1.0 + k for k in range(len(places))])
    axes.set_yticks([0, 1])


def ended(axes, offset, side):
    """A bar of 1 in blue, and words at its end in the blue of words."""
    axes.barh([0], [1.0], color="#0072B2")
    axes.set(yticks=[0], xlim=(0, 2))
    axes.annotate("so long", (1.0, 0), offset, textcoords="offset points", va="center", ha=side, color="#00639B")


SOUND = [
    lambda axes: ended(axes, (3, 0), "left"),
    lambda axes: two(axes, "r"),
    lambda axes: bars(axes, 0, 1),
    lambda axes: axes.plot([1, 1e5], [3, 4]),
]
WRONG = [
    (lambda axes: two(axes, "k"), "look the same"),
    (lambda axes: bars(axes, 10.8, 1), "a bar at 10.8"),
    (lambda axes: bars(axes, 0, 0.2), "overlap"),
    (lambda axes: (bars(axes, 0), bars(axes, 0.7)), "rows of bars to 0.4 and from 0.3 overlap"),
    (lambda axes: ended(axes, (-3, 0), "right"), "'so long' lies over the end"),
    (lambda axes: ended(axes, (3, 9), "left"), "above the middle"),
    (lambda axes: (axes.plot([0, 1], [0, 1]), axes.set_ylim(0, 63)), "for marks from 0 to 1"),
    (lambda axes: (axes.plot([0, 1], [0, 1]), axes.set_ylim(-63, 1)), "for marks from 0 to 1"),
    (lambda axes: (axes.plot([0, 1], [0, 1]), axes.axvline(0.5, linewidth=2.8)), "a line of 2.8 points across"),
    (lambda axes: (axes.plot([0, 1], [0, 1]), axes.axhline(0.5, color="#57606A")), "a grey line of 1.5 points"),
    (lambda axes: (axes.plot([0, 1], [0, 1]), axes.annotate("lost", (9, 0.5))), "'lost' stands"),
    (lambda axes: axes.plot([0, 1], [0, 1], "*-", color="k", mec="#FEFEFE"), "in the colour of the paper"),
    (lambda axes: axes.text(3, 3, "far"), "beyond the figure"),
    (lambda axes: (axes.text(0.2, 0.2, "this"), axes.text(0.21, 0.2, "that")), "lie on each other"),
    (lambda axes: (axes.plot([0, 1, 2, 3], [1, 2, 3, 4]), axes.set_ylim(3.5, 4)), "1 of 4 points"),
    (lambda axes: axes.figure.add_axes((0.8, 0.8, 0.1, 0.1)), "an empty picture"),
    (lambda axes: axes.set_title("a", fontsize=540), "540"),
    (lambda axes: (axes.plot([0, 1], [0, 1]), axes.grid(linewidth=36)), "a grid of 36"),
    (lambda axes: (axes.plot([0, 1], [0, 1]), axes.set_position((0.1, 0.1, 0.2, 0.8))), "a picture of 1.20"),
    (lambda axes: axes.figure.set_size_inches(750, 8), "a figure of"),
]


def drawn(draw):
    made = figure.Figure(figsize=(6, 4))
    draw(made.subplots())
    if made.get_size_inches()[0] < 20:
        made.savefig(io.BytesIO())
    return made


@pytest.mark.parametrize("draw", SOUND)
def test_sound_figures_pass(draw):
    audit_figure(drawn(draw))


@pytest.mark.parametrize(("draw", "why"), WRONG)
def test_slips_are_noticed(draw, why):
    with pytest.raises(AssertionError, match=why):
        audit_figure(drawn(draw))
