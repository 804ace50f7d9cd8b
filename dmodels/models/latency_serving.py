r"""A closed loop of `concurrency` clients on one instance with in-flight batching: TTFT and TPOT from one steady state.

Each client sends the next prompt when its last answer is complete. Of the C requests, n decode; each step adds a token
to all of them, so per step n/osl requests finish and as many prompts enter. A step that also carries a prompt takes
t(n, isl) instead of t(n, 0):

    TPOT = t(n, 0) + n/osl (t(n, isl) - t(n, 0)),      n (osl TPOT + TTFT') = C osl TPOT,     n <= n_max,

with n_max what the KV cache holds, and TTFT' what a request spends before it decodes. TTFT is the prompt's own step,
half a step of waiting for it to begin, the prompts ahead (clients that started together stay together for a while:
`burst_frac` of them), and (C/n_max - 1) osl TPOT where the cache is full.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real

from . import latency_terms as terms
from .latency import Efficiency, step


class Serving(NamedTuple):
    """The steady state of a closed loop."""

    ttft_s: Real  # mean time to first token
    tpot_s: Real  # mean time per output token after the first
    decode_count: Real  # requests that decode at a time
    resident_max_count: Real  # requests that the KV cache holds
    tokens_per_s: Real  # output tokens per second of the instance
    flags: Real


def resident_max_count(model: Model, gpu: GPU, parallel: Parallel, isl: Real, osl: Real,
                       memory_frac: Real = 0.9) -> Real:  # fmt: skip
    """Requests whose KV cache fits at once, each counted at its mean length isl + osl/2; over all dp ranks."""
    tp, pp, dp = parallel.tp, parallel.pp, parallel.dp
    shared = model.attention_params * model.attention_dtype_bytes + model.dense_params * model.dense_dtype_bytes
    shared = shared + (model.head_params + model.embedding_params) * model.embedding_dtype_bytes
    experts = model.n_moe_layers * model.n_experts * model.expert_params * model.expert_dtype_bytes
    weights = (shared / tp + experts / (tp * dp)) / pp
    free = jnp.maximum(memory_frac * gpu.memory_bytes - weights, 0.0)
    dense_attention = model.replace(index_topk_tokens=0.0)  # a sparse layer reads its top-k but keeps every token
    per_request = terms.kv_read_bytes(dense_attention, isl + osl / 2.0, tp) / pp
    return dp * safe_divide(free, per_request)


def serve(model: Model, gpu: GPU, parallel: Parallel, isl: Real, osl: Real, concurrency: Real,
          efficiency: Efficiency | None = None) -> Serving:  # fmt: skip
    """TTFT and TPOT of `concurrency` clients with prompts of `isl` and answers of `osl` tokens (means) on one instance.

    Six rounds of the fixed point are carried out always: the map contracts fast (TTFT is a small part of a request's
    life), the result is differentiable, and a batch costs the same for every point.
    """
    e = Efficiency() if efficiency is None else efficiency
    context = isl + osl / 2.0
    slots = resident_max_count(model, gpu, parallel, isl, osl)
    most = jnp.minimum(concurrency, jnp.maximum(slots, 1.0))

    def times(decoding):
        alone = step(model, gpu, parallel, decoding, context, 0.0, 0.0, e).total_s
        mixed = step(model, gpu, parallel, decoding, context, isl, isl / 2.0, e).total_s
        return alone, mixed, alone + decoding / osl * (mixed - alone)

    def ttft(alone, mixed):
        ahead = e.burst_frac * jnp.maximum(most - 1.0, 0.0) * (mixed - alone)
        return e.prompt_ms * 1e-3 + mixed + 0.5 * alone + ahead

    def once(decoding):
        alone, mixed, tpot = times(decoding)
        return most * osl * tpot / (osl * tpot + ttft(alone, mixed))

    decoding = most
    for _ in range(6):
        decoding = once(decoding)
    alone, mixed, tpot = times(decoding)
    first = ttft(alone, mixed) + jnp.maximum(concurrency / most - 1.0, 0.0) * osl * tpot
    flags = flag_where(slots < 1.0, Flag.NO_FIT) | flag_nonfinite(first, tpot)
    return Serving(first, tpot, decoding, slots, decoding / tpot, flags)
