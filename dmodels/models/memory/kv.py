"""The KV cache: bytes per token and per sequence on one GPU, for every kind of layer.

All functions broadcast over batched records and numbers. Layer kinds are counts in the record, so one formula
serves GQA, MLA, sliding-window, linear and mixed models, and vmaps over a catalogue of them. `tp` is the number
of GPUs over which one attention layer is split; a pipeline stage is `stage(model, pp)`; with attention data
parallelism each rank has a pool of its own and these are the bytes on one of its `tp` GPUs.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.model import Model
from dmodels.core.numerics import ceil_div
from dmodels.core.records import Real


def kv_bytes_per_token(model: Model, tp: Real = 1) -> Real:
    r"""KV-cache bytes by which one more token of a long sequence grows the cache of each GPU.

    $2\, n_l \max(1, \lceil n_{kv}/\mathrm{tp} \rceil)\, d_h\, b$ over full-attention layers: heads are split over
    `tp` GPUs until one head per GPU is left, then replicated. MLA layers add $(r_{kv} + d_{rope})\, b$ on every
    rank, with no factor 2. Sliding layers stop growing at their window, linear layers never grow.

    [1] arXiv:2604.09613, Eq. (1); its §4.7 (4 KV heads, tp = 8) needs the `max`.

    >>> float(kv_bytes_per_token(Model(80, 8, 128, weight_bytes=141e9)))
    327680.0
    """
    full = _attention_layer_bytes(model.n_kv_heads, model.head_dim, model.kv_dtype_bytes, tp)
    return model.n_full_layers * full + model.n_mla_layers * mla_layer_bytes(model)


def kv_bytes(model: Model, tokens: Real, tp: Real = 1) -> Real:
    """The least that a sequence of `tokens` tokens occupies on each GPU: nothing is rounded, windows are full.

    Full and MLA layers keep every token, sliding layers the last `sliding_window_tokens`, linear layers a state.

    >>> float(kv_bytes(Model(80, 8, 128), 65536) / 2**30)
    20.0
    """
    slid = jnp.minimum(tokens, model.sliding_window_tokens)
    return (
        kv_bytes_per_token(model, tp) * tokens
        + model.n_sliding_layers * _sliding_layer_bytes(model, tp) * slid
        + state_bytes(model, tp)
    )


def kv_reserved_bytes(
    model: Model, tokens: Real, tp: Real = 1, block_tokens: Real = 16, max_batched_tokens: Real = 8192
) -> Real:
    r"""What vLLM reserves for a sequence of `tokens` tokens on each GPU, in blocks of B = `block_tokens`.

    Full layers $\lceil n/B \rceil B$ tokens; sliding layers $(\lceil \min(W - 1 + T, n)/B \rceil + 1) B$, with
    T = `max_batched_tokens`: the window must hold while a whole chunk is being prefilled, and its first block may
    start anywhere. Linear layers one state. (vLLM also aligns the page sizes of unlike layers; not modelled.)

    >>> gpt_oss = Model(36, 8, 64, n_sliding_layers=18, sliding_window_tokens=128, sliding_kv_heads=8,
    ...                 sliding_head_dim=64)
    >>> round(float(kv_reserved_bytes(gpt_oss, 8192) / 2**20), 1)
    576.6
    """
    whole = ceil_div(tokens, block_tokens) * block_tokens
    reach = jnp.minimum(model.sliding_window_tokens - 1.0 + max_batched_tokens, tokens)
    slid = (ceil_div(reach, block_tokens) + 1.0) * block_tokens
    return (
        kv_bytes_per_token(model, tp) * whole
        + model.n_sliding_layers * _sliding_layer_bytes(model, tp) * slid
        + state_bytes(model, tp)
    )


def state_bytes(model: Model, tp: Real = 1) -> Real:
    """Bytes per sequence on each GPU that linear-attention and state-space layers keep, however long it is."""
    heads = jnp.where(model.n_linear_heads > 0, model.n_linear_heads, 1.0)
    share = jnp.where(model.n_linear_heads > 0, ceil_div(heads, tp) / heads, 1.0 / (tp * jnp.ones_like(heads)))
    return model.n_linear_layers * model.linear_state_bytes * share


def mla_layer_bytes(model: Model) -> Real:
    """Bytes per token of one MLA layer, the same on every rank: DeepSeek-V3 in BF16 (512 + 64) * 2 = 1,152."""
    plain = (model.kv_lora_rank + model.qk_rope_head_dim) * model.kv_dtype_bytes
    latent = jnp.where(model.latent_bytes_per_token > 0, model.latent_bytes_per_token, plain)
    return latent + model.index_bytes_per_token


def stage(model: Model, pp: Real = 1) -> Model:
    """The fullest stage of `pp` pipeline stages, as a model of its own.

    Each kind of layer is spread evenly, and the fullest stage has ceil(n / pp) of it: exact for one kind, at most
    one layer per kind too many for mixed patterns. The first stage holds the embedding, the last the head; the
    fuller of the two counts.

    >>> float(stage(Model(61, 8, 128), 4).n_layers)
    16.0
    """
    sliding, mla = ceil_div(model.n_sliding_layers, pp), ceil_div(model.n_mla_layers, pp)
    linear, cacheless = ceil_div(model.n_linear_layers, pp), ceil_div(model.n_cacheless_layers, pp)
    layers = ceil_div(model.n_full_layers, pp) + sliding + mla + linear + cacheless
    share = jnp.minimum(ceil_div(model.n_layers, pp), model.n_layers) / model.n_layers
    ends = jnp.maximum(model.embedding_params, model.head_params)
    return model.replace(
        n_layers=layers,
        n_sliding_layers=sliding,
        n_mla_layers=mla,
        n_linear_layers=linear,
        n_cacheless_layers=cacheless,
        weight_bytes=model.weight_bytes / pp,
        attention_params=model.attention_params * share,
        replicated_params=model.replicated_params * share,
        dense_params=model.dense_params * share,
        n_moe_layers=ceil_div(model.n_moe_layers, pp),
        embedding_params=jnp.where(pp > 1, 0.0, model.embedding_params),
        head_params=jnp.where(pp > 1, ends, model.head_params),
    )


def heads_per_gpu(n_heads: Real, tp: Real) -> Real:
    """Heads on each GPU: split over tp, at least one (8 heads at tp = 16 are stored twice), 0 of none."""
    return jnp.where(n_heads > 0, jnp.maximum(ceil_div(n_heads, tp), 1.0), 0.0)


def _attention_layer_bytes(n_kv_heads: Real, head_dim: Real, kv_dtype_bytes: Real, tp: Real) -> Real:
    return 2.0 * heads_per_gpu(n_kv_heads, tp) * head_dim * kv_dtype_bytes


def _sliding_layer_bytes(model: Model, tp: Real) -> Real:
    return _attention_layer_bytes(model.sliding_kv_heads, model.sliding_head_dim, model.kv_dtype_bytes, tp)
