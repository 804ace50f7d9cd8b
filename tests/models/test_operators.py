"""Facts about the laws of operators: floors, monotonicity, limits, gradients, and what experts tokens reach."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.hardware import GPU
from dmodels.models.operators import LAWS, Choice, Operator, floor_s, layer_s, time_s, typical
from dmodels.models.operators.attention import pairs
from dmodels.models.operators.constants import values
from dmodels.models.operators.formats import FORMATS, Format
from dmodels.models.operators.moe import loads

GPUS = sorted(catalog.gpus())
ATTENTION = {
    "batch_size": 4.0,
    "isl": 512.0,
    "prefix": 1024.0,
    "num_heads": 32.0,
    "num_key_value_heads": 8.0,
    "qk_dim": 128.0,
    "v_dim": 128.0,
    "window": 0.0,
    "causal": 1.0,
    "cache_bytes": 2.0,
    "shared_latent": 0.0,
}
BLOCK = {
    "batch_size": 4.0,
    "isl": 512.0,
    "prefix": 4096.0,
    "num_heads": 16.0,
    "token_weights": 2e7,
    "head_weights": 1.3e6,
    "qk_dim": 576.0,
    "v_dim": 512.0,
    "entry_bytes": 1152.0,
    "top_k": 2048.0,
    "index_dim": 8192.0,
    "compress_ratio": 1.0,
}
#: A shape of each law, and the fields along which its time must not fall.
SHAPES = {
    "gemm": ({"m": 64.0, "n": 4096.0, "k": 4096.0}, ("m",)),
    "moe": (
        {
            "num_tokens": 64.0,
            "hidden_size": 4096.0,
            "inter_size": 1536.0,
            "topk": 8.0,
            "num_experts": 128.0,
            "moe_tp_size": 1.0,
            "moe_ep_size": 4.0,
            "matrices": 3.0,
            "skew": 1.0,
        },
        ("num_tokens",),
    ),
    "context_attention": (ATTENTION, ("batch_size", "isl", "prefix", "num_heads")),
    "generation_attention": (ATTENTION | {"isl": 1.0}, ("batch_size", "prefix", "num_heads")),
    "dsa_context_module": (BLOCK, ("batch_size", "isl", "prefix", "num_heads")),
    "mla_generation_module": (BLOCK | {"isl": 1.0, "top_k": 0.0}, ("batch_size", "prefix", "num_heads")),
    "gdn_recurrence": (
        {
            "batch_size": 4.0,
            "seq_len": 512.0,
            "channels": 8192.0,
            "heads": 32.0,
            "key_dim": 128.0,
            "value_dim": 128.0,
            "conv": 0.0,
        },
        ("batch_size", "seq_len", "heads"),
    ),
    "all_reduce": ({"message_bytes": 1e6, "ranks": 4.0, "sends": 2.0}, ("message_bytes",)),
}


#: `time_s`, compiled once for a kind, a number format and a shape of arrays, not operation by operation.
timed = jax.jit(time_s, static_argnums=(0, 2, 5))


@cache
def compiled(kind):
    """Time and floor of a kind, for shapes and GPUs: one compilation for all of them."""
    return jax.jit(lambda shape, gpu: (time_s(kind, shape, "bfloat16", gpu), floor_s(kind, shape, "bfloat16", gpu)))


def sweep(kind, field):
    """The kind's shape with one field swept: whole numbers over four decades, those beside powers of two among them."""
    shape = SHAPES[kind][0]
    powers = shape[field] * 2.0 ** np.arange(-8, 9)
    grid = np.sort(np.concatenate([powers, powers + 1.0, np.geomspace(1.0, shape[field] * 64.0, 40)]))
    grid = np.maximum(np.round(grid), 1.0)
    return {k: np.full(grid.shape, v) for k, v in shape.items()} | {field: grid}


@pytest.mark.parametrize("kind", SHAPES)
def test_no_time_is_below_the_data_sheet_and_none_falls_as_work_grows(kind):
    for name in GPUS:
        for field in SHAPES[kind][1]:
            t, floor = map(np.asarray, compiled(kind)(sweep(kind, field), catalog.gpu(name)))
            assert np.all(np.isfinite(t)) and np.all(t > 0)
            assert np.all(t >= floor * (1 - 1e-12))
            assert np.all(np.diff(t) >= -1e-9 * t[1:]), (name, field)


def test_the_floor_of_a_product_is_its_weights_through_the_memory_or_its_flops_at_the_peak():
    h100 = catalog.gpu("h100_sxm")
    one = {"m": 1.0, "n": 16384.0, "k": 16384.0}
    assert float(timed("gemm", one, "bfloat16", h100)) > 16384**2 * 2 / 3.35e12
    many = {"m": 8192.0, "n": 8192.0, "k": 8192.0}
    assert float(timed("gemm", many, "bfloat16", h100)) > 2 * 8192**3 / 989.4e12
    assert float(timed("gemm", many, "fp8", h100)) > 2 * 8192**3 / 1978.9e12


@pytest.mark.parametrize("kind", SHAPES)
def test_a_gpu_with_better_rates_is_never_slower(kind):
    slow = catalog.gpu("h100_sxm")
    faster = [
        slow.replace(hbm_bytes_per_s=slow.hbm_bytes_per_s * 1.5),
        slow.replace(peak_flop_per_s=slow.peak_flop_per_s * 1.5),
        slow.replace(nvlink_bytes_per_s_oneway=slow.nvlink_bytes_per_s_oneway * 1.5),
        catalog.gpu("h200_sxm"),
    ]
    swept = sweep(kind, SHAPES[kind][1][0])
    before, _ = compiled(kind)(swept, slow)
    for gpu in faster:
        after, _ = compiled(kind)(swept, gpu)
        assert np.all(np.asarray(after) <= np.asarray(before) * (1 + 1e-12))


#: Each kind has a program of its own; of the others the default tests leave the derivatives out.
DERIVED = ("gemm", "moe", "generation_attention")


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k not in DERIVED)) for k in SHAPES])
def test_gradients_by_constants_match_finite_differences(kind):
    h200, u = catalog.gpu("h200_sxm"), jnp.asarray(typical(kind)) + 0.1

    @jax.jit
    @jax.value_and_grad
    def log_time(v):
        return jnp.log(time_s(kind, SHAPES[kind][0], "bfloat16", h200, v, 1.0))

    slope, step = np.asarray(log_time(u)[1]), 1e-5
    assert np.all(np.isfinite(slope))
    for i, j in np.ndindex(*u.shape):
        e = np.zeros(u.shape)
        e[i, j] = step
        assert slope[i, j] == pytest.approx(float(log_time(u + e)[0] - log_time(u - e)[0]) / (2 * step), abs=2e-6)


@pytest.mark.parametrize("kind", LAWS)
def test_constants_stay_in_their_plausible_bounds_whatever_is_fitted(kind):
    constants = LAWS[kind].constants
    assert len({c.name for c in constants}) == len(constants)
    for u in (-50.0, -1.0, 0.0, 3.0, 50.0):
        found = values(constants, np.full(len(constants), u))
        for c in constants:
            assert c.low * (1 - 1e-9) <= float(found[c.name]) <= c.high * (1 + 1e-9)
            assert c.low < c.typical < c.high
    at = values(constants, typical(kind)[0])
    assert all(float(at[c.name]) == pytest.approx(c.typical, rel=1e-9) for c in constants)
    assert all(c.high <= 1.0 for c in constants if c.name.endswith("bandwidth_frac") or c.name == "compute_frac")


@pytest.mark.parametrize(
    "isl,prefix,window", [(1, 0, 0), (7, 0, 0), (7, 5, 0), (7, 0, 3), (7, 5, 3), (7, 5, 8), (4, 9, 128)]
)
def test_pairs_are_counted_one_by_one(isl, prefix, window):
    counted = sum(min(prefix + i, window) if window else prefix + i for i in range(1, isl + 1))
    assert float(pairs(float(isl), float(prefix), float(window), 1.0)) == counted


def test_experts_that_uneven_tokens_reach_as_a_simulation_counts_them():
    rng, experts, alpha = np.random.default_rng(0), 256, 1.5
    c = {"skew1_power": 0.3, "skew2_power": 0.4, "evening_power": 0.1, "skew1_shape": alpha, "skew2_shape": alpha}
    for tokens in (8, 64, 512):
        shape = {"num_tokens": tokens, "topk": 8.0, "num_experts": float(experts), "moe_ep_size": 1.0, "skew": 1.0}
        found, reached = loads({k: jnp.array([float(v)]) for k, v in shape.items()}, c)
        assert float(found[0]) == tokens * 8
        weight = rng.gamma(alpha, 1.0 / alpha, (4000, experts))
        counted = (rng.poisson(weight * tokens * 8 / experts) > 0).sum(axis=1).mean()
        assert float(reached[0]) == pytest.approx(counted, rel=0.02)


def test_balanced_tokens_reach_as_many_experts_as_they_can_and_ranks_share_them():
    shape = {"num_tokens": 16.0, "topk": 8.0, "num_experts": 256.0, "moe_ep_size": 8.0, "skew": 0.0}
    c = {"skew1_power": 0.3, "skew2_power": 0.4, "evening_power": 0.1, "skew1_shape": 1.5, "skew2_shape": 1.3}
    found, reached = loads({k: jnp.array([v]) for k, v in shape.items()}, c)
    assert (float(found[0]), float(reached[0])) == (16.0, 16.0)


def test_the_fullest_rank_of_many_experts_is_nearer_the_mean():
    c = {"skew1_power": 0.3, "skew2_power": 0.4, "evening_power": 0.2, "skew1_shape": 1.5, "skew2_shape": 1.3}
    shape = {"num_tokens": 4096.0, "topk": 2.0, "num_experts": np.array([8.0, 64.0, 512.0]), "moe_ep_size": 8.0}
    found, _ = loads({k: jnp.broadcast_to(v, (3,)) for k, v in (shape | {"skew": 1.0}).items()}, c)
    over_mean = np.asarray(found) / (4096.0 * 2.0 / 8.0)
    assert over_mean[0] == pytest.approx(8.0**0.3)  # a rank of one expert: nothing evens out
    assert np.all(np.diff(over_mean) < 0.0) and np.all(over_mean > 1.0)


def test_pairs_with_other_ranks_experts_cost_where_a_kernel_computes_them():
    """A kernel that computes all pairs of every token it sees takes as long on 2 ranks as on 1, where each token has a
    pair on either; one that computes none takes half. Alone, a rank has no such pairs."""
    shape = {"num_tokens": 16384.0, "hidden_size": 4096.0, "inter_size": 14336.0, "topk": 2.0, "num_experts": 8.0}
    shape |= {"moe_tp_size": 1.0, "matrices": 3.0, "skew": 0.0}
    h100 = catalog.gpu("h100_sxm")
    took = {}
    for share in (0.0011, 0.999):
        u = changed("moe", foreign_frac=share)
        for ranks in (1.0, 2.0):
            took[share, ranks] = float(timed("moe", shape | {"moe_ep_size": ranks}, "bfloat16", h100, u))
    assert took[0.999, 1.0] == pytest.approx(took[0.0011, 1.0], rel=1e-9)
    assert took[0.999, 2.0] == pytest.approx(took[0.999, 1.0], rel=0.05)
    assert took[0.0011, 2.0] == pytest.approx(took[0.0011, 1.0] / 2.0, rel=0.1)


def changed(kind, **to):
    """The typical constants with some at other values, as u."""
    constants, u = LAWS[kind].constants, typical(kind).copy()
    for i, c in enumerate(constants):
        if c.name in to:
            u[:, i] = c._replace(typical=to[c.name]).origin
    return u


def test_a_cache_in_one_part_takes_as_long_as_it_is_and_parts_share_it_out():
    """One sequence of one KV head: without parts one of 132 multiprocessors reads it."""
    h100, shape = catalog.gpu("h100_sxm"), ATTENTION | {"batch_size": 1.0, "num_key_value_heads": 1.0, "isl": 1.0}
    length = shape | {"prefix": np.array([65536.0, 131072.0])}
    alone, two = (
        np.asarray(
            timed("generation_attention", length, "bfloat16", h100, changed("generation_attention", most_parts=n))
        )
        for n in (1.0 + 1e-9, 2.0)
    )
    assert alone[1] / alone[0] == pytest.approx(2.0, rel=0.02)
    assert alone[1] / two[1] == pytest.approx(2.0, rel=0.05)


def test_a_kernel_that_skips_nothing_outside_a_window_reads_the_whole_cache():
    h100, shape = catalog.gpu("h100_sxm"), ATTENTION | {"batch_size": 64.0, "isl": 1.0, "prefix": 32767.0}
    whole = float(timed("generation_attention", shape, "bfloat16", h100))
    took = [
        float(
            timed(
                "generation_attention",
                shape | {"window": 1024.0},
                "bfloat16",
                h100,
                changed("generation_attention", unskipped_frac=f),
            )
        )
        for f in (1e-4 * (1 + 1e-9), 1.0 - 1e-9)
    ]
    assert took[0] < 0.1 * whole and took[1] == pytest.approx(whole, rel=1e-2)


@pytest.mark.parametrize("kind", ["gemm", "moe", "context_attention", "generation_attention"])
def test_only_what_fits_into_the_last_level_cache_is_faster_in_a_benchmark_s_loop(kind):
    h100, u = catalog.gpu("h100_sxm"), changed(kind, cache_gain=2.0, bandwidth_frac=0.1)
    field = SHAPES[kind][1][0]
    shape = {k: np.full(2, v) for k, v in SHAPES[kind][0].items()} | {field: np.array([1.0, 65536.0])}
    shape |= {"hidden_size": np.array([512.0, 7168.0])} if kind == "moe" else {}
    shape |= {"n": np.array([1024.0, 16384.0])} if kind == "gemm" else {}
    cold, warm = (np.asarray(timed(kind, shape, "bfloat16", h100, u, w)) for w in (0.0, 1.0))
    assert warm[0] < 0.999 * cold[0] and warm[1] == pytest.approx(cold[1], rel=1e-3)


def test_large_products_reach_the_law_s_share_of_the_peak_and_single_rows_that_of_the_memory():
    """Between the share of one tile size and the gain of choosing among ten, and never beyond the data sheet."""
    h100, c = catalog.gpu("h100_sxm"), values(LAWS["gemm"].constants, typical("gemm")[0])
    gain = 10 ** (1 / float(c["choice_power"]))
    shape = {"m": np.array([65536.0, 1.0]), "n": np.array([65536.0, 65536.0]), "k": np.array([16384.0, 65536.0])}
    large, row = np.asarray(timed("gemm", shape, "bfloat16", h100))
    of_peak, of_memory = 2 * 65536**2 * 16384 / large / 989.4e12, 2 * 65536**2 / row / 3.35e12
    assert 0.6 * float(c["compute_frac"]) < of_peak <= min(1.0, gain * float(c["compute_frac"]))
    assert 0.85 * float(c["bandwidth_frac"]) < of_memory <= min(1.0, gain * float(c["bandwidth_frac"]))


def test_a_layer_is_the_sum_of_its_operators_and_broadcasts():
    h100 = catalog.gpu("h100_sxm")
    tokens = np.array([[1.0], [64.0]])
    width = np.array([1024.0, 4096.0, 8192.0])
    one = Operator("gemm", {"m": tokens, "n": width, "k": 4096.0})
    two = Operator("all_reduce", {"message_bytes": tokens * 8192.0, "ranks": 8.0, "sends": 2.0}, count=2.0)
    both = jax.jit(lambda: layer_s([one, two], h100))()
    assert both.shape == (2, 3)
    alone = timed("gemm", one.shape, "bfloat16", h100) + 2 * timed("all_reduce", two.shape, "bfloat16", h100)
    assert np.allclose(both, alone)


def test_a_choice_runs_each_shape_by_its_kernel():
    h100 = catalog.gpu("h100_sxm")
    slow = typical("gemm").copy()
    slow[:, 0] = 20.0  # the longest launch
    choice = Choice(np.array([typical("gemm"), slow]), ["m", 16.0, 1, 0])
    shape = {"m": np.array([8.0, 32.0]), "n": 1024.0, "k": 1024.0}
    by = lambda: [time_s("gemm", shape, "bfloat16", h100, u) for u in (choice, typical("gemm"), slow)]
    chosen, fast, late = map(np.asarray, jax.jit(by)())
    assert chosen[0] == late[0] > fast[0] and chosen[1] == fast[1] < late[1]


def test_formats_without_units_run_at_the_next_wider_rate():
    a100 = catalog.gpu("a100_80gb_sxm")  # no FP8
    large = {"m": 8192.0, "n": 8192.0, "k": 8192.0}
    assert float(floor_s("gemm", large, "fp8", a100)) == pytest.approx(2 * 8192**3 / 312e12)
    assert float(floor_s("gemm", large, "nvfp4", catalog.gpu("h100_sxm"))) == pytest.approx(2 * 8192**3 / 1978.9e12)


@pytest.mark.parametrize(
    "kind,shape,dtype,said",
    [
        ("gem", {}, "bfloat16", "operator 'gem' is unknown; the nearest are gemm"),
        ("gemm", {"m": 1.0, "n": 1.0}, "bfloat16", "gemm: k is missing; a shape has m, n, k"),
        ("gemm", {"m": 1.0, "n": 1.0, "k": 1.0, "l": 1.0}, "bfloat16", "field of gemm 'l' is unknown"),
        ("gemm", {"m": 1.0, "n": 1.0, "k": 1.0}, "fp9", "number format 'fp9' is unknown; the nearest are fp8"),
    ],
)
def test_mistakes_are_named(kind, shape, dtype, said):
    with pytest.raises(InputError, match=said):
        time_s(kind, shape, dtype, GPU(80e9, 3e12, 1e15))


def work_of(kind, **shape):
    """FLOPs and bytes of numbers of 16 bits."""
    return tuple(float(x) for x in LAWS[kind].work(shape, Format(2.0, 2.0, 16, 0.0)))


@pytest.mark.parametrize(
    ("causal", "window", "latent"),
    [(1, 0, 0), (1, 3, 0), (0, 0, 0), (1, 0, 1)],
    ids=["", "window", "encoder", "latent"],
)
def test_work_of_attention_is_counted_position_by_position(causal, window, latent):
    """2 prompts of 4 new tokens after 5, 6 heads of which 3 share a KV head, keys of 8 numbers and values of 4."""
    new, prefix, heads, kv_heads, qk, v = 4, 5, 6, 2, 8, 4
    flops = bytes_ = 0.0
    for _ in range(2):
        for query in range(prefix, prefix + new):
            at = [k for k in range(prefix + new) if not causal or (k <= query and (not window or k > query - window))]
            flops += heads * len(at) * 2 * (qk + v)  # a multiplication and an addition for each number
            bytes_ += 2 * heads * (qk + v)  # the query comes, the output goes
        kept = min(prefix, window) if window else prefix
        bytes_ += (kept + new) * kv_heads * 2 * (qk if latent else qk + v)  # a latent is key and value at once
    shape = {"batch_size": 2, "isl": new, "prefix": prefix, "num_heads": heads, "num_key_value_heads": kv_heads}
    shape |= {"qk_dim": qk, "v_dim": v, "window": window, "causal": causal, "cache_bytes": 2, "shared_latent": latent}
    assert work_of("context_attention", **shape) == work_of("generation_attention", **shape) == (flops, bytes_)


def test_work_of_the_other_operators_by_hand():
    """(3 x 5) by (5 x 4); 6 tokens with 2 of 4 experts each, on 2 ranks of experts that are cut in 2; 2 prompts of 3
    tokens through 120 numbers of weights; 1 kB among 4 ranks."""
    assert work_of("gemm", m=3, n=4, k=5) == (2 * 60, 2 * (20 + 15 + 12))
    experts = {"num_tokens": 6, "topk": 2, "num_experts": 4, "moe_ep_size": 2, "moe_tp_size": 2, "matrices": 3}
    assert work_of("moe", hidden_size=8, inter_size=4, **experts) == (6 * 2 * 3 * 16, 3 * 16 * 2)
    projections = {"batch_size": 2, "isl": 3, "num_heads": 2, "token_weights": 100, "head_weights": 10}
    assert work_of("mla_context_module", **projections) == (6 * 2 * 120, 120 * 2)
    assert work_of("all_reduce", message_bytes=1000, ranks=4) == (0, 750)


def test_number_formats_have_the_bits_of_their_names():
    """Scales add an eighth at most; arithmetic has the activations' bits, which are quantised below 16."""
    by_name = {"bfloat16": (16, 16), "float16": (16, 16), "half": (16, 16), "sq": (8, 8), "nvfp4": (4, 4)}
    by_name |= {name: (8, 8) for name in ("fp8", "fp8_e4m3", "fp8_block", "int8")}
    by_name |= {"int8_wo": (8, 16), "int4_wo": (4, 16), "w4a16_mxfp4": (4, 16), "w4afp8": (4, 8)}
    by_name |= {"w4a8_mxfp4_mxfp8": (4, 8)}
    assert by_name.keys() == FORMATS.keys()
    for name, (weight, activation) in by_name.items():
        form = FORMATS[name]
        assert weight <= 8 * form.weight_bytes <= weight * 9 / 8 and form.bits == activation, name
        assert activation <= 8 * form.activation_bytes <= activation * 9 / 8 and form.quantises == (activation < 16), (
            name
        )
    assert 8 * FORMATS["nvfp4"].weight_bytes == 4 + 8 / 16 and 8 * FORMATS["w4a16_mxfp4"].weight_bytes == 4 + 8 / 32
