"""Statistics of fitted curves by their definitions, and tables of kernels row by row."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.fit.curves import CurveFit, compare, fit_linear, sweep
from dmodels.fit.hierarchy import deviation, generation, levels
from dmodels.fit.operators.blocks import BLOCKS, block
from dmodels.fit.operators.coefficients import DATA_SHEET, MEASURED, RELATIVES, Coefficients, Kind
from dmodels.fit.operators.columns import NOT_GATED, READERS, WHOLE_TOKENS
from dmodels.fit.operators.hierarchy import DEVIATION
from dmodels.fit.points import FORMATS, checkpoint
from dmodels.fit.rows import parse_row
from tests.fit.test_rows import AGG


def curve(residuals, parameters=2, law="a"):
    values = {f"p{k}": 1.0 + k for k in range(parameters)}
    return CurveFit(law, values, np.diag(0.01 * np.arange(1.0, parameters + 1)), np.asarray(residuals, float))


def test_the_experts_that_are_computed_otherwise_are_those_of_known_models():
    """All pairs of a token: both Mixtrals and Gemma 4; without a gate: Nemotron's, of two matrices."""

    def shape(name: str, matrices: int) -> tuple[float, float]:
        model = catalog.model(name)
        return float(model.hidden_size), float(model.expert_params / model.hidden_size / matrices)

    assert {shape(name, 3) for name in ("mixtral-8x7b", "mixtral-8x22b", "gemma-4-26b-a4b")} == WHOLE_TOKENS
    assert shape("nemotron-3-nano-30b-a3b", 2) in NOT_GATED and not NOT_GATED & WHOLE_TOKENS


def test_spread_and_information_of_residuals():
    """Akaike's criterion of n points and k parameters, the variance one of them, with its correction for few points."""
    left = np.random.default_rng(0).normal(0, 0.1, 9)
    for k in (1, 2, 4):
        found, square = curve(left, k), float(left @ left)
        assert found.sigma == pytest.approx(math.sqrt(square / (9 - k)))
        every = k + 1
        assert found.aicc == pytest.approx(9 * math.log(square / 9) + 2 * every * 9 / (9 - every - 1), rel=1e-6)
        assert found.values["p0"] == 1.0
        low, high = found.interval("p0", 0.9)
        assert math.log(high / low) / 2 == pytest.approx(stats.t.ppf(0.95, 9 - k) * 0.1)
        assert low * high == pytest.approx(1.0)
    assert curve(left[:4], 2).aicc == math.inf and math.isnan(curve(left[:2], 2).sigma)
    assert curve(left[:5], 2).aicc < math.inf


def test_laws_are_ranked_by_their_information():
    rng = np.random.default_rng(1)
    fits = [curve(rng.normal(0, s, 12), 2, name) for name, s in (("b", 0.2), ("a", 0.1), ("c", 0.15))]
    rows = compare(*fits)
    assert [row["law"] for row in rows] == [f.law for f in sorted(fits, key=lambda f: f.aicc)]
    likely = {f.law: math.exp(-f.aicc / 2) for f in fits}
    for row in rows:
        assert row["weight"] == pytest.approx(likely[row["law"]] / sum(likely.values()))
        assert row["delta"] == pytest.approx(row["aicc"] - rows[0]["aicc"]) and row["parameters"] == 2


def test_so_few_sign_changes_by_counting_all_orders():
    """Of all orders of 4 and 5 signs, how many have no more runs; the normal law is near, with half a run's step."""
    runs = lambda signs: 1 + sum(a != b for a, b in itertools.pairwise(signs))
    every = [runs(order) for order in set(itertools.permutations([1] * 4 + [-1] * 5))]
    for most in (2, 3, 4, 5, 6):
        signs = next(o for o in set(itertools.permutations([1] * 4 + [-1] * 5)) if runs(o) == most)
        exact = sum(count <= most for count in every) / len(every)
        assert curve(signs).runs_p() == pytest.approx(exact, abs=0.02)
    assert [curve([1.0] * count).runs_p() for count in (2, 3, 6)] == [1.0, 1 / 4, 1 / 32]
    for lone, share in (([-1.0, *[1.0] * 6], 2 / 7), ([1.0, -1.0, *[1.0] * 5], 1.0)):  # one of seven: at an end, or not
        assert curve(lone).runs_p() == pytest.approx(share, abs=0.05)
    assert curve([1.0, 0.0, -1.0, 0.0]).runs_p() == curve([1.0, -1.0]).runs_p()


def test_a_lines_covariance_is_that_of_its_least_squares():
    """In logarithms of both values, by differences of the fitted line."""
    x = np.array([1.0, 2, 4, 8, 16, 32])
    y = (8e-3 + 6e-4 * x) * np.exp(np.random.default_rng(3).normal(0, 0.03, 6))
    found = fit_linear(x[::-1], y[::-1])
    w, h = found.values["base_s"], found.values["per_sequence_s"]
    assert found.residuals == pytest.approx(np.log(y) - np.log(w + h * x))
    slopes = np.stack([w / (w + h * x), h * x / (w + h * x)], 1)
    assert slopes.T @ found.residuals == pytest.approx([0.0, 0.0], abs=1e-6)
    covariance = np.linalg.inv(slopes.T @ slopes) * (found.residuals @ found.residuals) / 4
    np.testing.assert_allclose(found.log_covariance, covariance, rtol=1e-5)


def test_sweeps_are_sorted_and_their_mistakes_named():
    x, y = sweep([3, 1, 2, 2], [30, 10, 20, 21], 3)
    assert x.tolist() == [1, 2, 2, 3] and y.tolist() == [10, 20, 21, 30]
    for load, value, why in (
        ([1, 2], [1], "2 loads and 1 values"),
        ([1, 2, 2], [1, 2, 3], "2 distinct loads; this law needs at least 3"),
        ([1, 2, 3], [1, 0, 3], r"point 2 is \(2, 0\)"),
        ([0, 2, 3], [1, 1, 3], r"point 1 is \(0, 1\)"),
    ):
        with pytest.raises(InputError, match=why):
            sweep(load, value, 3)


def test_levels_of_a_row_and_what_they_may_move():
    named = levels("h100_sxm", "vllm", "fp8", "llama", "agg", "0.19.0")
    assert (generation("h100_sxm"), generation("a100_sxm"), generation("b200_sxm"), generation("")) == (
        *("fp8", "bf16", "fp4"),
        "",
    )
    expected = {"all", "generation=fp8", "gpu=h100_sxm", "backend=vllm", "generation+backend=fp8+vllm", "mode=agg"}
    expected |= {"gpu+backend=h100_sxm+vllm", "precision=fp8", "generation+precision=fp8+fp8", "family=llama"}
    expected |= {"family+generation=llama+fp8", "family+backend=llama+vllm", "mode+gpu+backend=agg+h100_sxm+vllm"}
    expected |= {"release+family=vllm+0.19.0+llama", "run=agg+h100_sxm+vllm+fp8+llama"}
    expected |= {"generation+run=agg+fp8+vllm+fp8+llama"}  # H100 and H200 have their kernels in common
    expected |= {"deployment="}  # none: its layout is not stated
    assert set(named) == expected and len(named) == len(expected)
    assert deviation("release+family=", "layer_us") == 0.0 < deviation("all", "layer_us")
    assert deviation("gpu=h100_sxm", "layer_us") == 0.0  # the host's time has no GPU
    assert "release+family=" in levels("h100_sxm", "vllm", "fp8", "llama", "agg")


@pytest.mark.parametrize(
    "model, dense, experts, sizes",
    [  # bytes of attention, dense matrices, experts, and an entry of the cache
        ("meta-llama/Llama-3.1-70B-Instruct", "", "", (2, 2, 2, 2)),
        ("meta-llama/Llama-3.1-70B-Instruct", "fp8", "", (1, 1, 1, 1)),
        ("meta-llama/Llama-3.1-70B-Instruct", "nvfp4", "", (0.5625, 0.5625, 0.5625, 1)),
        ("meta-llama/Llama-3.1-70B-Instruct", "int4_wo", "", (0.53125, 0.53125, 0.53125, 2)),
        ("deepseek-ai/DeepSeek-R1", "fp8", "fp8_block", (1, 1, 1, 1)),
        ("deepseek-ai/DeepSeek-R1", "nvfp4", "nvfp4", (2, 0.5625, 0.5625, 1)),
        ("moonshotai/Kimi-K2-Thinking", "int4", "int4", (2, 2, 0.53125, 2)),
        ("openai/gpt-oss-120b", "", "w4a16_mxfp4", (2, 2, 0.53125, 2)),
        ("openai/gpt-oss-120b", "", "nvfp4", (2, 2, 0.53125, 2)),
    ],
)
def test_formats_of_published_checkpoints(model, dense, experts, sizes):
    row = parse_row(AGG | {"model_path": model, "gemm_quant_mode": dense, "moe_quant_mode": experts})
    found = checkpoint(row)
    fields = ("attention_dtype_bytes", "dense_dtype_bytes", "expert_dtype_bytes", "kv_dtype_bytes")
    assert [float(getattr(found, name)) for name in fields] == pytest.approx(sizes, rel=0.07)
    assert set(FORMATS.values()) <= {"bf16", "fp8", "fp8_block", "fp4", "mxfp4", "int4", "int8"}


def read(kind, gpu="", engine="", **columns):
    """The rows of a table, with a latency of 3 ms."""
    count = max(len(v) for v in columns.values() if isinstance(v, list))
    spread = {k: np.array(v if isinstance(v, list) else [v] * count) for k, v in columns.items()}
    table = {k: v.astype(float) if v.dtype.kind in "iu" else v for k, v in spread.items()}
    whose = {"gpu": gpu, "engine": engine, "kernel_source": np.array(["k"] * count), "latency": np.full(count, 3.0)}
    return dict(READERS[kind](whose | table))


def test_products_and_experts_are_read_as_they_stand():
    (rows,) = read("gemm", m=[5, 6], n=[7, 8], k=[9, 10], gemm_dtype="fp8").values()
    assert [rows[name].tolist() for name in "mnk"] == [[5, 6], [7, 8], [9, 10]] and rows["dtype"].tolist() == [
        "fp8"
    ] * 2
    assert rows["seconds"].tolist() == [3e-3] * 2 and rows["kernel"].tolist() == ["k"] * 2
    sizes = {"num_tokens": 3, "topk": 4, "num_experts": 16, "moe_tp_size": 2, "moe_ep_size": 8, "moe_dtype": "fp8"}
    names = ["balanced", "power_law_1.01", "power_law_1.2", "nobody's"]
    (rows,) = read(
        "moe", hidden_size=[2688, 2688, 4096, 1], inter_size=[1856, 99, 2688, 1], distribution=names, **sizes
    ).values()
    assert rows["matrices"].tolist() == [2.0, 3.0, 2.0] and rows["skew"].tolist() == [0.0, 1.0, 2.0]
    for name, value in sizes.items():
        column = "dtype" if name == "moe_dtype" else name
        assert rows[column].tolist() == [value] * 3, name
    assert rows["hidden_size"].tolist() == [2688, 2688, 4096] and rows["inter_size"].tolist() == [1856, 99, 2688]


def test_tiles_of_triton_kernels_of_experts():
    """Public facts: SGLang ships tiles for 64 experts of 1,536 on H100 in BF16, none for 64 of 1,024, none on GB200."""
    layer = {"topk": 8, "num_experts": 128, "moe_tp_size": 1, "moe_ep_size": 2, "hidden_size": 4096}
    layer |= {"moe_dtype": "bfloat16", "distribution": "balanced", "inter_size": [1536, 1024, 1024, 1000]}
    layer |= {"num_tokens": [4096, 4096, 64, 4096]}
    ran = lambda gpu, name: read("moe", gpu, "sglang", kernel_source=name, **layer)["moe"]["kernel"]
    triton = "sglang_fused_moe_triton"
    few, apart = f"{triton} few tokens", f"{triton} unaligned"
    assert ran("h100_sxm", triton).tolist() == [f"{triton} tuned", triton, few, apart]
    assert ran("gb200", triton).tolist() == [triton, triton, few, apart]
    assert ran("h100_sxm", "sglang_marlin_moe").tolist() == ["sglang_marlin_moe"] * 4


def test_attention_of_each_kind():
    base = {
        "batch_size": [2, 3],
        "isl": [100, 1],
        "num_heads": [32, 64],
        "head_dim": [128, 64],
        "attn_dtype": "bfloat16",
    }
    more = {"num_key_value_heads": [8, 0], "kv_cache_dtype": ["fp8_e4m3", "bfloat16"], "step": [7, 9]}
    more["window_size"] = [0, 512]
    (rows,) = read("context_attention", **base, **more).values()
    assert rows["num_key_value_heads"].tolist() == [8, 64] and rows["prefix"].tolist() == [7, 9]
    assert rows["cache_bytes"].tolist() == [1.0, 2.0] and rows["window"].tolist() == [0, 512]
    assert rows["dtype"].tolist() == ["bfloat16+fp8_e4m3", "bfloat16+bfloat16"]
    assert rows["qk_dim"].tolist() == rows["v_dim"].tolist() == [128, 64] and rows["shared_latent"].tolist() == [0, 0]
    assert (
        rows["causal"].tolist() == [1, 1] and rows["isl"].tolist() == [100, 1] and rows["batch_size"].tolist() == [2, 3]
    )
    (rows,) = read("encoder_attention", **base).values()
    assert rows["causal"].tolist() == [0, 0] and rows["num_key_value_heads"].tolist() == [32, 64]
    assert rows["prefix"].tolist() == [0, 0] and rows["cache_bytes"].tolist() == [2.0, 2.0]
    latent = {
        "batch_size": [2],
        "isl": [5],
        "step": [6],
        "num_heads": [16],
        "mla_dtype": "fp8",
        "kv_cache_dtype": "fp8",
    }
    for kind, dims, heads, shared in (("context_mla", (192, 128), 16, 0), ("generation_mla", (576, 512), 1, 1)):
        (rows,) = read(kind, **latent).values()
        told = [rows[k][0] for k in ("qk_dim", "v_dim", "num_key_value_heads", "shared_latent", "prefix", "isl")]
        assert told == [*dims, heads, shared, 6, 5] and rows["cache_bytes"][0] == 1.0 and rows["num_heads"][0] == 16
        assert (rows["causal"][0], rows["window"][0], rows["dtype"][0], rows["batch_size"][0]) == (
            1.0,
            0.0,
            "fp8+fp8",
            2,
        )


def test_layers_with_a_state_are_told_apart_by_kernel_and_phase():
    common = {"phase": ["context", "generation"] * 2, "batch_size": [1, 2, 3, 4], "seq_len": [10, 20, 30, 40]}
    common["kernel_source"] = ["causal_conv1d"] * 2 + ["chunk"] * 2
    delta = {"num_k_heads": 16, "head_k_dim": 128, "num_v_heads": 32, "head_v_dim": 64}
    found = read("gdn", **common, **delta)
    assert {name: rows["batch_size"].tolist() for name, rows in found.items()} == {
        **{"gdn_conv": [1.0], "gdn_conv_step": [2.0]},
        **{"gdn_recurrence": [3.0], "gdn_step": [4.0]},
    }
    rows = found["gdn_recurrence"]
    told = [float(rows[k][0]) for k in ("channels", "heads", "key_dim", "value_dim", "conv", "seq_len")]
    assert told == [32 * 64 + 2 * 16 * 128, 32, 128, 64, 0.0, 30]
    rows = read("mamba2", **common, d_state=128, nheads=24, head_dim=64, n_groups=8)["mamba2_conv"]
    told = [float(rows[k][0]) for k in ("channels", "heads", "key_dim", "value_dim", "conv", "seq_len")]
    assert told == [24 * 64 + 2 * 8 * 128, 24, 128, 64, 1.0, 10]


def test_messages_of_collectives():
    """Elements of a byte or two; a rank alone sends nothing; what was timed in graphs, too, counts as timed there."""
    found = read(
        "nccl",
        op_name=["all_reduce", "alltoall", "all_reduce", "all_gather", "nonsense"],
        nccl_dtype=["half", "int8", "half", "half", "half"],
        num_gpus=[8, 4, 1, 2, 2],
        message_size=[100, 200, 300, 400, 500],
    )
    assert {name: (rows["message_bytes"].tolist(), rows["ranks"].tolist()) for name, rows in found.items()} == {
        "all_reduce": ([200.0], [8.0]),
        "all_to_all": ([200.0], [4.0]),
        "all_gather": ([800.0], [2.0]),
    }
    found = read(
        "custom_allreduce",
        kernel_source=["vllm_graph", "vllm_eager"],
        allreduce_dtype="bfloat16",
        num_gpus=[2, 2],
        message_size=[10, 10],
    )
    assert found["all_reduce"]["kernel"].tolist() == ["vllm_graph"]
    alone = read("custom_allreduce", kernel_source=["eager"], allreduce_dtype="half", num_gpus=[2], message_size=[10])
    assert alone["all_reduce"]["kernel"].tolist() == ["eager"]


def test_blocks_of_latent_attention_have_their_models_sizes():
    name = next(iter(BLOCKS))
    known = block(name)
    common = {"batch_size": [2, 3, 4], "isl": [50, 60, 70], "step": [5, 6, 7], "num_heads": [16, 32, 64]}
    common |= {"model": [name, "nobody", name], "gemm_type": "fp8", "mla_dtype": ["bfloat16", "fp8", "fp8"]}
    common["kv_cache_dtype"] = ["fp8", "fp8", "bfloat16"]
    for kind, dims, isl in (
        ("mla_context_module", known.expanded, [50, 70]),
        ("mla_generation_module", known.latent, [1, 1]),
    ):
        (rows,) = read(kind, **common).values()
        assert rows["isl"].tolist() == isl and rows["prefix"].tolist() == [5, 7]
        assert rows["batch_size"].tolist() == [2, 4] and rows["num_heads"].tolist() == [16, 64]
        assert (rows["qk_dim"][0], rows["v_dim"][0]) == dims and rows["compress_ratio"].tolist() == [1, 1]
        assert rows["token_weights"].tolist() == [known.token_weights] * 2
        assert rows["head_weights"].tolist() == [known.head_weights] * 2
        assert rows["entry_bytes"].tolist() == [known.entries, 2 * known.entries]
        assert rows["top_k"].tolist() == rows["index_dim"].tolist() == [0, 0]  # all are attended to
        assert rows["dtype"].tolist() == ["fp8+fp8", "fp8+fp8+bfloat16"]


def test_what_parts_leave_to_their_combination_is_less_than_they_explain():
    """One standard deviation is a factor of two at most, but for what all kernels have in common."""
    for level, told in DEVIATION.items():
        parts = level.split("+")
        assert 0.1 <= told <= (max(DEVIATION[part] for part in parts) if len(parts) > 1 else 0.7 + 2 * (level == "all"))


def test_blocks_hold_the_tensors_of_the_published_checkpoints():
    """Shapes in the checkpoints' headers: with 128 heads, five matrices of attention; and the indexer's three."""
    sizes = lambda *shapes: sum(rows * columns for rows, columns in shapes)
    down = (1536, 7168), (512 + 64, 7168)
    heads = (128 * 192, 1536), (128 * 256, 512), (7168, 128 * 128)
    plain, sparse, glm = map(block, ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5"))
    for one, indexer in ((plain, 0), (sparse, sizes((64 * 128, 1536), (128, 7168), (64, 7168)))):
        assert one.token_weights == sizes(*down) + indexer and 128 * one.head_weights == sizes(*heads)
    assert glm.token_weights == sizes((2048, 6144), (576, 6144), (32 * 128, 2048), (128, 6144), (32, 6144))


def test_blocks_that_choose_what_they_attend_to():
    """Prompts too against the latent; the indexer is skipped where the kernel says so, and a ratio is at least one."""
    known, plain = block("deepseek-v3.2"), block("deepseek-v3")
    common = {"batch_size": [2, 3], "isl": [50, 60], "step": [5, 6], "num_heads": [16, 32], "kv_cache_dtype": "fp8"}
    common |= {"gemm_type": "bfloat16", "mla_dtype": "bfloat16", "op_name": ["a", "a_skip_indexer"]}
    for kind in ("dsa_context_module", "dsa_generation_module", "dsv4_csa_context_module", "dsv4_hca_context_module"):
        (rows,) = read(kind, **common, model=["org/DeepSeek-V3.2-Exp", "deepseek-v3.2"], compress_ratio=[0, 4]).values()
        chooses = kind != "dsv4_hca_context_module"
        assert (rows["qk_dim"].tolist(), rows["v_dim"].tolist()) == ([known.latent[0]] * 2, [known.latent[1]] * 2)
        assert rows["top_k"].tolist() == ([2048, 2048] if chooses else [0, 0])
        assert rows["index_dim"].tolist() == ([64 * 128, 0] if chooses else [0, 0])
        assert rows["compress_ratio"].tolist() == [1, 4] and rows["dtype"].tolist() == ["bfloat16+fp8"] * 2
    assert known.token_weights - plain.token_weights == 64 * 128 * 1536 + 7168 * (128 + 64)
    assert known.head_weights == plain.head_weights and known.latent == plain.latent == (576, 512)


def test_what_was_measured_of_a_gpu_an_engine_and_a_format():
    of = {
        key: None for key in (("h100_sxm", "vllm", "fp8"), ("a100_sxm", "vllm", "int8"), ("b200_sxm", "nccl", "half"))
    }
    known = Coefficients({"gemm": Kind("gemm", of)}, {})
    for gpu, engine, dtypes, first, label in (
        ("h100_sxm", "vllm", ("bf16", "fp8"), "fp8", MEASURED),
        ("h100_sxm", "vllm", ("bf16", "int8"), "bf16", RELATIVES),
        ("a100_sxm", "vllm", ("fp8", "int8"), "int8", MEASURED),
        ("b200_sxm", "trtllm", ("fp8", "half"), "half", MEASURED),  # of NCCL's, having none of its own
        ("mi300x", "vllm", ("bf16", "fp8"), "bf16", RELATIVES),
        ("h200_nvl", "vllm", ("bf16", "fp8"), "fp8", RELATIVES),  # a Hopper, too: it runs what the H100 runs
    ):
        assert known.runs("gemm", gpu, engine, dtypes) == first
        assert known.label("gemm", gpu, engine, first) == label
        assert known.runs("none", gpu, engine, dtypes) == dtypes[0]
        assert known.label("none", gpu, engine, first) == DATA_SHEET
