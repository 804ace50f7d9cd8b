r"""What one forward step moves, computes and sends on one GPU: bytes, FLOPs and messages, before any efficiency.

Symbols: `tokens` all tokens that pass the layers in the step, `decode_count` those of them that decode (one per
request), both over the whole instance. With attention data parallelism (`dp`) a rank sees 1/dp of them; experts see
all. Tensor parallelism divides heads and matrices by `tp`; pipeline stages divide layers by `pp`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import gammaln

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import power, safe_divide
from dmodels.core.records import Real
from dmodels.models.memory import kv_bytes, mla_layer_bytes, state_bytes


def peak_flop_per_s(gpu: GPU, dtype_bytes: Real) -> Real:
    """Dense peak of the narrowest tensor-core type that stores a parameter in `dtype_bytes`.

    4-bit weights on a GPU without FP4 units, and 8-bit weights on one without FP8, are widened to 16 bits before the
    multiplication (W4A16), so they run at the 16-bit peak.
    """
    fp8 = jnp.where(gpu.peak_fp8_flop_per_s > 0, gpu.peak_fp8_flop_per_s, gpu.peak_flop_per_s)
    fp4 = jnp.where(gpu.peak_fp4_flop_per_s > 0, gpu.peak_fp4_flop_per_s, gpu.peak_flop_per_s)
    return jnp.where(dtype_bytes > 1.5, gpu.peak_flop_per_s, jnp.where(dtype_bytes >= 0.75, fp8, fp4))


def expert_hit_frac(model: Model, tokens: Real, spread_frac: Real = 1.0) -> Real:
    r"""Expected share of the routed experts of a layer that `tokens` tokens touch.

    $1 - (1 - k/E)^T$ for T tokens that each pick k of E experts at random. Real routers favour some experts for a
    given text, so that T tokens touch as many as 1 + (T - 1) `spread_frac` independent ones.

    >>> round(float(expert_hit_frac(Model(61, n_experts=256, n_active_experts=8), 16.0)), 4)
    0.3983
    """
    missed = 1.0 - jnp.minimum(safe_divide(model.n_active_experts, model.n_experts, 0.0), 1.0 - 1e-9)
    return 1.0 - power(missed, jnp.minimum(tokens, 1.0) + jnp.maximum(tokens - 1.0, 0.0) * spread_frac)


def kv_read_bytes(model: Model, context_tokens: Real, tp: Real = 1.0) -> Real:
    """Cache bytes that one decode step of one sequence reads on each GPU: what it attends to, over all layers.

    All that it holds (`models.memory.kv_bytes`), but of the latent of a sparse MLA layer the top-k only, and the state
    of a linear layer twice, because it is read and written.

    >>> float(kv_read_bytes(Model(80, 8, 128), 1000.0, 8.0))
    40960000.0
    """
    latent = mla_layer_bytes(model) - model.index_bytes_per_token
    unread = model.n_mla_layers * latent * (context_tokens - _attended(model, context_tokens))
    return kv_bytes(model, context_tokens, tp) - unread + state_bytes(model, tp)


def decode_attention_flop(model: Model, context_tokens: Real, tp: Real = 1.0) -> Real:
    """FLOPs of the attention of one new token over `context_tokens`, per GPU; MLA in its absorbed form.

    4 d_h per query head and attended token (QK and PV); MLA: 2 (2 rank + rope) per head and attended token, 2,176 for
    DeepSeek-V3, which at 576 bytes a token makes it compute-bound as soon as a GPU holds most of the 128 heads.
    """
    q_heads = model.n_q_heads / tp
    window = jnp.minimum(context_tokens, model.sliding_window_tokens)
    sliding_dim = jnp.where(model.sliding_head_dim > 0, model.sliding_head_dim, model.head_dim)
    full = 4.0 * model.n_full_layers * model.head_dim * context_tokens
    sliding = 4.0 * model.n_sliding_layers * sliding_dim * window
    latent = 2.0 * (2.0 * model.kv_lora_rank + model.qk_rope_head_dim) * _attended(model, context_tokens)
    return q_heads * (full + sliding + model.n_mla_layers * latent)


def prefill_attention_flop(model: Model, attended_tokens: Real, tp: Real = 1.0) -> Real:
    """FLOPs of the attention of one prompt token over `attended_tokens` earlier ones, per GPU.

    MLA unabsorbed (heads expanded), but of a sparse layer absorbed: its kernels gather latents token by token.
    """
    q_heads = model.n_q_heads / tp
    window = jnp.minimum(attended_tokens, model.sliding_window_tokens)
    sliding_dim = jnp.where(model.sliding_head_dim > 0, model.sliding_head_dim, model.head_dim)
    full = 4.0 * model.n_full_layers * model.head_dim * attended_tokens
    sliding = 4.0 * model.n_sliding_layers * sliding_dim * window
    expanded = 2.0 * (model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim)
    absorbed = 2.0 * (2.0 * model.kv_lora_rank + model.qk_rope_head_dim)
    per_head = jnp.where(model.index_topk_tokens > 0, absorbed, expanded)
    return q_heads * (full + sliding + model.n_mla_layers * per_head * _attended(model, attended_tokens))


def index_flop(model: Model, context_tokens: Real) -> Real:
    """FLOPs, at 8 bits, with which the indexer of sparse MLA scores all `context_tokens` for one new token.

    2 n_I d_I per earlier token and layer, on every rank of tensor parallelism alike: 16,384 with the 64 heads of 128 of
    DeepSeek-V3.2 (arXiv:2512.02556, Eq. 1).
    """
    return 2.0 * model.n_mla_layers * model.n_index_heads * model.index_head_dim * context_tokens


#: Kernels that a layer starts in the engines' decoders. With grouped-query attention nine: norm, projection, rotary
#: embedding with the cache's write, attention, projection, norm, and three of a feed-forward block. A latent is also
#: projected down, normalised and absorbed; an indexer projects, scores and selects; a linear layer convolves and gates.
KERNELS, MLA_KERNELS, INDEXER_KERNELS, LINEAR_KERNELS = 9.0, 14.0, 6.0, 13.0
#: More of a layer with routed experts: router, choice, sorting, and two grouped products with their quantisation.
MOE_KERNELS = 8.0


def launched_layers(model: Model) -> Real:
    """Layers by the kernels that they start, in layers of grouped-query attention; routed experts apart.

    >>> round(float(launched_layers(Model(61, n_mla_layers=61))), 2)
    94.89
    """
    latent = MLA_KERNELS + jnp.where(model.index_topk_tokens > 0, INDEXER_KERNELS, 0.0)
    more = model.n_mla_layers * (latent / KERNELS - 1.0) + model.n_linear_layers * (LINEAR_KERNELS / KERNELS - 1.0)
    return model.n_layers + more


#: Passes over a token's 16-bit hidden state in the two norms of a layer: each reads the token and the residual, and
#: writes both.
PASSES = 8.0


def pass_bytes(hidden_size: Real, tokens: Real) -> Real:
    """Bytes of one pass over the 16-bit hidden states of `tokens`."""
    return 2.0 * hidden_size * tokens


def split_pass_bytes(model: Model, tokens: Real, tp: Real) -> Real:
    """Bytes of activations that tensor parallelism divides, over all layers: queries, keys and values are read and
    written for the rotary embedding and the cache, gate and up are read and their product is written."""
    widths = safe_divide(2.0 * model.attention_params + model.dense_params, model.hidden_size, 0.0)
    return 2.0 * tokens * widths / tp


#: Bytes that sampling moves per request and entry of the vocabulary: 16-bit logits are read, and 32-bit ones written,
#: then read and written for their softmax and read for the choice.
SAMPLED_BYTES = 18.0


def sampling_bytes(model: Model, requests: Real) -> Real:
    """Bytes that choosing the next token of each request moves, over the whole vocabulary on every rank."""
    return SAMPLED_BYTES * safe_divide(model.head_params, model.hidden_size, 0.0) * requests


def all_reduce_bytes(hidden_size: Real, tokens: Real, ranks: Real) -> Real:
    """Bytes each GPU sends in one 16-bit all-reduce of the hidden states: 2 (r-1)/r of the message."""
    return 2.0 * (ranks - 1.0) / ranks * 2.0 * hidden_size * tokens


class Exchange(NamedTuple):
    """Bytes each GPU sends to dispatch tokens to their experts (8 bits) and to combine the results (16 bits)."""

    near: Real  # within its scale-up domain
    far: Real  # to other domains


def expert_exchange_bytes(
    model: Model, decode_tokens: Real, prompt_tokens: Real, parallel: Parallel, domain_gpus: Real
) -> Exchange:
    r"""What the exchange of a layer's tokens between experts sends, over the whole instance's tokens.

    A token has min(k, ep) copies, of which 1/r stay where they are. Of a decode step each goes straight to its GPU; of
    prompts one copy goes to every other of the d domains with an expert of the token, and is handed on inside (DeepEP's
    low-latency and normal kernels): $(1 - 1/d)\, d_g (1 - (1 - 1/d_g)^k)$ of them, with $d_g$ the domains that hold one
    of the token's groups of experts (`_domains_of_groups`).
    """
    ranks = parallel.tp * parallel.dp
    domains = jnp.maximum(ranks / domain_gpus, 1.0)
    away = jnp.maximum(ranks - domain_gpus, 0.0) / jnp.maximum(ranks - 1.0, 1.0)  # of the other GPUs
    copies = jnp.minimum(model.n_active_experts, parallel.ep) * (1.0 - 1.0 / ranks)
    eligible = _domains_of_groups(model, domains)
    others = (1.0 - 1.0 / domains) * eligible * (1.0 - power(1.0 - 1.0 / eligible, model.n_active_experts))
    each = 3.0 * model.hidden_size / ranks
    near = each * copies * (decode_tokens * (1.0 - away) + prompt_tokens)
    return Exchange(near, each * (copies * away * decode_tokens + others * prompt_tokens))


def _domains_of_groups(model: Model, domains: Real) -> Real:
    r"""Of the domains over which experts are spread, those that hold one of the g groups (of G) that a token chooses.

    A domain of m = G/d groups holds none of them with the chance $\binom{G-m}{g} / \binom{G}{g}$; where a group lies
    over several domains, a share g/G of these is left. All where experts have no groups.
    """
    limited = (model.n_active_groups > 0) & (model.n_active_groups < model.n_expert_groups)
    groups = jnp.where(limited, model.n_expert_groups, 2.0)
    chosen = jnp.where(limited, model.n_active_groups, 1.0)
    each = groups / domains
    unchosen = groups - chosen
    log_missed = gammaln(groups - each + 1.0) + gammaln(unchosen + 1.0) - gammaln(groups + 1.0)
    missed = jnp.exp(log_missed - gammaln(jnp.maximum(unchosen - each, 0.0) + 1.0))
    whole = domains * (1.0 - jnp.where(each <= unchosen, missed, 0.0))
    found = jnp.where(each >= 1.0, whole, domains * chosen / groups)
    return jnp.where(limited, jnp.maximum(found, 1.0), domains)


def _attended(model: Model, context_tokens: Real) -> Real:
    """Tokens that a MLA layer attends to: all, or the indexer's top-k."""
    sparse = jnp.minimum(context_tokens, model.index_topk_tokens)
    return jnp.where(model.index_topk_tokens > 0, sparse, context_tokens)
