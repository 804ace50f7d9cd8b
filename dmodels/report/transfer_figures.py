"""The pictures of a transfer study: share of TTFT, policies, upgrades, and how stale telemetry may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmodels.models import transfer as law

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
TIERS = ("same server", "same rack", "same pod", "across pods")
NAMES = {
    "ROUND_ROBIN": "round robin", "LOAD": "load", "CACHE": "cache", "CACHE_LOAD": "cache + load (CLA*)",
    "NETKV_TOPO": "NetKV: tiers", "NETKV_STATIC": "NetKV: + in flight", "NETKV_FULL": "NetKV: + congestion",
}  # fmt: skip


def share_of_ttft(rows: Sequence[Mapping[str, Any]], axes: Axes) -> None:
    """Transfer as a share of TTFT against context, a line per tier; dashed where sent layer by layer."""
    for tier in sorted({r["tier"] for r in rows}):
        mine = [r for r in rows if r["tier"] == tier]
        x = [r["context_tokens"] for r in mine]
        colour = COLOURS[tier]
        axes.plot(x, [100 * r["share_frac"] for r in mine], "o-", ms=3, color=colour, label=TIERS[tier])
        axes.plot(x, [100 * r["pipelined_share_frac"] for r in mine], "--", color=colour)
    axes.plot([], [], "--", color="0.4", label="sent layer by layer")
    axes.set_xscale("log", base=2)
    ticks = [float(c) for c in dict.fromkeys(r["context_tokens"] for r in rows)]
    axes.set_xticks(ticks, [f"{c / 1024:g}K" for c in ticks])
    axes.set(xlabel="context [token]", ylabel="share of TTFT [%]",
             ylim=(0, None), title="KV transfer in TTFT, idle fabric")  # fmt: skip
    axes.legend(frameon=False, fontsize="small", loc="lower right", bbox_to_anchor=(1.0, 0.08))


def policies(rows: Sequence[Mapping[str, Any]], axes: Axes) -> None:
    """Mean TTFT by policy, the transfer in it drawn darker, with standard errors."""
    y = np.arange(len(rows))[::-1]
    axes.barh(y, [r["ttft_mean_s"] for r in rows], color="#9ecae1", xerr=[r["ttft_se_s"] for r in rows], label="TTFT",
              error_kw={"lw": 1})  # fmt: skip
    axes.barh(y, [r["transfer_mean_s"] for r in rows], height=0.45, color=COLOURS[0], label="transfer in it")
    axes.set_yticks(y, [NAMES[r["policy"]] for r in rows])
    axes.set(xlabel="mean [s]", title="who decodes: policies on the same requests")
    axes.set_xlim(0, 1.35 * max(r["ttft_mean_s"] + np.nan_to_num(r["ttft_se_s"]) for r in rows))
    axes.legend(frameon=False, fontsize="small", loc="lower right")


def upgrades(rows: Sequence[Mapping[str, Any]], axes: Axes) -> None:
    """Mean TTFT saved by each change alone."""
    shown = sorted(rows[1:], key=lambda r: r["ttft_saved_frac"])
    y = np.arange(len(shown))
    axes.barh(y, [100 * r["ttft_saved_frac"] for r in shown], color=COLOURS[2])
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_yticks(y, [_title(r["upgrade"]) for r in shown])
    axes.set(xlabel="mean TTFT saved [%]", title="which upgrade pays")


def tolerance(ratio: float, std: float, correlation_time_s: float, axes: Axes) -> None:
    """Tolerated error of congestion against the fixed delay that the choice must outweigh, beside Proposition 2."""
    delay = np.linspace(-2.0, 2.0, 401)  # in units of the slow tier's idle transfer
    for colour, level in zip(COLOURS, (0.0, 0.3, 0.6), strict=False):
        free = 1.0 - level
        cost = np.asarray(law.cost_staleness_tolerance(1.0 / ratio, 1.0, level, level, 0.0, delay))
        axes.plot(delay, 100 * np.minimum(cost, free), color=colour, label=f"congestion {level:g}")
        by_rate = float(law.tier_staleness_tolerance(ratio, level, level))
        axes.plot(delay, np.full_like(delay, 100 * by_rate), ":", color=colour, lw=1)
    drift = std * np.sqrt(2 * -np.expm1(-1.0 / correlation_time_s)) * 2.576 if correlation_time_s > 0 else std
    axes.axhline(100 * drift, color="0.5", lw=0.8)
    axes.annotate("drift in 1 s (99 %)", (2.0, 100 * drift), ha="right", va="bottom", fontsize="x-small", color="0.4")
    axes.plot([], [], ":", color="0.4", label="Proposition 2 (bandwidth only)")
    axes.set(xlabel="extra delay of the slow tier's instance / its idle transfer", ylabel="tolerated error [points]",
             ylim=(0, None), title=f"stale telemetry, tiers {ratio:.3g}:1")  # fmt: skip
    axes.legend(frameon=False, fontsize="x-small")


def overview(
    shares: Sequence[Mapping[str, Any]], compared: Sequence[Mapping[str, Any]], changed: Sequence[Mapping[str, Any]],
    ratio: float, std: float, correlation_time_s: float,
) -> Figure:  # fmt: skip
    """All four on one sheet."""
    made = Figure(figsize=(12.5, 8.2), layout="constrained")
    top, bottom = made.subfigures(2, 1)  # rows of their own, so that long labels in one do not narrow the other
    (a, b), (c, d) = top.subplots(1, 2), bottom.subplots(1, 2)
    for axes in (a, b, c, d):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, lw=0.4, alpha=0.5)
        axes.set_axisbelow(True)
    share_of_ttft(shares, a)
    policies(compared, b)
    upgrades(changed, c)
    tolerance(ratio, std, correlation_time_s, d)
    return made


def _title(text: str) -> str:
    """Policies by the names of the other picture, on two lines where they are compared."""
    words = [NAMES.get(word, word) for word in text.split()]
    return " ".join(words).replace(" instead of ", "\ninstead of ")
