"""Sequences that fit: for one length, and for a distribution of lengths, checked by sampling."""

from __future__ import annotations

import math
from statistics import NormalDist

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import GPU, Flag, Model, stack
from dmodels.catalog import gpu, model, models
from dmodels.core.hardware import Parallel
from dmodels.models.memory import (
    VLLM,
    Footprint,
    activation_bytes,
    concurrent_sequences,
    engine_memory,
    footprint,
    kv_budget_bytes,
    kv_reserved_bytes,
    out_of_domain,
    residents_of_length,
    sequences_by_bernstein,
    sequences_by_normal,
    sequences_that_fit,
    stage,
)
from dmodels.sim.engines import EngineLaw, TensorRTLLM, simulate

CATALOGUE = stack(*(model(name) for name in models()))


@given(
    context=st.integers(1, 1_000_000),
    tp=st.sampled_from([1.0, 2.0, 8.0]),
    pp=st.sampled_from([1.0, 2.0]),
    dp=st.sampled_from([1.0, 4.0]),
    memory=st.floats(1e9, 3e11),
)
def test_the_slots_fit_and_one_more_does_not(context, tp, pp, dp, memory):
    g = GPU(memory, 3e12, 1e15)
    s = concurrent_sequences(CATALOGUE, g, float(context), tp, pp, dp)
    slots = np.asarray(s.slots_count) / dp
    one = np.asarray(kv_reserved_bytes(stage(CATALOGUE, pp), float(context), tp))
    budget = np.maximum(np.asarray(s.budget_bytes), 0)
    assert np.all(slots * one <= budget * (1 + 1e-12))
    assert np.all((slots + 1) * one > budget * (1 - 1e-12))
    flags = np.asarray(s.flags)
    assert np.all(((flags & Flag.NO_FIT) != 0) == (slots < 1))
    assert not np.any(flags & Flag.NONFINITE)
    parts = s.weight_bytes + s.activation_bytes + s.runtime_bytes + s.budget_bytes
    np.testing.assert_allclose(np.broadcast_to(parts, flags.shape), 0.9 * memory, rtol=1e-9, atol=10)


def test_out_of_domain_is_flagged_not_answered():
    m, g = model("llama-3.1-70b"), gpu("h100")

    def flags(**changes):
        asked = {"context_tokens": 8192.0, "tp": 8.0, "pp": 1.0, "dp": 1.0, "ep": 1.0}
        return int(concurrent_sequences(m, g, **asked | {name: float(v) for name, v in changes.items()}).flags)

    assert flags() == 0
    assert flags(context_tokens=0) & Flag.OUT_OF_DOMAIN
    assert flags(tp=3) & Flag.OUT_OF_DOMAIN  # 64 query heads
    assert flags(tp=0) & Flag.OUT_OF_DOMAIN
    assert flags(pp=1.5) & Flag.OUT_OF_DOMAIN
    assert flags(ep=16) & Flag.OUT_OF_DOMAIN
    assert flags(tp=1) & Flag.NO_FIT
    assert flags(context_tokens=float("nan")) & Flag.NONFINITE
    assert flags(context_tokens=200_000) & Flag.EXTRAPOLATED


any_number = st.floats() | st.sampled_from([0.0, 1.0, -1.0, 8.0, 1e308])


@given(context=any_number, tp=any_number, pp=any_number, dp=any_number, ep=any_number, memory=any_number)
def test_a_number_that_is_not_finite_is_never_unflagged(context, tp, pp, dp, ep, memory):
    s = _slots(GPU(memory, 3e12, 1e15), context, tp, pp, dp, ep)
    flags = np.asarray(s.flags)
    for name in ("slots_count", "sequence_bytes", "budget_bytes", "weight_bytes", "free_bytes"):
        value = np.broadcast_to(np.asarray(getattr(s, name)), flags.shape)
        assert np.all(np.isfinite(value) | (flags != 0)), name
    assert np.all((np.asarray(s.slots_count) >= 0) | (flags != 0))


@jax.jit
def _slots(g, *layout):
    return concurrent_sequences(CATALOGUE, g, *layout)


def test_each_attention_rank_has_a_pool_of_its_own():
    m, g = model("deepseek-v3"), gpu("h200")
    split = concurrent_sequences(m, g, 8192, tp=8, ep=8)
    ranks = concurrent_sequences(m, g, 8192, dp=8, ep=8)
    assert float(ranks.slots_count) > 4 * float(split.slots_count)  # MLA's latent is whole on every TP rank
    assert float(ranks.slots_count) % 8 == 0


def test_a_batched_catalogue_gives_the_same_answers():
    g = gpu("h200")
    together = jax.vmap(lambda m: concurrent_sequences(m, g, 8192.0, 8.0).slots_count)(CATALOGUE)
    for i, name in enumerate(models()):
        assert float(together[i]) == float(concurrent_sequences(model(name), g, 8192, 8).slots_count)


def test_fixed_lengths_hold_half_the_output_on_average():
    m = Model(80, 8, 128)
    one = footprint(m, np.array([1600.0]), np.array([3200.0]))
    per_token = 327_680
    assert float(one.mean_bytes) == pytest.approx((1600 + 1600) * per_token, rel=0.01)  # to a block of 16
    assert float(one.sd_bytes) == pytest.approx(3200 / np.sqrt(12) * per_token, rel=0.01)
    assert float(one.max_bytes) == 4800 * per_token


@pytest.mark.parametrize("name", ["llama-3.1-70b", "gemma-3-27b", "qwen3-next-80b-a3b"])
def test_occupancy_agrees_with_sampled_requests(name):
    """Simulate the residence of requests one by one: pick by its decode length, then a uniform moment of its decode."""
    rng = np.random.default_rng(7)
    inputs = rng.lognormal(7, 1, 400).round() + 1
    outputs = rng.lognormal(5, 0.8, 400).round() + 1
    m = model(name)
    one = footprint(m, inputs, outputs, tp=4)
    draws = 200_000
    pick = rng.choice(400, draws, p=outputs / outputs.sum())
    tokens = np.ceil(inputs[pick] + rng.random(draws) * outputs[pick])
    held = np.asarray(kv_reserved_bytes(m, tokens, 4))
    assert abs(held.mean() - float(one.mean_bytes)) < 4 * held.std() / np.sqrt(draws) + 2e-3 * held.mean()
    assert held.std() == pytest.approx(float(one.sd_bytes), rel=0.02)
    assert held.max() <= float(one.max_bytes)

    budget = 300 * float(one.mean_bytes)
    n = int(sequences_by_normal(budget, one))
    assert 200 < n < 300
    totals = held[rng.integers(0, draws, (4000, n))].sum(axis=1)
    assert np.mean(totals <= budget) == pytest.approx(0.99, abs=0.005)
    sure = int(sequences_by_bernstein(budget, one))
    assert 0 < sure <= n
    assert np.mean(held[rng.integers(0, draws, (4000, sure))].sum(axis=1) <= budget) >= 0.99


@pytest.mark.parametrize(("isl", "osl"), [(128, 4096), (2048, 2048), (4096, 128)])
def test_tensorrt_llm_runs_as_many_as_its_scheduler_admits(isl, osl):
    """It sets whole answers aside, so fewer run than if it held what is there at each moment."""
    place, engine = (model("llama-3.1-70b"), gpu("b200"), Parallel(2)), engine_memory("trtllm")
    count = int(residents_of_length(*place, float(isl), float(osl), engine=engine))
    blocks = kv_budget_bytes(*place, engine=engine) / kv_reserved_bytes(place[0], 32.0, 2.0)
    arrivals, policy = np.linspace(0.0, 1e-3, 4 * count), TensorRTLLM(int(blocks), step_tokens=10**6)
    served = simulate(arrivals, isl, osl, EngineLaw.straight(1e-2, 0.0), policy)
    at = np.quantile(served.end_s, np.linspace(0.3, 0.6, 50))[:, None]
    assert np.sum((served.admitted_s <= at) & (at < served.end_s), axis=1).max() == pytest.approx(count, rel=0.01)
    at_once = residents_of_length(*place, float(isl), float(osl), engine=engine.replace(to_limit=0.0))
    assert at_once == pytest.approx(count * (isl + osl) / (isl + 0.5 * osl), rel=0.1)


@given(
    budget=st.floats(0, 1e12),
    mean=st.floats(1e6, 1e10),
    cv=st.floats(0, 3),
    reach=st.floats(1, 20),
    p=st.sampled_from([0.5, 0.9, 0.99, 0.999]),
)
def test_counts_are_the_largest_that_pass(budget, mean, cv, reach, p):
    one = Footprint(mean, cv * mean, mean * max(reach, 1 + cv), 0.0)
    n = float(sequences_by_normal(budget, one, p))
    slack = 1e-9 * (budget + mean)
    z = NormalDist().inv_cdf(p)
    quantile = lambda n: n * mean + z * cv * mean * math.sqrt(n)
    assert quantile(n) <= budget + slack and quantile(n + 1) >= budget - slack
    sure = float(sequences_by_bernstein(budget, one, p))
    assert np.isfinite(sure) and 0 <= sure
    assert sure * mean <= budget + slack
    if p >= 0.9:
        assert sure <= n + 1


def test_worst_case_slots_are_fewer_than_typical_ones():
    m, g = model("llama-3.1-70b"), gpu("h100")
    at_most = concurrent_sequences(m, g, 32_768, tp=8)
    one = footprint(m, np.array([500.0, 2000.0, 30_000.0]), np.array([200.0, 300.0, 400.0]), tp=8)
    assert float(sequences_by_normal(at_most.budget_bytes, one)) > 1.5 * float(at_most.slots_count)


MODEL = Model(10, 8, 64, n_q_heads=8)


GPU_80 = GPU(8e10, 2e12, 3e14)


@pytest.mark.parametrize("degree", ["tp", "pp", "dp", "ep"])
def test_each_degree_is_whole_and_at_least_one(degree):
    for value, bad in ((1.0, False), (0.0, True), (0.5, True), (-1.0, True), (1.5, True)):
        layout = Parallel(**{degree: [value]})  # in a batch: flagged, where a single number is refused
        assert bool(out_of_domain(MODEL, layout)[0]) == bad


def test_layouts_that_no_engine_runs():
    asked = lambda *degrees: bool(out_of_domain(MODEL, Parallel(*degrees)))
    assert not asked(8.0, 10.0, 1.0, 8.0) and not asked(2.0, 1.0, 4.0, 8.0)
    assert asked(3.0) and asked(1.0, 11.0) and asked(2.0, 1.0, 2.0, 5.0)  # 8 heads over 3; 11 stages; 5 experts' GPUs


def test_a_context_longer_than_the_configs_is_extrapolated():
    flags = lambda most, context: int(
        concurrent_sequences(MODEL.replace(max_context_tokens=most), GPU_80, context).flags
    )
    assert [flags(1.0, 2.0), flags(2.0, 2.0), flags(0.0, 2.0)] == [int(Flag.EXTRAPOLATED), 0, 0]


def test_a_skewed_footprint_needs_a_sixth_of_its_skewness_more():
    """At two deviations (97.7 %): n m + 2 s sqrt(n) + (4 - 1)/6 skewness s."""
    p = 0.5 * (1 + math.erf(2 / math.sqrt(2)))
    counts = [float(sequences_by_normal(budget, Footprint(10.0, 2.0, 40.0, 0.5), p)) for budget in (102.6, 102.4)]
    assert counts == [9.0, 8.0]  # 90 + 12 + 0.5


def test_a_budget_that_no_deviation_fits_holds_nobody():
    assert float(sequences_by_bernstein(1.0, Footprint(10.0, 2.0, 14.0), 0.99)) == 0.0


@pytest.mark.parametrize("count", [sequences_by_bernstein, sequences_by_normal])
def test_counts_have_no_unit(count):
    """The same bytes in units of 10^9 of them; and no budget holds nobody."""
    one = lambda unit: Footprint(10.0 * unit, 2.0 * unit, 14.0 * unit, 0.5)
    at = lambda unit: [float(count(budget * unit, one(unit), 0.99)) for budget in (0.0, 1.0, 85.0, 505.0)]
    assert at(1.0) == at(1e-9) and at(1.0)[0] == 0.0


def test_one_token_is_a_context_and_half_a_token_is_none():
    flags = [int(concurrent_sequences(MODEL, GPU_80, tokens).flags) for tokens in (1.0, 0.5)]
    assert flags == [0, Flag.OUT_OF_DOMAIN]


def test_what_is_left_of_the_budget():
    found = concurrent_sequences(MODEL, GPU_80, 1000.0, dp=2)
    left = float(found.budget_bytes - found.slots_count / 2 * found.sequence_bytes)
    assert float(found.free_bytes) == pytest.approx(left) and 0 <= left < float(found.sequence_bytes)


def test_sequences_of_no_bytes_are_not_counted():
    assert float(sequences_that_fit(1e9, 0.0)) == 0.0


def test_one_head_stays_whole_and_one_gpu_holds_any_number():
    asked = lambda heads, tp: bool(out_of_domain(MODEL.replace(n_q_heads=heads), Parallel(tp)))
    assert [asked(1.0, 2.0), asked(7.0, 1.0), asked(0.0, 2.0)] == [True, False, False]


def test_sequences_within_one_block_are_all_alike():
    """Blocks of 4,096 tokens: 10 layers of 2 x 8 x 64 in 2 bytes."""
    one = footprint(MODEL, [10.0, 900.0], [100.0, 700.0], block_tokens=4096)
    block = 4096 * 10 * 2 * 8 * 64 * 2
    found = [float(v) for v in (one.mean_bytes, one.sd_bytes, one.max_bytes, one.skewness)]
    assert found == pytest.approx([block, 0.0, block, 0.0], abs=1.0) and found[3] == 0.0


def test_the_largest_is_one_that_is_seen():
    """100,000 tokens that are never asked for do not count."""
    at = lambda inputs, outputs, weights: float(footprint(MODEL, inputs, outputs, weights, block_tokens=1).max_bytes)
    assert at([10.0, 1e5], [100.0, 100.0], [1.0, 0.0]) == at([10.0], [100.0], [1.0]) == 110 * 10 * 2 * 8 * 64 * 2


def test_the_widest_row_of_a_step():
    """100 tokens in 2 bytes: two rows of 1,000; 8 heads of 2 x 288 with a latent of 512, or 4 heads with K and V."""
    latent = Model(
        1,
        n_mla_layers=1,
        n_q_heads=16,
        hidden_size=1000,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=96,
    )
    short = VLLM.replace(latent_workspace_tokens=0.0)
    assert float(activation_bytes(latent, Parallel(2.0), 100.0, 0.0, short)) == 200 * (2000 + 8 * 2 * 288 + 512)
    plain = Model(1, 4, 64, n_q_heads=16, hidden_size=1000)
    assert float(activation_bytes(plain, Parallel(4.0), 100.0, 0.0)) == 200 * (2000 + 2 * (4 + 1) * 64)
