"""The pictures of a split: violation rates, marginals, and planners in the plane of split and imbalance."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dmodels.studies.split import Split

from . import style
from .naming import Group, name_groups, name_lines, name_marks

BLUE, RED, GREEN, PINK = style.COLOURS[:4]
_PATHS = ((0, 4.0), (2, 2.8), (3, 1.8), (1, 1.0))  # ever thinner, so that equal paths show both
FLOOR = 1e-6  # shares below this are drawn at the bottom: nobody can measure them


def figure(answer: Split) -> Figure:
    """All pictures in one, for a PNG or a page."""
    made, axes = style.panels(2, 2, 12, 8.2)
    for draw, one in zip(DRAWINGS, axes.flat, strict=True):
        draw(answer, one)
    return made


def _points(answer: Split, axes: Axes) -> None:
    """Vertical lines at the equilibrium, the optimum and the whole split."""
    marks = [
        (float(answer.optimum.value.prefill_gpus), "-", GREEN, "optimum", style.writing(2)),
        (float(answer.equilibrium.value.prefill_gpus), "--", style.INK, "equilibrium", style.INK),
    ]
    if np.isfinite(answer.whole.value.cost):
        marks.append((float(answer.whole.value.prefill_gpus), ":", PINK, "whole workers", style.writing(3)))
    for x, line, colour, _, _ in marks:
        axes.axvline(x, linestyle=line, color=colour, linewidth=1.8)
    name_marks(axes, [(x, f"{name}: {x:.3g}", words) for x, _, _, name, words in marks])


def violations(answer: Split, axes: Axes) -> None:
    """Share of requests that miss each SLO, by the GPUs given to prefill."""
    axes.plot(answer.prefill_gpus, np.maximum(answer.ttft_frac, FLOOR), color=BLUE)
    axes.plot(answer.prefill_gpus, np.maximum(answer.itl_frac, FLOOR), color=RED)
    axes.set_yscale("log")
    axes.set(xlabel="prefill [GPU]", ylabel="requests that miss the SLO [share]", ylim=(FLOOR, 3.0))
    axes.set_title("Violation rates")
    _points(answer, axes)
    ends = [
        (max(float(values[-1]), FLOOR), name, i)
        for i, (name, values) in enumerate((("TTFT", answer.ttft_frac), ("ITL", answer.itl_frac)))
    ]
    name_lines(axes, ends)


def marginals(answer: Split, axes: Axes) -> None:
    """Share of requests that one more GPU saves each pool from missing; equal at an interior equilibrium."""
    groups = []
    for i, (saved, name) in enumerate(
        ((answer.saved_prefill, "prefill:\nmisses of TTFT"), (answer.saved_decode, "decode:\nmisses of ITL"))
    ):
        seen = np.asarray(saved) > FLOOR
        axes.plot(answer.prefill_gpus, np.maximum(saved, FLOOR), color=style.colour(i))
        groups.append(Group(answer.prefill_gpus[seen], np.asarray(saved)[seen], name, i, line=True))
    axes.set_yscale("log")
    axes.set(xlabel="prefill [GPU]", ylabel="saved by one more GPU [1/GPU]", ylim=(FLOOR, 3.0), title="Marginals")
    _points(answer, axes)
    name_groups(axes, groups)


def portrait(answer: Split, axes: Axes) -> None:
    """Planners in a burst: the instances that each gives to prefill, and where requests wait longer (ring: start)."""
    axes.axhline(0.0, color=style.SOFT, linewidth=0.8)
    groups = []
    for (name, course), (i, wide) in zip(answer.courses.items(), _PATHS, strict=False):
        colour = style.colour(i)
        x, y = course.prefill_instances, course.prefill_wait_s - course.decode_wait_s
        axes.plot(x, y, "-", color=colour, linewidth=wide, marker=".", markersize=4)
        groups.append(Group(x, y, name, i, line=True))
        axes.plot(x[0], y[0], "o", color=colour, markerfacecolor="white", markersize=7)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set(
        xlabel="prefill [instance]",
        ylabel="wait in prefill less wait in decode [s]",
        title="Planners in a burst (ring: start)" if answer.courses else "Planners were not run",
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    name_groups(axes, groups)


def courses(answer: Split, axes: Axes) -> None:
    """The same over time, with the arrival rate behind."""
    minutes, ends = np.arange(len(answer.arrival_rps)) * 0.5, []
    for (name, course), (i, wide) in zip(answer.courses.items(), _PATHS, strict=False):
        axes.step(minutes, course.prefill_instances, where="post", color=style.colour(i), linewidth=wide)
        late = float(answer.scores[name].violation_frac)
        ends.append((float(course.prefill_instances[-1]), f"{name}:\n{late:.1%} late", i))
    axes.set(xlabel="time [min]", ylabel="prefill [instance]", title="The same over time")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if answer.courses:
        rate = np.asarray(answer.arrival_rps)
        axes.fill_between(
            minutes,
            0.45 * rate / rate.max(),
            step="post",
            color=style.FILL,
            zorder=0,
            linewidth=0,
            transform=axes.get_xaxis_transform(),
        )
        style.words(
            axes,
            f"arrivals, at most {rate.max():.3g} req/s",
            (0.02, 0.03),
            xycoords="axes fraction",
            color=style.SOFT,
            bbox=style.HALO,
        )
        axes.set_xlim(0, minutes[-1])
        name_lines(axes, ends)


#: The pictures, in the order in which they are shown.
DRAWINGS = (violations, marginals, portrait, courses)
