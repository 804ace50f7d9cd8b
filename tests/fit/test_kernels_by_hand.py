"""Efficiencies of kernels by plain arithmetic and SciPy: bytes, FLOPs and messages of a step from a model's config, and
the constants with which a roofline follows the laws of its operators."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import least_squares, minimize_scalar

from dmodels import Parallel, catalog
from dmodels.core.records import float64
from dmodels.fit import kernels
from dmodels.fit.kernels import Hosted, efficiencies, shipped
from dmodels.fit.operators.predicted import predicted
from dmodels.models.operators import layers

#: Shares of bandwidth and peak, seconds of a launch, passes.
LEAST, MOST = np.array([0.3, 0.02, 1e-8, 0.01]), np.array([0.95, 0.95, 1.0, 300.0])
NVLINK_OR_PCIE = 16e9  # of a GPU whose data sheet names no link


def peak(gpu, size):
    """The peak of the narrowest unit that holds a parameter of so many bytes; 16 bits where there is none."""
    named = "" if size > 1.5 else "fp8_" if size >= 0.75 else "fp4_"
    return float(getattr(gpu, f"peak_{named}flop_per_s")) or float(gpu.peak_flop_per_s)


def work(machine, part):
    """(bytes or sent bytes, FLOPs, bytes of a pass) in seconds at whole rates, one row a point."""
    m = {name: float(np.asarray(value)) for name, value in vars(machine.model).items()}
    gpu, tp, dp = machine.gpu, float(machine.parallel.tp), float(machine.parallel.dp)
    rate, rows = float(gpu.hbm_bytes_per_s), []
    attended = lambda context: min(context, m["index_topk_tokens"]) if m["index_topk_tokens"] else context
    scored = lambda context: 2 * m["n_index_heads"] * m["index_head_dim"] * context / peak(gpu, 1.0)
    rank, rope, latent = m["kv_lora_rank"], m["qk_rope_head_dim"], m["n_mla_layers"] > 0
    heads, dim = m["n_q_heads"] / tp, m["head_dim"] or m["sliding_head_dim"]
    if part in ("matrix", "expert"):
        for shards in (1.0, 2.0, 4.0):
            for tokens in (2.0**k for k in range(15)):
                hidden = 2 * m["hidden_size"] * tokens / rate
                if part == "matrix":
                    sizes = [
                        (m[f"{kind}_params"] / (tp * shards), m[f"{kind}_dtype_bytes"])
                        for kind in ("attention", "dense")
                    ]
                    flop = sum(2 * tokens * count / peak(gpu, size) for count, size in sizes)
                    rows.append((shards, tokens, sum(c * s for c, s in sizes) / rate, flop, hidden * m["n_layers"]))
                    continue
                chosen = 1 + 0.8 * (tokens - 1)  # so many tokens choose their experts independently
                hit = m["n_experts"] * (1 - (1 - m["n_active_experts"] / m["n_experts"]) ** chosen)
                one = m["n_moe_layers"] * m["expert_params"] / (tp * dp * shards)
                flop = 2 * tokens * m["n_active_experts"] * one / peak(gpu, m["expert_dtype_bytes"])
                moved = hit * one * m["expert_dtype_bytes"] / rate
                rows.append((shards, tokens, moved, flop, hidden * m["n_moe_layers"]))
        rows = [row[2:] for row in sorted(rows, key=lambda row: row[1::-1])]  # shards fastest, as told
        rows = [rows[3 * t + s] for s in range(3) for t in range(15)]
    elif part == "decode":
        for context in (1024.0, 4096.0, 9000.0):
            for count in (1.0, 4.0, 16.0, 64.0, 256.0):
                if latent:
                    held = (rank + rope) * m["kv_dtype_bytes"] * attended(context) + m[
                        "index_bytes_per_token"
                    ] * context
                    flop = heads * 2 * (2 * rank + rope) * attended(context)
                else:
                    held = (
                        2
                        * max((m["n_kv_heads"] or m["sliding_kv_heads"]) / tp, 1)
                        * dim
                        * m["kv_dtype_bytes"]
                        * context
                    )
                    flop = heads * 4 * dim * context
                by_flop = flop / peak(gpu, 2.0) + (scored(context) if latent else 0.0)
                rows.append((count * held / rate, count * by_flop, 0.0))
    elif part == "prompt":
        for tokens in (2.0**k for k in range(9, 15)):  # each attends to half of them in the mean
            own = 4 * dim * tokens / 2
            if latent:
                width = 2 * rank + rope if m["index_topk_tokens"] else m["qk_nope_head_dim"] + rope + m["v_head_dim"]
                own = 2 * width * attended(tokens / 2)
            by_flop = heads * own / peak(gpu, 2.0) + (scored(tokens / 2) if latent else 0.0)
            rows.append((0.0, tokens * by_flop, 0.0))
    else:
        link = float(gpu.nvlink_bytes_per_s_oneway) or NVLINK_OR_PCIE
        ranks = min(tp, 2.0 if link <= 64e9 else float(gpu.gpus_per_node))
        message = [2 * m["hidden_size"] * 2.0**k for k in range(15)]
        rows = [(0.0, 2 * (ranks - 1) / ranks * size / link, 0.0) for size in message]
    return np.array(rows)


def curve(rows, constants):
    share, flops, launch, passes = constants
    return ((rows[:, 0] / share) ** 4 + (rows[:, 1] / flops) ** 4) ** 0.25 + launch + rows[:, 2] * passes


def law(machine):
    """Seconds by part: the laws of its operators one by one."""
    bus = float(machine.gpu.nvlink_bytes_per_s_oneway) <= 64e9
    took = {}
    for kernel in layers.kernels(machine.model, machine.parallel, 2.0 if bus else math.inf):
        dtype = shipped().runs(kernel.kind, machine.gpu_name, machine.engine, kernel.formats)
        shape = dict(zip(kernel.shape, map(np.ravel, np.broadcast_arrays(*kernel.shape.values())), strict=True))
        choice = shipped().choice(kernel.kind, machine.gpu_name, machine.engine, dtype)
        seconds = kernel.layer_count * predicted(kernel.kind, shape, dtype, machine.gpu, choice, warm=0.0)
        took[kernel.part] = took.get(kernel.part, 0.0) + seconds
    return took


def loss(rows, took, constants):
    return np.log1p((np.log(curve(rows, constants) / took) / 0.15) ** 2).sum()


def least(rows, took):
    """Constants of the least loss by SciPy, from several starts."""
    residual = lambda x: np.log(curve(rows, np.exp(x)) / took)
    starts = [np.log([0.7, f, l * took.min(), q]) for f, l, q in ((0.3, 0.5, 4.0), (0.7, 0.9, 4.0), (0.6, 0.5, 40.0))]
    ends = [
        least_squares(residual, x, bounds=(np.log(LEAST), np.log(MOST)), loss="cauchy", f_scale=0.15, x_scale=1.0)
        for x in starts
    ]
    return np.exp(min(ends, key=lambda end: end.cost).x)


MACHINES = {
    "dense": ("llama-3.1-70b", "h100_sxm", "vllm", Parallel(4.0)),
    "experts": ("gpt-oss-120b", "b200_sxm", "trtllm", Parallel(2.0)),
    "latent": ("deepseek-r1", "h100_sxm", "sglang", Parallel(8.0)),
    "sparse": ("deepseek-v3.2", "b200_sxm", "sglang", Parallel(8.0)),
    "bus": ("llama-3.1-70b", "l40s", "trtllm", Parallel(8.0)),
    "wide": ("deepseek-r1", "h100_sxm", "sglang", Parallel(1.0, 1.0, 16.0, 16.0)),
}


@pytest.fixture(scope="module")
def found():
    hosted = {n: Hosted(catalog.model(m), catalog.gpu(g), g, e, p) for n, (m, g, e, p) in MACHINES.items()}
    return {n: (hosted[n], own) for n, own in zip(hosted, efficiencies(list(hosted.values())), strict=True)}


@float64
@pytest.mark.parametrize("name", MACHINES)
def test_no_roofline_follows_the_laws_better(found, name):
    """Its loss, at the points and with the bounds stated, is SciPy's least, up to a launch that is not told apart; and
    the launches that every layer has are those of its matrices and of its attention."""
    machine, own = found[name]
    taken, launch_s, names = law(machine), 0.0, {"layer_us"}
    parts = {"matrix": ("hbm_frac", "flop_frac"), "expert": ("expert_hbm_frac", "expert_flop_frac")}
    parts |= {"decode": ("kv_frac", "decode_flop_frac"), "prompt": ("", "attention_flop_frac")}
    parts |= {"collective": ("", "bus_frac" if name == "bus" else "link_frac")}
    assert set(taken) == set(parts) - ({"expert"} if name in ("dense", "bus") else set()) - (
        {"collective"} if name == "wide" else set()
    )
    layer_count, moe = float(machine.model.n_layers), float(machine.model.n_moe_layers)
    for part, took in taken.items():
        rows, (share, flops) = work(machine, part), parts[part]
        best = least(rows, took)
        launch_s += {"matrix": best[2], "decode": layer_count * best[2]}.get(part, 0.0)
        names |= {n for n in (share, flops) if n}
        passes = {"matrix": own.get("pass_count", 0.0) - 8.0, "expert": own.get("moe_pass_count", 0.0)}.get(part, 0.0)
        names |= {"matrix": {"pass_count"}, "expert": {"moe_pass_count", "moe_layer_us"}}.get(part, set())
        if part == "expert" and name == "wide":  # what is known of kernels that sort the tokens they get
            assert (own[share], own[flops], own["moe_layer_us"], own["moe_pass_count"]) == (
                0.9,
                0.5,
                30.0,
                3.0 * 8 / 16,
            )
            continue
        mine = np.array([own.get(share, best[0]), own[flops], best[2], passes])
        if part == "expert":
            mine[2] = 1e-6 * own["moe_layer_us"] * moe
        if part == "collective":
            names.add("hop_us")
            mine[2] = 1e-6 * own["hop_us"] * math.log2(2.0 if name == "bus" else float(machine.parallel.tp))
        if part in ("matrix", "decode", "prompt"):  # a launch of their own is not stated
            of_launch = lambda x, rows=rows, took=took, mine=mine: loss(rows, took, [*mine[:2], math.exp(x), mine[3]])
            mine[2] = math.exp(minimize_scalar(of_launch, (math.log(best[2]) - 0.1, math.log(best[2]))).x)
        assert loss(rows, took, mine) <= 1.01 * loss(rows, took, best) + 1e-3, part
        if part != "decode":  # whose bytes and FLOPs grow alike
            assert mine[:2] == pytest.approx(best[:2], rel=0.01), part
    assert own.keys() == names
    assert own["layer_us"] == pytest.approx(1e6 * launch_s / layer_count, rel=0.02)


def test_constants_that_made_a_curve_come_back():
    """Of many curves at once, also at the bounds, and with a point that is thrice as long."""
    rng = np.random.default_rng(0)
    tokens, shards = (axis.ravel() for axis in np.meshgrid(2.0 ** np.arange(15), [1.0, 2.0, 4.0]))
    true = np.stack([rng.uniform(*pair, 40) for pair in ((0.35, 0.9), (0.1, 0.9), (5e-6, 5e-5), (2.0, 40.0))], 1)
    rows = np.stack([np.stack([2e-4 / shards, 3e-7 * tokens / shards, 2e-9 * tokens], 1)] * 40)
    took = np.stack([curve(own, constants) for own, constants in zip(rows, true, strict=True)])
    of = kernels.Work(rows[..., 0], rows[..., 1], rows[..., 2])
    np.testing.assert_allclose(kernels._fitted(of, took), true, rtol=1e-3)
    took[:, 20] *= 3.0
    for own, constants, seconds in list(zip(rows, kernels._fitted(of, took), took, strict=True))[:5]:
        assert loss(own, seconds, constants) <= loss(own, seconds, least(own, seconds)) + 1e-3
    beyond = np.stack([curve(rows[0], [0.99, 0.5, 1e-5, 9.0]), curve(rows[0], [0.2, 0.5, 1e-5, 9.0])])
    ends = kernels._fitted(kernels.Work(*(column[:2] for column in of)), beyond)[:, 0]
    assert ends.tolist() == pytest.approx([0.95, 0.3])


def test_what_is_asked_again_is_what_was_said(found):
    machine, own = found["dense"]
    (again,) = efficiencies([machine])
    assert again == own and again is not own
    again.clear()
    assert efficiencies([machine, machine])[1] == own
    assert kernels.label(machine, "gemm") == "kernels measured" and kernels.label(machine, "moe") == "data sheet"
