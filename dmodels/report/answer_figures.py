"""The two pictures over a plan: whether it keeps its promises, and what the other fleets would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from dmodels.studies.plan import Deployment, Plan

from . import style

#: Letters that the width of a picture holds, plain and bold; a cost that does not fit is read off its bar.
_WIDEST, _WIDEST_BOLD = 59, 54


def promised(answer: Plan) -> list[tuple[str, float, float, float, float]]:
    """(metric, seconds, low, high, SLO in seconds) of each promise of the recommended fleet, with its 80 % interval.

    Where a fleet has several pools, the interval is that of the pool that knows least about the metric.
    """
    best, slo = answer.best, answer.question.slo
    if best is None:
        return []
    serving = [pool for pool in best.pools if pool.stage.role != "prefill"]
    unsure = {
        "TTFT": max((pool.confidence.ttft for pool in best.pools), key=lambda factors: factors[1]),
        "TPOT": max((pool.confidence.tpot for pool in serving), key=lambda factors: factors[1]),
    }
    unsure["E2E"] = max(unsure.values(), key=lambda factors: factors[1])
    seen = {"TTFT": (best.ttft_s, slo.ttft_s), "TPOT": (best.tpot_s, slo.tpot_s), "E2E": (best.e2e_s, slo.e2e_s)}
    return [
        (name, float(s), float(s * unsure[name][0]), float(s * unsure[name][1]), float(bound))
        for name, (s, bound) in seen.items()
        if math.isfinite(bound)
    ]


def promises(answer: Plan, axes: Axes) -> None:
    """Each promised latency over its SLO: the estimate and its 80 % interval, the SLO as the line not to cross."""
    rows = promised(answer)[::-1]
    at = f"P{100 * float(answer.question.slo.percentile):g}"
    reach = max([1.25, *(high / bound for *_, high, bound in rows)])
    for y, (_, s, low, high, bound) in enumerate(rows):
        axes.plot([low / bound, high / bound], [y, y], color=style.colour(0), linewidth=6, alpha=0.35)
        style.mark(axes, s / bound, y, 0)
        text = f"{_time(s)} ({_time(low)} to {_time(high)}) of {_time(bound)}"
        style.words(axes, text, (0.0, y + 0.2), "right", va="bottom")
    style.across(axes, 1.0, color=style.colour(1), linestyle="-", linewidth=style.CURVE)
    style.words(axes, "SLO", (1.0, len(rows) - 0.35), "right", color=style.writing(1))
    axes.set_yticks(range(len(rows)), [f"{name}\n{at}" for name, *_ in rows])
    axes.set(xlim=(0, 1.05 * reach), ylim=(-0.5, len(rows) - 0.2), xlabel="latency / SLO, with its 80 % interval")
    axes.grid(False, axis="y")


def costs(answer: Plan, named: Sequence[tuple[str, Deployment]], axes: Axes) -> None:
    """What the recommended fleet and the others cost an hour; the line is what the model's error makes of it."""
    rows = list(named)[::-1]
    dearest = max(d.usd_per_hour for _, d in rows)
    highs = [d.usd_per_hour * d.gpus_high / d.gpus for _, d in rows if math.isfinite(d.gpus_high)]
    end = 1.08 * max([dearest, *highs])
    for y, (name, d) in enumerate(rows):
        mine = d is answer.best
        axes.barh(y - 0.12, d.usd_per_hour, height=0.34, color=style.colour(0) if mine else style.GRID)
        high = min(d.usd_per_hour * d.gpus_high / d.gpus, end)
        axes.plot([d.usd_per_hour * d.gpus_low / d.gpus, high], [y - 0.12] * 2, color=style.INK, linewidth=style.FINE)
        cost = f", ${d.usd_per_hour:,.2f}/h" if d.usd_per_hour < 1000.0 else f", ${d.usd_per_hour:,.0f}/h"
        words = f"{name}: {d.gpus:,} GPUs"
        words += cost * (len(words + cost) <= (_WIDEST_BOLD if mine else _WIDEST))
        style.words(axes, words, (0.0, y + 0.1), "right", va="bottom", weight="bold" if mine else "normal")
    axes.set_yticks([])
    axes.set(xlim=(0, end), ylim=(-0.5, len(rows) - 0.3), xlabel="cost [USD/h], with its 80 % interval")


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:,.3g} ms" if seconds < 1.0 else f"{seconds:,.3g} s"
