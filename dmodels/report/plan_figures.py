"""The pictures of a plan: throughput against speed, cost against TTFT, latency against load, what moves the answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmodels.studies.plan import Plan
from dmodels.studies.sensitivity import Change

#: Okabe and Ito's colours: told apart by colour-blind readers, and on white and dark paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#666666")


def figure(draw: Callable[[Axes], None], width: float = 6.4, height: float = 3.8) -> Figure:
    """A figure of one picture, without pyplot's global state."""
    made = Figure(figsize=(width, height), layout="constrained")
    axes = made.add_subplot()
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    draw(axes)
    return made


def throughput_front(answer: Plan, axes: Axes) -> None:
    """Output tokens/s per GPU against tokens/s per user, all one-pool points, the front drawn through."""
    sweep = answer.sweep
    for colour, (gpu, rows) in zip(COLOURS, _rows_by_gpu(answer).items(), strict=False):
        shown = sweep["usable"][rows]
        x, y = sweep["user_tokens_per_s"][rows][shown], sweep["gpu_tokens_per_s"][rows][shown]
        axes.plot(x, y, ".", color=colour, markersize=2, alpha=0.35)
        axes.plot([], [], "o", color=colour, markersize=4, label=gpu)
    front = sweep["throughput_front"]
    order = np.argsort(sweep["user_tokens_per_s"][front])
    axes.plot(sweep["user_tokens_per_s"][front][order], sweep["gpu_tokens_per_s"][front][order], "-", color="0.25",
              linewidth=1.2, label="Pareto front")  # fmt: skip
    axes.set(xlabel="output speed of one user [token/s]", ylabel="output throughput [token/s per GPU]", ylim=(0, None))
    axes.set_xlim(0, None)
    axes.legend(frameon=False, fontsize="small")


def cost_front(answer: Plan, axes: Axes) -> None:
    """Cost against TTFT of one-pool fleets; points that miss an SLO are drawn faint and hollow."""
    sweep, asked = answer.sweep, answer.question
    ceiling = max(4.0 * float(asked.slo.ttft_s), 1.0) if np.isfinite(asked.slo.ttft_s) else np.inf
    for colour, (gpu, rows) in zip(COLOURS, _rows_by_gpu(answer).items(), strict=False):
        shown = sweep["usable"][rows] & (sweep["ttft_s"][rows] < ceiling)
        meets = shown & (sweep["flags"][rows] == 0)
        late = shown & ~meets
        cost, ttft = sweep["usd_per_hour"][rows], sweep["ttft_s"][rows]
        axes.plot(ttft[late], cost[late], "o", color=colour, markersize=2.5, mfc="none", alpha=0.2)
        axes.plot(ttft[meets], cost[meets], "o", color=colour, markersize=3, alpha=0.8, label=f"{gpu}, meets all SLOs")
    if np.isfinite(asked.slo.ttft_s):
        axes.axvline(float(asked.slo.ttft_s), color="0.3", linestyle="--", linewidth=1, label="TTFT SLO")
    best = answer.best
    if best is not None:
        axes.plot(best.ttft_s, best.usd_per_hour, "*", color="black", markersize=12, label="recommended")
    axes.set(xlabel=f"TTFT, P{100 * float(asked.slo.percentile):g} [s]", ylabel="cost [USD/h]", yscale="log")
    lowest = np.nanmin(np.where(sweep["usable"], sweep["usd_per_hour"], np.nan))
    axes.set(xlim=(0, None), ylim=(0.7 * min(lowest, best.usd_per_hour if best else np.inf), 12.0 * lowest))
    axes.legend(frameon=False, fontsize="small")


def latency_against_load(answer: Plan, axes: Axes) -> None:
    """TTFT and TPOT of the cheapest one-pool layout against its load, each over its SLO; the chosen point marked."""
    layout = answer.baseline.pools[0].layout
    row = answer.priced.layouts.index(layout)
    sweep, slo = answer.sweep, answer.question.slo
    shown = sweep["usable"][row]
    load = sweep["load_frac"][row][shown]
    chosen = answer.priced.stable_instances[row, 0] / answer.priced.instances[row, 0]
    for colour, name, value, bound in (
        (COLOURS[0], "TTFT", sweep["ttft_s"], float(slo.ttft_s)),
        (COLOURS[1], "TPOT", sweep["tpot_s"], float(slo.tpot_s)),
    ):
        if np.isfinite(bound):
            axes.plot(load, value[row][shown] / bound, "-", color=colour, label=f"{name} / SLO of {1e3 * bound:g} ms")
    axes.axhline(1.0, color="0.3", linestyle="--", linewidth=1)
    axes.axvline(chosen, color="0.3", linewidth=1, label=f"chosen: {chosen:.0%} of the load that saturates")
    axes.set(xlabel=f"load of {layout}, as a share of saturation", ylabel="latency / SLO")
    axes.set(xlim=(0, 1.02), ylim=(0, 2.5))
    axes.legend(frameon=False, fontsize="small", loc="upper left")


def threshold_curve(answer: Plan, axes: Axes) -> None:
    """Cost of two pools against the threshold, with the one-pool fleet as the line to beat."""
    points = np.array(answer.by_threshold)
    known = np.isfinite(points[:, 1])
    axes.plot(points[known, 0], points[known, 1], "o-", color=COLOURS[0], markersize=4, label="two pools")
    if answer.baseline is not None:
        axes.axhline(answer.baseline.usd_per_hour, color=COLOURS[1], linestyle="--", label="one pool")
    axes.set(xlabel="threshold on total tokens [token]", ylabel="cost [USD/h]", xscale="log")
    axes.margins(y=0.4)
    axes.legend(frameon=False, fontsize="small")


def tornado(answer: Plan, changes: list[Change], axes: Axes) -> None:
    """Cost of the cheapest plan when one input changes; widest first. An open end: nothing is feasible."""
    base = answer.best.usd_per_hour
    spans: dict[str, list[Change]] = {}
    for change in changes:
        spans.setdefault(change.what, []).append(change)

    def reach(item):
        return max(abs(c.usd_per_hour - base) if np.isfinite(c.usd_per_hour) else 1e12 for c in item[1])

    ordered = sorted(spans.items(), key=reach)
    finite = [c.usd_per_hour for c in changes if np.isfinite(c.usd_per_hour)]
    edge = max([*finite, base]) * 1.05
    for y, (_, pair) in enumerate(ordered):
        for change in pair:
            colour = COLOURS[0] if change.factor < 1 else COLOURS[1]
            end = change.usd_per_hour if np.isfinite(change.usd_per_hour) else edge
            axes.barh(y, end - base, left=base, height=0.6, color=colour, hatch="" if end != edge else "//")
    axes.barh([0], [0], color=COLOURS[0], label="less (x0.8; SLO x0.5)")
    axes.barh([0], [0], color=COLOURS[1], label="more (x1.2; SLO x2)")
    axes.axvline(base, color="0.2", linewidth=1)
    axes.set_yticks(range(len(ordered)), [name for name, _ in ordered])
    axes.set(xlabel="cost of the cheapest plan [USD/h]")
    axes.set_xlim(min([*finite, base]) - 0.35 * (edge - min([*finite, base])), None)
    axes.legend(frameon=False, fontsize="small", loc="lower left")


def _rows_by_gpu(answer: Plan) -> dict[str, np.ndarray]:
    names = np.array([x.gpu for x in answer.priced.layouts])
    return {name: np.flatnonzero(names == name) for name in answer.question.gpus}
