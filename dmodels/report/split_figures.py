"""The pictures of a split: violation rates, marginals, and planners in the plane of split and imbalance."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dmodels.studies.split import Split

from . import style

BLUE, RED, GREEN, PINK = style.COLOURS[:4]
_PATHS = ((BLUE, 4.0), (GREEN, 2.8), (PINK, 1.8), (RED, 1.0))  # ever thinner, so that equal paths show both
FLOOR = 1e-9  # rates below this are drawn at the bottom: nobody can measure them


def figure(answer: Split) -> Figure:
    """All pictures in one, for a PNG or a page."""
    made, axes = style.panels(2, 2, 12, 8.2)
    violations(answer, axes[0, 0])
    marginals(answer, axes[0, 1])
    portrait(answer, axes[1, 0])
    courses(answer, axes[1, 1])
    axes[1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[1, 1].yaxis.set_major_locator(MaxNLocator(integer=True))
    return made


def _points(answer: Split, axes: Axes) -> None:
    """Vertical lines at the equilibrium, the optimum and the whole split."""
    marks = [
        (float(answer.optimum.value.prefill_gpus), "-", GREEN, "optimum"),
        (float(answer.equilibrium.value.prefill_gpus), "--", style.INK, "equilibrium"),
    ]
    if np.isfinite(answer.whole.value.cost):
        marks.append((float(answer.whole.value.prefill_gpus), ":", PINK, "whole workers"))
    for x, line, colour, label in marks:
        axes.axvline(x, linestyle=line, color=colour, linewidth=1.8, label=f"{label}: {x:.3g}")


def violations(answer: Split, axes: Axes) -> None:
    """Both violation rates against prefill's GPUs."""
    axes.plot(answer.prefill_gpus, np.maximum(answer.ttft_frac, FLOOR), color=BLUE, label="TTFT")
    axes.plot(answer.prefill_gpus, np.maximum(answer.itl_frac, FLOOR), color=RED, label="ITL")
    _points(answer, axes)
    axes.set_yscale("log")
    axes.set(xlabel="prefill [GPU]", ylabel="requests that miss the SLO [share]", ylim=(FLOOR, 3.0))
    axes.set_title("Violation rates")
    axes.legend(loc="lower left", **style.LEGEND)


def marginals(answer: Split, axes: Axes) -> None:
    """What one more GPU saves each pool; they are equal at an interior equilibrium."""
    for saved, colour, label in (
        (answer.saved_prefill, BLUE, "prefill: -dV_TTFT/dG_P"),
        (answer.saved_decode, RED, "decode: -dV_ITL/dG_D"),
    ):
        axes.plot(answer.prefill_gpus, np.maximum(saved, FLOOR), color=colour, label=label)
    _points(answer, axes)
    axes.set_yscale("log")
    axes.set(xlabel="prefill [GPU]", ylabel="saved by one more GPU [1/GPU]", ylim=(FLOOR, 3.0), title="Marginals")
    axes.legend(loc="lower left", **style.LEGEND)


def portrait(answer: Split, axes: Axes) -> None:
    """Each planner's path through (prefill workers, prefill's wait less decode's) during the burst."""
    axes.axhline(0.0, color=style.SOFT, linewidth=0.8)
    for (name, course), (colour, wide) in zip(answer.courses.items(), _PATHS, strict=False):
        x, y = course.prefill_instances, course.prefill_wait_s - course.decode_wait_s
        axes.plot(x, y, "-", color=colour, linewidth=wide, marker=".", markersize=4, label=name)
        axes.plot(x[0], y[0], "o", color=colour, markerfacecolor="white", markersize=7)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set(
        xlabel="prefill [instance]", ylabel="wait in prefill less wait in decode [s]",
        title="Planners in a burst: phase portrait (ring: start)" if answer.courses else "Planners were not run",
    )  # fmt: skip
    if answer.courses:
        axes.legend(**style.LEGEND)


def courses(answer: Split, axes: Axes) -> None:
    """Prefill workers over time, with the arrival rate behind."""
    minutes = np.arange(len(answer.arrival_rps)) * 0.5
    for (name, course), (colour, wide) in zip(answer.courses.items(), _PATHS, strict=False):
        label = f"{name}: {float(answer.scores[name].violation_frac):.1%} late"
        axes.step(minutes, course.prefill_instances, where="post", color=colour, linewidth=wide, label=label)
    axes.set(xlabel="time [min]", ylabel="prefill [instance]", title="The same over time")
    if answer.courses:
        behind = style.tidy(axes.twinx())
        behind.spines["right"].set_visible(True)
        behind.grid(False)
        behind.fill_between(minutes, answer.arrival_rps, step="post", color=style.FILL, zorder=0)
        behind.set(ylabel="arrivals [req/s]", ylim=(0, 2.2 * answer.arrival_rps.max()))
        axes.set_zorder(behind.get_zorder() + 1)
        axes.patch.set_visible(False)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.45 * (high - low))
        axes.legend(loc="upper right", **style.LEGEND)
