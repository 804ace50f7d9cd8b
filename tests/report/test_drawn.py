"""Pictures show the numbers of their answers: lines, bars and words of records with numbers of their own, by hand."""

from __future__ import annotations

import io
import itertools
from functools import partial
from types import SimpleNamespace as Record

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.colors import to_rgba

from dmodels.core.errors import InputError
from dmodels.report import (
    answer_figures,
    place_figures,
    plan_figures,
    plan_page,
    routing_figures,
    split_figures,
    step_figures,
    style,
    sweep_figures,
    transfer_figures,
)
from tests.audit.figures import audit_figure
from tests.report.records import (
    ALONE,
    BLOCKS,
    CHANGES,
    FLEET,
    PARTS,
    PLACE,
    PROMISED,
    SHARES,
    SPLIT,
    fleets,
    load_of,
    policy,
    pool_of,
    use_of,
)


class Drawn:
    """What a reader can take off a picture."""

    def __init__(self, draw):
        made = style.figure(draw, 7.0, 4.0)
        made.savefig(io.BytesIO())  # which lays it out
        (self.axes,) = made.axes
        audit_figure(made)
        self.words = [text.get_text() for text in self.axes.texts]
        self.lines = [(np.asarray(x, float), np.asarray(y, float)) for x, y in map(_data, self.axes.lines)]
        self.bars = [
            (bar.get_x(), bar.get_width(), bar.get_y() + bar.get_height() / 2)
            for group in self.axes.containers
            for bar in getattr(group, "patches", ())
        ]
        self.named = {text.get_text(): place for place, text in zip(*_ticks(self.axes.yaxis), strict=True)}

    def line(self, x, y):
        """The line through these points; its index among the lines."""
        for k, (a, b) in enumerate(self.lines):
            if a.shape == np.shape(x) and np.allclose(a, x, rtol=1e-9) and np.allclose(b, y, rtol=1e-9, equal_nan=True):
                return self.axes.lines[k]
        raise AssertionError(f"no line through {x}, {y} among {self.lines}")

    def level(self, y):
        return any(np.allclose(b, y) and b.size == 2 for _, b in self.lines)

    def upright(self, x):
        return any(np.allclose(a, x) and a.size == 2 for a, _ in self.lines)

    def said(self, *words):
        for word in words:
            assert any(word in text for text in self.words), f"{word!r} is not among {self.words}"

    def label(self):
        return self.axes.get_xlabel(), self.axes.get_ylabel()


def _data(line):
    return line.get_xdata(), line.get_ydata()


def _ticks(axis):
    return [axis.get_majorticklocs(), axis.get_majorticklabels()]


def place(draw):
    return Drawn(lambda axes: draw(PLACE, axes))


def test_hit_rates_by_policy():
    seen, c = place(place_figures.hit_rates), PLACE.curves
    assert seen.line(c.blocks, c.belady_frac).get_label() == "optimum (knows the future)"
    lru = seen.line(c.blocks, c.lru_frac)
    assert lru.get_label() == "LRU"  # wide, as others lie on it
    assert all(
        1.9 * line.get_linewidth() < lru.get_linewidth() for line in seen.axes.lines if line.get_marker() != "None"
    )
    assert seen.line(c.replayed_blocks, c.kvbm_frac).get_label() == "KVBM (doubling, decay)"
    assert seen.line(c.replayed_blocks, c.lfu_frac).get_label() == "LFU"
    assert seen.line(c.blocks, c.shuffled_frac).get_label() == "Che, trace in random order"
    seen.said("all but first uses: 55.0%", "all but blocks used once (warm cache): 45.0%")
    assert seen.level(0.55) and seen.level(0.45) and seen.axes.get_xscale() == "log"
    low, high = seen.axes.get_ylim()
    assert low == 0 and 0.55 < high < 1
    assert [f"{v:.0%}" for v in seen.axes.get_yticks()] == [t.get_text() for t in seen.axes.get_yticklabels()]
    assert "10,000" in [t.get_text() for t in seen.axes.get_xticklabels()]


def test_latency_by_tier():
    seen = place(place_figures.latency)
    hbm = seen.line([1.0, 2.0], [500.0, 450.0])  # a tier of nothing has no place on a logarithmic axis
    dram = seen.line([1.0, 4.0], [450.0, 350.0])
    assert hbm.get_color() != dram.get_color()
    assert seen.line([3.0], [400.0]).get_color() == hbm.get_color()  # as it is; the tier that is not there has no mark
    assert len(seen.lines) == 3 and seen.axes.get_xscale() == "log"
    seen.said("HBM\ngrows", "DRAM\ngrows")
    low, high = seen.axes.get_xlim()  # less than a decade
    assert sum(low <= tick <= high for tick in seen.axes.get_xticks()) >= 3
    assert seen.label() == ("size of the tier [GiB]", "load and prefill, mean [ms]")
    assert seen.axes.get_ylim() == (0, pytest.approx(660))  # a tenth over the slowest


def test_costs_of_evictions_and_of_a_leader():
    lost, again = place(place_figures.externality), place(place_figures.recomputed)
    assert lost.line(BLOCKS, [1, 2, 3, 1]) and lost.axes.get_ylim()[0] == 0 and "[ms]" in lost.label()[1]
    assert again.line(BLOCKS, [9, 7, 5, 2]) and again.axes.get_ylim()[0] == 0 and "TFLOP" in again.label()[1]
    leader = place(place_figures.promotion)
    assert leader.line([0.5, 1, 2], [2.0, 1.5, 1.8]) and leader.level(1.4)  # 30 % less than with everything stored
    at = {text.get_text(): text.xy[1] for text in leader.axes.texts}
    assert at == {"lower tiers answer best": pytest.approx(1.8), "no leader does better": pytest.approx(1.4)}
    assert [t.get_text() for t in leader.axes.get_xticklabels()] == ["0.5", "1", "2"]


def test_sizes_have_ticks_at_decades_and_between_them_where_there_are_few():
    near = Record(**vars(PLACE.curves) | {"blocks": np.array([60.0, 150.0, 500.0, 1500.0])})
    inside = lambda axes: {tick for tick in axes.get_xticks() if axes.get_xlim()[0] < tick < axes.get_xlim()[1]}
    few = Drawn(lambda axes: place_figures.recomputed(Record(**vars(PLACE) | {"curves": near}), axes))
    assert inside(few.axes) == {100.0, 200.0, 500.0, 1000.0}
    assert inside(place(place_figures.recomputed).axes) == {10.0, 100.0, 1000.0, 10_000.0}


def test_shared_memory_and_its_game():
    seen, s = place(place_figures.shared), PLACE.sharing
    styles = [seen.line(BLOCKS, curve).get_linestyle() for curve in s.hit_frac]
    assert styles[0] != styles[1] and seen.upright(50.0)
    seen.said("HBM\nas it is", "one pool", "in turn", "kept together")
    heights = {t.get_text(): t.xy[1] for t in seen.axes.texts if t.get_text() in ("one pool", "in turn")}
    assert heights["one pool"] > heights["in turn"]
    assert "4 workers" in seen.label()[0] and 0.4 < seen.axes.get_ylim()[1] < 0.5
    game = place(place_figures.pooled)
    assert sorted(width for _, width, _ in game.bars) == pytest.approx([1.7, 1.8, 2, 3, 4, 5])
    (top, bottom) = (game.named["in\nturn"], game.named["kept\ntogether"])
    by_row = {
        row: [w for _, w, y in sorted(game.bars, key=lambda bar: bar[2]) if abs(y - row) < 0.5] for row in (top, bottom)
    }
    assert by_row[top] == pytest.approx([5, 4, 3]) and by_row[bottom] == pytest.approx([2, 1.8, 1.7])
    assert game.words.count("alone") == game.words.count("pool, run centrally") == 2
    assert game.line([2.5, 2.5], [-0.4, 0.4]) and game.line([1.6, 1.6], [0.6, 1.4])
    assert game.axes.get_ylim()[0] > game.axes.get_ylim()[1]  # the first on top
    (line,) = (text for text in game.axes.texts if text.get_text() == "no placement\nis faster")
    assert line.xy == pytest.approx((1.6, 1.4))  # where the last line ends
    drawn = "hit_rates latency recomputed externality promotion shared pooled".split()
    assert [draw.__name__ for draw in place_figures.drawings(PLACE)] == drawn
    assert [draw.__name__ for draw in place_figures.drawings(ALONE)] == drawn[:5]


def test_transfers():
    rows = [
        Record(tier=t, context_tokens=c, share_frac=t * c / 1e6, pipelined_share_frac=t * c / 4e6)
        for t in (1, 3)
        for c in (4096, 32768)
    ]
    share = Drawn(lambda axes: transfer_figures.share_of_ttft(rows, axes))
    for tier, name in ((1, "same rack"), (3, "across pods")):
        plain = share.line([4096, 32768], [tier * 0.4096, tier * 3.2768])
        early = share.line([4096, 32768], [tier * 0.1024, tier * 0.8192])
        assert (plain.get_linestyle(), early.get_linestyle()) == ("-", "--")
        (told,) = [t for t in share.axes.texts if t.get_text() == name]
        assert plain.get_color() == early.get_color() == style.colour(tier) and told.get_color() == style.writing(tier)
    assert [t.get_text() for t in share.axes.get_xticklabels()] == ["4K", "32K"]
    share.said("dashed: sent layer by layer")
    ran = [policy("ROUND_ROBIN", 2.0, 0.9), policy("NETKV_FULL", 1.5, 0.5)]
    bars = Drawn(lambda axes: transfer_figures.policies(ran, axes))
    at = {name: sorted(w for _, w, y in bars.bars if y == pytest.approx(p)) for name, p in bars.named.items()}
    assert at == {"round robin": [0.9, 2.0], "NetKV: + congestion": [0.5, 1.5]}
    assert bars.named["round robin"] > bars.named["NetKV: + congestion"] and bars.axes.get_xlim() == (0, 2.1 * 1.35)
    errors = [tuple(x for x, _ in ends) for ends in bars.axes.collections[0].get_segments()]
    assert errors == [pytest.approx((1.9, 2.1)), pytest.approx((1.4, 1.6))]  # a standard error to both sides
    looks = {
        bar.get_width(): bar.get_facecolor() for group in bars.axes.containers for bar in getattr(group, "patches", ())
    }
    blue, plain = to_rgba(style.colour(0)), to_rgba(style.FILL)
    assert looks == {2.0: plain, 1.5: plain, 0.9: blue, 0.5: blue}
    up = [Record(upgrade="as it is", ttft_saved_frac=0.0), Record(upgrade="nics x2 speed", ttft_saved_frac=0.3)]
    up.append(Record(upgrade="NETKV_FULL instead of CACHE_LOAD", ttft_saved_frac=-0.1))
    saved = Drawn(lambda axes: transfer_figures.upgrades(up, axes))
    at = {name: next(w for _, w, y in saved.bars if y == pytest.approx(p)) for name, p in saved.named.items()}
    assert at == {
        "nics x2 speed": pytest.approx(30),
        "NetKV: + congestion\ninstead of cache + load (CLA*)": pytest.approx(-10),
    }
    assert saved.named["nics x2 speed"] == max(saved.named.values()) and saved.upright(0.0)
    assert transfer_figures.TIERS == ("same server", "same rack", "same pod", "across pods")


def test_steps_and_windows():
    parts = [
        Record(name="attention", seconds=2e-3, roofline_frac=0.5, share_frac=0.2, binds="memory"),
        Record(name="experts", seconds=8e-3, roofline_frac=0.75, share_frac=0.8, binds="link"),
    ]
    seen = Drawn(lambda axes: step_figures.operators(Record(operators=parts), axes, "a step"))
    at = {name: sorted(w for _, w, y in seen.bars if y == pytest.approx(p)) for name, p in seen.named.items()}
    assert at == {"attention": pytest.approx([1.0, 2.0]), "experts": pytest.approx([6.0, 8.0])}
    assert seen.named["experts"] > seen.named["attention"] and seen.axes.get_xlim() == pytest.approx((0, 10.4))
    keys = [text.get_text() for text in seen.axes.get_legend().get_texts()]
    assert keys == ["expected", "at the data sheet's rates"]
    (alone,) = step_figures.figure(Record(operators=parts)).axes
    assert alone.get_title() == "A mean step"
    sizes = [step_figures.figure(Record(operators=parts * n)).get_size_inches() for n in (1, 5)]
    assert [wide for wide, _ in sizes] == [7, 7] and 0.3 < (sizes[1][1] - sizes[0][1]) / 8 < 0.6 < sizes[0][1]
    spots = {text.get_text(): text.xy for text in seen.axes.texts}
    assert spots == {"20%, memory": (2.0, 0), "80%, link": (8.0, 1)}
    when, hat, regime = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 9.0, 2.0]), np.array([0, 1, 2, 0])
    made = routing_figures.index_over_time(when, hat, regime)
    points = {tuple(line.get_xdata()): line.get_color() for line in made.lines}
    assert points.keys() == {(1, 2, 3, 4), (1, 4), (2,), (3,)} and made.get_yscale() == "log"
    named = {text.get_text(): text.get_color() for text in made.texts}
    places = {"below saturation": 0, "transition": 4, "saturated": 1}
    assert named == {name: style.writing(place) for name, place in places.items()}
    assert [points[1, 4], points[2,], points[3,]] == [style.colour(k) for k in places.values()]
    flat = routing_figures.index_over_time(when, np.array([1.0, 1.2, 1.1, 1.3]), regime)
    low, high = flat.get_ylim()
    assert sum(low < tick < high for tick in flat.get_yticks()) >= 3  # a narrow range has marks of its own


def test_splits():
    missed = Drawn(lambda axes: split_figures.misses(SPLIT, axes))
    ttft = missed.line([4, 8, 12], [0.5, 1e-3, 1e-4])  # what nobody can measure lies at the bottom
    itl = missed.line([4, 8, 12], [1e-4, 1e-4, 0.2])
    assert all(missed.upright(x) for x in (7.5, 9.25, 8.0)) and missed.axes.get_ylim() == (1e-4, 3.0)
    missed.said("optimum: 7.5", "equilibrium: 9.25", "whole workers: 8")
    across = {line.get_xdata()[0]: line for line in missed.axes.lines if len(line.get_xdata()) == 2}
    looks = {x: (line.get_linestyle(), line.get_color()) for x, line in across.items()}
    assert looks == {7.5: ("-", style.colour(2)), 9.25: ("--", style.INK), 8.0: (":", style.colour(3))}
    never = Record(**vars(SPLIT) | {"whole": Record(value=Record(prefill_gpus=8.0, cost=np.inf)), "courses": {}})
    axes = style.panel(7.0, 4.0)
    split_figures.misses(never, axes)  # no whole split serves it
    assert not any("whole" in text.get_text() for text in axes.texts)
    axes = style.panel(7.0, 4.0)
    split_figures.courses(never, axes)
    assert axes.get_title() == "Planners were not run" and not axes.texts and not axes.collections
    assert "of 16 in all" in missed.axes.get_xlabel() and missed.axes.yaxis.get_major_formatter()(0.01) == "1 %"
    colours = {t.get_text(): t.get_color() for t in missed.axes.texts}
    known = dict(zip(style.COLOURS, style.WRITING, strict=True))
    assert (colours["optimum: 7.5"], colours["whole workers: 8"]) == (style.writing(2), style.writing(3))
    assert colours["TTFT"] == known[ttft.get_color()] and colours["ITL"] == known[itl.get_color()]
    over = Drawn(lambda axes: split_figures.courses(SPLIT, axes))
    assert over.line([0, 0.5, 1.0], [2, 2, 2]) and over.line([0, 0.5, 1.0], [2, 3, 4])  # every half minute
    over.said("static:\n25.0% late", "sla:\n50.0% late", "at most 20 req/s")
    assert over.axes.get_xlim() == (0, 1.0)
    assert [line.get_color() for line in over.axes.lines] == [style.colour(k) for k in (0, 2, 3, 1)]
    wide = [line.get_linewidth() for line in over.axes.lines]  # ever thinner, so that equal courses show both
    assert len(wide) == 4 and all(0.7 < a - b < 1.5 for a, b in itertools.pairwise(wide)) and 0.8 < wide[-1] < 1.5


def test_splits_are_shown_where_some_requests_are_served_and_half_as_far_beside():
    x = np.arange(1.0, 21.0)
    late = Record(**vars(SPLIT) | {"prefill_gpus": x, "ttft_frac": 1.0 * (x < 8), "itl_frac": 1.0 * (x > 12)})
    shown = Drawn(lambda axes: split_figures.misses(late, axes))
    assert shown.line(np.arange(6.0, 15.0), np.maximum(1.0 * (np.arange(6, 15) < 8), 1e-4))


def test_a_pool_against_its_load():
    x = np.linspace(0.1, 0.9, 9)
    load = Record(
        load_frac=x,
        ttft_s=1.0 + x,
        tpot_s=0.02 + 0.01 * x,
        in_flight_count=100 * x,
        ttft_bound_s=2.0,
        tpot_bound_s=0.05,
        operating_frac=0.5,
        knee_frac=0.7,
        pool=Record(stage=Record(role="serve")),
    )
    seen = Drawn(lambda axes: plan_figures.latency_against_load(load, axes))
    assert seen.line(x, (1 + x) / 2) and seen.line(x, (0.02 + 0.01 * x) / 0.05)
    assert seen.line([0.5], [0.75]) and seen.line([0.5], [0.5])  # where it runs
    assert seen.level(1.0) and seen.upright(0.5) and seen.upright(0.7)
    seen.said("TTFT\nof 2,000 ms", "TPOT\nof 50 ms", "runs at 50%", "knee at 70%", "SLO")
    assert seen.axes.get_xlim() == (0, 1) and seen.axes.get_ylim() == (0, 2)
    first = Record(**vars(load) | {"pool": Record(stage=Record(role="prefill"))})
    assert not any("TPOT" in word for word in Drawn(lambda axes: plan_figures.latency_against_load(first, axes)).words)
    late = Record(**vars(load) | {"ttft_bound_s": 0.5})  # which a replay may keep, though the formula says three times
    high = Drawn(lambda axes: plan_figures.latency_against_load(late, axes))
    assert high.line([0.5], [3.0]) and 3.0 < high.axes.get_ylim()[1] < 4.0
    use = Record(slots_by_memory_count=120.0, slots_by_engine_count=256.0)
    held = Drawn(lambda axes: plan_figures.occupancy(load, use, axes))
    assert held.line(x, 100 * x) and held.line([0.5], [50.0]) and held.level(120.0) and not held.level(256.0)
    held.said("runs with 50", "memory:\n120 slots")
    band = held.axes.collections[0].get_paths()[0].vertices
    top, bottom = (90 + k * 2.326 * 90**0.5 for k in (1, -1))  # 98 % of a Poisson number of mean 90
    assert band[:, 1].max() == pytest.approx(top, rel=2e-3)
    assert min(y for place, y in band if place == x[-1]) == pytest.approx(bottom, rel=2e-3)
    assert 120 < held.axes.get_ylim()[1] < 240
    axes = style.panel()
    plan_figures.occupancy(load_of(in_flight_count=4 * x), use, axes)  # nothing may be in flight, nor less than that
    assert axes.collections[0].get_paths()[0].vertices[:, 1].min() == 0


def test_memory_of_a_gpu():
    parts = {"weights": 35.0, "activations": 1.0, "runtime": 2.0, "KV_in_use": 14.0, "KV_free": 20.0, "left_over": 8.0}
    uses = [use_of("short", "h100", **parts), use_of("long", "h200", **parts | {"KV_in_use": 4.0, "KV_free": 30.0})]
    seen = Drawn(lambda axes: plan_figures.memory_per_gpu(uses, axes))
    for name, place in seen.named.items():
        own = uses[0] if name.startswith("short:\nh100") else uses[1]
        mine = sorted((left, width) for left, width, y in seen.bars if y == pytest.approx(place))
        widths = [size / 2**30 for size in own.parts.values()]
        assert [w for _, w in mine] == pytest.approx(widths)  # side by side, in this order
        assert [left for left, _ in mine] == pytest.approx([sum(widths[:k]) for k in range(6)])
    assert seen.named["short:\nh100\ntp4"] > seen.named["long:\nh200\ntp4"]
    assert sorted(seen.words) == sorted(["35", "14", "20", "8", "35", "30", "8"])  # none where it does not fit
    middles = [(left + w / 2, y - 0.25) for left, w, y in seen.bars if w > 4]  # each below its part
    assert sorted(text.xy for text in seen.axes.texts) == [pytest.approx(spot) for spot in sorted(middles)]
    assert seen.axes.get_xlim() == (0, pytest.approx(1.02 * 80)) and seen.axes.get_ylim() == (-0.6, 1.5)
    uses[1].gpu_bytes = 160 * 2**30  # on the larger GPU, 8 GiB are no twentieth
    large = Drawn(lambda axes: plan_figures.memory_per_gpu(uses, axes))
    assert large.axes.get_xlim()[1] == pytest.approx(1.02 * 160) and "8" not in large.words and "14" in large.words
    looks = {group.get_label(): group.patches[0] for group in seen.axes.containers[:6]}
    free, used = looks["KV free"], looks["KV in use"]  # a part of the same, but empty
    assert free.get_facecolor()[3] == 0 and free.get_edgecolor() == used.get_facecolor() == used.get_edgecolor()
    assert [name for name, bar in looks.items() if bar.get_hatch()] == ["KV free"]
    solid = [bar.get_facecolor() for name, bar in looks.items() if name not in ("KV free", "left over")]
    assert looks["left over"].get_facecolor() == to_rgba(style.FILL) and len({*solid, to_rgba(style.FILL)}) == 5
    assert solid[0] == to_rgba(style.colour(0)) and to_rgba(style.SOFT) == looks["left over"].get_edgecolor()
    alone = Drawn(lambda axes: plan_figures.memory_per_gpu(uses[:1], axes))
    for legend in (seen.axes.get_legend(), alone.axes.get_legend()):
        assert [t.get_text() for t in legend.get_texts()] == [name.replace("_", " ") for name in parts]


def test_what_moves_the_cost():
    change = lambda what, factor, usd: Record(what=what, factor=factor, usd_per_hour=usd)
    changes = [
        change("rate", 0.8, 80.0),
        change("rate", 1.2, 130.0),
        change("SLO", 0.5, np.inf),
        change("SLO", 2.0, 100.0),
    ]
    seen = Drawn(lambda axes: plan_figures.tornado(Record(formula_usd_per_hour=100.0), changes, axes))
    ends = {round(left + width, 6) for left, width, _ in seen.bars}
    assert {80.0, 130.0, 100.0} <= ends and max(ends) > 130.0  # an infeasible one goes beyond
    assert seen.upright(100.0) and seen.named["SLO"] > seen.named["rate"]  # the widest on top
    seen.said("x0.8", "x1.2", "x0.5: infeasible")
    assert "x2" not in seen.words  # which moves nothing
    points = Record(by_threshold=((1024.0, 90.0), (4096.0, np.inf), (8192.0, 70.0)), baseline=Record(usd_per_hour=80.0))
    curve = Drawn(lambda axes: plan_figures.threshold_curve(points, axes))
    assert curve.line([1024, 8192], [90, 70]) and curve.level(80.0)
    curve.said("two pools", "one pool")


@pytest.mark.parametrize("low, high, seen", [(80.0, 130.0, 0.5), (98.0, 103.0, 0.3), (100.0, 100.5, 0.02)])
def test_small_changes_of_the_cost_look_small_but_not_lost(low, high, seen):
    """A change by a twentieth fills a third of the picture, which shows no less than a twentieth of the cost."""
    changes = [Record(what="rate", factor=f, usd_per_hour=u) for f, u in ((0.8, low), (1.2, high))]
    axes = style.panel(7.0, 4.0)
    plan_figures.tornado(Record(formula_usd_per_hour=100.0), changes, axes)
    left, right = axes.get_xlim()
    assert left < low and high < right and (high - low) / (right - left) >= seen
    assert right - left >= 5.0  # no change of a thousandth looks like one that matters


def test_promises_and_costs_of_the_others():
    pools = [pool_of("prefill", (0.7, 1.2), (0.5, 9.0)), pool_of("decode", (0.8, 1.1), (0.95, 1.3))]
    best = Record(pools=pools, ttft_s=1.0, tpot_s=0.04, e2e_s=8.0, usd_per_hour=20.0, gpus=8, gpus_low=6, gpus_high=12)
    slo = Record(ttft_s=2.0, tpot_s=0.05, e2e_s=np.inf, percentile=0.99)
    answer = Record(best=best, question=Record(slo=slo))
    # the pool that knows least; what prefills makes no tokens after the first
    assert answer_figures.promised(answer) == [
        ("TTFT", 1.0, 0.7, 1.2, 2.0),
        ("TPOT", 0.04, 0.04 * 0.95, 0.04 * 1.3, 0.05),
    ]
    seen = Drawn(lambda axes: answer_figures.promises(answer, axes))
    assert seen.line([0.35, 0.6], [1, 1]) and seen.line([0.5], [1])
    assert seen.line([0.76, 1.04], [0, 0]) and seen.line([0.8], [0]) and seen.upright(1.0)
    assert seen.named == {"TTFT\nP99": 1, "TPOT\nP99": 0}
    seen.said("1 s (700 ms to 1.2 s) of 2 s", "40 ms (38 ms to 52 ms) of 50 ms", "SLO")
    (slo,) = [text for text in seen.axes.texts if text.get_text() == "SLO"]
    assert slo.xy[0] == 1.0 and 1.4 < slo.xy[1] < 1.8 == seen.axes.get_ylim()[1] and seen.axes.get_ylim()[0] == -0.5
    assert seen.axes.get_xlim()[0] == 0 and seen.axes.get_xlim()[1] > 1.25
    other = Record(usd_per_hour=30.0, gpus=10, gpus_low=9, gpus_high=np.inf)
    cost = Drawn(lambda axes: answer_figures.costs(answer, [("split", best), ("one pool", other)], axes))
    assert sorted(width for _, width, _ in cost.bars) == [20.0, 30.0]
    high, low = (next(y for _, w, y in cost.bars if w == usd) for usd in (20.0, 30.0))
    assert high > low and cost.line([15.0, 30.0], [high] * 2)
    assert cost.line([27.0, cost.axes.get_xlim()[1]], [low] * 2)  # no fleet keeps it at the slow end
    cost.said("split: 8 GPUs, $20.00/h", "one pool: 10 GPUs, $30.00/h")
    assert cost.axes.get_ylim() == (-0.5, 1.7) and {t.xy for t in cost.axes.texts} == {(0.0, 0.1), (0.0, 1.1)}
    assert [t.get_weight() for t in cost.axes.texts] == ["normal", "bold"]
    assert answer_figures.promised(Record(best=None, question=Record(slo=slo))) == []
    unsure = Record(usd_per_hour=10.0, gpus=4, gpus_low=4, gpus_high=16)  # up to $40, beyond every bar
    assert Drawn(lambda axes: answer_figures.costs(answer, [("x", unsure)], axes)).line([10.0, 40.0], [-0.12] * 2)


def test_what_a_fleet_promises_is_as_unsure_as_the_pool_that_knows_least():
    """Of three pools: TTFT by any, TPOT by those that decode, the whole request by whichever of the two is wider; the
    pool is told by the upper end."""
    pools = [
        pool_of("prefill", (0.9, 1.3), (0.1, 99.0)),
        pool_of("serve", (0.5, 1.2), (0.6, 1.4)),
        pool_of("serve", (0.7, 1.6), (0.8, 1.9)),
    ]
    slo = Record(ttft_s=2.0, tpot_s=0.05, e2e_s=9.0, percentile=0.95)
    best = Record(pools=pools, ttft_s=1.0, tpot_s=0.04, e2e_s=5.0)
    answer = Record(best=best, question=Record(slo=slo))
    told = {name: (s, low, high, bound) for name, s, low, high, bound in answer_figures.promised(answer)}
    assert told["TTFT"] == (1.0, 0.7, 1.6, 2.0)
    assert told["TPOT"] == pytest.approx((0.04, 0.04 * 0.8, 0.04 * 1.9, 0.05))
    assert told["E2E"] == pytest.approx((5.0, 4.0, 9.5, 9.0))
    seen = Drawn(lambda axes: answer_figures.promises(answer, axes))
    assert seen.named == {"TTFT\nP95": 2, "TPOT\nP95": 1, "E2E\nP95": 0}
    for name, (s, low, high, bound) in told.items():
        assert seen.line([low / bound, high / bound], [seen.named[f"{name}\nP95"]] * 2)
        assert seen.line([s / bound], [seen.named[f"{name}\nP95"]])
    assert seen.axes.get_xlim()[1] > 1.52  # the widest interval is whole: 1.9 x 0.8
    spots = {text.get_text().split()[0]: text.xy for text in seen.axes.texts}
    assert spots["1"][1] == pytest.approx(2.2) and spots["40"][1] == pytest.approx(1.2)  # above their bars
    pools[1].confidence.ttft = (0.4, 1.7)
    assert dict((n, low) for n, _, low, *_ in answer_figures.promised(answer))["TTFT"] == 0.4


def test_dear_fleets_have_no_cents_and_long_names_no_cost():
    best = Record(usd_per_hour=1234.5, gpus=400, gpus_low=300, gpus_high=500)
    other = Record(usd_per_hour=2000.0, gpus=1500, gpus_low=1500, gpus_high=1500)
    answer = Record(best=best)
    for usd, words in ((999.99, "$999.99/h"), (1000.0, "$1,000/h")):
        one = Record(usd_per_hour=usd, gpus=4, gpus_low=4, gpus_high=4)
        axes = style.panel(7.0, 4.0)
        answer_figures.costs(answer, [("x", one)], axes)
        assert [text.get_text() for text in axes.texts] == [f"x: 4 GPUs, {words}"]
    named = [("recommended", best), ("a name so long that no room is left beside it", other)]
    seen = Drawn(lambda axes: answer_figures.costs(answer, named, axes))
    assert seen.words == [
        "a name so long that no room is left beside it: 1,500 GPUs",
        "recommended: 400 GPUs, $1,234/h",
    ]
    colours = {bar.get_width(): bar.get_facecolor() for group in seen.axes.containers for bar in group.patches}
    assert colours[1234.5] != colours[2000.0]
    end = seen.axes.get_xlim()[1]
    assert 2000.0 < end < 2.0 * 2000.0 and seen.axes.get_xlim()[0] == 0.0
    low = 1234.5 * 300 / 400
    high = 1234.5 * 500 / 400
    assert seen.line([low, high], [0.88, 0.88]) and seen.line([2000.0, 2000.0], [-0.12, -0.12])


@pytest.mark.parametrize(("mine", "most"), [(True, 54), (False, 59)])
def test_a_cost_is_written_where_a_line_of_letters_has_room_for_it(mine, most):
    """Bold ones are wider."""
    one = Record(usd_per_hour=9.0, gpus=4, gpus_low=4, gpus_high=4)
    for letters, there in ((most, True), (most + 1, False)):
        axes, name = style.panel(7.0, 4.0), "x" * (letters - len(": 4 GPUs, $9.00/h"))
        answer_figures.costs(Record(best=one if mine else None), [(name, one)], axes)
        assert [text.get_text() for text in axes.texts] == [f"{name}: 4 GPUs" + ", $9.00/h" * there]


def test_stale_telemetry():
    """Tiers 4:1: Proposition 2 allows (4 u - u) / 5 at the congestion 1 - u of both; the drift of a second is 2.576
    standard deviations of it."""
    seen = Drawn(lambda axes: transfer_figures.tolerance(4.0, 0.05, 10.0, axes))
    delay = np.linspace(-2, 2, 401)
    for free in (1.0, 0.7, 0.4):
        assert seen.line(delay, np.full(401, 60.0 * free)).get_linestyle() == ":"
    solid = [
        y
        for (x, y), line in zip(seen.lines, seen.axes.lines, strict=True)
        if x.size == 401 and line.get_linestyle() == "-"
    ]
    for free, y in zip((1.0, 0.7, 0.4), solid, strict=True):
        assert y.max() <= 100 * free + 1e-9 and y[200] == pytest.approx(60 * free)  # no delay: the order of bandwidths
    assert seen.level(100 * 2.576 * 0.05 * np.sqrt(2 * (1 - np.exp(-0.1))))
    seen.said("drift in 1 s (99 %)", "congestion 0", "congestion 0.3", "congestion 0.6", "dotted: Proposition 2")
    assert seen.axes.get_xlim() == (-2, 2) and seen.axes.get_ylim()[0] == 0 and "tiers 4:1" in seen.axes.get_title()
    still = Drawn(lambda axes: transfer_figures.tolerance(4.0, 0.05, 0.0, axes))
    assert still.level(5.0)
    soon = Drawn(lambda axes: transfer_figures.tolerance(4.0, 0.05, 0.5, axes))
    assert soon.level(100 * 2.576 * 0.05 * np.sqrt(2 * (1 - np.exp(-2.0))))
    assert {text.get_text(): text.xy for text in soon.axes.texts}["dotted: Proposition 2 (bandwidth only)"] == (
        0.02,
        0.98,
    )


def test_fronts():
    answer = fleets()
    seen = Drawn(lambda axes: plan_figures.cost_front(answer, axes))
    assert seen.line([1.5, 0.5], [10, 20]) and seen.line([1.0], [30])  # the dearest lies beyond the picture
    assert seen.line([2.2], [12]).get_markerfacecolor() == "none"  # misses its SLO
    steps = [line for line in seen.axes.lines if line.get_drawstyle() == "steps-post"]
    assert [line.get_xydata().tolist() for line in steps] == [[[1.5, 10], [0.5, 20]]] * 2
    stars = [line for line in seen.axes.lines if line.get_marker() == "*"]
    assert [line.get_xydata().tolist() for line in stars] == [[[1.2, 15.0]], [[1.5, 10.0]]]
    assert seen.upright(2.0) and seen.label() == ("TTFT, P99 [s]", "cost [USD/h]")
    seen.said("recommended", "SLO", "a", "b", "Pareto front", "two pools")
    assert seen.axes.get_xlim() == (0, 2.3) and seen.axes.get_ylim() == (7.0, 120.0)
    answer.question.slo.ttft_s = np.inf  # none is promised: all that is there
    free = Drawn(lambda axes: plan_figures.cost_front(answer, axes))
    low, high = free.axes.get_xlim()
    assert "SLO" not in free.words and (low, free.axes.get_ylim()) == (0, (7.0, 120.0)) and 2.2 < high < 3.0
    answer.question.slo.ttft_s = 2.0
    answer.by_gpu = [answer.best, Record(ttft_s=1.0, usd_per_hour=30.0, name="one pool", kind="one pool")]
    seen = Drawn(lambda axes: plan_figures.cost_front(answer, axes))
    assert seen.line([1.2, 1.0], [15.0, 30.0]).get_marker() == "*"  # the best of another GPU type, too
    rate = Drawn(lambda axes: plan_figures.throughput_front(answer, axes))
    assert rate.line([20, 40, 25], [500, 300, 450]) and rate.line([50, 60], [200, 100])
    assert rate.line([20, 40, 50, 60], [500, 300, 200, 100]) and rate.upright(25.0)  # 1 / 40 ms
    rate.said("TPOT SLO", "Pareto front", "a", "b")


@pytest.mark.parametrize(("ttft", "side"), [(0.6, "right"), (1.2, "left")])
def test_the_recommended_fleet_is_named_beside_its_star_towards_the_wider_side(ttft, side):
    """Of 2.3 s that are shown; a cheaper fleet of another kind is in the picture, too; the SLO is named before it."""
    answer = fleets()
    answer.best.ttft_s = ttft
    answer.kinds = [answer.best, Record(ttft_s=1.0, usd_per_hour=2.0, name="two pools", kind="two pools")]
    seen = Drawn(lambda axes: plan_figures.cost_front(answer, axes))
    assert seen.axes.get_ylim() == pytest.approx((1.4, 24.0)) and seen.axes.get_xlim() == (0, 2.3)
    boxes = {text.get_text(): text.get_window_extent() for text in seen.axes.texts}
    star, _ = seen.axes.transData.transform((ttft, 10.0))
    bound, _ = seen.axes.transData.transform((2.0, 10.0))
    name, radius = boxes["recommended"], style.BEST / 2 * seen.axes.figure.dpi / 72
    assert radius < (name.x0 - star if side == "right" else star - name.x1) < 2 * radius
    assert bound - 4 * radius < boxes["SLO"].x1 < bound
    assert 0 < boxes["SLO"].y0 - seen.axes.bbox.y0 < 0.1 * seen.axes.bbox.height  # at the foot of its line


def test_a_quicker_fleet_for_the_same_money_is_named():
    """Of the front, a fleet no dearer than the recommended one and quicker; not one that is dearer, or as quick."""
    said = lambda usd, ttft: (
        "quicker at the same price"
        in plan_page.fleet_drawings(
            Record(**vars(fleets()) | {"fleets": Record(front=Record(usd_per_hour=usd, ttft_s=ttft), fronts={})})
        )[0][2]
    )
    assert said(np.array([10.0]), np.array([1.0])) and not said(np.array([10.5]), np.array([1.0]))
    assert not said(np.array([10.0]), np.array([1.5])) and said(np.array([5.0, 20.0]), np.array([1.4, 0.2]))


def test_sweeps():
    xr = pytest.importorskip("xarray")
    cost = np.array([[4.0, 8.0, 16.0], [5.0, 6.0, 7.0]])
    flags = np.array([[0, 0, 1], [0, 0, 0]])
    units = {"units": "USD/h"}
    ds = xr.Dataset(
        {
            "cost": (("tp", "rate"), cost, units),
            "ttft_s": (("tp", "rate"), 10.0 / cost, {"units": "s"}),
            "tokens_per_s": (("tp", "rate"), cost * 100),
            "flags": (("tp", "rate"), flags),
        },
        coords={"tp": [2.0, 4.0], "rate": [1.0, 2.0, 4.0]},
    )
    plane = Drawn(lambda axes: sweep_figures.pareto(ds, "cost", ax=axes))
    assert plane.line([2.5, 1.25], [4, 8]) and plane.line(10 / cost[1], cost[1])
    assert plane.line(sorted(10 / c for c in (4, 5, 6, 7, 8)), [8, 7, 6, 5, 4])  # the front: all that are feasible
    plane.said("tp 2", "tp 4", "Pareto front")
    assert plane.label() == ("ttft_s [s]", "cost [USD/h]")
    lines = Drawn(lambda axes: sweep_figures.curves(ds, "cost", ax=axes))
    assert lines.line([1, 2, 4], [4, 8, np.nan]) and lines.line([1, 2, 4], cost[1])
    assert lines.line([4], [16]).get_markerfacecolor() == "none"
    assert lines.axes.get_title(loc="right") == "hollow: flagged"
    assert lines.words == ["tp 2", "tp 4"]
    fastest = Drawn(lambda axes: sweep_figures.curves(ds.max("tp"), "tokens_per_s", ax=axes))
    assert fastest.line([1, 2, 4], [500, 800, np.nan])
    shown = sweep_figures.heatmap(ds, "cost")
    (mesh,) = [c for c in shown.collections if c.get_array() is not None]
    np.testing.assert_allclose(np.ma.filled(mesh.get_array(), np.nan).reshape(2, 3), [[4, 8, np.nan], [5, 6, 7]])
    assert [t.get_text() for t in shown.get_xticklabels()] == ["1", "2", "4"]
    assert (shown.get_xlabel(), shown.get_ylabel()) == ("rate", "tp")
    assert shown.get_title(loc="right") == "hatched: nothing is feasible"
    (behind,) = [patch for patch in shown.patches if patch.get_hatch()]  # it shows wherever nothing is drawn over it
    assert behind.get_window_extent().bounds == pytest.approx(shown.bbox.bounds)
    whole = sweep_figures.heatmap(ds.assign(flags=0 * ds.flags), "cost")
    assert whole.get_title(loc="right") == ""  # nothing is hatched there
    spans = xr.Dataset(
        {
            "cost": (("argument", "end"), [[90.0, 120.0], [80.0, 150.0]], units),
            "flags": (("argument", "end"), [[0, 0], [0, 1]]),
            "base_cost": 100.0,
            "low": ("argument", [1.0, 0.5]),
            "high": ("argument", [3.0, 2.0]),
        },
        coords={"argument": ["isl", "rate"]},
    )
    moved = Drawn(lambda axes: sweep_figures.tornado(spans, "cost", ax=axes))
    ends = {
        name: sorted(left + w for left, w, y in moved.bars if y == pytest.approx(p)) for name, p in moved.named.items()
    }
    assert ends == {"isl": [90, 120], "rate": [80, 150]} and moved.upright(100.0)
    assert moved.named["rate"] > moved.named["isl"]
    hatched = [bar for group in moved.axes.containers for bar in group.patches if bar.get_hatch()]
    assert [bar.get_width() for bar in hatched] == [50.0]
    assert moved.axes.get_title(loc="right") == "hatched: flagged"
    spots = {t.get_text(): t.xy[0] for t in moved.axes.texts}
    assert spots == {"1": 90, "3": 120, "0.5": 80, "2": 150}
    still = sweep_figures.tornado(spans.assign(cost=0 * spans.cost + 100.0), "cost")  # both ends named, side by side
    assert {t.get_text(): t.get_ha() for t in still.texts} == {"1": "right", "3": "left", "0.5": "right", "2": "left"}
    assert sweep_figures.tornado(spans.assign(flags=0 * spans.flags), "cost").get_title(loc="right") == ""
    alone = (sweep_figures.pareto(ds, "cost"), sweep_figures.curves(ds, "cost"), sweep_figures.tornado(spans, "cost"))
    for axes in (*alone, shown, routing_figures.index_over_time([1.0, 2.0], [1.0, 3.0], [0, 1])):
        wide, high = style.paper(axes).get_size_inches()
        assert 4.0 <= wide <= 9.0 and 1.0 < wide / high < 4.0  # inches, as a page has them


def test_over_axes_that_are_not_drawn_the_best_feasible_is():
    """The cheapest of what is feasible, or the most tokens; with nothing feasible, the best that is flagged, hollow."""
    xr = pytest.importorskip("xarray")
    rng = np.random.default_rng(0)
    shape, dims = (3, 5, 4), ("tp", "rate", "rest")
    cost, flags = rng.uniform(1, 9, shape), (rng.random(shape) < 0.5).astype(int)
    flags[1, 2] = 1
    columns = {"cost": (dims, cost, {"units": "USD/h"}), "tokens_per_s": (dims, cost), "flags": (dims, flags)}
    ds = xr.Dataset(columns, {"tp": [2.0, 4.0, 8.0], "rate": np.arange(1.0, 6.0)})
    least = np.where(flags, np.inf, cost).min(2)
    shown = sweep_figures.heatmap(ds.isel(tp=slice(0, 3)), "cost")
    (mesh,) = [c for c in shown.collections if c.get_array() is not None]
    over = np.where(np.isfinite(t := np.where(flags, np.inf, cost).min(0)), t, np.nan)  # of the longest two axes
    np.testing.assert_allclose(np.ma.filled(mesh.get_array(), np.nan).reshape(4, 5), over.T)
    lines = Drawn(lambda axes: sweep_figures.curves(ds, "cost", ax=axes))
    for k in range(3):
        assert lines.line(ds.rate.values, np.where(np.isfinite(least[k]), least[k], np.nan))
    assert lines.line([3.0], [cost[1, 2].min()]).get_markerfacecolor() == "none"
    most = np.where(flags, -np.inf, cost).max(2)
    faster = Drawn(lambda axes: sweep_figures.curves(ds, "tokens_per_s", ax=axes))
    for k in range(3):
        assert faster.line(ds.rate.values, np.where(np.isfinite(most[k]), most[k], np.nan))


@pytest.mark.parametrize(
    ("memory", "engine", "most", "shown"),
    [
        (120.0, 256.0, 138.0, [120]),  # the lesser limit, and room over it
        (256.0, 120.0, 138.0, [120]),
        (60.0, 100.0, 128.9, [60, 100]),  # all of the band, up to 90 + 2.33 times its root
        (20.0, 46.0, 46.0, [20, 46]),  # but no more than twice the limit; a limit at the very top is there, too
        (20.0, 46.1, 46.0, [20]),
    ],
)
def test_requests_in_flight_are_shown_as_far_as_the_slots_that_bound_them(memory, engine, most, shown):
    use = Record(slots_by_memory_count=memory, slots_by_engine_count=engine)
    axes = style.panel(7.0, 4.0)
    plan_figures.occupancy(load_of(), use, axes)
    assert axes.get_ylim() == pytest.approx((0.0, most), rel=1e-3)
    levels = {line.get_ydata()[0]: line.get_color() for line in axes.lines if len(line.get_xdata()) == 2}
    assert sorted(levels) == shown
    colours = {memory: style.colour(1), engine: style.colour(2)}
    assert levels == {count: colours[count] for count in shown}
    named = {text.get_text(): text.get_color() for text in axes.texts if "slots" in text.get_text()}
    names = {f"memory:\n{memory:.0f} slots": (memory, 1), f"max_num_seqs:\n{engine:.0f} slots": (engine, 2)}
    assert named == {name: style.writing(i) for name, (count, i) in names.items() if count in shown}


def test_a_sweep_is_shown_by_its_cost_unless_told_otherwise():
    xr = pytest.importorskip("xarray")
    cost = np.array([[4.0, 8.0, 44.0], [5.0, 6.0, 7.0]])
    columns = {"cost_usd_per_hour": (("tp", "rate"), cost, {"units": "USD/h", "long_name": "cost"})}
    columns |= {
        "ttft_s": (("tp", "rate"), cost**-0.5, {"units": "s"}),
        "flags": (("tp", "rate"), np.zeros((2, 3), int)),
    }
    ds = xr.Dataset(columns, {"tp": [2.0, 4.0], "rate": [1.0, 2.0, 4.0]})
    plane, lines, shown = sweep_figures.pareto(ds), sweep_figures.curves(ds), sweep_figures.heatmap(ds)
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("ttft_s [s]", "cost [USD/h]")
    assert (plane.get_xscale(), plane.get_yscale()) == ("linear", "log")  # a factor of 3.3, and one of 11
    assert (lines.get_xlabel(), lines.get_ylabel()) == ("rate", "cost [USD/h]")
    _, bar = shown.figure.axes
    assert bar.get_ylabel() == "cost [USD/h]" and bar.yaxis.get_major_formatter()(20.0) == "20"
    for axes in (shown, bar):  # lines over colours would be read as values
        assert not any(line.get_visible() for line in (*axes.get_xgridlines(), *axes.get_ygridlines()))
    (mesh,) = [c for c in shown.collections if c.get_array() is not None]
    (behind,) = [patch for patch in shown.patches if patch.get_hatch()]
    order = sorted(shown.get_children(), key=lambda one: one.get_zorder())  # as they are drawn
    assert order.index(behind) < order.index(mesh) and behind.get_facecolor() == to_rgba(style.FILL)
    assert behind.get_linewidth() == 0
    nothing = sweep_figures.heatmap(ds.assign(flags=ds.flags + 1))
    assert nothing.get_title(loc="right") == "hatched: nothing is feasible"
    for draw, told, why in (
        (sweep_figures.heatmap, ds.isel(tp=0), "heatmap: accepted are sweeps over two axes or more, of two values"),
        (sweep_figures.heatmap, ds.isel(tp=[0]), "heatmap: accepted are sweeps over two axes or more, of two values"),
        (sweep_figures.curves, ds.drop_vars(["tp", "rate"]), "curves: accepted are sweeps with an axis of numbers"),
        (partial(sweep_figures.pareto, against="cost_usd_per_hour"), ds, "cost_usd_per_hour against itself"),
    ):
        with pytest.raises(InputError, match=why):
            draw(told)


#: Picture -> (its x, its y: label, scale, and where it begins; None: near the data), by hand.
LOG, LIN = "log", "linear"
SIZES = ("cache [blocks of 512 tokens]", LOG, None)
NONE = ("", LIN, None)
AXES = {
    place_figures.hit_rates: (SIZES, ("block accesses that hit", LIN, 0)),
    place_figures.latency: (("size of the tier [GiB]", LOG, None), ("load and prefill, mean [ms]", LIN, 0)),
    place_figures.externality: (SIZES, ("others' GPU time per block stored [ms]", LIN, 0)),
    place_figures.recomputed: (SIZES, ("TFLOP per request", LIN, 0)),
    place_figures.promotion: (("frequency that HBM asks for", LOG, None), ("mean access latency [ms]", LIN, 0)),
    place_figures.shared: (("HBM of 4 workers together [blocks]", LOG, None), ("block accesses that hit", LIN, 0)),
    place_figures.pooled: (("mean read of a block used before [ms]", LIN, 0), NONE),
    split_figures.misses: (("GPUs for prefill, of 16 in all", LIN, None), ("late requests", LOG, 1e-4)),
    split_figures.courses: (("time [min]", LIN, 0), ("instances for prefill", LIN, None)),
    plan_figures.cost_front: (("TTFT, P99 [s]", LIN, 0), ("cost [USD/h]", LOG, None)),
    plan_figures.throughput_front: (
        ("output speed of one user [token/s]", LIN, 0),
        ("throughput [token/s per GPU]", LIN, 0),
    ),
}
TITLES = {
    place_figures.hit_rates: "Hit rate by policy",
    place_figures.latency: "Time to the first token (marks: as it is; no queue)",
    place_figures.externality: "What storing a block used once costs others",
    place_figures.recomputed: "Prefill computed again because of evictions",
    place_figures.promotion: "Which blocks HBM takes",
    place_figures.shared: "Sharing HBM",
    place_figures.pooled: "Memory shared",
    split_figures.misses: "Requests that miss their SLO",
    split_figures.courses: "Planners in a burst of arrivals",
}


@pytest.mark.parametrize("draw", AXES, ids=lambda draw: draw.__name__)
def test_axes_say_what_they_measure_and_begin_where_nothing_is(draw):
    answers = {"place_figures": PLACE, "split_figures": SPLIT, "plan_figures": fleets()}
    axes = style.panel(7.0, 4.0)
    draw(answers[draw.__module__.rpartition(".")[2]], axes)
    for axis, (label, scale, begins) in zip((axes.xaxis, axes.yaxis), AXES[draw], strict=True):
        assert (axis.get_label_text(), axis.get_scale()) == (label, scale)
        low, high = sorted(axis.get_view_interval())
        assert begins is None or low == begins
        data = sorted(axis.get_data_interval())
        if scale == LIN and begins == 0:
            assert 0.7 * data[1] <= high < 4 * data[1]  # and ends near what is drawn, or where an SLO is missed
    assert axes.get_title() == TITLES.get(draw, "")


def test_arrivals_lie_below_the_courses():
    """As an area of at most half the picture, as high as the rate is; what is told of it stands at its foot."""
    axes = style.panel(7.0, 4.0)
    split_figures.courses(SPLIT, axes)
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert 0.4 <= heights.max() <= 0.5 and {round(h / heights.max(), 6) for h in heights} == {0.0, 0.5, 1.0, 0.75}
    (told,) = [text for text in axes.texts if text.get_text().startswith("arrivals")]
    assert told.xy == (0.02, 0.03)


def test_a_curve_is_named_where_it_ends():
    """Two pools by threshold: the last that is feasible; with nothing feasible one pool has a name alone."""
    ends = {}
    for costs in ([90.0, np.inf, 70.0], [90.0, 60.0, np.inf]):
        points = Record(
            by_threshold=tuple(zip((1e3, 4e3, 8e3), costs, strict=True)), baseline=Record(usd_per_hour=80.0)
        )
        seen = Drawn(lambda axes, points=points: plan_figures.threshold_curve(points, axes))
        assert seen.label() == ("threshold on total tokens [token]", "cost [USD/h]")
        assert seen.axes.get_xscale() == "log" and seen.axes.get_yscale() == "linear"
        heights = {text.get_text(): text.xy[1] for text in seen.axes.texts}
        ends[costs[-1]] = heights["two pools"] < heights["one pool"]
    assert ends == {70.0: True, np.inf: True}
    points = Record(by_threshold=((1e3, 90.0), (4e3, 95.0)), baseline=None)
    assert Drawn(lambda axes: plan_figures.threshold_curve(points, axes)).words == ["two pools"]


def test_the_slo_of_tokens_is_in_the_picture_where_a_user_may_see_it():
    """A bound of TPOT that is half again as fast as the fastest fleet at most; a slower picture has no use for it."""
    answer = fleets()  # the fastest: 60 tokens a second
    for bound, there in ((0.04, True), (1 / 85, True), (1 / 95, False)):
        answer.question.slo.tpot_s = bound
        axes = Drawn(lambda axes: plan_figures.throughput_front(answer, axes)).axes
        said = {text.get_text(): text.get_window_extent() for text in axes.texts}
        assert ("TPOT SLO" in said) == there
        if there:  # on the wider side of its line
            line, middle = axes.transData.transform((1 / bound, 0.0))[0], (axes.bbox.x0 + axes.bbox.x1) / 2
            assert said["TPOT SLO"].x0 > line if line < middle else said["TPOT SLO"].x1 < line


def test_scales_of_sweeps_follow_their_values():
    """From a factor of ten on an axis is logarithmic; what is not positive never is."""
    for values, scale in (
        ([1.0, 9.0], "linear"),
        ([1.0, 10.0], "log"),
        ([0.0, 50.0], "linear"),
        ([np.nan, 5.0], "linear"),
    ):
        axes = style.panel()
        sweep_figures._scales(axes, np.array(values), np.array([3.0, 4.0]))
        assert (axes.get_xscale(), axes.get_yscale()) == (scale, "linear")
        axes = style.panel()
        sweep_figures._scales(axes, np.array([3.0, 4.0]), np.array(values))
        assert (axes.get_xscale(), axes.get_yscale()) == ("linear", scale)


@pytest.mark.parametrize(
    "least, most, scale",
    [(1.0, 4.9, "linear"), (1.0, 5.1, "log"), (0.01, 0.2, "log"), (200.0, 800.0, "linear"), (0.0, 9.0, "linear")],
)
def test_colours_are_logarithmic_from_a_factor_of_five(least, most, scale):
    xr = pytest.importorskip("xarray")
    cost = np.array([[least, most, np.nan], [most, least, most]])
    ds = xr.Dataset({"cost": (("tp", "rate"), cost), "flags": (("tp", "rate"), 1 * np.isnan(cost))})
    (mesh,) = [c for c in sweep_figures.heatmap(ds, "cost").collections if c.get_array() is not None]
    assert mesh.norm.vmin == least and mesh.norm.vmax == most
    middle = (least * most) ** 0.5 if scale == "log" else (least + most) / 2
    assert float(mesh.norm(middle)) == pytest.approx(0.5)


@pytest.mark.parametrize("places", [(0.05, 0.2), (0.05, 0.5), (0.5, 0.6), (0.93, 0.97), (0.4, 0.31), (0.93, 0.2)])
def test_marks_on_a_load_are_named_inside_the_picture_and_not_one_over_the_other(places):
    """Towards the wider side where there is one, and the second one's words away from the first one's line."""
    runs, knee = places
    seen = Drawn(lambda axes: plan_figures.latency_against_load(load_of(operating_frac=runs, knee_frac=knee), axes))
    words = {text.get_text(): text for text in seen.axes.texts}
    boxes = [words[f"{what} at {place:.0%}"].get_window_extent() for what, place in (("runs", runs), ("knee", knee))]
    picture = seen.axes.bbox
    for box, place in zip(boxes, places, strict=True):
        line = seen.axes.transData.transform((place, 0.0))[0]
        assert picture.x0 <= box.x0 and box.x1 <= picture.x1
        assert min(abs(box.x0 - line), abs(box.x1 - line)) < 12.0  # beside its own line
    use = Record(slots_by_memory_count=120.0, slots_by_engine_count=256.0)
    held = Drawn(lambda axes: plan_figures.occupancy(load_of(operating_frac=runs, knee_frac=knee), use, axes))
    word = next(text for text in held.axes.texts if text.get_text().startswith("runs with ")).get_window_extent()
    assert held.axes.bbox.x0 <= word.x0 and word.x1 <= held.axes.bbox.x1
    point = held.axes.transData.transform((runs, 100 * np.clip(runs, 0.1, 0.9)))  # where the load begins and ends
    assert word.y0 > point[1] + style.MARK / 2 * held.axes.figure.dpi / 72  # over the mark, not on it
    second = max(zip(places, boxes, strict=True), key=lambda pair: pair[0])
    if 0.32 < second[0] < 0.66:
        assert second[1].x0 > seen.axes.transData.transform((second[0], 0.0))[0]


@pytest.mark.parametrize(
    "values, told",
    [
        ([1.0, 2.0, 4.0], ["1", "2", "4"]),
        (np.geomspace(1.0, 100.0, 21), ["1", "2", "5", "10", "20", "50", "100"]),
        (np.geomspace(0.9, 30.0, 33), ["1", "2", "5", "10", "20"]),
        (np.linspace(0.0, 6.0, 25), ["0", "1", "2", "3", "4", "5", "6"]),
        (np.linspace(5.0, 10.0, 11), ["5", "6", "7", "8", "9", "10"]),
    ],
)
def test_cells_of_a_map_are_named_by_round_numbers(values, told):
    """Every value of a few; of many the round ones, where they lie between the cells; by ones, twos and fives over
    decades."""
    places, words = sweep_figures._ticks(np.asarray(values))
    assert words == told
    expected = np.interp(np.array(told, float), values, np.arange(len(values))) + 0.5
    np.testing.assert_allclose(places, expected)


@pytest.mark.parametrize("value", [12_345.678, 0.0123456, 7.0, 123.456])
def test_values_in_a_picture_have_four_digits_at_most(value):
    told = sweep_figures._tell(value).replace(",", "")
    assert abs(float(told) - value) <= 5.1e-4 * value and len(told.strip("0.").replace(".", "")) <= 4
    assert float(told) == value or abs(float(told) - value) > 1e-6 * value  # not more of them either


def test_of_many_values_without_an_order_eight_are_named():
    places, words = sweep_figures._ticks(np.array([f"gpu{k}" for k in range(15)]))
    assert places.tolist() == [k + 0.5 for k in (0, 2, 4, 6, 8, 10, 12, 14)] and words[1] == "gpu2"
    falling = sweep_figures._ticks(np.arange(20.0)[::-1])
    assert len(falling[0]) == 8 and (falling[1][0], falling[1][-1]) == ("19", "0")


LOAD = "load [share of the rate that saturates]"
#: What is drawn -> its labels, and the words above it.
LABELLED = {
    "latency": (lambda a: plan_figures.latency_against_load(load_of(), a), (LOAD, "latency / SLO", "")),
    "occupancy": (
        lambda a: plan_figures.occupancy(
            load_of(), Record(slots_by_memory_count=120.0, slots_by_engine_count=256.0), a
        ),
        (LOAD, "in flight [request per instance]", ""),
    ),
    "memory": (
        lambda a: plan_figures.memory_per_gpu([use_of("all", "h100", weights=35.0, KV_free=45.0)], a),
        ("memory of one GPU [GiB]", "", ""),
    ),
    "tornado": (
        lambda a: plan_figures.tornado(Record(formula_usd_per_hour=100.0), CHANGES, a),
        ("cost of the cheapest plan [USD/h]", "", ""),
    ),
    "promises": (lambda a: answer_figures.promises(PROMISED, a), ("latency / SLO, with its 80 % interval", "", "")),
    "costs": (
        lambda a: answer_figures.costs(PROMISED, [("x", FLEET)], a),
        ("cost [USD/h], with its 80 % interval", "", ""),
    ),
    "share": (
        lambda a: transfer_figures.share_of_ttft(SHARES, a),
        ("context [token]", "share of TTFT [%]", "KV transfer in TTFT, idle fabric"),
    ),
    "policies": (
        lambda a: transfer_figures.policies([policy("LOAD", 2.0, 0.9)], a),
        ("mean TTFT, and in blue the transfer in it [s]", "", "who decodes: policies on the same requests"),
    ),
    "upgrades": (
        lambda a: transfer_figures.upgrades([None, Record(upgrade="x", ttft_saved_frac=0.2)], a),
        ("mean TTFT saved [%]", "", "which upgrade pays"),
    ),
    "tolerance": (
        lambda a: transfer_figures.tolerance(4.0, 0.05, 10.0, a),
        (
            "extra delay of the slow tier's instance / its idle transfer [1]",
            "tolerated error [points]",
            "stale telemetry, tiers 4:1",
        ),
    ),
    "step": (
        lambda a: step_figures.operators(Record(operators=PARTS), a, "A mean step"),
        ("time in a mean step [ms]", "", "A mean step"),
    ),
    "windows": (
        lambda a: routing_figures.index_over_time([1.0, 2.0], [1.0, 3.0], [0, 1]),
        ("end of window [s]", "PoA-hat, Eq. (12) [1]", ""),
    ),
}


@pytest.mark.parametrize("name", LABELLED)
def test_pictures_say_what_they_measure_in_which_unit(name):
    draw, told = LABELLED[name]
    axes = style.panel(7.0, 4.0)
    axes = draw(axes) or axes
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == told
    low, high = axes.get_xlim()
    assert low == 0 or name in ("tornado", "share", "upgrades", "tolerance", "windows")
    assert axes.get_xscale() == ("log" if name == "share" else "linear")
    assert axes.get_yscale() == ("log" if name == "windows" else "linear")
    ends = [bar.get_x() + bar.get_width() for group in axes.containers for bar in getattr(group, "patches", ())]
    assert not ends or max(ends) <= high < 2.0 * max(ends)
    if name in ("memory", "tornado", "promises", "costs", "step"):  # rows need no lines of their own
        assert not any(line.get_visible() for line in axes.get_ygridlines())
    if name in ("latency", "occupancy"):
        assert axes.xaxis.get_major_formatter()(0.25, 0) == "25%" and (low, high) == (0, 1)
    if name == "tornado":  # the cost as it is stands in the picture, and words beside the bars have room
        assert low < 80.0 and 130.0 < high and any(line.get_xdata()[0] == 100.0 for line in axes.lines)


def test_a_change_stands_on_its_own_side_and_one_that_changes_nothing_says_so():
    """Less than as planned above, more below, and the words at a bar's end on the side that it points to."""
    still = [Record(what="SLO", factor=f, usd_per_hour=100.0) for f in (0.5, 2.0)]
    seen = Drawn(lambda axes: plan_figures.tornado(Record(formula_usd_per_hour=100.0), [*CHANGES, *still], axes))
    at = seen.named["rate"]
    less, more = (next(y for left, w, y in seen.bars if left + w == pytest.approx(usd)) for usd in (80.0, 130.0))
    assert less == pytest.approx(at + 0.18) and more == pytest.approx(at - 0.18)
    sides = {text.get_text(): text.get_ha() for text in seen.axes.texts}
    assert sides == {"x0.8": "right", "x1.2": "left"} and "SLO\n(no change)" in seen.named
    colours = {round(bar.get_x() + bar.get_width()): bar.get_facecolor() for g in seen.axes.containers for bar in g}
    assert colours[80] != colours[130]


def test_a_name_beside_a_star_gives_way_to_another_star():
    """One on the side to which the name is written, within its width and at nearly the same height."""
    axes = style.panel(7.0, 4.0)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    star = lambda x, y: Record(ttft_s=x, usd_per_hour=y)
    best = star(0.4, 0.5)
    for x, y, right, left in (
        (0.6, 0.52, True, False),
        (0.2, 0.48, False, True),
        (0.8, 0.5, False, False),
        (0.6, 0.6, False, False),
    ):
        assert plan_figures._crowded(axes, best, [star(x, y)], left=False) == right
        assert plan_figures._crowded(axes, best, [star(x, y)], left=True) == left
    assert not plan_figures._crowded(axes, best, [], left=True)


def test_pictures_of_a_page_have_the_height_that_they_need():
    """Whatever is drawn: words that can be read, and a picture neither squeezed nor longer than a screen."""
    uses = [use_of(name, "h100", weights=35.0, KV_in_use=20.0, KV_free=25.0) for name in ("short", "long", "rest")]
    load = load_of(pool=Record(stage=Record(role="serve", name="all"), ttft_s=0.5, slots_count=120.0))
    several = Record(
        by_threshold=((1e3, 90.0), (8e3, 70.0)), baseline=Record(usd_per_hour=80.0), formula_usd_per_hour=100.0
    )
    drawings = [
        *map(plan_page.memory_drawing, (uses[:1], uses[:2], uses)),
        plan_page.latency_drawing(load),
        plan_page.occupancy_drawing(load, Record(slots_by_memory_count=120.0, slots_by_engine_count=256.0)),
        plan_page.threshold_drawing(several),
        plan_page.tornado_drawing(several, CHANGES),
        *plan_page.fleet_drawings(fleets()),
    ]
    assert all(1.0 < height < 6.0 for _, height, *_ in drawings)
    for draw, height, *_ in (drawings[0], drawings[2], drawings[4]):
        made = style.figure(draw, height=height)
        made.savefig(io.BytesIO())
        audit_figure(made)
    assert all(0.4 < b[1] - a[1] < 1.5 for a, b in ((drawings[0], drawings[1]), (drawings[1], drawings[2])))


def test_pictures_over_a_plan_have_room_for_each_row(monkeypatch):
    """A third of an inch to half of one for each promise and each fleet, and an inch for the axis below."""
    monkeypatch.setattr(plan_page.plan_tables, "alternatives", lambda answer: [("the one", answer.best)] * answer.rows)
    bounds = {"ttft_s": 2.0, "tpot_s": np.inf, "e2e_s": np.inf, "percentile": 0.99}
    high = []
    for rows, more in ((1, {}), (3, {"tpot_s": 0.05, "e2e_s": 9.0})):
        answer = Record(best=PROMISED.best, rows=rows, question=Record(slo=Record(**bounds | more)))
        high.append([height for _, height, *_ in plan_page.answer_drawings(answer)])
    for one, three in zip(*high, strict=True):
        each = (three - one) / 2
        assert 0.3 < each < 0.55 and 0.8 < one - each < 1.2
    changed = plan_page.tornado_drawing(Record(formula_usd_per_hour=100.0), CHANGES)
    assert changed[1] < style.COLUMN  # no higher than wide


def test_the_two_pictures_over_a_plan_say_in_words_what_they_draw(monkeypatch):
    monkeypatch.setattr(plan_page.plan_tables, "alternatives", lambda answer: [("the one", answer.best)] * 2)
    promises, costs = plan_page.answer_drawings(PROMISED)
    for draw, height, caption, _ in (promises, costs):
        assert 1.0 < height < 6.0 and caption.endswith(".")
        made = style.figure(draw, height=height)
        made.savefig(io.BytesIO())
        audit_figure(made)
    assert "TTFT 1,000 ms (700 to 1,200); TPOT 40 ms (32 to 52)" in promises[3]  # as the pool knows them
    assert "the one 8 GPUs, $20.00/h" in costs[3]


def test_pictures_of_a_page_are_told_in_words_with_the_numbers_that_they_show():
    """For who cannot see them, and below them: where a pool runs and its knee, what is in flight, what memory holds."""
    load = load_of(pool=Record(stage=Record(role="serve", name="short"), ttft_s=2.5, slots_count=120.0))
    use = use_of("short", "h100", weights=35.0, KV_free=22.5)
    _, _, caption, told = plan_page.latency_drawing(load)
    assert "'short'" in caption and "runs at 50% of saturation" in caption
    assert told.endswith("pool short: at the operating point, 50% of saturation, TTFT is 2,500 ms; the knee is at 70%.")
    _, _, caption, told = plan_page.occupancy_drawing(load, use)
    assert "'short'" in caption and told.endswith("pool short against load: 50 at the operating point, 120 slots.")
    *_, told = plan_page.memory_drawing([use, use_of("long", "h200", runtime=2.0)])
    assert told.endswith("short: weights 35 GiB, KV free 22.5 GiB; long: runtime 2 GiB.")
    cost = Record(formula_usd_per_hour=100.0)
    assert plan_page.tornado_drawing(cost, CHANGES)[3].endswith("the dearest: rate times 1.2, 130 USD/h.")
    answer = fleets()
    (_, _, caption, told), _ = plan_page.fleet_drawings(answer)
    for words in (caption, told):
        assert "the cheapest fleets as two pools." in words and "the recommended fleet, $10.00/h" in words
    assert "one-pool fleets of a, b, with" in told
    answer.best, answer.fleets.fronts = None, {"one pool": answer.fleets.front}
    (_, _, caption, _), _ = plan_page.fleet_drawings(answer)
    assert caption.endswith("hollow where they miss an SLO.")


WHOLE = {
    "fleets": lambda: plan_figures.figure(fleets()),
    "place": lambda: place_figures.figure(ALONE),
    "windows": lambda: style.paper(routing_figures.index_over_time([1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [0, 1, 2])),
    "transfer": lambda: transfer_figures.overview(
        [
            Record(tier=t, context_tokens=c, share_frac=t * c / 2e5, pipelined_share_frac=0.1)
            for t in (1, 3)
            for c in (4096, 8192)
        ],
        [policy("LOAD", 2.0, 0.9), policy("CACHE", 1.5, 0.5)],
        [None, Record(upgrade="nics x2 speed", ttft_saved_frac=0.2), Record(upgrade="more", ttft_saved_frac=-0.1)],
        4.0,
        0.05,
        10.0,
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_sheets_have_sound_pictures_side_by_side(name):
    """As notebooks and commands save them: letters as on a page, no picture beyond the sheet, none left empty."""
    made = WHOLE[name]()
    made.savefig(io.BytesIO())
    audit_figure(made)
    wide, high = made.get_size_inches()
    titles = [axes.get_title() for axes in made.axes]
    assert name != "transfer" or [title.split()[0] for title in titles] == ["KV", "who", "which", "stale"]
    assert (
        6 < wide < 13
        and 2 < high
        and (len(made.axes) == 1 or len(made.axes) == len({a.get_title() for a in made.axes}))
    )


def test_a_quick_picture_has_margins_of_as_many_inches_whatever_its_size():
    edges = []
    for width, height in ((4.1, 3.2), (8.0, 6.0)):
        made = style.figure(lambda axes: axes.plot([0, 1], [0, 1]), width, height, quick=True)
        box = made.axes[0].get_position()
        edges.append((box.x0 * width, box.y0 * height, (1 - box.x1) * width, (1 - box.y1) * height))
    assert edges[0] == pytest.approx(edges[1]) and min(edges[0]) > 0.05 and max(edges[0]) < 1.0
