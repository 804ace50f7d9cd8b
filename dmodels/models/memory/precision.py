"""The same model with its weights or its KV cache stored in another precision."""

from __future__ import annotations

import numpy as np

from dmodels.core.errors import InputError, unknown
from dmodels.core.model import Model
from dmodels.core.precision import FORMAT_BYTES

#: Bytes per KV element. Scales are per tensor, except NVFP4's.
KV_BYTES = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": FORMAT_BYTES["fp4"]}
#: Bytes per token of the latent of sparse MLA in FP8 (DeepSeek V3.2): 512 FP8, 4 float32 scales, 64 BF16.
SPARSE_MLA_FP8_BYTES = 656.0


def with_weight_dtype(model: Model, dtype: str) -> Model:
    """`model` with all its matrices but embedding and head in another format.

    "bf16", "fp8", "fp8_block", "int8", "int4", "fp4" (NVFP4) or "mxfp4"; scales are counted, so NVFP4 takes
    0.5 + 1/16 bytes per weight. Embedding and head stay in BF16, as in the published checkpoints. Norms, routers and
    biases are so few that they are counted with the matrices (below 0.3 % of any model here).
    """
    size = FORMAT_BYTES.get(dtype)
    if size is None:
        raise unknown("weight dtype", dtype, FORMAT_BYTES)
    if np.any(np.asarray(model.params_count) == 0):
        raise InputError(f"weight dtype {dtype!r}: the model states weight_bytes only; parameter counts are needed")
    return model.replace(
        weight_bytes=0.0 * np.asarray(model.weight_bytes),
        attention_dtype_bytes=size,
        dense_dtype_bytes=size,
        expert_dtype_bytes=size,
        embedding_dtype_bytes=2.0,
    )


def stored_weight_bytes(model: Model) -> float:
    """Bytes of a weight as most are stored: of an expert where there are any, else of a dense matrix.

    Checkpoints of experts in 8 or 4 bits keep routers, and often attention, in 16.
    """
    return float(model.expert_dtype_bytes if float(model.n_moe_layers) > 0 else model.dense_dtype_bytes)


def with_kv_dtype(model: Model, dtype: str) -> Model:
    """`model` with its KV cache in "bf16", "fp8", "int8" or "fp4"; the weights stay as they are.

    Sparse MLA (an indexer is there) in FP8 keeps its rotary part in BF16: 656 bytes per token and layer.
    """
    size = KV_BYTES.get(dtype)
    if size is None:
        raise unknown("KV dtype", dtype, KV_BYTES)
    sparse = (np.asarray(model.index_bytes_per_token) > 0) & (size < 2.0)
    return model.replace(kv_dtype_bytes=size, latent_bytes_per_token=np.where(sparse, SPARSE_MLA_FP8_BYTES, 0.0))
