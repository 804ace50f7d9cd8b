"""The pictures of a transfer study: share of TTFT, policies, upgrades, and how stale telemetry may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmodels.models import transfer as law

from . import style
from .naming import name_lines

TIERS = ("same server", "same rack", "same pod", "across pods")
NAMES = {
    "ROUND_ROBIN": "round robin",
    "LOAD": "load",
    "FREENESS": "freeness (Llumnix)",
    "CACHE": "cache",
    "CACHE_LOAD": "cache + load (CLA*)",
    "NETKV_TOPO": "NetKV: tiers",
    "NETKV_STATIC": "NetKV: + in flight",
    "NETKV_FULL": "NetKV: + congestion",
}


def share_of_ttft(rows: Sequence[Any], axes: Axes) -> None:
    """Transfer as a share of TTFT against context, a line per tier; dashed where sent layer by layer."""
    ends = []
    for tier in sorted({r.tier for r in rows}):
        mine = [r for r in rows if r.tier == tier]
        x = [r.context_tokens for r in mine]
        colour = style.colour(tier)
        axes.plot(x, [100 * r.share_frac for r in mine], "o-", ms=style.DOT, color=colour)
        ends.append((100 * mine[-1].share_frac, TIERS[tier], tier))
        axes.plot(x, [100 * r.pipelined_share_frac for r in mine], "--", color=colour)
    axes.set_xscale("log", base=2)
    ticks = [float(c) for c in dict.fromkeys(r.context_tokens for r in rows)]
    axes.set_xticks(ticks, [f"{c / 1024:g}K" for c in ticks])
    axes.set(
        xlabel="context [token]", ylabel="share of TTFT [%]", ylim=(0, None), title="KV transfer in TTFT, idle fabric"
    )
    style.words(axes, "dashed: sent layer by layer", (0.02, 0.98), xycoords="axes fraction", va="top", color=style.SOFT)
    name_lines(axes, ends)


def policies(rows: Sequence[Any], axes: Axes) -> None:
    """Mean TTFT by policy, the transfer in it drawn darker, with standard errors."""
    y = np.arange(len(rows))[::-1]
    axes.barh(
        y,
        [r.ttft_mean_s for r in rows],
        color=style.FILL,
        xerr=[r.ttft_se_s for r in rows],
        error_kw={"lw": style.THIN},
    )
    axes.barh(y, [r.transfer_mean_s for r in rows], height=0.45, color=style.colour(0))
    axes.set_yticks(y, [NAMES[r.policy] for r in rows])
    axes.set(xlabel="mean TTFT, and in blue the transfer in it [s]", title="who decodes: policies on the same requests")
    axes.set_xlim(0, 1.35 * max(r.ttft_mean_s + np.nan_to_num(r.ttft_se_s) for r in rows))


def upgrades(rows: Sequence[Any], axes: Axes) -> None:
    """Mean TTFT saved by each change alone."""
    shown = sorted(rows[1:], key=lambda r: r.ttft_saved_frac)
    y = np.arange(len(shown))
    axes.barh(y, [100 * r.ttft_saved_frac for r in shown], color=style.colour(2))
    style.across(axes, 0.0, color=style.INK, linestyle="-")
    axes.set_yticks(y, [_title(r.upgrade) for r in shown])
    axes.set(xlabel="mean TTFT saved [%]", title="which upgrade pays")


def tolerance(ratio: float, std: float, correlation_time_s: float, axes: Axes) -> None:
    """Tolerated error of congestion against the fixed delay that the choice must outweigh, beside Proposition 2."""
    delay = np.linspace(-2.0, 2.0, 401)  # in units of the slow tier's idle transfer
    ends = []
    for place, level in enumerate((0.0, 0.3, 0.6)):
        colour = style.colour(place)
        cost = np.asarray(law.cost_staleness_tolerance(1.0 / ratio, 1.0, level, level, 0.0, delay))
        axes.plot(delay, 100 * cost, color=colour)
        ends.append((100 * cost[-1], f"congestion {level:g}", place))
        by_rate = float(law.tier_staleness_tolerance(ratio, level, level))
        axes.plot(delay, np.full_like(delay, 100 * by_rate), ":", color=colour, lw=style.FINE)
    drift = std * np.sqrt(2 * -np.expm1(-1.0 / correlation_time_s)) * 2.576 if correlation_time_s > 0 else std
    style.across(axes, y=100 * drift, linestyle="-")
    style.words(axes, "drift in 1 s (99 %)", (2.0, 100 * drift), "above", ha="right", color=style.SOFT)
    axes.set(
        xlabel="extra delay of the slow tier's instance / its idle transfer [1]",
        ylabel="tolerated error [points]",
        title=f"stale telemetry, tiers {ratio:.3g}:1",
    )
    axes.set_ylim(0, None)
    style.words(
        axes,
        "dotted: Proposition 2 (bandwidth only)",
        (0.02, 0.98),
        xycoords="axes fraction",
        va="top",
        color=style.SOFT,
    )
    axes.set_xlim(-2.0, 2.0)
    name_lines(axes, ends)


def overview(
    shares: Sequence[Any],
    compared: Sequence[Any],
    changed: Sequence[Any],
    ratio: float,
    std: float,
    correlation_time_s: float,
) -> Figure:
    """All four on one sheet."""
    made, ((a, b), (c, d)) = style.panels(2, 2)
    share_of_ttft(shares, a)
    policies(compared, b)
    upgrades(changed, c)
    tolerance(ratio, std, correlation_time_s, d)
    return made


def _title(text: str) -> str:
    """Policies by the names of the other picture, on two lines where they are compared."""
    words = [NAMES.get(word, word) for word in text.split()]
    return " ".join(words).replace(" instead of ", "\ninstead of ")
