"""The roofline: what it says of one GPU can be checked by hand, and it is monotone where physics is."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import GPU, Model, Parallel
from dmodels.models import latency
from dmodels.models.latency import (
    Efficiency,
    LatencyCurve,
    StepLaw,
    curves,
    decode_step_s,
    iteration_s,
    linear_law,
    prefill_s,
    singular_latency_s,
    step,
    terms,
    tokens_per_step,
)
from dmodels.models.latency import laws as latency_laws

H200 = GPU(150e9, 4.8e12, 989e12, 1979e12, 0.0, 450e9, 50e9, 8.0)
LLAMA_70B = Model(
    80,
    8,
    128,
    hidden_size=8192,
    n_q_heads=64,
    attention_params=80 * (2 * 8192**2 + 2 * 8192 * 1024),
    dense_params=80 * 3 * 8192 * 28672,
    head_params=8192 * 128256,
)
MOE = Model(
    61,
    hidden_size=7168,
    n_q_heads=128,
    n_mla_layers=61,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
    attention_params=11.4e9,
    dense_params=3.7e9,
    n_moe_layers=58,
    expert_params=3 * 7168 * 2048,
    n_experts=256,
    n_active_experts=8,
    head_params=0.93e9,
    expert_dtype_bytes=1.0,
)
#: Nothing lost anywhere: what the data sheet allows.
IDEAL = Efficiency(
    hbm_frac=1.0,
    kv_frac=1.0,
    flop_frac=1.0,
    pass_count=0.0,
    moe_pass_count=0.0,
    attention_flop_frac=1.0,
    link_frac=1.0,
    hop_us=0.0,
    exchange_us=0.0,
    layer_us=0.0,
    moe_layer_us=0.0,
    request_us=0.0,
    routing_spread_frac=1.0,
    expert_imbalance=1.0,
    prefill_layer_us=0.0,
    prompt_ms=0.0,
)


def test_one_token_of_a_70b_model_takes_the_time_to_read_its_weights():
    params = 80 * (2 * 8192**2 + 2 * 8192 * 1024) + 80 * 3 * 8192 * 28672 + 8192 * 128256
    bound = 2.0 * params / 4.8e12  # 29 ms
    assert decode_step_s(LLAMA_70B, H200, Parallel(), 1.0, 1.0, IDEAL) == pytest.approx(bound, rel=0.01)


def test_a_prefill_takes_the_time_to_multiply_by_the_weights():
    tokens = 8192.0
    bound = 2.0 * 68.5e9 * tokens / 989e12 + 4.0 * 80 * 64 * 128 * tokens * tokens / 2 / 989e12
    bound += 80 * 2.0 * (2 * (2 * 8192 + 2 * 1024) + 3 * 28672) * tokens / 4.8e12  # rotary embeddings and gates: 3 %
    assert prefill_s(LLAMA_70B, H200, Parallel(), tokens, IDEAL) == pytest.approx(bound, rel=0.02)


def test_sixteen_tokens_touch_forty_per_cent_of_256_experts_and_one_touches_its_eight():
    hit = terms.expert_hit_frac(MOE, jnp.array([0.0, 1.0, 16.0, 1e6]))
    np.testing.assert_allclose(hit, [0.0, 8 / 256, 1 - (1 - 8 / 256) ** 16, 1.0])
    assert terms.expert_hit_frac(LLAMA_70B, 16.0) == 0.0


def test_random_routing_agrees_with_the_expected_number_of_experts():
    rng = np.random.default_rng(0)
    chosen = rng.permuted(np.tile(np.arange(256), (2000 * 16, 1)), axis=1)[:, :8].reshape(2000, -1)
    distinct = np.array([len(set(row)) for row in chosen]) / 256
    error = distinct.std() / np.sqrt(len(distinct))
    assert abs(distinct.mean() - float(terms.expert_hit_frac(MOE, 16.0))) < 4 * error


def test_mla_decode_is_compute_bound_only_when_a_gpu_holds_most_heads():
    def intensity(tp):
        return float(terms.decode_attention_flop(MOE, 4096.0, tp) / terms.kv_read_bytes(MOE, 4096.0, tp))

    ridge = 989e12 / 4.8e12
    assert intensity(1.0) > ridge > intensity(8.0)


def test_the_cache_of_sliding_linear_and_sparse_layers_is_bounded():
    sliding = Model(2, 8, 64, n_sliding_layers=2, sliding_window_tokens=128, sliding_kv_heads=8, sliding_head_dim=64)
    assert terms.kv_read_bytes(sliding, 1e6) == terms.kv_read_bytes(sliding, 128.0) == 2 * 2 * 8 * 64 * 128 * 2
    sparse = MOE.replace(index_topk_tokens=2048.0, index_bytes_per_token=132.0)
    grown = terms.kv_read_bytes(sparse, 20480.0) - terms.kv_read_bytes(sparse, 10240.0)
    assert grown == pytest.approx(61 * 132 * 10240)
    linear = Model(1, n_linear_layers=1, linear_state_bytes=1e6)
    assert terms.kv_read_bytes(linear, 1e6) == 2e6


def test_narrow_types_fall_back_to_sixteen_bits_where_the_gpu_has_no_unit():
    assert terms.peak_flop_per_s(H200, 1.0) == 1979e12
    assert terms.peak_flop_per_s(H200, 0.56) == 989e12  # no FP4 on Hopper: W4A16


def test_the_components_sum_to_the_step_and_one_gpu_sends_nothing():
    s = step(MOE, H200, Parallel(), 32.0, 2048.0, 0.0, 0.0)
    assert s.collective_s == 0.0
    assert s.total_s == pytest.approx(float(sum(s)))
    spread = step(MOE, H200, Parallel(1.0, 1.0, 8.0, 8.0), 32.0, 2048.0, 0.0, 0.0)
    assert spread.collective_s > 0.0


def test_two_nodes_reduce_a_message_over_all_their_network_cards():
    """16 ranks on two nodes of 8: each reduces inside first, then every GPU sends its eighth of one message once."""
    e = IDEAL.replace(node_hop_us=0.0)
    model = Model(10, 8, 128, hidden_size=8192, n_q_heads=64)
    reduces, message = 2 * 10, 2.0 * 8192 * 1000
    inside = 2 * 7 / 8 * message / 450e9
    between = 2 * 1 / 2 * message / 8 / 50e9
    s = step(model, H200, Parallel(16.0), 1000.0, 1.0, 0.0, 0.0, e)
    assert s.collective_s == pytest.approx(reduces * (inside + between))
    one = step(model, H200, Parallel(8.0), 1000.0, 1.0, 0.0, 0.0, e)
    assert one.collective_s == pytest.approx(reduces * inside)
    far = step(model, H200, Parallel(16.0), 1000.0, 1.0, 0.0, 0.0, e.replace(hop_us=2.0, node_hop_us=30.0))
    assert far.collective_s - s.collective_s == pytest.approx(reduces * (3 * 2e-6 + 30e-6))  # 8 ranks are 3 doublings


def test_speculation_yields_what_the_geometric_series_says():
    assert tokens_per_step(3.0, 0.5) == pytest.approx(1.875)
    assert tokens_per_step(0.0, 0.9) == pytest.approx(1.0)
    assert tokens_per_step(3.0, 1.0) == pytest.approx(4.0, rel=1e-6)


@pytest.mark.parametrize("model", [LLAMA_70B, MOE], ids=["dense", "mixture"])
@given(
    batch=st.floats(1, 2000),
    context=st.floats(1, 1e5),
    more=st.floats(1.0, 8.0),
    tp=st.sampled_from([1.0, 8.0, 16.0]),
    dp=st.sampled_from([1.0, 8.0]),
    prompt=st.sampled_from([0.0, 500.0]),
)
def test_the_step_is_monotone_where_physics_is(model, batch, context, more, tp, dp, prompt):
    layout = Parallel(tp, 1.0, dp, tp * dp)
    base = _iterate(model, H200, layout, batch, context, prompt)
    slack = base * (1.0 - 1e-12)
    assert np.isfinite(base) and base > 0
    assert _iterate(model, H200, layout, batch * more, context, prompt) >= slack
    assert _iterate(model, H200, layout, batch, context * more, prompt) >= slack
    if prompt:
        assert _iterate(model, H200, layout, batch, context, prompt * more) >= slack
    for field in (
        "hbm_bytes_per_s",
        "peak_flop_per_s",
        "peak_fp8_flop_per_s",
        "nvlink_bytes_per_s_oneway",
        "nic_bytes_per_s_per_gpu_oneway",
    ):
        faster = H200.replace(**{field: getattr(H200, field) * more})
        assert _iterate(model, faster, layout, batch, context, prompt) <= base * (1.0 + 1e-12)


@jax.jit
def _iterate(model, gpu, layout, batch, context, prompt):
    return iteration_s(model, gpu, layout, batch, context, prompt, 0.0)


def test_gradients_agree_with_finite_differences():
    @jax.jit
    @jax.value_and_grad
    def f(v):
        gpu = H200.replace(hbm_bytes_per_s=v[0], peak_flop_per_s=v[1])
        return iteration_s(MOE, gpu, Parallel(8.0, 1.0, 1.0, 8.0), v[2], v[3], v[4], 100.0)

    at = np.array([4.8e12, 989e12, 64.0, 4096.0, 512.0])
    got = np.asarray(f(at)[1])
    for i, h in enumerate(1e-5 * at):
        step = h * np.eye(5)[i]
        assert got[i] == pytest.approx(float(f(at + step)[0] - f(at - step)[0]) / (2 * h), rel=1e-4)


def test_gradients_at_nothing_are_finite():
    g = jax.grad(lambda n: iteration_s(MOE, H200, Parallel(), n, 0.0))(0.0)
    assert np.isfinite(g)


def test_the_papers_linear_law_and_the_chord_of_the_roofline():
    assert StepLaw(8e-3, 0.65e-3).iteration_s(16.0) == pytest.approx(18.4e-3)
    law = linear_law(LLAMA_70B, H200, Parallel(8.0), 4096.0, 128.0)
    for n in (1.0, 128.0):
        assert law.iteration_s(n) == pytest.approx(float(decode_step_s(LLAMA_70B, H200, Parallel(8.0), n, 4096.0)))
    assert law.per_sequence_s > 0


def test_the_singular_curve_is_infinite_from_its_pole_on():
    curve = LatencyCurve(0.01, 0.5, 32.0, 64.0, 2.0)
    values = singular_latency_s(jnp.array([32.0, 63.0, 64.0, 70.0]), curve)
    np.testing.assert_allclose(values[:2], [0.32 + 0.5 + 32 / 1024, 0.63 + 0.5 + 32.0])
    assert np.isinf(values[2:]).all()
    assert np.isfinite(jax.grad(lambda n: jnp.where(n < 64, singular_latency_s(n, curve), 0.0))(70.0))


def test_a_line_beside_a_pole_stays_a_line():
    """f = n + 1 and f = 1/(4 - n), one worker each: the first is finite for every number of requests."""
    both = curves.as_curve([curves.affine(1.0, 1.0), curves.LatencyCurve(0.0, 0.0, 1.0, 4.0)])
    table = curves.latency_table(both, 5)
    np.testing.assert_allclose(table, [[2, 3, 4, 5, 6], [1 / 3, 1 / 2, 1, math.inf, math.inf]])
    np.testing.assert_array_equal(curves.latency_table(curves.affine(0.0, 0.0), 3), np.zeros(3))
    np.testing.assert_array_equal(curves.latency_table(curves.affine(2.0, -2.0), 3), [0.0, 2.0, 4.0])


def test_half_a_request_below_the_pole_the_singular_term_is_doubled():
    assert float(latency_laws.singular_latency_s(3.5, curves.LatencyCurve(0.0, 1.0, 1.0, 4.0))) == 3.0


def test_a_chord_over_one_and_two_requests_is_exact_at_both():
    model, gpu = Model(32, 8, 128, hidden_size=4096, dense_params=8e9), GPU(8e10, 2e12, 3e14)
    law = latency_laws.linear_law(model, gpu, Parallel(1.0), 1000.0, n_max=2.0)
    for n in (1.0, 2.0):
        expected = latency.decode_step_s(model, gpu, Parallel(1.0), n, 1000.0)
        assert float(law.iteration_s(n)) == pytest.approx(float(expected), rel=1e-12)


def test_a_table_ends_at_its_pole_and_rises_before_it():
    """d = 1, n_sat = 3.5: half a request of room at 3."""
    table = curves.latency_table(curves.LatencyCurve(0.0, 0.0, 1.0, 3.5), 4)
    np.testing.assert_allclose(table, [1 / 2.5, 1 / 1.5, 2.0, math.inf])
