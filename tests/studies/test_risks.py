"""What could go wrong: knees and saturation against the formulas, bursts against fluid arithmetic, memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import PchipInterpolator

from dmodels import SLO, Workload, catalog
from dmodels.core.flags import Flag
from dmodels.models.queueing import backlog_s
from dmodels.studies.explore import Dials, at_rest, turned
from dmodels.studies.plan import by_formula, plan, question, sensitivity, with_lengths
from dmodels.studies.plan.designs import Kind
from dmodels.studies.plan.evaluate import sweep_instances
from dmodels.studies.plan.machines import serving_pool
from dmodels.studies.plan.memory_use import memory_use
from dmodels.studies.plan.risks import knee, loads, risks


@pytest.fixture(scope="module")
def answer():
    chat = catalog.workload("azure-conv", 60.0)
    return by_formula(question("llama-3.1-70b", ["h100"], chat, SLO(2.0, 0.08), tp=(4, 8), thresholds_tokens=(2048.0,)))


@pytest.fixture(scope="module")
def found(answer):
    return risks(answer)


@given(st.floats(0.5, 50.0))
def test_the_knee_of_mm1_is_half_whatever_the_unit(service_s):
    rho = np.linspace(0.01, 0.99, 99)
    assert knee(rho, service_s / (1.0 - rho)) == pytest.approx(0.5)


def test_a_fixed_share_of_latency_moves_the_knee_up():
    rho = np.linspace(0.01, 0.99, 99)
    assert knee(rho, 9.0 + 1.0 / (1.0 - rho)) > 0.6


def test_pools_saturate_where_they_are_said_to(answer, found):
    """Just below there is a steady state, just above there is none."""
    priced = answer.priced
    for load in found.loads:
        place = priced.cell(priced.layouts.index(load.pool.layout), priced.stages.index(load.pool.stage))
        counts = np.full((len(priced.cells.slots_count), 2), float(load.pool.instances))
        counts /= load.growth * np.array([0.998, 1.004])
        flags = sweep_instances(priced.cells, counts, answer.question.rate_rps, answer.question.engine).flags[place]
        none = int(Flag.OVERLOAD | Flag.NONFINITE)
        assert not flags[0] & none and flags[1] & none


def test_the_operating_point_is_the_plans(found):
    for load in found.loads:
        now = np.interp(load.operating_frac, load.load_frac, load.ttft_s)
        assert now == pytest.approx(load.pool.ttft_s, rel=0.03)  # the curve is a polygon
        assert load.operating_frac < 1.0 and 0.0 < load.knee_frac < 1.0


def test_latency_and_occupancy_rise_with_load(found):
    for load in found.loads:
        for values in (load.ttft_s, load.in_flight_count):
            assert (np.diff(values) > -1e-9 * values[1:]).all() and values[0] > 0


def test_a_harder_burst_never_waits_less_and_a_longer_one_neither(answer, found):
    """Across saturation too, where the steady state has no say: a minute is too short to reach it."""
    factors = found.first.growth * np.array([0.5, 0.9, 0.99, 0.9999, 1.0001, 1.01, 1.5])
    minute, hour = (risks(answer, seconds, factors[factors > 1.0]).bursts for seconds in (60.0, 3600.0))
    waits = np.array([burst.ttft_s for burst in minute])
    assert (np.diff(waits) > 0).all() and waits[-4] < 1.5 * waits[-5]  # no jump where it saturates
    assert all(a.ttft_s <= b.ttft_s for a, b in zip(minute, hour, strict=True))


def test_a_burst_beyond_saturation_is_fluid_at_least(answer, found):
    first = found.first
    hard = risks(answer, 30.0, [2.0 * first.growth]).bursts[0]
    assert hard.saturates and not hard.keeps_slo
    worst = first.pool.ttft_s + 30.0 * (2.0 - 1.0)  # twice what it can serve: a second of queue per second
    assert hard.ttft_s >= worst - 1e-6
    assert hard.drain_s >= 30.0 * first.growth / (first.growth - 1.0) - 1e-6


def test_near_saturation_a_pool_waits_as_long_as_its_backlog_says(answer, found):
    """The Brownian queue by which bursts are told is the pool's own: left alone for ever just below saturation, its
    backlog is the wait of a steady state there, of which nobody knows the last half."""
    for load in found.loads:
        for at in (-3, -2, -1):
            wait = load.ttft_s[at] - load.ttft_s[0]
            ever = backlog_s(0.99, float(load.load_frac[at]), load.work_variance_s, 1e9)
            assert load.load_frac[at] > 0.98 and 0.7 < wait / ever < 1.5, f"{load.pool.stage.name}: {wait} s, {ever} s"


def test_no_burst_changes_nothing(answer):
    same = risks(answer, 60.0, [1.0]).bursts[0]
    assert same.keeps_slo and not same.saturates and same.drain_s == 0.0
    assert same.ttft_s == pytest.approx(answer.best.ttft_s, rel=1e-6)
    assert same.tpot_s == pytest.approx(answer.best.tpot_s, rel=1e-6)


def test_losses_agree_with_the_plan(answer, found):
    kept = all(lost.after is not None and lost.after.keeps_slo for lost in found.losses)
    assert kept == answer.survives_loss
    for lost in found.losses:
        assert lost.spare_usd_per_hour == pytest.approx(lost.pool.usd_per_hour / lost.pool.instances)


def test_faster_prompts_stand_older_readings(answer, found):
    """The herd's room is what the SLO leaves above the mean TTFT, in prompts times their work."""
    looser = by_formula(turned(answer.question, Dials(60.0, *_lengths(answer), 4.0, 0.08, "", {})))
    assert {s.pool.stage.name for s in found.stale} <= {p.stage.name for p in answer.best.pools}
    if looser.best.kind == answer.best.kind and looser.best.gpus == answer.best.gpus:
        assert min(s.herd_s for s in risks(looser).stale) > min(s.herd_s for s in found.stale)


def _lengths(answer):
    rest = at_rest(answer.question)
    return rest.isl_tokens, rest.osl_tokens


def test_prompts_herd_until_the_room_above_the_mean_is_used_up(answer):
    """A fleet that keeps a looser SLO too: its prompts may herd longer in proportion to the room above the mean."""
    looser = by_formula(replace(answer.question, slo=SLO(2.05, 0.08)))
    assert looser.best.parts == answer.best.parts
    (tight, *_), (loose, *_) = risks(answer).stale, risks(looser).stale
    bound, further = (found[0].ttft_bound_s for found in (loads(answer), loads(looser)))
    mean = tight.pool.ttft_mean_s
    assert 0.3 < mean < bound < further
    assert loose.herd_s / tight.herd_s == pytest.approx((further - mean) / (bound - mean), rel=1e-6)


def test_memory_adds_up_and_weights_are_those_of_the_model(answer):
    for use in memory_use(answer):
        assert sum(use.parts.values()) == pytest.approx(use.gpu_bytes)
        assert min(use.parts.values()) >= 0
        whole = use.weights_bytes * use.pool.layout.tp
        assert whole == pytest.approx(141.1e9, rel=0.005)  # Llama-3.1-70B in BF16; norms are on every GPU


@pytest.fixture(scope="module")
def wide():
    """Sixteen ranks of attention, prompts of 4,000 tokens."""
    traffic = Workload.fixed(4000.0, 200.0, 60.0)
    return plan(question("deepseek-v3", ["h200"], traffic, SLO(2.0, 0.05), tp=(1,), wide_ep=(16,)), False)


def test_a_rank_computes_whole_prompts(wide):
    """One prompt keeps one of sixteen ranks busy, the others wait: of sixteen in a step only the experts' work and
    what moves to them is more."""
    place = next(k for k, layout in enumerate(wide.priced.layouts) if layout.dp == 16)
    stage = next(k for k, stage in enumerate(wide.priced.stages) if stage.role != "decode")
    pool = serving_pool(wide.priced, place, stage)
    assert pool.chunk_tokens == 16 * float(wide.question.engine.max_num_batched_tokens)
    tokens, times = pool.law.tokens, pool.law.times_s[1]
    one, each = (np.interp(count * 4000.0, tokens, times) - times[0] for count in (1, 16))
    assert one < each < 2.0 * one and (np.diff(times) > 0).all()


def test_the_cache_in_use_is_that_of_the_requests_that_hold_it(wide):
    """A token of DeepSeek-V3's cache takes 61 layers of 576 numbers of two bytes, on every rank of attention; a worker
    holds prompts, a decoder answers half done in the mean, and how many they are the curves over load say."""
    assert {d.kind for d in wide.kinds} == set(Kind) - {Kind.TWO_POOLS}
    assert any(pool.instances > 1 for fleet in wide.kinds for pool in fleet.pools)
    for fleet in wide.kinds:
        seen = replace(wide, best=fleet)
        for use, load in zip(memory_use(seen), loads(seen), strict=True):
            known = np.isfinite(load.in_flight_count)
            curve = PchipInterpolator(load.load_frac[known], load.in_flight_count[known])  # chords lie above a knee
            held = curve(load.operating_frac) / use.pool.layout.dp
            tokens = 4000 if use.pool.stage.role == "prefill" else 4100
            assert use.kv_used_bytes == pytest.approx(held * tokens * 61 * 576 * 2, rel=0.02)
            assert use.pool.layout.dp > 1
            assert use.slots_by_engine_count == use.pool.layout.dp * 256.0  # each rank takes as many as the engine
            if use.pool.stage.role != "prefill":
                assert use.pool.slots_count == min(use.slots_by_engine_count, use.slots_by_memory_count)


def test_lengths_scale_and_thresholds_move_along(answer):
    asked = answer.question
    longer = with_lengths(asked, 2.0, 2.0)
    assert float(longer.workload.mean_total_tokens) == pytest.approx(2 * float(asked.workload.mean_total_tokens))
    assert longer.thresholds_tokens == (4096.0,)
    extreme = with_lengths(asked, 1e-3, 10.0)
    total = np.asarray(extreme.workload.total_tokens)
    (limit,) = extreme.thresholds_tokens
    assert (total <= limit).any() and (total > limit).any()


def test_no_change_that_helps_costs_more(answer):
    """Looser SLOs, less load and lower prices never cost more than the plan; the reverse never less."""
    base = answer.formula_usd_per_hour  # of the cheapest fleet, which a simpler one may stand before
    for change in sensitivity(answer):
        helps = (change.factor > 1) == change.what.endswith("SLO")
        if change.what in ("input length", "output length"):
            continue  # thresholds move along, so these are other schemes
        assert change.usd_per_hour <= base + 1e-9 if helps else change.usd_per_hour >= base - 1e-9, change
