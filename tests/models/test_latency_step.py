"""Bytes, FLOPs and seconds of one step of models made by hand."""

from __future__ import annotations

from itertools import combinations

import jax
import pytest

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.units import GIB
from dmodels.models.latency import Efficiency, iteration_s, parts, prefill_s, step, terms, tokens_per_step
from dmodels.models.memory import runtime_bytes


def test_narrow_weights_run_at_the_16_bit_peak_without_units_of_their_own():
    old = GPU(8e10, 2e12, 3e14)
    new = GPU(8e10, 2e12, 3e14, peak_fp8_flop_per_s=6e14, peak_fp4_flop_per_s=12e14)
    assert [float(terms.peak_flop_per_s(old, b)) for b in (2.0, 1.0, 0.5)] == [3e14] * 3
    assert [float(terms.peak_flop_per_s(new, b)) for b in (2.0, 1.0, 0.5)] == [3e14, 6e14, 12e14]


def test_one_head_of_a_window_is_read_by_every_gpu():
    model = Model(2, 1, 64, n_sliding_layers=1, sliding_window_tokens=100, sliding_kv_heads=1, sliding_head_dim=64)
    full, window = 2 * 64 * 2 * 1000, 2 * 64 * 2 * 100
    assert [float(terms.kv_read_bytes(model, 1000.0, tp)) for tp in (1.0, 8.0)] == [full + window] * 2
    assert float(terms.kv_read_bytes(model, 50.0)) == 2 * 2 * 64 * 2 * 50


def test_a_latent_layer_reads_1152_bytes_a_token_in_bf16():
    model = Model(1, n_mla_layers=1, kv_lora_rank=512, qk_rope_head_dim=64)
    assert float(terms.kv_read_bytes(model, 10.0, 8.0)) == 11_520
    assert float(terms.kv_read_bytes(model.replace(latent_bytes_per_token=0.5), 10.0)) == 5.0


def test_a_window_bounds_what_attention_computes():
    """Two query heads of 64; a full layer attends to 1,000 tokens, a sliding one to 100, for 4 x 64 FLOPs each."""
    model = Model(
        2, 1, 64, n_q_heads=2, n_sliding_layers=1, sliding_window_tokens=100, sliding_kv_heads=1, sliding_head_dim=64
    )
    for flop in (terms.decode_attention_flop, terms.prefill_attention_flop):
        assert float(flop(model, 1000.0)) == pytest.approx(2 * 4 * 64 * 1100)
        assert float(flop(model, 10.0, 2.0)) == pytest.approx(4 * 64 * 20)


def test_a_token_goes_to_two_of_eight_gpus_and_stays_on_an_eighth():
    """8 tokens a GPU of 4,096 dimensions, 1 byte there and 2 back, whether they decode or are of prompts."""
    model = Model(1, hidden_size=4096, n_experts=8, n_active_experts=2)
    for tokens in ((64.0, 0.0), (0.0, 64.0), (24.0, 40.0)):
        sent = terms.expert_exchange_bytes(model, *tokens, Parallel(4.0, 1.0, 2.0, 8.0), 8.0)
        assert (float(sent.near), float(sent.far)) == (3 * 4096 * 8 * 2 * 7 / 8, 0.0)


def test_a_prompts_token_goes_once_to_a_node_and_a_decoded_one_to_every_expert():
    """32 GPUs in 4 nodes, 8 experts a token: of 31 other GPUs 24 are away; 3 other nodes, each with a chance of
    1 - (3/4)^8 that an expert of the token lies there."""
    model = Model(1, hidden_size=1000, n_experts=256, n_active_experts=8)
    wide = Parallel(1.0, 1.0, 32.0, 32.0)
    decoded = terms.expert_exchange_bytes(model, 32.0, 0.0, wide, 8.0)
    assert float(decoded.far) == pytest.approx(3000 * 8 * 31 / 32 * 24 / 31)
    assert float(decoded.near) == pytest.approx(3000 * 8 * 31 / 32 * 7 / 31)
    prompt = terms.expert_exchange_bytes(model, 0.0, 32.0, wide, 8.0)
    assert float(prompt.far) == pytest.approx(3000 * 3 * (1 - 0.75**8))
    assert float(prompt.near) == pytest.approx(3000 * 8 * 31 / 32)  # all copies, handed on inside


def test_groups_of_experts_keep_a_token_in_fewer_nodes():
    """DeepSeek-V3's 4 of 8 groups, against drawing them: two groups to a node of 4, one to a node of 8, half of one."""
    model = Model(1, hidden_size=1000, n_experts=256, n_active_experts=8, n_expert_groups=8, n_active_groups=4)
    choices = list(combinations(range(8), 4))
    for nodes in (2, 4, 8):
        met = sum(len({group * nodes // 8 for group in choice}) for choice in choices) / len(choices)
        wide = Parallel(1.0, 1.0, 8.0 * nodes, 8.0 * nodes)
        sent = float(terms.expert_exchange_bytes(model, 0.0, 8.0 * nodes, wide, 8.0).far)
        assert sent == pytest.approx(3000 * (1 - 1 / nodes) * met * (1 - (1 - 1 / met) ** 8), rel=1e-5)
    ungrouped, apart = model.replace(n_active_groups=0.0), Parallel(1.0, 1.0, 128.0, 128.0)
    halves = float(terms.expert_exchange_bytes(model, 0.0, 128.0, apart, 8.0).far)
    assert halves == pytest.approx(3000 * 15 / 16 * 8 * (1 - (7 / 8) ** 8), rel=1e-5)
    assert halves < float(terms.expert_exchange_bytes(ungrouped, 0.0, 128.0, apart, 8.0).far)


def test_half_of_the_shorter_of_exchange_and_computation_is_hidden_between_nodes():
    """The same layout on GPUs of one domain hides nothing."""
    model = Model(10, 8, 64, hidden_size=4096, n_moe_layers=10, n_experts=64, n_active_experts=4, expert_params=1e7)
    gpu = GPU(8e10, 2e12, 3e14, nvlink_bytes_per_s_oneway=4e11, nic_bytes_per_s_per_gpu_oneway=5e10)
    at = lambda overlap, domain: parts(
        model,
        gpu.replace(gpus_per_node=domain),
        Parallel(1.0, 1.0, 16.0, 16.0),
        decode_count=1600.0,
        context_tokens=1000.0,
        prefill_tokens=0.0,
        attended_tokens=0.0,
        efficiency=Efficiency(exchange_overlap_frac=overlap),
    )
    plain, hidden = at(0.0, 8.0), at(0.5, 8.0)
    exchange = float(plain["expert exchange"].seconds)
    rest = sum(float(part.seconds) for name, part in plain.items() if name != "expert exchange")
    assert float(hidden["expert exchange"].seconds) == pytest.approx(exchange - 0.5 * min(exchange, rest))
    inside = [float(at(overlap, 16.0)["expert exchange"].seconds) for overlap in (0.0, 0.5)]
    assert inside[0] == inside[1] < exchange


def test_two_gpus_have_communicators_and_one_has_none():
    gpu = GPU(8e10, 2e12, 3e14, nvlink_bytes_per_s_oneway=4e11)
    fast, bus = (
        [float(runtime_bytes(g, Parallel(tp))) / GIB for tp in (1.0, 2.0)] for g in (gpu, GPU(8e10, 2e12, 3e14))
    )
    assert fast == pytest.approx([0.16, 1.91]) and bus == pytest.approx([0.16, 0.36])


HALF = Efficiency(
    hbm_frac=0.5,
    flop_frac=0.5,
    expert_hbm_frac=0.5,
    expert_flop_frac=0.5,
    link_frac=0.5,
    expert_imbalance=1.5,
    pass_count=0.0,
    moe_pass_count=0.0,
)


GPU_80 = GPU(8e10, 2e12, 3e14, nvlink_bytes_per_s_oneway=4e11)


def test_one_request_reads_the_weights_once():
    """16 GB at half of 2 TB/s; the multiplications take a hundredth of that and leave no trace in the fourth power."""
    model = Model(10, 8, 64, hidden_size=4096, dense_params=8e9)
    assert float(step(model, GPU_80, Parallel(1.0), 1.0, 0.0, 0.0, 0.0, HALF).matrix_s) == pytest.approx(
        0.016, rel=1e-6
    )


def test_a_million_tokens_multiply_by_two_experts_each():
    """2 FLOPs x 2 experts of 0.1 billion x 4 layers x a million, at half of 300 TFLOP/s; on two GPUs the busier of two
    has a quarter more than the mean."""
    model = Model(10, 8, 64, hidden_size=4096, n_moe_layers=4, n_experts=8, n_active_experts=2, expert_params=1e8)
    at = lambda *layout: float(step(model, GPU_80, Parallel(*layout), 0.0, 0.0, 1e6, 0.0, HALF).expert_s)
    assert at(1.0) == pytest.approx(2 * 2 * 4e8 * 1e6 / 1.5e14, rel=1e-6)
    assert at(2.0, 1.0, 1.0, 2.0) == pytest.approx(1.25 * at(1.0) / 2, rel=1e-6)


def test_launches_by_layer_and_what_each_request_adds():
    """Ten layers of 32 us, four of them 67 us more; with a prompt 200 us more a layer of nine kernels, of which experts
    have eight more; and 8 us a request."""
    model = Model(10, 8, 64, hidden_size=64, n_moe_layers=4, n_experts=8, n_active_experts=2, expert_params=1.0)
    at = lambda n, prompt: float(step(model, GPU_80, Parallel(1.0), n, 0.0, prompt, 0.0, HALF).overhead_s)
    assert (at(3.0, 0.0), at(3.0, 9.0)) == pytest.approx((612e-6, 2612e-6 + 4 * 8 / 9 * 200e-6), rel=1e-4)
    assert at(1000.0, 0.0) == pytest.approx(8588e-6, rel=1e-4)


def test_activations_pass_through_the_memory_whole_but_for_what_tensor_parallelism_divides():
    """10 layers of 20 passes over 2 x 4,096 bytes and 4 more layers' 5, on every GPU; queries, keys and values twice
    and the gate's three widths over the GPUs; 18 bytes an entry of the vocabulary for each request."""
    model = Model(10, 8, 64, hidden_size=4096, attention_params=10 * 4096 * 6144, dense_params=10 * 3 * 4096 * 14336)
    model = model.replace(n_moe_layers=4.0, head_params=4096 * 128_256.0)
    e = HALF.replace(pass_count=20.0, moe_pass_count=5.0)
    whole, divided, sampled = 2 * 4096 * (10 * 20 + 4 * 5), 2 * 10 * (2 * 6144 + 3 * 14336), 18 * 128_256
    for tp, requests, prompt in ((1.0, 8.0, 0.0), (4.0, 8.0, 1000.0)):
        found = step(model, GPU_80, Parallel(tp), requests, 0.0, prompt, 0.0, e).pointwise_s
        moved = (requests + prompt) * (whole + divided / tp) + requests * sampled
        assert float(found) == pytest.approx(moved / (0.5 * 2e12), rel=1e-9)


def test_what_is_sent_within_a_node_takes_at_least_its_bytes_over_the_link_and_no_arithmetic():
    """Of parts the least time is what the data sheet leaves: messages over the link, and no time is below it."""
    model = Model(6, hidden_size=4096, n_experts=8, n_active_experts=2, n_moe_layers=6, expert_params=1e6)
    for name, layout in (("all-reduce", Parallel(8.0)), ("expert exchange", Parallel(1.0, 1.0, 8.0, 8.0))):
        found = parts(model, NODE, layout, 0.0, 0.0, 8000.0, 500.0, E)
        sent = found[name]
        assert float(sent.flop) == 0.0 < float(sent.bytes)
        assert float(sent.least_s) == pytest.approx(float(sent.bytes / NODE.nvlink_bytes_per_s_oneway))
        assert all(float(part.least_s) <= float(part.seconds) for part in found.values())


def test_two_gpus_reduce_twice_a_layer_or_exchange_once():
    """A message of 4,096 x 2 bytes and a hop of 1.5 us at half of 400 GB/s; experts: there and back, 3 bytes at 0.6 of
    it, begun in 30 us."""
    dense = Model(10, 8, 64, hidden_size=4096)
    at = lambda model, *layout: float(step(model, GPU_80, Parallel(*layout), 1.0, 0.0, 0.0, 0.0, HALF).collective_s)
    assert at(dense, 2.0) == pytest.approx(10 * 2 * (8192 / 2e11 + 1.5e-6))
    sparse = Model(10, 8, 64, hidden_size=4096, n_moe_layers=4, n_experts=8, n_active_experts=2, expert_params=1.0)
    assert at(sparse, 1.0, 1.0, 2.0, 2.0) == pytest.approx(4 * (3 * 4096 / 2 * 2 / 2 / (0.6 * 4e11) + 30e-6))


def test_a_step_with_one_prompt_alone_is_its_prefill():
    model = Model(10, 8, 64, hidden_size=4096, n_q_heads=32, dense_params=8e9)
    alone = prefill_s(model, GPU_80, Parallel(1.0), 1e5, HALF)
    mixed = iteration_s(model, GPU_80, Parallel(1.0), 0.0, 0.0, 1e5, 0.0, HALF)
    assert float(mixed) == pytest.approx(float(alone), rel=1e-12)


def test_eight_sequences_read_their_caches():
    """80 layers, 2 x 8 heads of 32 in 2 bytes: 80 KiB a token, 8 x 1,000 tokens, at 0.58 of 2 TB/s."""
    model = Model(80, 8, 32, hidden_size=4096)
    at = step(model, GPU_80, Parallel(1.0), 8.0, 1000.0, 0.0, 0.0, HALF).attention_s
    assert float(at) == pytest.approx(8 * 1000 * 80 * 2 * 8 * 32 * 2 / (0.58 * 2e12), rel=1e-6)


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


def test_a_prompt_of_one_token_runs_without_a_captured_graph():
    at = lambda prompt: float(step(HYBRID, NODE, Parallel(1.0), 0.0, 0.0, prompt, 1.0, E).overhead_s)
    kernels = 12 * 9 + 4 * (5 + 6) + 3 * 4 + 10 * 8  # four latents with indexers, three linear layers, ten of experts
    assert at(1.0) - at(0.0) == pytest.approx(kernels / 9 * 200e-6)


def test_without_fast_links_the_slot_is_used():
    """PCIe 4 x8, 16 GB/s, inside the node and between nodes: a ring over two, and over two nodes of one."""
    model = Model(10, 8, 64, hidden_size=4096)
    bare = GPU(8e10, 2e12, 3e14)
    at = lambda gpu: float(step(model, gpu, Parallel(2.0), 1.0, 0.0, 0.0, 0.0, E).collective_s)
    assert at(bare) == pytest.approx(20 * (8192 / (0.5 * 16e9) + 1.5e-6))
    assert at(bare.replace(gpus_per_node=1.0)) == pytest.approx(20 * (8192 / (0.42 * 16e9) + 30e-6))


def test_a_faster_link_never_sends_slower_where_a_bus_ends_and_others_begin():
    """100 GB/s and below is a bus, of which a ring reaches half here; above it, a fifth of the link."""
    model, e = Model(10, 8, 64, hidden_size=4096), E.replace(link_frac=0.2)
    at = lambda rate: step(model, NODE.replace(nvlink_bytes_per_s_oneway=rate), Parallel(8.0), 64.0, 0.0, 0.0, 0.0, e)
    seconds = [float(at(rate).collective_s) for rate in (32e9, 64e9, 1e11, 1.001e11, 2.4e11, 2.6e11, 9e11)]
    assert seconds == sorted(seconds, reverse=True)
    hops = 20 * 3 * 1.5e-6
    assert (seconds[0] - hops) / (seconds[1] - hops) == pytest.approx(2.0)


def test_tokens_leave_the_node_while_others_are_handed_on_inside():
    """The slower of two links counts, as one hides behind the other; where both take as long, a fifth more at most."""
    model = Model(10, 8, 64, hidden_size=4096, n_moe_layers=4, n_experts=64, n_active_experts=8, expert_params=1.0)
    wide, e = (
        Parallel(1.0, 1.0, 32.0, 32.0),
        E.replace(exchange_overlap_frac=0.0, exchange_us=0.0, node_exchange_us=0.0),
    )
    sent = terms.expert_exchange_bytes(model, 0.0, 32_000.0, wide, 8.0)
    near_s, far_s = float(sent.near / 4e11 / 0.6), float(sent.far / 5e10 / 0.88)
    whole = parts(model, NODE, wide, 0.0, 0.0, 32_000.0, 500.0, e)["expert exchange"]
    assert 4 * max(near_s, far_s) <= float(whole.seconds) <= 4 * min(1.19 * max(near_s, far_s), near_s + far_s)


def test_between_two_nodes_of_one_gpu_everything_is_sent_away():
    model = Model(10, 8, 64, hidden_size=4096, n_moe_layers=4, n_experts=8, n_active_experts=2, expert_params=1.0)
    serial = E.replace(exchange_overlap_frac=0.0)
    found = step(model, NODE.replace(gpus_per_node=1.0), Parallel(1.0, 1.0, 2.0, 2.0), 1.0, 0.0, 0.0, 0.0, serial)
    assert float(found.collective_s) == pytest.approx(4 * (3 * 4096 / 2 * 2 / 2 / (0.88 * 5e10) + 30e-6 + 60e-6))


def test_six_bits_do_not_fit_into_a_four_bit_type():
    assert float(terms.peak_flop_per_s(NODE, 0.75)) == 6e14 and float(terms.peak_flop_per_s(NODE, 0.7)) == 12e14


def test_a_latent_of_given_size_and_one_without_an_index():
    model = Model(1, n_mla_layers=1, kv_lora_rank=512, qk_rope_head_dim=64, n_q_heads=2, latent_bytes_per_token=656.0)
    assert float(terms.kv_read_bytes(model, 1000.0)) == 656_000
    assert float(terms.decode_attention_flop(model, 1000.0)) == 2 * 2 * (1024 + 64) * 1000
    first = model.replace(index_topk_tokens=1.0)
    assert float(terms.decode_attention_flop(first, 1000.0)) == 2 * 2 * (1024 + 64)


def test_beside_a_prompt_a_decoded_token_fills_a_tile_for_every_head():
    """10 requests, 8 heads of 128 in 2 layers, contexts of 1,000: 4 x 128 FLOPs a head and token, or 64 rows of them at
    half of 1 PFLOP/s; their caches take a thousandth of that. A latent's heads share a tile anyway."""
    gpu, tiled = GPU(8e10, 2e15, 1e15), Efficiency(beside_rows=64.0, attention_flop_frac=0.5, decode_flop_frac=0.25)
    model, flop = Model(2, 2, 128, n_q_heads=8), 10 * 2 * 8 * 4 * 128 * 1000

    def decodes(model: Model, prompt_tokens: float, e: Efficiency) -> float:
        return float(
            parts(model, gpu, Parallel(), 10.0, 1000.0, prompt_tokens, 50.0, e)["attention of decodes"].seconds
        )

    assert decodes(model, 100.0, tiled) == pytest.approx(64 * flop / 0.5e15, rel=1e-3)
    assert decodes(model, 0.0, tiled) == decodes(model, 100.0, tiled.replace(beside_rows=1.0))
    latent = Model(2, n_mla_layers=2, kv_lora_rank=512, qk_rope_head_dim=64, n_q_heads=8)
    assert decodes(latent, 100.0, tiled) == decodes(latent, 0.0, tiled)


def test_an_indexer_scores_every_token_and_attention_is_to_those_selected():
    """DeepSeek-V3.2's layer: 64 heads of 128 score 10,000 tokens on every rank; 128 heads attend to 2,048 latents."""
    model = Model(1, n_mla_layers=1, kv_lora_rank=512, qk_rope_head_dim=64, n_q_heads=128, index_topk_tokens=2048)
    model = model.replace(n_index_heads=64.0, index_head_dim=128.0, qk_nope_head_dim=128.0, v_head_dim=128.0)
    assert float(terms.index_flop(model, 10_000.0)) == 2 * 64 * 128 * 10_000
    for flop in (terms.decode_attention_flop, terms.prefill_attention_flop):
        assert float(flop(model, 10_000.0, 8.0)) == 16 * 2 * (576 + 512) * 2048
    whole = model.replace(index_topk_tokens=0.0)
    assert float(terms.prefill_attention_flop(whole, 10_000.0, 8.0)) == 16 * 2 * (192 + 128) * 10_000


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
