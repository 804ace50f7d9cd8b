"""The pictures of KV placement: hit rates by size, latency by tier, what evictions cost, thresholds, and sharing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, PercentFormatter

from dmodels.studies.place import Place

from . import naming, style

SIZE = "cache [blocks of 512 tokens]"


def hit_rates(answer: Place, axes: Axes) -> None:
    """Hit rate of each policy by cache size, the optimum above them, and what popularities alone would say."""
    c = answer.curves
    for share, text in (
        (answer.use.ceiling_frac, "all but first uses"),
        (answer.use.warm_frac, "all but blocks used once (warm cache)"),
    ):
        style.across(axes, y=share, linestyle="-")
        style.words(axes, f"{text}: {share:.1%}", (c.blocks[0], share), "above", ha="left", color=style.SOFT)
    axes.plot(c.blocks, c.belady_frac, color=style.INK, linewidth=style.FINE, label="optimum (knows the future)")
    axes.plot(c.blocks, c.lru_frac, color=style.colour(0), linewidth=2 * style.FINE, label="LRU")
    for place, name, values in ((1, "KVBM (doubling, decay)", c.kvbm_frac), (2, "LFU", c.lfu_frac)):
        axes.plot(
            c.replayed_blocks,
            values,
            marker=style.marker(place),
            color=style.colour(place),
            markersize=style.DOT,
            linewidth=style.FINE,
            label=name,
        )
    axes.plot(c.blocks, c.shuffled_frac, "--", color=style.colour(3), label="Che, trace in random order")
    axes.set(xscale="log", xlabel=SIZE, ylabel="block accesses that hit", title="Hit rate by policy")
    axes.set_ylim(0, 1.7 * max(answer.use.warm_frac, 1e-3))  # room for the legend
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _decades(axes)
    # A legend, because the three policies lie on one another and end at one height.
    axes.legend(loc="upper left", **style.LEGEND)


def latency(answer: Place, axes: Axes) -> None:
    """Mean time to the first token as one tier grows, the others as they are."""
    rows = {row.tier: row for row in answer.tiers}
    for place, one in enumerate(answer.vary):
        shown = one.bytes_ > 0
        axes.plot(one.bytes_[shown] / 2**30, 1e3 * one.first_token_s[shown], color=style.colour(place))
        if rows[one.tier].blocks_count > 0:
            style.mark(axes, rows[one.tier].size_gib, 1e3 * answer.first_token_s, place)
    axes.set(
        xscale="log",
        xlabel="size of the tier [GiB]",
        ylabel="load and prefill, mean [ms]",
        title="Time to the first token (marks: as it is; no queue)",
        ylim=(0, 1.1e3 * max(one.first_token_s.max() for one in answer.vary)),
    )
    _decades(axes)
    ends = [(1e3 * one.first_token_s[-1], f"{one.tier}\ngrows", place) for place, one in enumerate(answer.vary)]
    naming.name_lines(axes, ends)


def externality(answer: Place, axes: Axes) -> None:
    """GPU time that others lose for each block that is stored and never used again."""
    _by_blocks(answer, axes, 1e3 * answer.curves.lost_gpu_s, 1)
    axes.set(ylabel="others' GPU time per block stored [ms]", title="What storing a block used once costs others")


def recomputed(answer: Place, axes: Axes) -> None:
    """Prefill of blocks that had been computed before and were evicted."""
    _by_blocks(answer, axes, answer.curves.recomputed_flop / 1e12, 0)
    axes.set(ylabel="TFLOP per request", title="Prefill computed again because of evictions")


def _by_blocks(answer: Place, axes: Axes, values: np.ndarray, place: int) -> None:
    axes.plot(answer.curves.blocks, values, color=style.colour(place))
    axes.set(xscale="log", xlabel=SIZE, ylim=(0, None))
    _decades(axes)


def promotion(answer: Place, axes: Axes) -> None:
    """Mean access latency by the frequency that a full HBM asks for, the tiers below answering best."""
    p = answer.promotion
    axes.plot(p.threshold, 1e3 * p.access_s, marker="o", color=style.colour(0))
    least = 1e3 * p.access_s[0] * (1 - p.bound_gain_frac)
    style.across(axes, y=least)
    for height, name, colour, side in (
        (1e3 * p.access_s[-1], "lower tiers answer best", style.writing(0), "above"),
        (least, "no leader does better", style.SOFT, "below"),
    ):
        style.words(axes, name, (p.threshold[-1], height), side, ha="right", color=colour)
    axes.set(xlabel="frequency that HBM asks for", ylabel="mean access latency [ms]", title="Which blocks HBM takes")
    axes.set_xscale("log", base=2)
    axes.set_xticks(p.threshold, [style.number(value) for value in p.threshold])
    axes.set_ylim(0, 1.3e3 * p.access_s.max())


def shared(answer: Place, axes: Axes) -> None:
    """One pool against caches of one's own, by total size; nothing where sharing was not asked for."""
    s = answer.sharing
    if s is None:
        return
    for place, curve in enumerate(s.hit_frac):
        axes.plot(s.blocks, curve, color=style.colour(place), linestyle=("-", "--", "-")[place])
    if s.size_blocks >= s.blocks[0]:
        style.across(axes, s.size_blocks, linestyle=":")
        top = axes.get_xaxis_transform()
        style.words(axes, "HBM\nas it is", (s.size_blocks, 1.0), "left", va="top", xycoords=top, color=style.SOFT)
    axes.set(
        xscale="log",
        xlabel=f"HBM of {s.workers} workers together [blocks]",
        ylabel="block accesses that hit",
        title="Sharing HBM",
        ylim=(0, 1.05 * max(np.max(s.hit_frac), 1e-3)),
    )
    _decades(axes)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ends = [
        (curve[-1], textwrap.fill(layout.name, 15), place)
        for place, (layout, curve) in enumerate(zip(s.layouts, s.hit_frac, strict=True))
    ]
    naming.name_lines(axes, ends)


def pooled(answer: Place, axes: Axes) -> None:
    """Mean read of a block used before: alone, in a pool of selfish workers, in one that is run centrally."""
    kinds = ("alone", "pool, each for itself", "pool, run centrally")
    high = 0.8 / len(kinds)
    for place, kind in enumerate(kinds):
        values = [1e3 * (row.isolated_s, row.selfish_s, row.coordinated_s)[place] for row in answer.pooled]
        bars = axes.barh(np.arange(len(values)) + (place - 1) * high, values, 0.9 * high, color=style.colour(place))
        axes.bar_label(bars, [kind] * len(values), padding=style.GAP, fontsize=style.SMALL, color=style.writing(place))
    for at, row in enumerate(answer.pooled):
        axes.plot([1e3 * row.bound_s] * 2, [at - 0.4, at + 0.4], color=style.INK, linewidth=style.FINE)
    last = 1e3 * answer.pooled[-1].bound_s, len(answer.pooled) - 0.6
    style.words(axes, "no placement\nis faster", last, "below", ha="left")
    axes.set_yticks(range(len(answer.pooled)), [row.name.replace(" ", "\n") for row in answer.pooled])
    axes.set_ylim(len(answer.pooled) - 0.1, -0.6)  # the first on top, room for the line's name below
    axes.margins(x=0.35)
    axes.grid(visible=False, axis="y")  # it would cross the names
    axes.set(xlabel="mean read of a block used before [ms]", title="Memory shared")


def _decades(axes: Axes) -> None:
    """Plain numbers for sizes: one at each decade, and more where there are fewer than two."""
    low, high = axes.get_xlim()
    style.plain(axes.xaxis, wide=high > 8.0 * low)
    if high > 100.0 * low:
        axes.xaxis.set_major_locator(LogLocator(base=10.0, numticks=12))


def drawings(answer: Place) -> list[Callable[[Place, Axes], None]]:
    """The pictures that this answer has."""
    drawn: list[Callable[[Place, Axes], None]] = [hit_rates, latency, recomputed, externality, promotion]
    return drawn + [shared] * (answer.sharing is not None) + [pooled] * bool(answer.pooled)


def figure(answer: Place) -> Figure:
    """All pictures in one, for a PNG or SVG."""
    drawn = drawings(answer)
    made, axes = style.panels((len(drawn) + 1) // 2, 2)
    for draw, one in zip(drawn, axes.flat, strict=False):
        draw(answer, one)
    for unused in list(axes.flat)[len(drawn) :]:
        unused.remove()
    return made
