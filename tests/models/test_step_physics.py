"""Steps of every catalogue model on every catalogue GPU: never below the data sheet, and monotone where physics is."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels import Parallel, catalog
from dmodels.core.records import stack
from dmodels.fit import hierarchy
from dmodels.models.latency import Efficiency, MixedSteps, maximum_throughput, parts, step
from dmodels.models.memory import engine_memory


@cache
def machines():
    """Models down, GPUs across."""
    models = stack(*map(catalog.model, catalog.models()))
    gpus = stack(*map(catalog.gpu, catalog.gpus()))
    return jax.tree.map(lambda leaf: leaf[:, None], models), jax.tree.map(lambda leaf: leaf[None, :], gpus)


@jax.jit
def times(load, scale, shares):
    """(seconds of each part, what the data sheet allows) at (decodes, context, prompt tokens) and scaled GPUs."""
    models, gpus = machines()
    gpus = gpus.replace(
        hbm_bytes_per_s=gpus.hbm_bytes_per_s * scale[0],
        **{
            name: getattr(gpus, name) * scale[1]
            for name in ("peak_flop_per_s", "peak_fp8_flop_per_s", "peak_fp4_flop_per_s")
        },
        nvlink_bytes_per_s_oneway=gpus.nvlink_bytes_per_s_oneway * scale[2],
    )
    e = Efficiency(**dict(zip(hierarchy.OF_PEAK, shares, strict=True)))
    found = parts(models, gpus, Parallel(tp=4.0), *load, load[2] / 2.0, e)
    return jnp.stack([p.seconds + 0.0 * models.n_layers * gpus.hbm_bytes_per_s for p in found.values()]), jnp.stack(
        [p.least_s + 0.0 * models.n_layers * gpus.hbm_bytes_per_s for p in found.values()]
    )


LOADS = st.tuples(st.floats(0.0, 2000.0), st.floats(16.0, 100_000.0), st.floats(0.0, 30_000.0))
SHARES = st.lists(st.floats(0.02, 1.0), min_size=len(hierarchy.OF_PEAK), max_size=len(hierarchy.OF_PEAK))
ONE = np.ones(3)


def seconds(load, scale, shares):
    return np.asarray(times(np.array(load), np.array(scale), np.array(shares))[0]).sum(axis=0)


@settings(max_examples=30)
@given(load=LOADS, shares=SHARES)
def test_no_part_of_a_step_beats_the_data_sheet(load, shares):
    took, least = map(np.asarray, times(np.array(load), ONE, np.array(shares)))
    assert np.all(np.isfinite(took)) and np.all(took >= least * (1 - 1e-5))


@settings(max_examples=30)
@given(load=LOADS, more=st.tuples(*[st.floats(1.0, 3.0)] * 3), shares=SHARES)
def test_more_to_do_never_takes_less(load, more, shares):
    larger = [a * b for a, b in zip(load, more, strict=True)]
    assert np.all(seconds(larger, ONE, shares) >= seconds(load, ONE, shares) * (1 - 1e-5))


@settings(max_examples=30)
@given(load=LOADS, better=st.tuples(*[st.floats(1.0, 4.0)] * 3), shares=SHARES)
def test_a_gpu_with_better_rates_is_never_slower(load, better, shares):
    assert np.all(seconds(load, better, shares) <= seconds(load, ONE, shares) * (1 + 1e-5))


def test_a_step_is_the_sum_of_its_parts():
    models, gpus = machines()
    e = Efficiency()
    whole = jax.jit(step)(models, gpus, Parallel(tp=4.0), 64.0, 4000.0, 500.0, 250.0, e).total_s
    by_part = seconds((64.0, 4000.0, 500.0), ONE, [float(getattr(e, name)) for name in hierarchy.OF_PEAK])
    np.testing.assert_allclose(np.broadcast_to(whole, by_part.shape), by_part, rtol=1e-5)


def test_sharing_a_step_never_costs_more_than_taking_turns():
    """p prompts per step: never longer than p steps' extra, never shorter than the one step with all their tokens."""
    law = MixedSteps(
        catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm"), Parallel(), 1000.0, 300.0, 150.0, 8192.0, Efficiency()
    )
    shares = np.array([0.01, 0.3, 1.0, 4.0, 20.0])
    alone, one, at = jax.jit(lambda: (law.alone(32.0), law.at(32.0, 300.0), law.mixed(32.0, shares)))()
    for p, busy, mixed in zip(shares, *at, strict=True):
        assert 0 < busy <= 1 and busy >= p * 300.0 / 8192.0
        assert busy * (mixed - alone) <= p * (one - alone) * (1 + 1e-6)


def test_the_most_of_an_instance_grows_with_its_memory_and_bandwidth():
    model, asked = catalog.model("llama-3.1-8b"), (Parallel(), 1000.0, 200.0)
    how = {"efficiency": Efficiency(), "engine": engine_memory("vllm")}  # as `step_times` asks: one program
    most = [
        float(maximum_throughput(model, catalog.gpu(name), *asked, **how).tokens_per_s)
        for name in ("l4", "l40s", "a100_80gb_sxm", "h100_sxm", "h200_sxm")
    ]
    assert most == sorted(most) and most[0] > 0


at, without, own, parts_of = map(jax.jit, (MixedSteps.at, MixedSteps.alone, MixedSteps.own, MixedSteps.parts))


def of_ranks(name: str, dp: float, waits: float = 0.0, prompt: float = 4000.0) -> MixedSteps:
    """Steps of `dp` ranks with prompts of so many tokens, each within a rank's budget of 8,192."""
    e, parallel = Efficiency(dp_wait_steps=waits), Parallel(dp=dp, ep=dp)
    return MixedSteps(
        catalog.model(name), catalog.gpu("h200_sxm"), parallel, 1000.0, prompt, 0.5 * prompt, 8192.0 * dp, e
    )


def test_ranks_of_a_dense_model_wait_for_one_prompt_as_for_one_each():
    """Nothing is shared between them: seven that wait do not make the eighth faster."""
    law = of_ranks("llama-3.1-8b", 8.0)
    one, each = (float(at(law, 64.0, k * 4000.0)) for k in (1.0, 8.0))
    assert one == pytest.approx(each, rel=1e-6) and one > 1.05 * float(without(law, 64.0))


def test_experts_see_the_tokens_of_all_ranks_and_attention_its_own():
    law = of_ranks("deepseek-v3", 8.0)
    one, each = (parts_of(law, 64.0, k * 4000.0) for k in (1.0, 8.0))
    assert float(one["attention of prompts"].seconds) == pytest.approx(float(each["attention of prompts"].seconds))
    assert float(each["routed experts"].flop) == pytest.approx(float(one["routed experts"].flop) * 32064 / 4064)
    times = [float(at(law, 64.0, k * 4000.0)) for k in (0.0, 0.5, 1.0, 2.0, 8.0, 16.0)]
    assert times == sorted(times)


def test_a_prompt_that_ranks_wait_for_pays_its_share_of_their_step():
    waits, alone = of_ranks("deepseek-v3", 8.0, 40.0), of_ranks("deepseek-v3", 8.0)
    bare, each = float(without(alone, 64.0)), float(at(alone, 64.0, 32_000.0))
    assert float(at(waits, 64.0, 32_000.0)) == pytest.approx(each)
    assert float(at(waits, 64.0, 4000.0)) - bare == pytest.approx((each - bare) / 8.0)
    assert float(own(waits, 64.0, 0.0)) == pytest.approx(each)  # its own first token comes with the others'
    assert float(own(alone, 64.0, 0.0)) == pytest.approx(float(at(alone, 64.0, 4000.0)))


def test_few_prompts_hold_up_all_ranks_where_these_do_not_wait_for_each_other():
    """A prompt every thousand steps, of any rank, makes one of a thousand long; gathered, one of eight thousand."""
    for waits, share in ((0.0, 1e-3), (40.0, 1.25e-4)):
        busy, _ = of_ranks("deepseek-v3", 8.0, waits).shared(1e-3)
        assert float(busy) == pytest.approx(share, rel=1e-3)
