"""The steady state of an instance, from its parts: batch, prompts, slots and tokens."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.hardware import SLO
from dmodels.core.numerics import maximum, minimum, one_by_one, safe_divide
from dmodels.core.records import Real, jit

from ..queueing import gamma_quantiles, met_quantiles, sum_quantile_s
from ..traffic import LEVELS, Requests
from .batch import batch_of
from .ladder import StepTable
from .prompts import Joint, joint_of, mixed, off, prompts_of
from .records import Engine, Operating
from .roofline import Roofline
from .slots import slot_queue
from .tokens import tokens_of

#: Quantiles of a normal deviation.
_NORMAL = np.array([NormalDist().inv_cdf(min(max(level, 1e-4), 1.0 - 1e-4)) for level in LEVELS.tolist()])


@jit  # called as it stands it compiled some three hundred programs for each new shape
def operate(
    steps: Roofline | StepTable,
    requests: Requests,
    arrival_rps: Real,
    slots_count: Real,
    slo: SLO | None = None,
    engine: Engine | None = None,
    prompt_s: Real = 0.0,
    transfer_s_per_token: Real = 0.0,
    slowdown: Real = 1.0,
    dp: Real = 1.0,
    pp: Real = 1.0,
    wait_steps: Real = 0.5,
) -> Operating:
    """Steady state of an instance that `arrival_rps` requests a second reach, with memory for `slots_count` of them.

    prompt_s              host time of a prompt before its first step (tokenizer, scheduling)
    transfer_s_per_token  KV transfer of a prompt token to another worker, part of TTFT (prefill/decode split)
    slowdown              factor on every time: 1 for the calibrated model, its interval's ends for the error bar
    dp                    ranks of attention data parallelism, each with its own limits; they step together
    pp                    pipeline stages: they fill each other's time, but one prompt passes them one after another
    wait_steps            steps from arrival to first token beyond the prompt's own: 0.5 until the next one begins, and
                          what the engine takes to see a prompt and to send its first token (`Efficiency.wait_steps`)

    `requests` with output_tokens 0 makes a prefill worker, with prefill_tokens 0 a decode worker.
    Flags: OVERLOAD where there is no steady state, NO_FIT where no request fits, SLO_MISS.
    """
    slo = SLO() if slo is None else slo
    x = arrival_rps * slowdown  # all times scale together, so load is what is slowed down
    q, prompt = slo.percentile, requests.prefill_tokens
    decodes = requests.output_tokens > 0  # prefill workers' slots hold nothing that slows a step
    fits = jnp.asarray(slots_count) >= 1.0
    engine = (Engine() if engine is None else engine).of_ranks(dp, prompt)
    slots = maximum(jnp.minimum(slots_count, engine.max_num_seqs_count), 1.0)  # either may be no number

    batch = batch_of(steps, requests, x, slots, engine)
    prompts = prompts_of(requests, batch, x, engine)
    joint = joint_of(requests, batch, prompts, x, slots, engine)
    batch = joint.batch
    slot = slot_queue(requests, batch, prompts, joint, x, slots)
    overload = batch.overload | (prompts.busy >= 1.0) | slot.overload
    wait = slot.wait + joint.wait
    wait_square = slot.wait_square + joint.wait_square + 2.0 * slot.wait * joint.wait
    waits = minimum(safe_divide(2.0 * wait**2, wait_square, 0.0), 1.0)

    mean_step = batch.mean_step
    seen = (wait_steps - 0.5) * mean_step  # until the engine has seen the prompt, and sent its token
    further = (pp - 1.0) * mixed(joint.there, joint.alone_s, batch.extra)  # stages of a pipeline
    prompted = jnp.where(prompt > 0, joint.packed.own_s + joint.packed.met_s, 1.5 * mean_step)
    own = mixed(joint.there, joint.steps.mean_s + joint.one_s + prompts.longer, prompted)
    ttft_mean = wait + prompt_s + seen + own + further + transfer_s_per_token / slowdown * prompt
    tokens = tokens_of(steps, requests, batch, prompts, joint, slots=slots, q=q)
    mean_life = ttft_mean - wait + tokens.backlog + tokens.each_s * requests.decode_steps
    crowding = 1.5 * safe_divide(mean_step, batch.alone, 1.0) * tokens.crowd_s
    stalls_at = gamma_quantiles(tokens.stalled_s, tokens.stalled_variance)

    begins_at = _begins(requests, joint, mean_step)

    def itself(level: Real, normal: Real, prompt_tokens: Real, output_tokens: Real) -> tuple[Real, Real]:
        """A level of what a request takes for itself, to its first token and to its last: the step that it comes in,
        its prompt and its answer, off their means."""
        prompt_off = pp * off(prompt, engine.max_num_batched_tokens, prompts.inside, prompts.beyond, prompt_tokens)
        prompt_off += transfer_s_per_token / slowdown * (prompt_tokens - prompt)
        answer_off = tokens.each_s * (output_tokens - requests.output_tokens)
        longer = maximum(safe_divide(output_tokens - 1.0, requests.decode_steps, 1.0), 1.0)
        stalls_off = minimum(stalls_at(normal), tokens.room_s * longer)
        parts = begins_at(level, normal), crowding * normal, prompt_off
        return ttft_mean - wait + _together(*parts), mean_life + _together(*parts, answer_off, stalls_off)

    edges = one_by_one(itself, LEVELS, _NORMAL, requests.prefill_edge_tokens, requests.output_edge_tokens)
    ttft, e2e = (sum_quantile_s(q, waits, wait, edge, LEVELS) for edge in edges)
    e2e = jnp.where(requests.output_tokens > 1.0, maximum(e2e, ttft), ttft)  # the first token may be the last

    waited = wait + joint.there * joint.steps.mean_s
    times = (ttft, tokens.tpot, e2e, ttft_mean, tokens.tpot_mean, waited)
    ttft, tpot, e2e, ttft_mean, tpot_mean, wait = (slowdown * jnp.where(overload, jnp.inf, time) for time in times)
    missed = (ttft > slo.ttft_s) | (tpot > slo.tpot_s) | (e2e > slo.e2e_s)
    flags = flag_where(~fits, Flag.NO_FIT) | flag_where(overload, Flag.OVERLOAD) | flag_where(missed, Flag.SLO_MISS)
    decoding = x * (requests.decode_steps * tokens.each_s + jnp.where(decodes, tokens.backlog, 0.0))
    return Operating(
        decode_count=jnp.where(overload, batch.count, minimum(decoding, slots)),
        slots_count=slots + 0.0 * batch.count,
        prefill_busy_frac=batch.busy,
        wait_s=wait,
        ttft_s=ttft,
        ttft_mean_s=ttft_mean,
        tpot_s=tpot,
        tpot_mean_s=tpot_mean,
        e2e_s=e2e,
        tokens_per_s=arrival_rps * requests.output_tokens,
        flags=flags | jnp.where(overload, 0, flag_nonfinite(ttft, tpot, e2e, requests.output_tokens)),
    )


def _begins(requests: Requests, joint: Joint, mean_step: Real) -> Callable[[Real, Real], Real]:
    """Quantile of the step that a request comes in, less its mean, by its level and that of a normal deviation."""
    shared, packed = met_quantiles(joint.steps), gamma_quantiles(joint.packed.met_s, joint.packed.met_variance_s2)

    def at(level: Real, normal: Real) -> Real:
        filled = jnp.where(requests.prefill_tokens > 0, packed(normal), mean_step * (level - 0.5))
        return mixed(joint.there, shared(level), filled)

    return at


def _together(*deviations: Real) -> Real:
    """Quantiles of a sum of independent parts, less its mean, from theirs: deviations add up in squares."""
    squares = sum(off * jnp.abs(off) for off in deviations)
    return jnp.sign(squares) * jnp.sqrt(jnp.abs(squares) + 1e-300)
