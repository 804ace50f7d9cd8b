"""Memory of a GPU: weights, KV cache, activations and runtime, and how many sequences fit."""

from __future__ import annotations

from .activations import activation_bytes
from .budget import kv_budget_bytes, room_and_need_bytes, runtime_bytes
from .concurrency import (
    LAYOUT_RULE,
    Footprint,
    Residents,
    Slots,
    check_layout,
    concurrent_sequences,
    footprint,
    out_of_domain,
    residents,
    residents_of_length,
    sequences_by_bernstein,
    sequences_by_normal,
    sequences_that_fit,
)
from .engines import (
    ENGINES,
    FAST_LINK,
    VLLM,
    EngineMemory,
    default_sequences,
    default_utilization,
    engine_memory,
)
from .kv import (
    heads_per_gpu,
    kv_bytes,
    kv_bytes_per_token,
    kv_reserved_bytes,
    mla_layer_bytes,
    stage,
    state_bytes,
)
from .precision import KV_BYTES, SPARSE_MLA_FP8_BYTES, stored_weight_bytes, with_kv_dtype, with_weight_dtype
from .weights import WeightBytes, weight_bytes, weight_bytes_per_gpu

__all__ = [
    "ENGINES",
    "FAST_LINK",
    "KV_BYTES",
    "LAYOUT_RULE",
    "SPARSE_MLA_FP8_BYTES",
    "VLLM",
    "EngineMemory",
    "Footprint",
    "Residents",
    "Slots",
    "WeightBytes",
    "activation_bytes",
    "check_layout",
    "concurrent_sequences",
    "default_sequences",
    "default_utilization",
    "engine_memory",
    "footprint",
    "heads_per_gpu",
    "kv_budget_bytes",
    "kv_bytes",
    "kv_bytes_per_token",
    "kv_reserved_bytes",
    "mla_layer_bytes",
    "out_of_domain",
    "residents",
    "residents_of_length",
    "room_and_need_bytes",
    "runtime_bytes",
    "sequences_by_bernstein",
    "sequences_by_normal",
    "sequences_that_fit",
    "stage",
    "state_bytes",
    "stored_weight_bytes",
    "weight_bytes",
    "weight_bytes_per_gpu",
    "with_kv_dtype",
    "with_weight_dtype",
]
