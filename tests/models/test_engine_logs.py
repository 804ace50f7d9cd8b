"""The room for the cache against what engines log at their start (benchmarks/accuracy/data says where)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.accuracy.memory import kv_gib, logs, weights_gib
from dmodels import Parallel, catalog
from dmodels.core.errors import InputError
from dmodels.core.units import GIB
from dmodels.models.memory import (
    default_sequences,
    default_utilization,
    engine_memory,
    kv_budget_bytes,
    weight_bytes_per_gpu,
)


def test_the_room_for_the_cache_is_what_engines_log():
    """Each within 10 %, half of them within 5; no line is off by more than 2.5 % of the GPU."""
    logged = np.array([float(row["kv_gib"]) for row in logs()])
    found = np.array([kv_gib(row) for row in logs()])
    of_gpu = (found - logged) / np.array([float(row["gpu_gib"]) for row in logs()])
    errors = np.abs(found / logged - 1.0)
    said = [f"{row['model']}: {f:.2f} of {k:.2f}" for row, f, k in zip(logs(), found, logged, strict=True)]
    assert len(said) >= 10
    assert errors.max() < 0.10 and np.median(errors) < 0.05, said
    assert np.abs(of_gpu).max() < 0.025, said


def test_the_weights_are_what_engines_load():
    """Every tensor, with the padding that MXFP4 kernels need; a vision tower is not counted (Gemma 4)."""
    for row in logs():
        if row["weights_gib"]:
            off = weights_gib(row) / float(row["weights_gib"]) - 1.0
            assert abs(off) < (0.035 if "gemma" in row["model"] else 0.025), row


def test_a_default_is_that_of_the_engine():
    h100, a100 = catalog.gpu("h100_sxm"), catalog.gpu("a100_sxm")
    assert (default_sequences("vllm", h100), default_sequences("vllm", a100)) == (1024, 256)
    # SGLang on one H100: 512 MiB, 1.5 per token of a chunk, 2 per sequence of the largest graph, 128 per GPU
    reserve = (512 + 1.5 * 8192 + 2 * 256 + 128) * 2**20
    share = float(default_utilization(engine_memory("sglang"), h100, Parallel()))
    assert share == pytest.approx(1 - reserve / float(h100.memory_bytes))
    assert float(default_utilization(engine_memory("vllm"), h100, Parallel())) == 0.9
    with pytest.raises(InputError, match="release 'new'"):
        engine_memory("vllm", "new")
    with pytest.raises(InputError, match="'tgi' is unknown"):
        engine_memory("tgi")


def test_the_engines_divide_the_same_gpu():
    """vLLM keeps activations within its share, SGLang outside of it, TensorRT-LLM shares what is left."""
    model, gpu, one = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm"), Parallel()
    weights, total = float(weight_bytes_per_gpu(model).total_bytes), float(gpu.memory_bytes)
    sglang, trtllm = engine_memory("sglang"), engine_memory("trtllm")
    context = float(sglang.driver_bytes)
    room = lambda engine: float(kv_budget_bytes(model, gpu, one, 0.8, engine=engine))
    assert room(sglang) == pytest.approx(0.8 * (total - context) - weights)
    free = room(trtllm) / 0.8
    assert total - weights - context - 3 * GIB < free < total - weights - context
    assert room(engine_memory("vllm")) < 0.8 * total - weights
