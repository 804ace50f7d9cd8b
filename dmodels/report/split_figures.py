"""The pictures of a split: violation rates, marginals, and planners in the plane of split and imbalance."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dmodels.studies.split import Split

BLUE, RED, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
FLOOR = 1e-9  # rates below this are drawn at the bottom: nobody can measure them


def figure(answer: Split) -> Figure:
    """All pictures in one, for a PNG or a page."""
    made = Figure(figsize=(12, 8.2), layout="constrained")
    axes = made.subplots(2, 2)
    violations(answer, axes[0, 0])
    marginals(answer, axes[0, 1])
    portrait(answer, axes[1, 0])
    courses(answer, axes[1, 1])
    axes[1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[1, 1].yaxis.set_major_locator(MaxNLocator(integer=True))
    for one in axes.flat:
        one.grid(True, which="major", linewidth=0.4, alpha=0.5)
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
    return made


def _points(answer: Split, axes: Axes) -> None:
    """Vertical lines at the equilibrium, the optimum and the whole split."""
    marks = [
        (float(answer.optimum.value.prefill_gpus), "-", GREEN, "optimum"),
        (float(answer.equilibrium.value.prefill_gpus), "--", "0.25", "equilibrium"),
    ]
    if np.isfinite(answer.whole.value.cost):
        marks.append((float(answer.whole.value.prefill_gpus), ":", PINK, "whole workers"))
    for x, style, colour, label in marks:
        axes.axvline(x, linestyle=style, color=colour, linewidth=1.8, label=f"{label}: {x:.3g}")


def violations(answer: Split, axes: Axes) -> None:
    """Both violation rates against prefill's GPUs."""
    axes.plot(answer.prefill_gpus, np.maximum(answer.ttft_frac, FLOOR), color=BLUE, label="TTFT")
    axes.plot(answer.prefill_gpus, np.maximum(answer.itl_frac, FLOOR), color=RED, label="ITL")
    _points(answer, axes)
    axes.set_yscale("log")
    axes.set(xlabel="prefill [GPU]", ylabel="requests that miss the SLO", ylim=(FLOOR, 3.0), title="Violation rates")
    axes.legend(frameon=False, fontsize="small", loc="lower left")


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
    axes.legend(frameon=False, fontsize="small", loc="lower left")


def portrait(answer: Split, axes: Axes) -> None:
    """Each planner's path through (prefill workers, prefill's wait less decode's) during the burst."""
    axes.axhline(0.0, color="0.5", linewidth=0.8)
    for (name, course), colour in zip(answer.courses.items(), (BLUE, GREEN, PINK, RED), strict=False):
        x, y = course.prefill_instances, course.prefill_wait_s - course.decode_wait_s
        axes.plot(x, y, "-", color=colour, linewidth=1.2, marker=".", markersize=4, label=name)
        axes.plot(x[0], y[0], "o", color=colour, markerfacecolor="white", markersize=7)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set(
        xlabel="prefill [instance]", ylabel="wait in prefill less wait in decode [s]",
        title="Planners in a burst: phase portrait (ring: start)" if answer.courses else "Planners were not run",
    )  # fmt: skip
    if answer.courses:
        axes.legend(frameon=False, fontsize="small")


def courses(answer: Split, axes: Axes) -> None:
    """Prefill workers over time, with the arrival rate behind."""
    minutes = np.arange(len(answer.arrival_rps)) * 0.5
    for (name, course), colour in zip(answer.courses.items(), (BLUE, GREEN, PINK, RED), strict=False):
        late = float(answer.scores[name].violation_frac)
        axes.step(minutes, course.prefill_instances, where="post", color=colour, label=f"{name}: {late:.1%} late")
    axes.set(xlabel="time [min]", ylabel="prefill [instance]", title="The same over time")
    if answer.courses:
        behind = axes.twinx()
        behind.fill_between(minutes, answer.arrival_rps, step="post", color="0.85", zorder=0)
        behind.set(ylabel="arrivals [req/s]", ylim=(0, 2.2 * answer.arrival_rps.max()))
        axes.set_zorder(behind.get_zorder() + 1)
        axes.patch.set_visible(False)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.45 * (high - low))
        axes.legend(frameon=False, fontsize="small", loc="upper right")
