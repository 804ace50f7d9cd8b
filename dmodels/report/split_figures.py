"""The pictures of a split: who misses an SLO at which split, and what planners do in a burst."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dmodels.studies.split import Split

from . import style
from .naming import name_lines, name_marks

BLUE, RED, GREEN, PINK = style.COLOURS[:4]
_PATHS = ((0, 4.0), (2, 2.8), (3, 1.8), (1, 1.0))  # ever thinner, so that equal paths show both
FLOOR = 1e-4  # shares below this are drawn at the bottom: nobody can measure them


def figure(answer: Split) -> Figure:
    """All pictures in one, for a PNG or a page."""
    made, axes = style.panels(1, 2)
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
        axes.axvline(x, linestyle=line, color=colour, linewidth=style.CURVE)
    name_marks(axes, [(x, f"{name}: {x:.3g}", words) for x, _, _, name, words in marks])


def misses(answer: Split, axes: Axes) -> None:
    """Share of requests that miss each SLO, by the GPUs given to prefill, around the splits that serve any in time."""
    shown = _around_serving(answer)
    x, late = answer.prefill_gpus[shown], {"TTFT": answer.ttft_frac[shown], "ITL": answer.itl_frac[shown]}
    for colour, frac in zip((BLUE, RED), late.values(), strict=True):
        axes.plot(x, np.maximum(frac, FLOOR), color=colour)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    in_all = f", of {float(answer.game.budget_gpus):g} in all"
    axes.set(xlabel=f"GPUs for prefill{in_all}", ylabel="late requests", ylim=(FLOOR, 3.0))
    axes.set_title("Requests that miss their SLO")
    _points(answer, axes)
    name_lines(axes, [(max(float(frac[-1]), FLOOR), name, i) for i, (name, frac) in enumerate(late.items())])


def _around_serving(answer: Split) -> np.ndarray:
    """The splits (a mask) at which some requests meet both SLOs, and half as many on each side; else all."""
    x = answer.prefill_gpus
    serving = x[np.maximum(answer.ttft_frac, answer.itl_frac) < 0.99]
    if serving.size < 2:
        return np.ones(x.size, bool)
    margin = 0.5 * (serving[-1] - serving[0])
    seen: np.ndarray = (x >= serving[0] - margin) & (x <= serving[-1] + margin)
    return seen


def courses(answer: Split, axes: Axes) -> None:
    """The instances that each planner gives to prefill over time, with the arrival rate behind."""
    minutes, ends = np.arange(len(answer.arrival_rps)) * 0.5, []
    for (name, course), (i, wide) in zip(answer.courses.items(), _PATHS, strict=False):
        axes.step(minutes, course.prefill_instances, where="post", color=style.colour(i), linewidth=wide)
        late = float(answer.scores[name].violation_frac)
        ends.append((float(course.prefill_instances[-1]), f"{name}:\n{late:.1%} late", i))
    axes.set(xlabel="time [min]", ylabel="instances for prefill")
    axes.set_title("Planners in a burst of arrivals" if answer.courses else "Planners were not run")
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
DRAWINGS = (misses, courses)
