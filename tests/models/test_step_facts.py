"""One step of a model with every kind of layer, over every kind of parallelism, counted in plain Python."""

from __future__ import annotations

import math

import jax
import pytest

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.models.latency import Efficiency, decode_step_s, iteration_s, prefill_s, step, terms, tokens_per_step

pytestmark = pytest.mark.usefixtures("op_by_op")

#: 2 full layers, 3 sliding, 4 latent, 3 linear, all but two with experts.
HYBRID = Model(
    12,
    6,
    64,
    n_sliding_layers=3,
    sliding_window_tokens=500,
    sliding_kv_heads=8,
    sliding_head_dim=32,
    n_mla_layers=4,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    index_bytes_per_token=132,
    index_topk_tokens=700,
    n_linear_layers=3,
    linear_state_bytes=1e5,
    hidden_size=4096,
    n_q_heads=48,
    qk_nope_head_dim=128,
    v_head_dim=96,
    attention_params=2e9,
    dense_params=3e9,
    n_moe_layers=10,
    n_experts=40,
    n_active_experts=6,
    expert_params=3e7,
    head_params=5e8,
    dense_dtype_bytes=1.0,
    expert_dtype_bytes=0.5,
)
NODE = GPU(8e10, 2e12, 3e14, 6e14, 12e14, nvlink_bytes_per_s_oneway=4e11, nic_bytes_per_s_per_gpu_oneway=5e10)
E = Efficiency(expert_imbalance=1.5)
larger = lambda a, b: (a**4 + b**4) ** 0.25  # a roofline


def attention_work(context, attended, tp):
    """(bytes that a token reads, FLOPs of its attention, FLOPs of a prompt token's), on one GPU of `tp`."""
    heads, sliding_heads = math.ceil(6 / tp), math.ceil(8 / tp)  # a head is not cut
    keys_and_values = 2 * 2 * heads * 64 * context + 2 * 3 * sliding_heads * 32 * min(context, 500)
    latent = 4 * (576 * 2 * min(context, 700) + 132 * context)
    read = 2 * keys_and_values + latent + 2 * 3 * 1e5 / tp
    products = lambda seen: 4 * 2 * 64 * seen + 4 * 3 * 32 * min(seen, 500)
    decode = 48 / tp * (products(context) + 4 * 2 * (2 * 512 + 64) * min(context, 700))
    return read, decode, 48 / tp * (products(attended) + 4 * 2 * (128 + 64 + 96) * min(attended, 700))


def components(n, context, prompt, attended, drafts, tp, pp, dp, ep):
    decode = n * (1 + drafts) / pp
    tokens = decode + prompt / pp
    matrix = lambda size, params, peak, rows: larger(params * size / tp / 1.8e12, 2 * params / tp * rows / 0.48 / peak)
    matrices = matrix(2, 2e9, 3e14, tokens / dp) + matrix(1, 3e9, 6e14, tokens / dp) + matrix(2, 5e8, 3e14, decode / dp)
    mine = 10 * 3e7 / (tp * dp)  # parameters of one expert of each layer, on one GPU
    drawn = min(tokens, 1) + 0.8 * max(tokens - 1, 0)
    hit = mine * 40 * (1 - (1 - 6 / 40) ** drawn) * 0.5 / 1.8e12
    experts = larger(hit, 2 * mine * 6 * tokens / (0.48 * 12e14)) * (1 + 0.5 * (1 - 1 / ep))
    read, multiply, fresh = attention_work(context, attended, tp)
    attention = larger(n / pp / dp * read / (0.58 * 2e12), decode / dp * multiply / (0.38 * 3e14))
    attention += prompt / pp / dp * fresh / (0.38 * 3e14)
    launches = 12 * (32 + (200 if prompt else 0)) + 10 * 67 + 15 * n / dp
    return matrices, experts, attention, collectives(tokens, tp, dp, ep), launches * 1e-6


def collectives(tokens, tp, dp, ep):
    """Nodes of 8. A ring sends 2 (r - 1)/r of its message; a node reduces its own copies before it sends an eighth."""
    near, far, message = 0.42 * 4e11, 0.42 * 5e10, 2 * 4096 * tokens / dp
    ring = lambda ranks: 2 * (ranks - 1) / ranks * message
    hops = lambda ranks: 1.5e-6 * math.log2(min(ranks, 8)) + 30e-6 * math.log2(max(ranks / 8, 1))
    reduce = ring(min(tp, 8)) / near + ring(max(tp / 8, 1)) / 8 / far + hops(tp)
    if dp == 1:
        return 2 * 12 * reduce
    gpus = tp * dp
    sent = 3 * 4096 * tokens / gpus * min(6, ep) * (1 - 1 / gpus)
    away = max(gpus - 8, 0) / (gpus - 1)
    return 12 * reduce + 10 * (sent * ((1 - away) / near + away / far) + 2 * hops(gpus))


@pytest.mark.parametrize(
    "case",
    [
        (30.0, 900.0, 0.0, 0.0, 2.0, 4.0, 3.0, 2.0, 8.0),
        (300.0, 300.0, 900.0, 450.0, 0.0, 16.0, 1.0, 1.0, 1.0),
        (600.0, 3000.0, 1200.0, 1600.0, 1.0, 8.0, 2.0, 4.0, 4.0),
    ],
)
def test_every_component_of_a_step(case):
    found = step(HYBRID, NODE, Parallel(*case[5:]), *case[:4], E, case[4])
    expected = components(*case)
    assert [float(x) for x in found] == pytest.approx(expected, rel=1e-9)
    assert float(found.total_s) == pytest.approx(sum(expected), rel=1e-9)


def test_the_three_shorter_ways_to_ask():
    """8 decode at 900 tokens; a chunk of 200 after 300 sees 400 of them; a prompt of 200 on both ranks sees 100."""
    two = Parallel(4.0, 3.0, 2.0, 8.0)
    ask = lambda *numbers: sum(components(*numbers, 0, 4, 3, 2, 8))
    assert float(decode_step_s(HYBRID, NODE, two, 8.0, 900.0, E)) == pytest.approx(ask(8, 900, 0, 0), rel=1e-9)
    assert float(iteration_s(HYBRID, NODE, two, 8.0, 900.0, 200.0, 300.0, E)) == pytest.approx(
        ask(8, 900, 200, 400), rel=1e-9
    )
    assert float(iteration_s(HYBRID, NODE, two, 8.0, 900.0, efficiency=E)) == pytest.approx(ask(8, 900, 0, 0), rel=1e-9)
    assert float(prefill_s(HYBRID, NODE, two, 200.0, E)) == pytest.approx(ask(0, 0, 400, 100), rel=1e-9)
    assert float(iteration_s(HYBRID, NODE, two, 0.0, 0.0, 400.0, efficiency=E)) == pytest.approx(
        ask(0, 0, 400, 200), rel=1e-9
    )


def test_a_prompt_of_one_token_runs_without_a_captured_graph():
    at = lambda prompt: float(step(HYBRID, NODE, Parallel(1.0), 0.0, 0.0, prompt, 1.0, E).overhead_s)
    assert at(1.0) - at(0.0) == pytest.approx(12 * 200e-6)


def test_without_fast_links_the_slot_is_used():
    """PCIe 4 x8, 16 GB/s, inside the node and between nodes: a ring over two, and over two nodes of one."""
    model = Model(10, 8, 64, hidden_size=4096)
    bare = GPU(8e10, 2e12, 3e14)
    at = lambda gpu: float(step(model, gpu, Parallel(2.0), 1.0, 0.0, 0.0, 0.0, E).collective_s)
    assert at(bare) == pytest.approx(20 * (8192 / (0.42 * 16e9) + 1.5e-6))
    assert at(bare.replace(gpus_per_node=1.0)) == pytest.approx(20 * (8192 / (0.42 * 16e9) + 30e-6))


def test_between_two_nodes_of_one_gpu_everything_is_sent_away():
    model = Model(10, 8, 64, hidden_size=4096, n_moe_layers=4, n_experts=8, n_active_experts=2, expert_params=1.0)
    found = step(model, NODE.replace(gpus_per_node=1.0), Parallel(1.0, 1.0, 2.0, 2.0), 1.0, 0.0, 0.0, 0.0, E)
    assert float(found.collective_s) == pytest.approx(4 * (3 * 4096 / 2 * 2 / 2 / (0.42 * 5e10) + 2 * 30e-6))


def test_six_bits_do_not_fit_into_a_four_bit_type():
    assert float(terms.peak_flop_per_s(NODE, 0.75)) == 6e14 and float(terms.peak_flop_per_s(NODE, 0.7)) == 12e14


def test_a_latent_of_given_size_and_one_without_an_index():
    model = Model(1, n_mla_layers=1, kv_lora_rank=512, qk_rope_head_dim=64, n_q_heads=2, latent_bytes_per_token=656.0)
    assert float(terms.kv_read_bytes(model, 1000.0)) == 656_000
    assert float(terms.decode_attention_flop(model, 1000.0)) == 2 * 2 * (1024 + 64) * 1000
    first = model.replace(index_topk_tokens=1.0)
    assert float(terms.decode_attention_flop(first, 1000.0)) == 2 * 2 * (1024 + 64)


def test_sliding_heads_are_as_wide_as_the_others_unless_said():
    model = Model(1, n_sliding_layers=1, sliding_window_tokens=100, head_dim=64, n_q_heads=2)
    for sliding, wide in ((0.0, 64), (1.0, 1), (32.0, 32)):
        for flop in (terms.decode_attention_flop, terms.prefill_attention_flop):
            assert float(flop(model.replace(sliding_head_dim=sliding), 1000.0)) == 2 * 4 * wide * 100


def test_no_token_touches_no_expert_and_half_a_token_some():
    model = Model(1, n_moe_layers=1, n_experts=4, n_active_experts=2)
    assert [float(terms.expert_hit_frac(model, t, 0.5)) for t in (0.0, 0.5, 3.0)] == pytest.approx(
        [0.0, 1 - 0.5**0.5, 0.75]
    )
    assert float(terms.expert_hit_frac(Model(1), 5.0)) == 0.0  # no experts
    dense = model.replace(n_active_experts=4.0)
    assert float(jax.grad(lambda t: terms.expert_hit_frac(dense, t))(3.0)) == pytest.approx(0.0, abs=1e-9)


def test_drafts_that_are_always_right_yield_all_of_them():
    assert float(tokens_per_step(3.0, 1.0)) == pytest.approx(4.0, rel=1e-6)
    assert float(tokens_per_step(2.0, 0.5)) == 1.75
