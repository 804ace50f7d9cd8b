"""The pictures of KV placement: hit rates by size, latency by tier, what evictions cost others, and sharing."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dmodels.studies.place import Place

BLUE, RED, GREEN, PINK, ORANGE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#666666"


def figure(answer: Place) -> Figure:
    """All pictures in one, for a PNG or a page."""
    made = Figure(figsize=(12, 8.4), layout="constrained")
    axes = made.subplots(2, 2)
    hit_rates(answer, axes[0, 0])
    latency(answer, axes[0, 1])
    externality(answer, axes[1, 0])
    shared(answer, axes[1, 1])
    for one in axes.flat:
        one.grid(True, which="major", linewidth=0.4, alpha=0.5)
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
    return made


def hit_rates(answer: Place, axes: Axes) -> None:
    """Hit rate of each policy by cache size, the optimum above them, and what popularities alone would say."""
    c = answer.curves
    axes.axhline(answer.use.ceiling_frac, color=GREY, linewidth=0.8)
    axes.annotate(f"all but first uses: {answer.use.ceiling_frac:.1%}", (c.blocks[0], answer.use.ceiling_frac), (0, 3),
                  textcoords="offset points", fontsize="small", color=GREY)  # fmt: skip
    axes.plot(c.blocks, c.belady_frac, color=GREY, label="optimum (knows the future)")
    axes.plot(c.blocks, c.lru_frac, color=BLUE, linewidth=2.2, label="LRU")
    axes.plot(c.replayed_blocks, c.kvbm_frac, "o-", color=RED, markersize=3, label="KVBM (doubling, decay)")
    axes.plot(c.replayed_blocks, c.lfu_frac, "s-", color=GREEN, markersize=3, label="LFU")
    axes.plot(c.blocks, c.shuffled_frac, "--", color=PINK, label="Che, trace in random order")
    axes.set_xscale("log")
    axes.set(xlabel="cache [blocks of 512 tokens]", ylabel="block accesses that hit", title="Hit rate by policy")
    axes.set_ylim(0, 1.12 * max(answer.use.ceiling_frac, 1e-3))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0, 0.88))


def latency(answer: Place, axes: Axes) -> None:
    """Mean time to the first token as one tier grows, the others as they are."""
    for one, row, colour in zip(answer.vary, answer.tiers, (BLUE, GREEN, RED, PINK), strict=False):
        gib = one.bytes_ / 2**30
        axes.plot(gib[1:], 1e3 * one.first_token_s[1:], color=colour, label=f"{one.tier} grows")
        axes.plot(row["size_gib"], 1e3 * answer.first_token_s, "o", color=colour, markersize=6)
    axes.set_xscale("log")
    axes.set(xlabel="size of the tier [GiB]", ylabel="load and prefill, mean [ms]",
             title="Time to the first token (dots: as it is; no queue)")  # fmt: skip
    axes.legend(frameon=False, fontsize="small")


def externality(answer: Place, axes: Axes) -> None:
    """What a block that is never used again costs others, and what is computed again, by cache size."""
    c = answer.curves
    (lost,) = axes.plot(c.blocks, 1e3 * c.lost_gpu_s, color=RED, label="cost to others of a block used once")
    axes.set_xscale("log")
    axes.set(xlabel="cache [blocks of 512 tokens]", ylabel="GPU time per block stored [ms]",
             title="What evictions cost", ylim=(0, None))  # fmt: skip
    other = axes.twinx()
    (again,) = other.plot(c.blocks, c.recomputed_flop / 1e12, "--", color=BLUE, label="computed again (right)")
    other.set(ylabel="recomputed prefill [TFLOP per request]", ylim=(0, None))
    other.spines["top"].set_visible(False)
    axes.legend(handles=[lost, again], frameon=False, fontsize="small", loc="center left")


def shared(answer: Place, axes: Axes) -> None:
    """One pool against caches of one's own, by total size; the thresholds of HBM where nothing is shared."""
    s = answer.sharing
    if s is None:
        p = answer.promotion
        axes.plot(p.threshold, 1e3 * p.access_s, "o-", color=BLUE)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="frequency that HBM asks for", ylabel="mean access latency [ms]", title="HBM as leader")
        return
    for layout, curve, colour in zip(s.layouts, s.hit_frac, (BLUE, GREEN, RED), strict=True):
        axes.plot(s.blocks, curve, color=colour, label=layout.name)
    axes.axvline(max(s.size_blocks, s.blocks[0]), color=GREY, linestyle=":", label="HBM as it is")
    axes.set_xscale("log")
    axes.set(xlabel=f"HBM of {s.workers} workers together [blocks]", ylabel="block accesses that hit",
             title="Sharing HBM", ylim=(0, 1.05 * max(np.max(s.hit_frac), 1e-3)))  # fmt: skip
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.legend(frameon=False, fontsize="small", loc="upper left")
