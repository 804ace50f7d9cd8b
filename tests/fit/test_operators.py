"""Facts about the fit of the laws of operators: readers, relatives, recovery of known constants, and what ships."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.fit.operators import coefficients
from dmodels.fit.operators.hierarchy import Cell, effects, expected, levels
from dmodels.fit.operators.refit import predicted, refit
from dmodels.fit.operators.rows import read, shape_hash, tables
from dmodels.fit.operators.samples import hardware
from dmodels.fit.operators.tree import learn
from dmodels.models.operators import LAWS, time_s, typical
from dmodels.models.operators.choice import chosen
from dmodels.models.operators.constants import values

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

timed = jax.jit(time_s, static_argnums=(0, 2, 5))


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return path


def products(rows=1500, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "m": np.round(2.0 ** rng.uniform(0, 15, rows)),
        "n": 128.0 * rng.integers(1, 128, rows),
        "k": 128.0 * rng.integers(1, 128, rows),
    }


def gemm_table(path, shape, seconds, dtype="bfloat16", kernel="cublas"):
    rows = len(shape["m"])
    return write(
        path,
        kernel_source=[kernel] * rows,
        gemm_dtype=[dtype] * rows,
        latency=np.float32(seconds * 1e3),
        **{k: v.astype(np.int32) for k, v in shape.items()},
    )


def test_a_fit_recovers_the_constants_that_made_a_table(tmp_path):
    """All-reduce: four constants that the data show. Launch, link and latency come back to a few per cent."""
    h100 = hardware(["h100_sxm"])["h100_sxm"]
    true = np.tile([0.4, -0.3, 0.8, -0.5], (4, 1))
    rng = np.random.default_rng(1)
    size = np.repeat(2.0 ** np.arange(8, 29, 0.25).round(2), 3).astype(np.int64)
    ranks = np.tile([2, 4, 8], len(size) // 3)
    shape = {"message_bytes": size * 2.0, "ranks": ranks.astype(float), "sends": np.full(len(size), 2.0)}
    seconds = np.array(timed("all_reduce", shape, "bfloat16", h100, true, 1.0))
    seconds *= np.exp(rng.normal(0, 0.02, len(size)))
    seconds[::37] *= 3.0  # interrupted
    write(
        tmp_path / "h100_sxm" / "nccl" / "nccl@2.27.parquet",
        kernel_source=["NCCL"] * len(size),
        op_name=["all_reduce"] * len(size),
        nccl_dtype=["half"] * len(size),
        num_gpus=ranks,
        message_size=size,
        latency=seconds * 1e3,
    )
    found = refit(tmp_path)
    u = found.coefficients.choice("all_reduce", "h100_sxm", "nccl", "bfloat16").u[0]
    wanted, got = (values(LAWS["all_reduce"].constants, x) for x in (true[0], u[-1]))
    assert float(got["link_frac"]) == pytest.approx(float(wanted["link_frac"]), rel=0.05)
    wanted, got = (values(LAWS["all_reduce"].constants, x) for x in (true[0], u[0]))
    assert float(got["launch_us"]) == pytest.approx(float(wanted["launch_us"]), rel=0.05)
    assert found.summary("kind")[0]["shapes_median"] < 0.04


def test_kernel_switches_are_found_and_predicted(tmp_path):
    """An engine that runs another kernel up to m = 16: the tree finds the switch and both kernels' launch times."""
    h200, shape = hardware(["h200_sxm"])["h200_sxm"], products()
    slow = typical("gemm").copy()
    slow[:, 0] = 2.0
    few = shape["m"] <= 16
    seconds = np.where(few, *(timed("gemm", shape, "bfloat16", h200, u, 1.0) for u in (slow, typical("gemm"))))
    rows = len(few)
    write(
        tmp_path / "h200_sxm" / "vllm" / "gemm@1.parquet",
        gemm_dtype=["bfloat16"] * rows,
        latency=seconds * 1e3,
        kernel_source=np.where(few, "small", "large").tolist(),
        **shape,
    )
    found = refit(tmp_path)
    choice = found.coefficients.choice("gemm", "h200_sxm", "vllm", "bfloat16")
    assert choice.kernels == ("large", "small")
    assert list(np.asarray(chosen(choice.tree, {"m": np.array([1.0, 16.0, 18.0, 4096.0]), "n": 1e3, "k": 1e3}))) == [
        1,
        1,
        0,
        0,
    ]
    assert found.summary("kind")[0]["shapes_median"] < 0.03
    out = tmp_path / "operators.json"
    out.write_text(coefficients.dump(found.coefficients))
    again = coefficients.load(out)
    guess = predicted("gemm", shape, "bfloat16", h200, again.choice("gemm", "h200_sxm", "vllm", "bfloat16"), 1.0)
    assert np.median(np.abs(guess / seconds - 1)) < 0.03
    assert again.provenance["tables"] == {"h200_sxm/vllm/gemm": "1"}


def test_what_relatives_share_predicts_the_pair_that_was_never_measured():
    """GPU and engine effects that add up: of a 4 x 3 table the missing pair is the sum of what the others show."""
    rng = np.random.default_rng(0)
    gpus, engines = ["a100_sxm", "h100_sxm", "b200_sxm", "l40s"], ["vllm", "sglang", "trtllm"]
    own = {name: rng.normal(0, 0.3, 2) for name in (*gpus, *engines)}
    cells = [Cell(g, e, "bfloat16", "", 0) for g in gpus for e in engines]
    u = np.array([own[c.gpu] + own[c.engine] for c in cells])
    left = cells.index(Cell("h100_sxm", "trtllm", "bfloat16", "", 0))
    kept = [i for i in range(len(cells)) if i != left]
    known = effects([cells[i] for i in kept], u[kept], np.full((len(kept), 2), 1e-6))
    assert np.abs(expected(known, cells[left], 2) - u[left]).max() < 0.15
    assert np.abs(u[left]).max() > 0.15
    unseen = expected(known, Cell("tpu", "vllm", "bfloat16", "", 0), 2)
    assert np.all(np.isfinite(unseen))
    assert "generation=hopper" in levels(cells[left]) and "gpu=h100_sxm" in levels(cells[left])


def test_trees_learn_rules_with_alignment():
    rng = np.random.default_rng(0)
    shape = {"m": np.round(rng.uniform(1, 100, 800)), "n": 32.0 * rng.integers(1, 64, 800)}
    kernel = np.where(shape["n"] % 128 > 0, 2, (shape["m"] > 16).astype(int))
    tree = learn(shape, kernel, ["m", "n", "n%128"])
    assert (np.asarray(chosen(tree, shape)) == kernel).mean() > 0.99


def test_one_shape_in_ten_is_held_out_the_same_one_everywhere():
    shape = products(20000)
    held = shape_hash(shape) % 10 == 0
    assert held.mean() == pytest.approx(0.1, abs=0.01)
    turned = {k: v[::-1] for k, v in reversed(shape.items())}
    assert np.array_equal((shape_hash(turned) % 10 == 0)[::-1], held)


def test_both_layouts_are_read_and_the_newest_release_counts(tmp_path):
    shape = products(40)
    gemm_table(tmp_path / "h100_sxm" / "dense" / "vllm" / "0.9.2" / "gemm_perf.parquet", shape, np.full(40, 1e-3))
    gemm_table(tmp_path / "h100_sxm" / "dense" / "vllm" / "0.14.0" / "gemm_perf.parquet", shape, np.full(40, 2e-3))
    gemm_table(tmp_path / "h200_sxm" / "trtllm" / "gemm@1.3.0rc20.parquet", shape, np.full(40, 3e-3))
    found = {(t.gpu, t.engine, t.release): t for t in tables(tmp_path)}
    assert set(found) == {("h100_sxm", "vllm", "0.14.0"), ("h200_sxm", "trtllm", "1.3.0rc20")}
    (rows,) = read(found["h100_sxm", "vllm", "0.14.0"])
    assert (rows.kind, rows.dtype, rows.kernel) == ("gemm", "bfloat16", "cublas")
    assert rows.seconds == pytest.approx(2e-3) and np.array_equal(rows.shape["m"], shape["m"])


def test_kernels_that_a_table_names_alike_are_told_apart(tmp_path):
    """XQA decodes 2 to 32 query heads of a KV head; FlashAttention-2 with a window and Triton compile others."""

    def names(engine, kind, kernel, heads, kv, window, dim=128):
        path = tmp_path / "h100_sxm" / engine / f"{kind}@1.parquet"
        columns = {"num_heads": heads, "num_key_value_heads": kv, "window_size": window, "head_dim": dim, "isl": 64}
        numbers = {k: [v] for k, v in (columns | {"batch_size": 1, "step": 64, "latency": 0.1}).items()}
        text = {k: [v] for k, v in {"attn_dtype": "bfloat16", "kv_cache_dtype": "fp8", "kernel_source": kernel}.items()}
        write(path, **numbers, **text)
        (rows,) = read(next(t for t in tables(tmp_path) if t.path == path))
        return rows.kernel

    found = [names("trtllm", "generation_attention", "torch_flow", g, 1, 0) for g in (1, 2, 32, 48)]
    assert found == ["torch_flow masked, one head", "torch_flow", "torch_flow", "torch_flow masked"]
    found = [names("vllm", "generation_attention", "vllm_flash_attn_fa2", 8, 1, w) for w in (0, 128)]
    assert found == ["vllm_flash_attn_fa2", "vllm_flash_attn_fa2 windowed"]
    found = [names("sglang", "context_attention", "triton", 8, 1, w, dim) for w, dim in ((0, 64), (128, 64), (0, 128))]
    assert found == ["triton 64", "triton windowed 64", "triton 128"]
    assert names("trtllm", "context_attention", "torch_flow", 64, 1, 0) == "torch_flow"


def test_mistakes_in_tables_name_file_row_column_and_reason(tmp_path):
    shape, folder = products(40), tmp_path / "h100_sxm" / "vllm"
    with pytest.raises(InputError, match="is no folder"):
        tables(tmp_path / "none")
    with pytest.raises(InputError, match="holds no table"):
        tables(tmp_path)
    path = write(folder / "gemm@1.parquet", kernel_source=["a"], gemm_dtype=["fp8"], m=[1], n=[1], latency=[1.0])
    with pytest.raises(InputError, match=r"gemm@1.parquet: column 'k' is missing; it has kernel_source"):
        list(read(tables(tmp_path)[0]))
    for wrong in (-1, 0):
        gemm_table(path, shape, np.where(np.arange(40) == 7, 1e-3 * wrong, 1e-3))
        why = f"gemm@1.parquet: row 7, latency is {wrong}; a finite number above 0 is accepted"
        with pytest.raises(InputError, match=why):
            list(read(tables(tmp_path)[0]))
    write(
        path, kernel_source=["a", "a"], gemm_dtype=["fp8", "fp8"], m=["1", "x"], n=[1, 1], k=[1, 1], latency=[1.0, 1.0]
    )
    with pytest.raises(InputError, match=r"row 1, m is 'x'; a number is accepted"):
        list(read(tables(tmp_path)[0]))
    path.write_bytes(b"no table")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        list(read(tables(tmp_path)[0]))
    gemm_table(tmp_path / "mystery" / "vllm" / "gemm@1.parquet", shape, np.full(40, 1e-3))
    path.unlink()
    with pytest.raises(InputError, match="of a known GPU"):
        refit(tmp_path)
