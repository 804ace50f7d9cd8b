"""The pictures of a plan: what fleets cost and yield, latency and occupancy against load, memory, what moves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmodels.core.units import GIB
from dmodels.studies.plan import Change, Deployment, Plan
from dmodels.studies.plan.fleets import Front
from dmodels.studies.plan.memory_use import MemoryUse
from dmodels.studies.plan.risks import PoolLoad

from . import style
from .naming import Group, name_groups, name_lines


def figure(answer: Plan) -> Figure:
    """What fleets cost and how soon they answer, for a notebook."""
    return style.figure(lambda axes: cost_front(answer, axes), *style.ALONE)


def cost_front(answer: Plan, axes: Axes) -> None:
    """Cost against TTFT: one-pool fleets as points, those that miss an SLO hollow; each other kind by its own front.

    The line through is the front over all kinds; stars are the recommended fleet (filled) and its alternatives.
    """
    sweep, asked, best = answer.fleets.one_pool, answer.question, answer.best
    bound = float(asked.slo.ttft_s)
    others = [d for d in (*answer.kinds, *answer.by_gpu) if best is None or d != best]
    known = sweep["usd_per_hour"][sweep["usable"]].tolist() + [d.usd_per_hour for d in answer.kinds]
    axes.set(xlabel=f"TTFT, {_percentile(answer)} [s]", ylabel="cost [USD/h]", yscale="log")
    style.plain(axes.yaxis)
    if not known:
        _nothing(axes)
        return
    bottom, top, right = 0.7 * min(known), 12.0 * min(known), 1.15 * bound
    groups: list[Group] = []
    for i, (gpu, rows) in enumerate(_rows_by_gpu(answer).items()):
        cost, ttft = sweep["usd_per_hour"][rows], sweep["ttft_s"][rows]
        shown = sweep["usable"][rows] & (ttft < right) & (cost < top)
        meets = shown & sweep["meets"][rows]
        late = shown & ~meets
        look: dict[str, Any] = {"marker": style.marker(i), "linestyle": "none", "color": style.colour(i)}
        axes.plot(ttft[late], cost[late], markersize=style.DOT, mfc="none", alpha=0.35, **look)
        axes.plot(ttft[meets], cost[meets], markersize=style.DOT, alpha=0.8, **look)
        seen = meets if meets.any() else shown
        groups += [Group(ttft[seen], cost[seen], gpu, i), Group(ttft[late], cost[late])]
    for kind, line in (("two pools", "--"), ("prefill/decode split", ":")):
        if kind in answer.fleets.fronts:
            groups.append(_front(axes, answer.fleets.fronts[kind], kind, top, color=style.SOFT, linestyle=line))
    groups.append(_front(axes, answer.fleets.front, "Pareto front", top, color=style.INK, linewidth=style.FINE))
    axes.set(xlim=(0, right if np.isfinite(right) else None), ylim=(bottom, top))
    if np.isfinite(bound):
        style.across(axes, bound)
        _beside(axes, bound, "SLO", right=False)
    star: dict[str, Any] = {"marker": "*", "linestyle": "none", "color": style.INK, "zorder": 4}
    places = [d.ttft_s for d in others], [d.usd_per_hour for d in others]
    axes.plot(*places, mfc=style.PAPER, markersize=style.STAR, **star)
    if best is not None:
        axes.plot(best.ttft_s, best.usd_per_hour, markersize=style.BEST, **star)
        left = best.ttft_s > 0.4 * axes.get_xlim()[1]  # where nothing that keeps the SLOs can be
        crowded = _crowded(axes, best, others, left)
        side = "below" if crowded else "left" if left else "right"
        style.words(axes, "recommended", (best.ttft_s, best.usd_per_hour), side, 3 * style.GAP, bbox=style.HALO)
    stars = [d for d in (*others, best) if d is not None]  # a name that hides one hides as much as twenty points
    groups.append(Group(np.repeat([d.ttft_s for d in stars], 20), np.repeat([d.usd_per_hour for d in stars], 20)))
    name_groups(axes, groups)


def _crowded(axes: Axes, best: Deployment, others: Sequence[Deployment], left: bool) -> bool:
    """Whether another star stands where the recommended one's name would begin."""
    at = axes.transAxes.inverted().transform(
        axes.transData.transform([(d.ttft_s, d.usd_per_hour) for d in (best, *others)])
    )
    beside = (at[0, 0] - at[1:, 0]) if left else (at[1:, 0] - at[0, 0])
    return bool(((beside >= 0) & (beside < 0.3) & (np.abs(at[1:, 1] - at[0, 1]) < 0.05)).any())


def throughput_front(answer: Plan, axes: Axes) -> None:
    """Output tokens/s per GPU against tokens/s per user, all one-pool points, the front drawn through."""
    sweep, groups = answer.fleets.one_pool, []
    axes.set(xlabel="output speed of one user [token/s]", ylabel="throughput [token/s per GPU]")
    if not sweep["usable"].any():
        _nothing(axes)
        return
    for i, (gpu, rows) in enumerate(_rows_by_gpu(answer).items()):
        shown = sweep["usable"][rows]
        x, y = sweep["user_tokens_per_s"][rows][shown], sweep["gpu_tokens_per_s"][rows][shown]
        look: dict[str, Any] = {"marker": style.marker(i), "linestyle": "none", "color": style.colour(i)}
        axes.plot(x, y, markersize=style.DOT, alpha=0.45, **look)
        groups.append(Group(x, y, gpu, i))
    front = sweep["throughput_front"]
    order = np.argsort(sweep["user_tokens_per_s"][front])
    x, y = sweep["user_tokens_per_s"][front][order], sweep["gpu_tokens_per_s"][front][order]
    axes.plot(x, y, "-", color=style.INK, linewidth=style.FINE)
    groups.append(Group(x, y, "Pareto front", line=True))
    bound = float(answer.question.slo.tpot_s)
    fastest = np.nanmax(np.where(sweep["usable"], sweep["user_tokens_per_s"], np.nan), initial=0.0)
    if 1.0 / bound <= 1.5 * fastest:
        style.across(axes, 1.0 / bound)
        _beside(axes, 1.0 / bound, "TPOT SLO", right=1.0 / bound < 0.7 * fastest)
    axes.set(xlim=(0, None), ylim=(0, None))  # the line of a bound that no fleet reaches is in the picture, too
    name_groups(axes, groups)


def latency_against_load(load: PoolLoad, axes: Axes) -> None:
    """TTFT and TPOT of a pool, each over its SLO, from idle to saturation; the operating point and the knee marked."""
    x, ends = load.load_frac, []
    top = 2.0
    for i, (name, values, bound) in enumerate(
        (("TTFT", load.ttft_s, load.ttft_bound_s), ("TPOT", load.tpot_s, load.tpot_bound_s))
    ):
        if not np.isfinite(bound) or (name == "TPOT" and load.pool.stage.role == "prefill"):
            continue
        ratio = values / bound
        axes.plot(x, ratio, color=style.colour(i), linewidth=style.CURVE)
        now = float(np.interp(load.operating_frac, x, ratio))
        style.mark(axes, load.operating_frac, now, i)
        top = max(top, 1.25 * now)  # an SLO that only the replay keeps may be far below the formula
        ends.append((float(ratio[-1]), f"{name}\nof {1e3 * bound:,.4g} ms", i))
    axes.set(xlim=(0, 1.0), ylim=(0, top))
    style.across(axes, y=1.0)
    axes.text(0.015, 1.02, "SLO", color=style.SOFT, fontsize=style.SMALL, va="bottom")
    marks = [
        (load.operating_frac, "-", f"runs at {load.operating_frac:.0%}"),
        (load.knee_frac, ":", f"knee at {load.knee_frac:.0%}"),
    ]
    for rank, (place, kind, words) in enumerate(sorted(marks)):
        style.across(axes, place, color=style.INK, linestyle=kind)
        rightwards = place < 0.32 or (rank == 1 and place < 0.66)  # the words take a third of the width
        style.words(
            axes,
            words,
            (place, 0.93 - 0.1 * rank),
            "right" if rightwards else "left",
            xycoords=("data", "axes fraction"),
            bbox=style.HALO,
        )
    axes.set(xlabel="load [share of the rate that saturates]", ylabel="latency / SLO")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    name_lines(axes, ends)


def occupancy(load: PoolLoad, use: MemoryUse, axes: Axes) -> None:
    """Requests in flight on one instance against its load, and the slots that bound them."""
    x, mean = load.load_frac, load.in_flight_count
    spread = 2.33 * np.sqrt(mean)
    limits = sorted(
        [(use.slots_by_memory_count, "memory", 1), (use.slots_by_engine_count, "max_num_seqs", 2)], key=lambda t: t[0]
    )
    axes.fill_between(x, np.maximum(mean - spread, 0), mean + spread, color=style.FILL, linewidth=0)
    axes.plot(x, mean, color=style.colour(0), linewidth=style.CURVE)
    now = float(np.interp(load.operating_frac, x, mean))
    style.mark(axes, load.operating_frac, now, 0)
    told = f"runs with {now:.2g}" if now < 10 else f"runs with {now:.0f}"
    side = "right" if load.operating_frac > 0.3 else "left"
    style.words(axes, told, (load.operating_frac, now), "above", 2 * style.GAP, ha=side, bbox=style.HALO)
    # prompts that wait for a prefill worker grow without end towards saturation: the slots are what is looked for
    ceiling = 1.15 * max(limits[0][0], min(float((mean + spread).max()), 2.0 * limits[0][0]))
    ends = [(float(mean[-1]), "mean\n(band: 98 %)", 0)]
    for count, name, i in limits:
        if count <= ceiling:
            style.across(axes, y=count, color=style.colour(i))
            ends.append((count, f"{name}:\n{count:,.0f} slots", i))
    axes.set(xlim=(0, 1.0), ylim=(0, ceiling))
    axes.set(xlabel="load [share of the rate that saturates]", ylabel="in flight [request per instance]")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    name_lines(axes, ends)


def memory_per_gpu(uses: Sequence[MemoryUse], axes: Axes) -> None:
    """One bar per pool: what fills a GPU's memory, the wide parts with their GiB."""
    looks = {
        "weights": style.colour(0),
        "activations": style.colour(4),
        "runtime": style.colour(3),
        "KV in use": style.colour(2),
        "KV free": "none",
        "left over": style.FILL,
    }
    whole = max(use.gpu_bytes for use in uses) / GIB
    for y, use in enumerate(reversed(uses)):
        left = 0.0
        for name, size in use.parts.items():
            width, free = max(size, 0.0) / GIB, name == "KV free"
            edge = style.colour(2) if free else style.SOFT if name == "left over" else looks[name]
            axes.barh(
                y,
                width,
                left=left,
                height=0.5,
                color=looks[name],
                edgecolor=edge,
                linewidth=style.EDGE,
                hatch="///" if free else "",
                label=name if y == 0 else None,
            )
            if width > 0.05 * whole:
                style.words(axes, f"{width:.3g}", (left + width / 2, y - 0.25), "below")
            left += width
    names = [f"{use.pool.stage.name}:\n{use.pool.layout.gpu}\n{use.pool.layout.degrees}" for use in reversed(uses)]
    axes.set_yticks(range(len(uses)), names)
    axes.set(xlabel="memory of one GPU [GiB]", xlim=(0, 1.02 * whole), ylim=(-0.6, len(uses) - 0.5))
    axes.grid(False, axis="y")
    # A legend, because the narrow parts (activations, runtime) leave no room for their names.
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, **style.LEGEND)


def threshold_curve(answer: Plan, axes: Axes) -> None:
    """Cost of two pools against the threshold, with the one-pool fleet as the line to beat."""
    points = np.array(answer.by_threshold)
    known = np.isfinite(points[:, 1])
    axes.plot(points[known, 0], points[known, 1], "o-", color=style.colour(0), markersize=style.DOT)
    axes.set(xlabel="threshold on total tokens [token]", ylabel="cost [USD/h]", xscale="log")
    style.plain(axes.xaxis)
    ends = [(points[known, 1][-1], "two pools", 0)] if known.any() else []
    if answer.baseline is not None:
        style.across(axes, y=answer.baseline.usd_per_hour, color=style.colour(1), linewidth=style.CURVE)
        ends.append((answer.baseline.usd_per_hour, "one pool", 1))
    axes.margins(y=0.25)
    name_lines(axes, ends)


def tornado(answer: Plan, changes: list[Change], axes: Axes) -> None:
    """Cost of the cheapest plan when one input changes; widest first. A hatched bar: nothing is feasible then."""
    base = answer.formula_usd_per_hour
    spans: dict[str, list[Change]] = {}
    for change in changes:
        spans.setdefault(change.what, []).append(change)
    ordered = sorted(spans.items(), key=lambda item: _reach(item[1], base))
    finite = [c.usd_per_hour for c in changes if np.isfinite(c.usd_per_hour)]
    low, high = min([*finite, base]), max([*finite, base])
    span = max(high - low, 0.1 * base)
    edge = high + 0.15 * span
    for y, (_, pair) in enumerate(ordered):
        for change in pair:
            place, none = int(change.factor > 1), not np.isfinite(change.usd_per_hour)
            end, at = edge if none else change.usd_per_hour, y + (0.18 if change.factor < 1 else -0.18)
            axes.barh(
                at,
                end - base,
                left=base,
                height=0.34,
                color="none" if none else style.colour(place),
                hatch="///" if none else "",
                edgecolor=style.colour(place),
                linewidth=style.EDGE,
            )
            if abs(end - base) > 1e-9:
                style.words(
                    axes,
                    f"x{change.factor:g}" + ": infeasible" * none,
                    (end, at),
                    "right" if end > base else "left",
                    color=style.writing(place),
                )
    style.across(axes, base, color=style.INK, linestyle="-")
    still = [_reach(pair, base) < 1e-9 * base for _, pair in ordered]
    names = [name + "\n(no change)" * flat for (name, _), flat in zip(ordered, still, strict=True)]
    axes.set_yticks(range(len(ordered)), names)
    axes.set(xlabel="cost of the cheapest plan [USD/h]", xlim=(low - 0.2 * span, edge + 0.35 * span))
    axes.grid(False, axis="y")


def _front(axes: Axes, front: Front, name: str, top: float, **look: Any) -> Group:
    """Steps along a front, as far as it is in the picture."""
    seen = front.usd_per_hour < top
    x, y = front.ttft_s[seen], front.usd_per_hour[seen]
    axes.plot(x, y, drawstyle="steps-post", **look)
    return Group(x, y, name, line=True)


def _nothing(axes: Axes) -> None:
    """Words in place of a picture that has no points."""
    axes.set(xticks=[], yticks=[])
    axes.minorticks_off()
    axes.text(
        0.5,
        0.5,
        "no layout keeps up with this load",
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=style.TEXT,
        color=style.INK,
    )


def _reach(changes: Sequence[Change], base: float) -> float:
    """By how much the cost moves at most; inf where nothing is feasible."""
    return max(abs(change.usd_per_hour - base) for change in changes)


def _beside(axes: Axes, x: float, words: str, right: bool) -> None:
    """Words at the foot of a vertical line."""
    style.words(
        axes,
        words,
        (x, 0.04),
        "right" if right else "left",
        xycoords=("data", "axes fraction"),
        bbox=style.HALO,
        color=style.SOFT,
    )


def _percentile(answer: Plan) -> str:
    return f"P{100 * float(answer.question.slo.percentile):g}"


def _rows_by_gpu(answer: Plan) -> dict[str, np.ndarray]:
    names = np.array([x.gpu for x in answer.priced.layouts])
    return {name: np.flatnonzero(names == name) for name in answer.question.gpus}
