"""What the model can tell apart: errors drawn, and costs compared; and which of alike fleets is signed."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace as Record

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.studies.plan import robust
from dmodels.studies.plan.forecast import Latency
from dmodels.studies.plan.reach import _apart

LAYOUTS = [(gpu, tp) for gpu in ("h100", "l40s") for tp in (1, 2)]
pools = st.lists(
    st.tuples(st.sampled_from(LAYOUTS), st.integers(1, 9), st.integers(1, 5), st.booleans()), min_size=1, max_size=3
)
fleets = st.tuples(pools, st.floats(0.5, 1.0), st.floats(1.0, 2.0))


def fleet(parts, low, high):
    """Pools of (layout, instances, dollars of each, measured), of GPUs in an interval."""
    made = [
        Record(
            layout=Record(gpu=gpu, tp=tp),
            instances=n,
            usd_per_hour=float(n * usd),
            confidence=Record(provenance="calibrated" if known else "assumed", shared_frac=0.35 if known else 0.55),
        )
        for (gpu, tp), n, usd, known in parts
    ]
    gpus = sum(n * tp for (_, tp), n, *_ in parts)
    found = Record(pools=made, gpus=gpus, usd_per_hour=sum(p.usd_per_hour for p in made))
    found.gpus_low, found.gpus_high = gpus * low, gpus * high
    return found


def spread(one, other):
    """Standard deviation of the logarithm of the ratio of two costs, from the covariance of the pools' errors.

    A fleet's 80 % interval is 2 x 1.2816 standard deviations wide where its pools err together.
    """
    every, weight = [], []
    for sign, made in ((1, one), (-1, other)):
        width = math.log(made.gpus_high / made.gpus_low) / 2.5632
        every += made.pools
        weight += [sign * width * pool.usd_per_hour / made.usd_per_hour for pool in made.pools]
    cov = np.array(
        [
            [
                1.0
                if (a.layout.gpu, a.layout.tp) == (b.layout.gpu, b.layout.tp)
                else min(a.confidence.shared_frac, b.confidence.shared_frac)
                if a.layout.gpu == b.layout.gpu
                else 0.0
                for b in every
            ]
            for a in every
        ]
    )
    return math.sqrt(max(np.array(weight) @ cov @ np.array(weight), 0.0))


def test_errors_of_two_pools_by_hand():
    """An interval of 0.8 to 1.25: errors on two GPU types add up as squares, those of a layout cancel, and of layouts
    on one GPU type the lesser share does."""
    s = math.log(1.25 / 0.8) / 2.5632
    of = lambda gpu, tp, known=True: fleet([((gpu, tp), 4, 5, known)], 0.8, 1.25)
    one = of("h100", 1)
    others = of("h100", 1), of("l40s", 1), of("h100", 2), of("h100", 2, known=False)
    told = [robust.ratio_sd(one, other) for other in others]
    assert told == pytest.approx([0.0, s * math.sqrt(2.0), s * math.sqrt(1.3), s * math.sqrt(1.3)], abs=1e-9)
    unknown = of("h100", 1, known=False), of("h100", 2, known=False)
    assert robust.ratio_sd(*unknown) == pytest.approx(s * math.sqrt(0.9))
    assert robust.ratio_sd(one, fleet([(("h100", 2), 4, 5, True)], 0.8, math.inf)) == math.inf


@settings(max_examples=80)
@given(fleets, fleets)
def test_costs_are_told_apart_by_the_errors_of_their_pools(one, other):
    a, b = fleet(*one), fleet(*other)
    sd = spread(a, b)
    assert robust.ratio_sd(a, b) == pytest.approx(sd, abs=1e-7) == robust.ratio_sd(b, a)
    apart = abs(math.log(b.usd_per_hour / a.usd_per_hour))
    if abs(apart - 1.2816 * sd) > 1e-6:
        assert robust.alike(a, b) == (apart < 1.2816 * sd)
    more = math.expm1(min(1.2816 * sd, 1.0))
    if abs(b.usd_per_hour / a.usd_per_hour - 1 - more) > 1e-6:
        assert robust.told_apart(a, b) == (b.usd_per_hour / a.usd_per_hour > 1 + more)
    single = [p for p in a.pools if p.instances == 1] if len(a.pools) > 1 else []
    second = sum(p.usd_per_hour for p in single) / a.usd_per_hour if all(p.instances > 1 for p in b.pools) else 0.0
    assert robust.premium(a, b) == pytest.approx(min(max(more, second), 0.25), abs=1e-6)


def hardness(made):
    alone = sum(p.instances == 1 for p in made.pools) if len(made.pools) > 1 else 0
    assumed = any(p.confidence.provenance == "assumed" for p in made.pools)
    return assumed, len(made.pools), len({p.layout.gpu for p in made.pools}), alone, round(made.usd_per_hour, 6)


@settings(max_examples=80)
@given(st.lists(fleets, min_size=1, max_size=4))
def test_the_simplest_of_those_that_are_alike_is_signed(several):
    found = [fleet(*one) for one in several]
    chosen = robust.simplest(found)
    least = min(found, key=lambda x: (round(x.usd_per_hour, 6), len(x.pools)))
    assert chosen.usd_per_hour <= 1.25 * least.usd_per_hour + 1e-9
    for other in found:  # none that costs no more is simpler, nor one that is alike the cheapest
        near = other is least or other.usd_per_hour < (1 + robust.premium(least, other)) * least.usd_per_hour - 1e-9
        if other.usd_per_hour <= chosen.usd_per_hour or near:
            assert hardness(chosen) <= hardness(other) or chosen.usd_per_hour < other.usd_per_hour
    assert robust.complexity(chosen) == hardness(chosen)


def test_in_which_respect_a_fleet_is_harder_to_run():
    one = fleet([(("h100", 1), 4, 2, True)], 0.8, 1.2)
    two = fleet([(("h100", 1), 4, 2, True), (("h100", 2), 2, 4, True)], 0.8, 1.2)
    kinds = fleet([(("h100", 1), 4, 2, True), (("l40s", 2), 2, 4, True)], 0.8, 1.2)
    alone = fleet([(("h100", 1), 4, 2, True), (("h100", 2), 1, 4, True)], 0.8, 1.2)
    odd = fleet([(("h100", 1), 4, 2, False)], 0.8, 1.2)
    assert robust.harder(odd, one) == "on GPUs or a layout that nobody measured"
    assert robust.harder(two, one) == "for more pools to run" and robust.harder(one, two) == ""
    assert robust.harder(kinds, two) == "for more types of GPU to run"
    assert robust.harder(alone, two) == "for more pools of one instance" and robust.harder(one, one) == ""
    easier = [robust.harder(a, b, robust.EASIER) for a, b in ((odd, one), (two, one), (kinds, two), (alone, two))]
    assert easier == ["measured", "fewer pools", "fewer GPU types", "fewer pools of one instance"]
    assert robust.lone(alone) == [alone.pools[1]] and robust.lone(one) == []


def test_costs_e_times_apart_are_told_apart_however_unsure_the_model_is():
    """Steps so slow that no number of instances serves, or a thousand times as slow as at the other end."""
    for high in (1e3, math.inf):
        unsure = fleet([(("h100", 1), 5, 2, True)], 0.5, high)
        for usd, told in ((27, False), (28, True)):  # beside 10: 2.718 times as much are 27.2
            assert robust.told_apart(unsure, fleet([(("l40s", 1), 1, usd, True)], 1.0, 1.0)) == told
            assert robust.premium(unsure, fleet([(("l40s", 1), 1, usd, True)], 1.0, 1.0)) == 0.25


METRICS = ("TTFT", "TPOT", "E2E")


@pytest.mark.parametrize("bar", [1.0, 0.75])
def test_where_the_formulas_are_off_is_said_beyond_a_tenth_of_the_mean_and_15_percent_of_the_percentile(bar):
    for name, part, sign in itertools.product(METRICS, ("mean_s", "percentile_s"), (-1, 1)):
        most = bar * (0.10 if part == "mean_s" else 0.15)
        for by, said in ((0.98 * most, False), (1.02 * most, True)):
            found = {metric: Latency(0.4, 2.0) for metric in METRICS}
            form = dict(found)
            form[name] = found[name]._replace(**{part: getattr(found[name], part) * (1 + sign * by)})
            told = _apart(form, found, "P99", bar)
            assert bool(told) == said, (name, part, by)
            if said:
                of, true = ("mean", 400.0) if part == "mean_s" else ("P99", 2000.0)
                shown = lambda x: f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
                expected = f"{name} {of} {shown(true)} ms by recursion over the arrivals "
                assert told == [expected + f"({shown(true * (1 + sign * by))} by the formula)"]
    both = {metric: Latency(1.0, 9.0) for metric in METRICS}
    assert _apart(both | {"TPOT": Latency(2.0, 18.0)}, both, "P95", bar)[0].startswith("TPOT P95 9,000 ms")
