"""Sequences that fit: for one length, and for a distribution of lengths, checked by sampling."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import GPU, Flag, Model, stack
from dmodels.catalog import gpu, model, models
from dmodels.models.memory import (
    Footprint,
    concurrent_sequences,
    footprint,
    kv_reserved_bytes,
    occupancy_bytes,
    sequences_by_bernstein,
    sequences_by_normal,
    stage,
)

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
        return int(concurrent_sequences(m, g, **{"context_tokens": 8192, "tp": 8, **changes}).flags)

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
    assert float(occupancy_bytes(n, one, p)) <= budget + slack
    assert float(occupancy_bytes(n + 1, one, p)) >= budget - slack
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
