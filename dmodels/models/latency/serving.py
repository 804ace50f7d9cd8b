r"""A closed loop of `concurrency` clients with in-flight batching: TTFT and TPOT from one steady state.

Each client sends the next prompt when its last answer is complete. Of the C requests n decode, and each step adds a
token to all of them, so per step n/osl requests finish and as many prompts enter. A step that carries a prompt takes
t(n, isl) instead of t(n, 0), of whichever rank of attention data parallelism it is:

    TPOT = t(n, 0) + n/osl (t(n, isl) - t(n, 0)),      n (osl TPOT + F) = min(C, n_max) osl TPOT,

with n_max the requests that the KV cache holds and F what a request spends between its admission and its first token:
the host, the prompt's own step, the steps of mean length until the engine has seen it and has sent a token, and the
prompts ahead (clients that started together stay together for a while: `burst_frac` of them). Beyond n_max requests
wait for the cache: C/n_max - 1 times as long as one holds its slot, F + osl TPOT.

Where all prompts and all answers are equally long, clients part less. An engine that computes every waiting prompt
before it decodes on keeps all of them together: half of the others' prompts are ahead of one, and the other half
between its first tokens, so that TPOT = t(n, 0) + (half of the prompts)/osl. One that mixes prompts into the steps of
decodes keeps groups (`ahead_count`), unless slots are short, when each answer that ends lets one prompt in.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import normal_loss
from dmodels.core.records import Real, jit
from dmodels.models.memory import VLLM, EngineMemory, kv_bytes, residents_of_length

from .mixed import MixedSteps
from .steps import Efficiency, tokens_per_step

#: Rounds of the fixed point for n. It contracts by about F / (osl TPOT + F) a round, a small part of a request's life.
ROUNDS = 4


class Serving(NamedTuple):
    """The steady state of a closed loop."""

    ttft_s: Real  # mean time to first token
    tpot_s: Real  # mean time per output token after the first
    decode_count: Real  # requests that decode at a time, per decode instance
    resident_max_count: Real  # requests that a decode instance holds at once (`models.memory.residents`)
    tokens_per_s: Real  # output tokens per second, all instances
    flags: Real


@jit
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
    equal_lengths: Real = 0.0,
    prompts_first: Real = 0.0,
    utilization: Real | None = None,
    engine: EngineMemory = VLLM,
) -> Serving:
    """TTFT and TPOT of `concurrency` clients with prompts of `isl` and answers of `osl` tokens (means) on one instance.

    `decode_batch` is the most requests that it is set to decode at a time (per rank of attention data parallelism), the
    cache may hold fewer; `poll_steps` the steps after which its scheduler looks for new requests, beyond every step;
    `equal_lengths` is 1 where no length is drawn, `prompts_first` where the engine computes all waiting prompts before
    it decodes on; `utilization` the share of the memory that the engine may use, None its default, and `engine` how it
    divides that (`models.memory.residents`).

    The fixed point takes a fixed number of rounds, so the result is differentiable and every point costs the same.
    Flags: NO_FIT where the instance cannot hold one request; then both times are infinite.
    """
    e = Efficiency() if efficiency is None else efficiency
    context = isl + osl / 2.0
    held = residents_of_length(model, gpu, parallel, isl, osl, utilization=utilization, engine=engine)
    slots = jnp.maximum(jnp.minimum(held, decode_batch * parallel.dp), 1.0)
    most = jnp.minimum(concurrency, slots)
    gain = tokens_per_step(draft_tokens, e.acceptance_frac)
    law = _steps(model, gpu, parallel, context, isl, e, draft_tokens)
    together = (equal_lengths > 0) & (prompts_first > 0)
    ahead = jnp.where(together, 0.5, e.burst_frac) * jnp.maximum(most - 1.0, 0.0)
    grouped = (equal_lengths > 0) & (prompts_first <= 0) & (concurrency <= slots)
    ahead = ahead + jnp.where(grouped, e.ahead_count * (1.0 - 1.0 / jnp.maximum(most, 1.0)), 0.0)
    queue = ahead * (law.full(most) - law.alone(most)) * law.budget_share
    most_decoding = osl / (gain * law.budget_share)  # more answers than that need a fuller budget

    def times(decoding: Real) -> tuple[Real, Real]:
        alone, prompts = law.alone(decoding), gain * decoding / osl
        busy, mixed = law.mixed(decoding, prompts)
        return law.own(decoding, prompts), (alone + jnp.minimum(busy, 1.0) * (mixed - alone)) / gain

    ranks = jnp.where(law.gathered > 1.0, e.dp_wait_steps, 0.0)
    steps = e.wait_steps + poll_steps + ranks

    def admitted_s(own: Real, tpot: Real) -> Real:
        return e.prompt_ms * 1e-3 + own + steps * gain * tpot + queue

    def once(_: Real, decoding: Real) -> Real:
        own, tpot = times(decoding)
        return jnp.minimum(most * osl * tpot / (osl * tpot + admitted_s(own, tpot)), most_decoding)

    decoding = jax.lax.fori_loop(1, ROUNDS, once, once(0, most))
    own, tpot = times(decoding)
    tpot = jnp.where(together, law.alone(most) / gain + queue / osl, tpot)
    waiting = _slot_wait(concurrency / parallel.dp, slots / parallel.dp, parallel.dp, e)
    backlog = jnp.where(decoding >= most_decoding, (most / decoding - 1.0) * osl * tpot, 0.0)
    begun = jnp.maximum(admitted_s(own, tpot), backlog)
    first = begun + waiting * (begun + osl * tpot)  # a slot is held from the admission on
    tokens_per_s = concurrency * osl / (first + osl * tpot)  # Little's law
    return _served(held >= 1.0, Serving(first, tpot, tokens_per_s * tpot, held, tokens_per_s, 0))


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
    utilization: Real | None = None,
    engine: EngineMemory = VLLM,
    prefill_efficiency: Efficiency | None = None,
) -> Serving:
    r"""TTFT and TPOT of a closed loop over separate prefill and decode instances, rate-matched.

    Prompts queue for the prefill instances (service S, m = instances x dp at a time), the cache moves to a decode
    instance over the network, and the answer is decoded in Z = osl TPOT(n). With Schweitzer's approximation the
    residence at prefill is R = S + S' Q/m, Q = C R/(R + Z), with S' <= S the time per prompt of a full step of queued
    prompts; where prefill is slower, R -> C S'/m - Z, and the decoders idle. `prefill_instances` of 0 means
    rate-matched: as many as keep up with the decoders. `prefill_efficiency` is that of the steps of prefill instances
    (None: as of the others), whose layout has kernels of its own. `decode_batch` is the most requests that an instance
    (or each of its dp ranks) is set to decode at a time; the cache may hold fewer.
    Flags: NO_FIT where a decode instance cannot hold one request, or a prefill instance one prompt.
    """
    e = Efficiency() if efficiency is None else efficiency
    context = isl + osl / 2.0
    gain = tokens_per_step(draft_tokens, e.acceptance_frac)
    held = residents_of_length(model, gpu, decode, isl, osl, utilization=utilization, engine=engine)
    slots = jnp.maximum(jnp.minimum(held, decode_batch * decode.dp), 1.0)
    alone_of = _steps(model, gpu, decode, context, isl, e, draft_tokens).alone
    at_prefill = e if prefill_efficiency is None else prefill_efficiency
    law = _steps(model, gpu, prefill, context, isl, at_prefill, 0.0)
    service, queued = law.own(0.0, prefill.dp - law.gathered), law.full(0.0) * law.budget_share * prefill.dp
    transfer = kv_bytes(model, isl, prefill.tp) / (gpu.nic_bytes_per_s_per_gpu_oneway * at_prefill.link_frac)
    fixed = e.prompt_ms * 1e-3 + transfer

    each = concurrency / decode_instances
    most = jnp.minimum(each, slots)
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
    elsewhere = slots * admitted / (osl * tpot)  # when full, those at prefill hold no slot
    ranks = decode_instances * decode.dp
    waiting = _slot_wait((each - elsewhere) / decode.dp, slots / decode.dp, ranks, e)
    first = admitted + (e.wait_steps + waiting * osl) * tpot
    prompts = residents_of_length(model, gpu, prefill, isl, 1.0, utilization=utilization, engine=engine)
    fits = (held >= 1.0) & (prompts >= 1.0)
    return _served(fits, Serving(first, tpot, decoding, held, decode_instances * decoding / tpot, 0))


def _served(fits: Real, found: Serving) -> Serving:
    """`found` with its flags; where nothing fits, nothing is served and the times are infinite."""
    flags = flag_where(~fits, Flag.NO_FIT) | flag_nonfinite(found.ttft_s, found.tpot_s)
    return Serving(
        jnp.where(fits, found.ttft_s, jnp.inf),
        jnp.where(fits, found.tpot_s, jnp.inf),
        jnp.where(fits, found.decode_count, 0.0),
        found.resident_max_count,
        jnp.where(fits, found.tokens_per_s, 0.0),
        flags,
    )


def _slot_wait(requests: Real, slots: Real, ranks: Real, e: Efficiency) -> Real:
    """Wait for a slot, in times that a request holds one: E max(k - slots, 0)/slots of the k sent to one's rank.

    A router that does not know which rank is free leaves k spread about its mean, by `dispatch_spread` of what drawing
    a rank at random would; k is taken as normal, and a request is itself one of those that it finds (size bias).
    """
    variance = e.dispatch_spread**2 * (1.0 - 1.0 / ranks)
    deviation = jnp.sqrt(variance * jnp.maximum(requests, 0.0) + 1e-12)
    excess = (requests + variance - slots) / deviation
    return deviation * normal_loss(-excess) / slots


def _steps(
    model: Model, gpu: GPU, parallel: Parallel, context: Real, isl: Real, e: Efficiency, draft_tokens: Real
) -> MixedSteps:
    """The steps under prompts that are computed whole: a token attends to half of them."""
    return MixedSteps(
        model,
        gpu,
        parallel,
        context_tokens=context,
        prompt_tokens=isl,
        attended_tokens=isl / 2.0,
        budget_tokens=parallel.dp * e.prefill_batch_tokens,
        efficiency=e,
        draft_tokens=draft_tokens,
    )
