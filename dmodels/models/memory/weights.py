"""Weights in GPU memory, by component: as a checkpoint stores them, and what an engine adds as it loads them."""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import ceil_div, safe_divide
from dmodels.core.records import Real, Record, quantity

from .kv import heads_per_gpu, stage


class WeightBytes(Record):
    """Weights on one GPU (the fullest), by component."""

    embedding_bytes: Real = quantity(0.0)  # input embedding and output head
    attention_bytes: Real = quantity(0.0)  # attention, linear mixers, norms
    dense_bytes: Real = quantity(0.0)  # dense FFNs, shared experts, routers
    expert_bytes: Real = quantity(0.0)  # routed experts
    unsplit_bytes: Real = quantity(0.0)  # of a model of which only the total is known
    prepared_bytes: Real = quantity(0.0)  # what kernels add as the engine loads: padding, absorbed projections

    @property
    def total_bytes(self) -> Real:
        """All weights on the GPU."""
        parts = self.embedding_bytes + self.attention_bytes + self.dense_bytes
        return parts + self.expert_bytes + self.unsplit_bytes + self.prepared_bytes


def weight_bytes(model: Model) -> Real:
    """All weights as stored, over all GPUs: `model.weight_bytes` where that is given, else from the components.

    Llama-3.1-70B in BF16: 70,553,706,496 parameters * 2 = 141.1e9 bytes.
    """
    return jnp.where(model.weight_bytes > 0, model.weight_bytes, _component_bytes(model))


def weight_bytes_per_gpu(model: Model, parallel: Parallel | None = None) -> WeightBytes:
    r"""Weights on the fullest GPU, by component.

    With tp, pp, dp, ep of `Parallel`, of the fullest pipeline stage:
    - embedding and head are split over tp;
    - attention over tp, except norms, MLA down-projections and indexer (whole on every rank) and the K and V
      projections, which are replicated once tp exceeds the KV heads;
    - dense FFNs and shared experts over tp, routers whole;
    - routed experts over all tp * dp GPUs of the stage: each holds ceil(E / ep) experts, of each of which a share
      ep / (tp * dp).
    A total given as `model.weight_bytes` scales the components; without components it is split over tp * pp.
    Engines add to these as they load: MXFP4 experts are padded (`_padding_frac`), and latent attention keeps its
    up-projections a second time in 16 bits, absorbed into queries and outputs. gpt-oss-120b on one H100: 65.9 GiB,
    5.1 of them padding (vLLM logs 65.97).
    """
    p = Parallel() if parallel is None else parallel
    part, tp = stage(model, p.pp), p.tp
    replicated = part.replicated_params + _replicated_kv_params(part, tp)
    attention = (part.attention_params - part.replicated_params) / tp + replicated
    routers = part.n_moe_layers * part.hidden_size * part.n_experts
    dense = jnp.maximum(part.dense_params - routers, 0.0) / tp + jnp.minimum(routers, part.dense_params)
    held = part.n_moe_layers * ceil_div(part.n_experts, p.ep) * part.expert_params
    counted = _component_bytes(model)
    known = counted > 0
    scale = jnp.where(known & (model.weight_bytes > 0), model.weight_bytes / jnp.where(known, counted, 1.0), 1.0)
    experts = scale * held * part.expert_dtype_bytes * p.ep / (tp * p.dp)
    absorbed = part.n_mla_layers * part.n_q_heads / tp * part.kv_lora_rank * (part.qk_nope_head_dim + part.v_head_dim)
    return WeightBytes(
        embedding_bytes=scale * (part.embedding_params + part.head_params) * part.embedding_dtype_bytes / tp,
        attention_bytes=scale * attention * part.attention_dtype_bytes,
        dense_bytes=scale * dense * part.dense_dtype_bytes,
        expert_bytes=experts,
        unsplit_bytes=jnp.where(known, 0.0, part.weight_bytes / tp),
        prepared_bytes=experts * _padding_frac(model, p) + 2.0 * absorbed,
    )


#: Bytes per weight of MXFP4 with its scales and biases; what its kernels pad hidden size and a rank's width to.
MXFP4_BYTES, MXFP4_HIDDEN, MXFP4_WIDTH = (0.525, 0.55), 256.0, 128.0


def _padding_frac(model: Model, p: Parallel) -> Real:
    """What padding adds to MXFP4 experts: vLLM's Marlin and FlashInfer kernels take whole tiles of both dimensions."""
    width = jnp.floor(safe_divide(model.expert_params, 3.0 * model.hidden_size, 0.0) / 16.0) * 16.0
    rank = width * p.ep / (p.tp * p.dp)
    wide = safe_divide(ceil_div(rank, MXFP4_WIDTH) * MXFP4_WIDTH, rank, 1.0)
    long = safe_divide(ceil_div(model.hidden_size, MXFP4_HIDDEN) * MXFP4_HIDDEN, model.hidden_size, 1.0)
    padded = (model.expert_dtype_bytes > MXFP4_BYTES[0]) & (model.expert_dtype_bytes < MXFP4_BYTES[1])
    return jnp.where(padded, wide * long - 1.0, 0.0)


def _component_bytes(model: Model) -> Real:
    experts = model.n_moe_layers * model.n_experts * model.expert_params
    return (
        model.attention_params * model.attention_dtype_bytes
        + model.dense_params * model.dense_dtype_bytes
        + experts * model.expert_dtype_bytes
        + (model.embedding_params + model.head_params) * model.embedding_dtype_bytes
    )


def _replicated_kv_params(model: Model, tp: Real) -> Real:
    """K and V projection parameters that a GPU holds beyond its 1 / tp, because a head is not split."""
    extra = 0.0
    for layers, heads, dim in (
        (model.n_full_layers, model.n_kv_heads, model.head_dim),
        (model.n_sliding_layers, model.sliding_kv_heads, model.sliding_head_dim),
    ):
        extra = extra + 2.0 * layers * model.hidden_size * dim * (heads_per_gpu(heads, tp) - heads / tp)
    return jnp.where(model.attention_params > 0, extra, 0.0)
