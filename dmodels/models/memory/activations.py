r"""The peak of an engine's start-up run on one GPU: the widest layer for a full step, or the sampler for all sequences.

A full step holds T tokens; b = 2 bytes. Two rows of hidden states stay (residual and input); beside them a layer needs

- a dense feed-forward block: gate, up and their product, $3 f / \mathrm{tp}$ a token;
- routed experts: the k copies of a token before and after an expert, in one buffer of the wider of h and 2f, the
  product f, and the output: $h + k (\max(h, 2 f_e) + f_e)$;
- attention: queries, keys, values and outputs; latent attention expands them, and a cached prefix of up to
  `latent_workspace_tokens` tokens besides.

The sampler holds the hidden states and, for S sequences, V logits in several copies (16 and 32 bits, sorted values and
their positions: `EngineMemory.logit_bytes`). The two never coincide.

Source: vLLM `GPUModelRunner.profile_run`, `fused_moe`, `MLACommonImpl`; the logs that it is held to are in
benchmarks/accuracy/data/engine_logs.csv.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real

from .engines import VLLM, EngineMemory
from .kv import heads_per_gpu


def activation_bytes(
    model: Model,
    parallel: Parallel | None = None,
    batched_tokens: Real = 8192,
    sequences: Real = 256,
    engine: EngineMemory = VLLM,
) -> Real:
    """Peak of one iteration of `batched_tokens` tokens, and of sampling for `sequences`, on one GPU.

    Llama-3.1-8B: 8,192 tokens take 0.78 GiB, the logits of 256 sequences 1.13 GiB.
    """
    p = Parallel() if parallel is None else parallel
    hidden = 2.0 * batched_tokens * model.hidden_size
    widest = jnp.maximum(_feed_forward_elements(model, p), _attention_elements(model, p.tp))
    layer = 2.0 * hidden + 2.0 * batched_tokens * widest + _prefix_bytes(model, p.tp, engine)
    sampler = hidden + engine.logit_bytes * sequences * model.vocab_size
    return jnp.maximum(layer, sampler)


def _feed_forward_elements(model: Model, p: Parallel) -> Real:
    """Of one token, the widest feed-forward block's buffers."""
    dense = 3.0 * model.ffn_size / p.tp
    width = safe_divide(model.expert_params, 3.0 * model.hidden_size, 0.0) * p.ep / (p.tp * p.dp)
    copies = model.n_active_experts * (jnp.maximum(model.hidden_size, 2.0 * width) + width)
    return jnp.where(model.n_moe_layers > 0, model.hidden_size + copies, dense)


def _attention_elements(model: Model, tp: Real) -> Real:
    """Of one token, queries, keys, values and outputs of its widest attention layer."""
    heads = model.n_q_heads / tp
    latent = heads * (2.0 * (model.qk_nope_head_dim + model.qk_rope_head_dim) + 2.0 * model.v_head_dim)
    dim = jnp.maximum(model.head_dim, model.sliding_head_dim)
    kv_heads = jnp.maximum(heads_per_gpu(model.n_kv_heads, tp), heads_per_gpu(model.sliding_kv_heads, tp))
    plain = (2.0 * heads + 2.0 * kv_heads) * dim
    return jnp.where(model.n_mla_layers > 0, latent + model.kv_lora_rank, plain)


def _prefix_bytes(model: Model, tp: Real, engine: EngineMemory) -> Real:
    """A cached prefix of latents, and its keys and values."""
    heads = model.n_q_heads / tp
    each = model.kv_lora_rank + model.qk_rope_head_dim + heads * (model.qk_nope_head_dim + model.v_head_dim)
    tokens = jnp.minimum(engine.latent_workspace_tokens, 8.0 * jnp.maximum(model.max_context_tokens, 8192.0))
    return jnp.where(model.n_mla_layers > 0, 2.0 * tokens * each, 0.0)
