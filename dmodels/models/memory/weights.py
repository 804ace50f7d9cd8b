"""What else lives in GPU memory: weights by component, activations, the runtime; and what is left for KV."""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import ceil_div
from dmodels.core.records import Real, Record, quantity
from dmodels.core.units import GIB

from .kv import heads_per_gpu, stage


class WeightBytes(Record):
    """Weights on one GPU (the fullest), by component."""

    embedding_bytes: Real = quantity(0.0)  # input embedding and output head
    attention_bytes: Real = quantity(0.0)  # attention, linear mixers, norms
    dense_bytes: Real = quantity(0.0)  # dense FFNs, shared experts, routers
    expert_bytes: Real = quantity(0.0)  # routed experts
    unsplit_bytes: Real = quantity(0.0)  # of a model of which only the total is known

    @property
    def total_bytes(self) -> Real:
        """All weights on the GPU."""
        parts = self.embedding_bytes + self.attention_bytes + self.dense_bytes
        return parts + self.expert_bytes + self.unsplit_bytes


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
    return WeightBytes(
        embedding_bytes=scale * (part.embedding_params + part.head_params) * part.embedding_dtype_bytes / tp,
        attention_bytes=scale * attention * part.attention_dtype_bytes,
        dense_bytes=scale * dense * part.dense_dtype_bytes,
        expert_bytes=scale * held * part.expert_dtype_bytes * p.ep / (tp * p.dp),
        unsplit_bytes=jnp.where(known, 0.0, part.weight_bytes / tp),
    )


def activation_bytes(model: Model, tp: Real = 1, batched_tokens: Real = 8192, sequences: Real = 256) -> Real:
    r"""Peak activations of one iteration of `batched_tokens` tokens on a GPU, in BF16.

    $T\,(3 h + \max(q + 2 kv, 3 f)/\mathrm{tp}) \cdot 2$ (residual, normalised input and output; the widest of the
    projected heads and the feed-forward block with its gate) plus $S\,V \cdot 6$ for the logits of S sequences in
    BF16 and float32. A model, not a measurement: expect a factor of 2 either way, 1 to 3 GiB for most models.
    Llama-3.1-8B at T = 8,192: 0.99 GiB.
    """
    head = jnp.maximum(model.head_dim, model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim)
    heads = (model.n_q_heads / tp + 2.0 * heads_per_gpu(model.n_kv_heads, tp)) * head
    latent = model.n_q_heads / tp * head + model.kv_lora_rank
    mixer = jnp.where(model.n_mla_layers > 0, latent, heads)
    widest = jnp.maximum(mixer, 3.0 * model.ffn_size / tp)
    return 2.0 * batched_tokens * (3.0 * model.hidden_size + widest) + 6.0 * sequences * model.vocab_size


def runtime_bytes(parallel: Parallel, context_bytes: Real = 0.5 * GIB, communicator_bytes: Real = 1.0 * GIB) -> Real:
    """The driver's context and, with several GPUs, the communicators. Assumed: 0.5 and 1 GiB, together +-0.7 GiB."""
    return context_bytes + jnp.where(parallel.gpus > 1, communicator_bytes, 0.0)


def kv_budget_bytes(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    utilization: Real = 0.9,
    batched_tokens: Real = 8192,
    sequences: Real = 256,
) -> Real:
    """Bytes for KV on the fullest GPU, as vLLM and SGLang count: u * M - (weights + activations + non-torch).

    M is what the driver reports. Negative: the model does not fit, by that much.
    """
    return utilization * gpu.memory_bytes - non_kv_bytes(model, parallel, batched_tokens, sequences)


def kv_budget_of_free_bytes(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    free_frac: Real = 0.9,
    batched_tokens: Real = 8192,
    sequences: Real = 256,
) -> Real:
    """Bytes for KV on the fullest GPU, as TensorRT-LLM counts: f * (M - everything else)."""
    return free_frac * (gpu.memory_bytes - non_kv_bytes(model, parallel, batched_tokens, sequences))


def non_kv_bytes(model: Model, parallel: Parallel, batched_tokens: Real = 8192, sequences: Real = 256) -> Real:
    """Weights, activations and runtime on the fullest GPU."""
    active = activation_bytes(model, parallel.tp, batched_tokens, sequences)
    return weight_bytes_per_gpu(model, parallel).total_bytes + active + runtime_bytes(parallel)


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
