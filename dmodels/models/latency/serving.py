r"""A closed loop of `concurrency` clients with in-flight batching: TTFT and TPOT from one steady state.

Each client sends the next prompt when its last answer is complete. Of the C requests n decode, and each step adds a
token to all of them, so per step n/osl requests finish and as many prompts enter. A step that carries a prompt (one
per rank of attention data parallelism) takes t(n, isl) instead of t(n, 0):

    TPOT = t(n, 0) + n/(osl dp) (t(n, isl) - t(n, 0)),      n (osl TPOT + F) = min(C, n_max) osl TPOT,

with n_max the requests that the KV cache holds and F what a request spends between its admission and its first token:
the host, the prompt's own step, the steps until the engine has seen it and has sent a token, and the prompts ahead
(clients that started together stay together for a while: `burst_frac` of them). Beyond n_max requests wait for the
cache: (C/n_max - 1) osl TPOT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real

from . import terms
from .steps import Efficiency, step, tokens_per_step

#: Rounds of the fixed point for n. It contracts by about F / (osl TPOT + F) a round, a small part of a request's life.
ROUNDS = 4


class Serving(NamedTuple):
    """The steady state of a closed loop."""

    ttft_s: Real  # mean time to first token
    tpot_s: Real  # mean time per output token after the first
    decode_count: Real  # requests that decode at a time, per decode instance
    resident_max_count: Real  # requests that the KV cache of a decode instance holds
    tokens_per_s: Real  # output tokens per second, all instances
    flags: Real


def resident_max_count(
    model: Model, gpu: GPU, parallel: Parallel, isl: Real, osl: Real, memory_frac: Real = 0.9
) -> Real:
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


def serve(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    isl: Real,
    osl: Real,
    concurrency: Real,
    efficiency: Efficiency | None = None,
    draft_tokens: Real = 0.0,
    decode_batch: Real = float("inf"),
    poll_steps: Real = 0.0,
) -> Serving:
    """TTFT and TPOT of `concurrency` clients with prompts of `isl` and answers of `osl` tokens (means) on one instance.

    `decode_batch` is the most requests that it is set to decode at a time (per rank of attention data parallelism), the
    cache may hold fewer; `poll_steps` the steps after which its scheduler looks for new requests, beyond every step.

    The fixed point takes a fixed number of rounds, so the result is differentiable and every point costs the same.
    """
    e = Efficiency() if efficiency is None else efficiency
    context = isl + osl / 2.0
    slots = jnp.minimum(resident_max_count(model, gpu, parallel, isl, osl), decode_batch * parallel.dp)
    most = jnp.minimum(concurrency, jnp.maximum(slots, 1.0))
    gain = tokens_per_step(draft_tokens, e.acceptance_frac)
    alone_of, mixed_of, shared_of = _steps(model, gpu, parallel, context, isl, e, draft_tokens)
    ahead = e.burst_frac * jnp.maximum(most - 1.0, 0.0) + e.ahead_count * (1.0 - 1.0 / jnp.maximum(most, 1.0))
    shared, sharing = shared_of(most)
    queue = ahead / parallel.dp * (shared - alone_of(most)) / sharing

    def times(decoding: Real) -> tuple[Real, Real, Real]:
        alone, mixed = alone_of(decoding), mixed_of(decoding)
        return alone, mixed, alone / gain + decoding / osl / parallel.dp * (mixed - alone)

    def admitted_s(alone: Real, mixed: Real) -> Real:
        ranks = jnp.where(parallel.dp > 1, e.dp_wait_steps * alone, 0.0)
        return e.prompt_ms * 1e-3 + mixed + (e.wait_steps + poll_steps) * alone + queue + ranks

    def once(_: Real, decoding: Real) -> Real:
        alone, mixed, tpot = times(decoding)
        return most * osl * tpot / (osl * tpot + admitted_s(alone, mixed))

    decoding = jax.lax.fori_loop(1, ROUNDS, once, once(0, most))
    alone, mixed, tpot = times(decoding)
    waiting = _slot_wait(concurrency / parallel.dp, jnp.maximum(slots, 1.0) / parallel.dp, parallel.dp, e)
    first = admitted_s(alone, mixed) + waiting * osl * tpot
    tokens_per_s = concurrency * osl / (first + osl * tpot)  # Little's law
    flags = flag_where(slots < 1.0, Flag.NO_FIT) | flag_nonfinite(first, tpot)
    return Serving(first, tpot, tokens_per_s * tpot, slots, tokens_per_s, flags)


def serve_disaggregated(
    model: Model,
    gpu: GPU,
    prefill: Parallel,
    prefill_instances: Real,
    decode: Parallel,
    decode_instances: Real,
    isl: Real,
    osl: Real,
    concurrency: Real,
    efficiency: Efficiency | None = None,
    draft_tokens: Real = 0.0,
    decode_batch: Real = float("inf"),
) -> Serving:
    r"""TTFT and TPOT of a closed loop over separate prefill and decode instances, rate-matched.

    Prompts queue for the prefill instances (service S, m = instances x dp at a time), the cache moves to a decode
    instance over the network, and the answer is decoded in Z = osl TPOT(n). With Schweitzer's approximation the
    residence at prefill is R = S + S' Q/m, Q = C R/(R + Z), with S' <= S the time per prompt of a full step of queued
    prompts; where prefill is slower, R -> C S'/m - Z, and the decoders idle. `prefill_instances` of 0 means
    rate-matched: as many as keep up with the decoders. `decode_batch` is the most requests that an instance (or each
    of its dp ranks) is set to decode at a time; the cache may hold fewer.
    """
    e = Efficiency() if efficiency is None else efficiency
    context = isl + osl / 2.0
    gain = tokens_per_step(draft_tokens, e.acceptance_frac)
    slots = jnp.minimum(resident_max_count(model, gpu, decode, isl, osl), decode_batch * decode.dp)
    alone_of, _, _ = _steps(model, gpu, decode, context, isl, e, draft_tokens)
    _, prompt_of, shared_of = _steps(model, gpu, prefill, context, isl, e, 0.0)
    shared, sharing = shared_of(0.0)
    service, queued = prompt_of(0.0), shared / sharing
    transfer = terms.kv_read_bytes(model, isl, prefill.tp) / (gpu.nic_bytes_per_s_per_gpu_oneway * e.link_frac)
    fixed = e.prompt_ms * 1e-3 + transfer

    each = concurrency / decode_instances
    most = jnp.minimum(each, jnp.maximum(slots, 1.0))
    matched = jnp.maximum(concurrency * queued / (osl * alone_of(most) / gain + fixed), prefill.dp)
    servers = jnp.where(prefill_instances > 0, prefill_instances * prefill.dp, matched)

    def times(decoding: Real) -> tuple[Real, Real, Real]:
        tpot = alone_of(decoding) / gain
        life = osl * tpot + fixed
        b = life - service - queued * concurrency / servers  # R = S + S' C R / (m (R + Z)): a quadratic in R
        return tpot, life, 0.5 * (-b + jnp.sqrt(b**2 + 4.0 * service * life))

    def once(_: Real, decoding: Real) -> Real:
        tpot, life, residence = times(decoding)
        return most * osl * tpot / (life + residence)

    decoding = jax.lax.fori_loop(1, ROUNDS, once, once(0, most))
    tpot, _, residence = times(decoding)
    ahead = e.burst_frac * jnp.maximum(concurrency / servers - 1.0, 0.0) * queued
    admitted = fixed + residence + ahead
    elsewhere = jnp.maximum(slots, 1.0) * admitted / (osl * tpot)  # when full, those at prefill hold no slot
    ranks = decode_instances * decode.dp
    waiting = _slot_wait((each - elsewhere) / decode.dp, jnp.maximum(slots, 1.0) / decode.dp, ranks, e)
    first = admitted + (e.wait_steps + waiting * osl) * tpot
    flags = flag_where(slots < 1.0, Flag.NO_FIT) | flag_nonfinite(first, tpot)
    return Serving(first, tpot, decoding, slots, decode_instances * decoding / tpot, flags)


def _slot_wait(requests: Real, slots: Real, ranks: Real, e: Efficiency) -> Real:
    """Wait for a slot, in decode times of an answer: E max(k - slots, 0)/slots of the k requests sent to one's rank.

    A router that does not know which rank is free leaves k spread about its mean, by `dispatch_spread` of what drawing
    a rank at random would; k is taken as normal, and a request is itself one of those that it finds (size bias).
    """
    variance = e.dispatch_spread**2 * (1.0 - 1.0 / ranks)
    deviation = jnp.sqrt(variance * jnp.maximum(requests, 0.0) + 1e-12)
    excess = (requests + variance - slots) / deviation
    density = jnp.exp(-0.5 * jnp.minimum(excess**2, 1400.0)) / (2.0 * jnp.pi) ** 0.5
    return deviation * (excess * jax.scipy.special.ndtr(excess) + density) / slots


def _steps(
    model: Model, gpu: GPU, parallel: Parallel, context: Real, isl: Real, e: Efficiency, draft_tokens: Real
) -> tuple[Callable[[Real], Real], Callable[[Real], Real], Callable[[Real], tuple[Real, Real]]]:
    """t(n, 0) and t(n, isl): a step of n decoding requests, without and with one new prompt on every dp rank; and
    t(n, k isl) with k: as many prompts as share a step when they queue."""
    sharing = jnp.maximum(e.prefill_batch_tokens / isl, 1.0)

    def alone(decoding: Real) -> Real:
        return step(model, gpu, parallel, decoding, context, 0.0, 0.0, e, draft_tokens).total_s

    def mixed(decoding: Real, prompts: Real = 1.0) -> Real:
        new = parallel.dp * isl * prompts
        return step(model, gpu, parallel, decoding, context, new, isl / 2.0, e, draft_tokens).total_s

    def shared(decoding: Real) -> tuple[Real, Real]:
        return mixed(decoding, sharing), sharing

    return alone, mixed, shared
