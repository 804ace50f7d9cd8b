"""Memory of a GPU: weights, KV cache, activations and runtime, and how many sequences fit."""

from __future__ import annotations

from .concurrency import (
    Footprint,
    Slots,
    concurrent_sequences,
    footprint,
    occupancy_bytes,
    out_of_domain,
    sequences_by_bernstein,
    sequences_by_normal,
    sequences_that_fit,
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
from .precision import KV_BYTES, SPARSE_MLA_FP8_BYTES, with_kv_dtype, with_weight_dtype
from .weights import (
    WeightBytes,
    activation_bytes,
    kv_budget_bytes,
    kv_budget_of_free_bytes,
    non_kv_bytes,
    runtime_bytes,
    weight_bytes,
    weight_bytes_per_gpu,
)

__all__ = [
    "KV_BYTES",
    "SPARSE_MLA_FP8_BYTES",
    "Footprint",
    "Slots",
    "WeightBytes",
    "activation_bytes",
    "concurrent_sequences",
    "footprint",
    "heads_per_gpu",
    "kv_budget_bytes",
    "kv_budget_of_free_bytes",
    "kv_bytes",
    "kv_bytes_per_token",
    "kv_reserved_bytes",
    "mla_layer_bytes",
    "non_kv_bytes",
    "occupancy_bytes",
    "out_of_domain",
    "runtime_bytes",
    "sequences_by_bernstein",
    "sequences_by_normal",
    "sequences_that_fit",
    "stage",
    "state_bytes",
    "weight_bytes",
    "weight_bytes_per_gpu",
    "with_kv_dtype",
    "with_weight_dtype",
]
