r"""One instance under open load, in steady state: occupancy, TTFT and TPOT percentiles, in closed form.

An instance runs forward steps. With n requests decoding, a step takes $t_0(n)$, and each prompt that enters makes
steps longer by $K(n)$ (its share of what a step with prompts takes more: `latency.mixed`). At x requests a second

$$\bar t = \frac{t_0(n)}{1 - x K(n)}, \qquad n = x\,E[G]\,\bar t,$$

(Little's law, $G = O - 1$ steps after the prompt's own, which emits the first token; the token-budget paper's fluid
$n^* = Wx/(1 - Hx)$ is the case $t_0 = W + Hn$, $K = 0$). About this fluid the number in flight swings as a birth-death
chain with departures $n/(E[G]\,\bar t(n))$: with the inertia $a = 1 - d\log t_0/d\log n$ its mean is $n + (1 - a)/a$
and its variance $n/a$ (NEW-20). With prompts, an arrival also holds up the answers under way, so that it counts as
$1/(1 - xK)$: of M/G/inf's variance the arrivals make a share $\kappa = E[\min(G_1, G_2)]/E[G]$, so the variance is $v =
1 - \kappa + \kappa (1 - xK)^{-2}$ times as much, and the mean $n + v (1 - a)/a$. A request waits for a slot (with the
chain's chance, from its potential between n and N, what memory and the batch limit allow; while all are taken who
leaves makes room for a prompt, so that $1/(1 - xK)$ times as long) and for the prompts ahead of its own (in steps that
they share: `queueing.sharing`; where they fill the token budget: `queueing.packing`), then runs its own steps.
Assumptions: Poisson arrivals at the instance, first come first served, waits with exponential tails. `dmodels.sim`
measures the error of these formulas.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.hardware import GPU, SLO, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import one_by_one, power, safe_divide, summed
from dmodels.core.records import Real, Record, jit, quantity

from .latency import Efficiency, MixedSteps
from .queueing import (
    LastStep,
    PackedSteps,
    SharedSteps,
    capped_mean_s,
    gamma_quantiles,
    inverse_erlang_b,
    last_step,
    met_quantiles,
    packed_frac,
    packed_steps,
    partial_fill,
    service_factor,
    shared_steps,
    stalled_tpot_s,
    sum_quantile_s,
)
from .traffic import GAP_WEIGHTS, LEVELS, Requests


class Engine(Record):
    """How the serving engine batches: vLLM's `max_num_seqs` and `max_num_batched_tokens`."""

    max_num_seqs_count: Real = quantity(256.0)
    max_num_batched_tokens: Real = quantity(8192.0)


class Operating(NamedTuple):
    """The steady state of one instance of a pool."""

    decode_count: Real  # requests that decode at a time
    slots_count: Real  # requests that may
    prefill_busy_frac: Real  # of the time that goes to prompts
    wait_s: Real  # mean wait for a slot and for earlier prompts
    ttft_s: Real  # at the SLO's percentile
    ttft_mean_s: Real
    tpot_s: Real  # at the SLO's percentile
    tpot_mean_s: Real
    e2e_s: Real  # at the SLO's percentile
    tokens_per_s: Real  # output tokens of the instance
    flags: Real


class StepTable(Record):
    """Step times of an instance at a ladder of decode counts, linear in between.

    With 40 rungs, geometric above 8, it follows the roofline within 1 % (0.1 % but for its knee) and a point of a
    sweep costs a few dozen operations, whatever the roofline costs. Rungs lie on the last axis.
    """

    decode_count: Real = quantity()  # (..., k) increasing from 0
    alone_s: Real = quantity()  # (..., k) a step without prompts
    extra_s: Real = quantity()  # (..., k) what a mean prompt adds to a step
    arrival_rps: Real = quantity()  # (..., k) the arrivals that keep so many decoding: n / (E[O] t_0 + n K)
    mean_step_s: Real = quantity()  # (..., k) then: t_0 + n K / E[O]
    full_s: Real = quantity()  # (..., k) a step whose token budget is full: no step takes longer
    begun_s: Real = quantity()  # (..., k) a step with prompts, less what their tokens take: on the line to a full one

    def full(self, n: Real) -> Real:
        """t(n, B) at n requests decoding: prompts fill the budget B."""
        return _piecewise_linear(n, self.decode_count, self.full_s)[0]

    def filling(self, n: Real) -> tuple[Real, Real]:
        """(a step with prompts but for their tokens, a full step) at n requests decoding."""
        return _piecewise_linear(n, self.decode_count, self.begun_s, self.full_s)

    def times(self, n: Real) -> tuple[Real, Real]:
        """(t_0, K) at n requests decoding."""
        return _piecewise_linear(n, self.decode_count, self.alone_s, self.extra_s)

    def occupancy(self, x: Real, decode_steps: Real, slots: Real) -> tuple[Real, Real]:
        """Requests that decode at x arrivals a second, and whether `slots` are too few for them.

        If a mean step takes a + b n, then n = x E[G] (a + b n), so that the steps a second, (1 - x E[G] b)/a, are what
        is linear in x.
        """
        (most,) = _piecewise_linear(slots, self.decode_count, self.arrival_rps)
        (steps_per_s,) = _piecewise_linear(x, self.arrival_rps, safe_divide(1.0, self.mean_step_s, 0.0))
        mean_step = safe_divide(1.0, steps_per_s, 1e300)
        return jnp.minimum(x * decode_steps * mean_step, slots), (decode_steps > 0) & (x > most)


#: Seconds of a full step where nothing bounds it.
_UNBOUNDED_S = 1e30


def step_table(
    decode_count: Real,
    alone_s: Real,
    extra_s: Real,
    decode_steps: Real,
    full_s: Real = _UNBOUNDED_S,
    begun_s: Real | None = None,
) -> StepTable:
    """A `StepTable` of measured or computed step times at a ladder of decode counts (last axis, from 0).

    Without `begun_s` a step with prompts takes no more than their tokens do.
    """
    n = decode_count
    arrivals = n / (decode_steps * alone_s + n * extra_s + 1e-300)
    mean_step = alone_s + n * extra_s * safe_divide(1.0, decode_steps, 0.0)
    begun_s = alone_s if begun_s is None else begun_s
    return StepTable(n, alone_s, extra_s, arrivals, mean_step, full_s + 0.0 * mean_step, begun_s + 0.0 * mean_step)


def _piecewise_linear(at: Real, knots: Real, *heights: Real) -> tuple[Real, ...]:
    """The lines through (knots, heights), for each of `heights`: a sum of clipped ramps, without any search.

    Beyond the last knot the last line goes on.
    """
    widths = jnp.diff(knots, axis=-1)
    slopes = tuple(safe_divide(jnp.diff(height, axis=-1), widths, 0.0) for height in heights)
    ends = jnp.concatenate([widths[..., :-1], jnp.full_like(widths[..., -1:], jnp.inf)], -1)

    def climb(knot: Real, width: Real, *slope: Real) -> tuple[tuple[Real, ...], tuple[()]]:
        run = jnp.clip(at - knot, 0.0, width)
        return tuple(run * s for s in slope), ()

    climbed, _ = summed(climb, knots[..., :-1], ends, *slopes)
    return tuple(height[..., 0] + run for height, run in zip(heights, climbed, strict=True))


class Roofline(NamedTuple):
    """The step times themselves: the exact counterpart of a `StepTable`, for single points and derivatives."""

    model: Model
    gpu: GPU
    parallel: Parallel
    requests: Requests
    efficiency: Efficiency
    max_num_batched_tokens: Real = 8192.0

    @property
    def steps(self) -> MixedSteps:
        """The steps under these requests' mean prompt."""
        r = self.requests
        cached = r.input_tokens - r.prefill_tokens
        return MixedSteps(
            self.model,
            self.gpu,
            self.parallel,
            context_tokens=r.context_tokens,
            prompt_tokens=r.prefill_tokens,
            attended_tokens=safe_divide(r.prefill_square, 2.0 * r.prefill_tokens, 0.0) + cached,
            budget_tokens=self.max_num_batched_tokens,
            efficiency=self.efficiency,
        )

    @property
    def last(self) -> LastStep:
        """What the last step of a lone prompt has room for beyond."""
        return _last_step(self.requests, self.max_num_batched_tokens)

    def times(self, n: Real, last: LastStep | None = None) -> tuple[Real, Real]:
        """(t_0, K) at n requests decoding, which begin n / E[G] prompts per step; these share it, or fill several.

        `last` is `self.last` in the shape of n.
        """
        law, r, last = self.steps, self.requests, self.last if last is None else last
        n = jnp.where(r.output_tokens > 0, n, 0.0)  # a prefill worker decodes nothing, whatever it holds
        alone, begun = law.alone(n), jnp.maximum(safe_divide(n, r.decode_steps, 0.0), 1e-6)
        came, (first, full) = begun / self.parallel.dp, self.filling(n, last)
        filled = came * law.budget_share

        def closer(_: Real, busy: Real) -> Real:
            step_s = alone + busy * (first - alone) + jnp.minimum(filled, 1.0) * (full - first)
            fill = partial_fill(came / step_s, alone, first, full, law.budget_share, last)
            return packed_frac(came, step_s, alone, first + fill.share * (full - first), law.budget_share, fill)

        busy = jax.lax.fori_loop(0, 4, closer, law.shared(came)[0] + 0.0 * first)
        mixed = law.at(n, jnp.minimum(filled / busy, 1.0) * self.max_num_batched_tokens)
        return alone, busy * (mixed - alone) / begun

    def filling(self, n: Real, last: LastStep | None = None) -> tuple[Real, Real]:
        """(a step with prompts but for their tokens, a full step): on the line through a lone prompt's last step."""
        law, gap = self.steps, (self.last if last is None else last).gap
        n, share = jnp.where(self.requests.output_tokens > 0, n, 0.0), jnp.clip(1.0 - gap, 1e-3, 0.75)
        full, part = law.full(n), law.at(n, share * self.max_num_batched_tokens)
        return jnp.clip((part - share * full) / (1.0 - share), law.alone(n), full), full

    def full(self, n: Real) -> Real:
        """t(n, B): prompts fill the budget of every rank."""
        return self.steps.full(jnp.where(self.requests.output_tokens > 0, n, 0.0))

    def occupancy(self, x: Real, decode_steps: Real, slots: Real) -> tuple[Real, Real]:
        r"""The n in [0, slots] with $n (1 - x K(n)) = x\,E[G]\,t_0(n)$, and whether there is none.

        The residual increases and is nearly linear, so after Picard's step from 0 four secant steps, kept inside the
        interval, leave a relative error under 1e-3 even at the kinks of a roofline; Newton steps, the last one from the
        frozen root, remove it and carry the derivatives (implicit function theorem: a bare iteration would lose them).
        """

        def residual(n: Real) -> Real:  # negative where more requests arrive than leave
            alone, extra = self.times(n)
            return n * (1.0 - x * extra) - x * decode_steps * alone

        old = jnp.zeros_like(slots + x * decode_steps)
        alone, extra = self.times(old)
        f_old = -x * decode_steps * alone
        new = jnp.clip(safe_divide(-f_old, 1.0 - x * extra), 0.0, slots)
        none = residual(slots + old) < 0

        def secant(_: Real, pair: tuple[Real, Real, Real]) -> tuple[Real, Real, Real]:
            old, f_old, new = pair
            f_new = residual(new)
            back = f_new * safe_divide(jnp.abs(new - old), jnp.abs(f_new - f_old), 0.0)
            return new, f_new, jnp.clip(new - back, 0.0, slots)

        _, _, new = jax.lax.fori_loop(0, 4, secant, (old, f_old, new))

        def newton(root: Real) -> Real:
            f, slope = jax.jvp(residual, (root,), (jnp.ones_like(root),))
            polished = root - f / jax.lax.stop_gradient(jnp.where(slope > 0, slope, 1.0))
            return jnp.where(none, slots, jnp.clip(polished, 0.0, slots))

        # twice, because derivatives are those where the last step begins
        return newton(jax.lax.stop_gradient(newton(jnp.where(none, slots, new)))), none

    def table(self, most_count: float = 8192.0) -> StepTable:
        """The step times at a ladder of decode counts up to `most_count`; a new last axis."""
        rungs = np.concatenate([np.arange(8.0), np.geomspace(8.0, most_count, 32)])
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf)[..., None], self)
        wanted = np.expand_dims(rungs, tuple(range(np.ndim(self.requests.context_tokens))))
        n = wanted + 0.0 * wide.requests.context_tokens
        last = jax.tree.map(lambda leaf: leaf[..., None], self.last)
        (alone, extra), (begun, full) = wide.times(n, last), wide.filling(n, last)
        return step_table(n, alone, extra, wide.requests.decode_steps, full, begun)


def _sharing(requests: Requests, budget: Real) -> Real:
    """How far prompts share steps, rather than fill them: all where two like that of a typical token fit into one, none
    where it fills one."""
    typical = safe_divide(requests.prefill_square, requests.prefill_tokens * budget, 0.0)
    return jnp.where(requests.prefill_tokens > 0, jnp.clip(2.0 - 2.0 * typical, 0.0, 1.0), 0.0)


def _mixed(share: Real, one: Real, other: Real) -> Real:
    """`share` of one, the rest of the other."""
    return share * one + (1.0 - share) * other


def _last_step(requests: Requests, budget: Real) -> LastStep:
    return last_step(requests.prefill_edge_tokens / jnp.expand_dims(budget, -1), LEVELS)


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
    dp                    ranks of attention data parallelism, each with its own batch limit
    pp                    pipeline stages: they fill each other's time, but one prompt passes them one after another
    wait_steps            steps from arrival to first token beyond the prompt's own: 0.5 until the next one begins, and
                          what the engine takes to see a prompt and to send its first token (`Efficiency.wait_steps`)

    `requests` with output_tokens 0 makes a prefill worker, with prefill_tokens 0 a decode worker.
    Flags: OVERLOAD where there is no steady state, NO_FIT where no request fits, SLO_MISS.
    """
    slo = SLO() if slo is None else slo
    engine = Engine() if engine is None else engine
    x = arrival_rps * slowdown  # all times scale together, so load is what is slowed down
    q, prompt = slo.percentile, requests.prefill_tokens
    decodes = requests.output_tokens > 0  # prefill workers' slots hold nothing that slows a step
    fits = jnp.asarray(slots_count) >= 1.0
    slots = jnp.maximum(jnp.minimum(slots_count, engine.max_num_seqs_count * dp), 1.0)

    batch = _batch(steps, requests, x, slots, engine, dp)
    prompts = _prompts(requests, batch, x / dp, engine, dp)
    joint = _joint(requests, batch, prompts, x, slots, engine, dp)
    batch = joint.batch
    slot = _slot_queue(requests, batch, prompts, joint, x, slots)
    overload = batch.overload | (prompts.busy >= 1.0) | slot.overload
    wait = slot.wait + joint.wait
    wait_square = slot.wait_square + joint.wait_square + 2.0 * slot.wait * joint.wait
    waits = jnp.minimum(safe_divide(2.0 * wait**2, wait_square, 0.0), 1.0)

    mean_step = batch.mean_step
    seen = (wait_steps - 0.5) * mean_step  # until the engine has seen the prompt, and sent its token
    further = (pp - 1.0) * dp * _mixed(joint.there, joint.alone_s, batch.extra)  # stages of a pipeline
    prompted = jnp.where(prompt > 0, joint.packed.own_s + joint.packed.met_s, 1.5 * mean_step)
    own = _mixed(joint.there, joint.steps.mean_s + joint.one_s + prompts.longer, prompted)
    ttft_mean = wait + prompt_s + seen + own + further + transfer_s_per_token / slowdown * prompt
    tokens = _tokens(steps, requests, batch, prompts, joint, slots, q)
    mean_life = ttft_mean - wait + tokens.backlog + tokens.each_s * requests.decode_steps
    crowding = 1.5 * safe_divide(mean_step, batch.alone, 1.0) * tokens.crowd_s
    stalls_at = gamma_quantiles(tokens.stalled_s, tokens.stalled_variance)

    def itself(begins: Real, normal: Real, prompt_tokens: Real, output_tokens: Real) -> tuple[Real, Real]:
        """A level of what a request takes for itself, to its first token and to its last: the step that it comes in,
        its prompt and its answer, off their means."""
        prompt_off = pp * _off(prompt, engine.max_num_batched_tokens, prompts.inside, prompts.beyond, prompt_tokens)
        prompt_off += transfer_s_per_token / slowdown * (prompt_tokens - prompt)
        answer_off = tokens.each_s * (output_tokens - requests.output_tokens)
        longer = jnp.maximum(safe_divide(output_tokens - 1.0, requests.decode_steps, 1.0), 1.0)
        stalls_off = jnp.minimum(stalls_at(normal), tokens.room_s * longer)
        first = ttft_mean - wait + _together(begins, crowding * normal, prompt_off)
        return first, mean_life + _together(begins, crowding * normal, prompt_off, answer_off, stalls_off)

    levels = _begins(requests, joint, mean_step), _NORMAL, requests.prefill_edge_tokens, requests.output_edge_tokens
    edges = one_by_one(itself, *levels)
    ttft, e2e = (sum_quantile_s(q, waits, wait, edge, LEVELS) for edge in edges)
    e2e = jnp.where(requests.output_tokens > 1.0, jnp.maximum(e2e, ttft), ttft)  # the first token may be the last

    waited = wait + joint.there * joint.steps.mean_s
    times = (ttft, tokens.tpot, e2e, ttft_mean, tokens.tpot_mean, waited)
    ttft, tpot, e2e, ttft_mean, tpot_mean, wait = (slowdown * jnp.where(overload, jnp.inf, time) for time in times)
    missed = (ttft > slo.ttft_s) | (tpot > slo.tpot_s) | (e2e > slo.e2e_s)
    flags = flag_where(~fits, Flag.NO_FIT) | flag_where(overload, Flag.OVERLOAD) | flag_where(missed, Flag.SLO_MISS)
    decoding = x * (requests.decode_steps * tokens.each_s + jnp.where(decodes, tokens.backlog, 0.0))
    return Operating(
        decode_count=jnp.where(overload, batch.count, jnp.minimum(decoding, slots)),
        slots_count=slots + 0.0 * batch.count,
        prefill_busy_frac=batch.busy,
        wait_s=wait,
        ttft_s=ttft,
        ttft_mean_s=ttft_mean,
        tpot_s=tpot,
        tpot_mean_s=tpot_mean,
        e2e_s=e2e,
        tokens_per_s=arrival_rps * requests.output_tokens,
        flags=flags | jnp.where(overload, 0, flag_nonfinite(ttft, tpot)),
    )


def _begins(requests: Requests, joint: _Joint, mean_step: Real) -> Real:
    """Quantiles of the step that a request comes in, less its mean, at `LEVELS`."""
    shared, packed = met_quantiles(joint.steps), gamma_quantiles(joint.packed.met_s, joint.packed.met_variance_s2)

    def at(level: Real, normal: Real) -> Real:
        filled = jnp.where(requests.prefill_tokens > 0, packed(normal), mean_step * (level - 0.5))
        return _mixed(joint.there, shared(level), filled)

    return one_by_one(at, LEVELS, _NORMAL)


def _together(*deviations: Real) -> Real:
    """Quantiles of a sum of independent parts, less its mean, from theirs: deviations add up in squares."""
    squares = sum(off * jnp.abs(off) for off in deviations)
    return jnp.sign(squares) * jnp.sqrt(jnp.abs(squares) + 1e-300)


class _Batch(NamedTuple):
    """The requests that decode at a time, and their steps."""

    count: Real  # n, of the fluid
    alone: Real  # t_0(n)
    extra: Real  # K(n)
    further: Real  # of one more prompt token in a step
    turn: Real  # of a prompt among as many as share a prefill worker's step at most
    single: Real  # what a prompt adds to a step that it has for itself
    begun: Real  # a step with prompts, but for their tokens
    full_alone: Real  # t(n, B): a step whose token budget is full
    lasting: Real  # the same where all steps have long been full, so that who decodes came from them
    full: tuple[Real, Real]  # the same with all slots taken
    busy: Real  # x K(n)
    mean_step: Real
    inertia: Real
    amplified: Real  # variance of what comes over that of a Poisson stream: during a prompt's stall more prompts come
    noise: Real  # the same of the number that decodes
    overload: Real

    @property
    def begets(self) -> Real:
        """1/(1 - x K): during a stall more prompts come."""
        return safe_divide(self.mean_step, self.alone, 0.0)


def _batch(steps: Roofline | StepTable, requests: Requests, x: Real, slots: Real, engine: Engine, dp: Real) -> _Batch:
    n, overload = steps.occupancy(x, requests.decode_steps, slots)
    spread_count = jnp.sqrt(n)
    alones, extras = jax.vmap(steps.times)(jnp.stack([n, n + spread_count]))
    alone, extra, (begun, full) = alones[0], extras[0], steps.filling(n)
    budgets = requests.prefill_tokens / engine.max_num_batched_tokens
    full = jnp.where(full < _UNBOUNDED_S, full, alone + safe_divide(dp * extra, budgets, 0.0))
    # Where requests decode K(n) knows how many prompts share a step; a prefill worker's steps take what came meanwhile.
    further = _further(requests.prefill_tokens, engine.max_num_batched_tokens, alone, dp * extra, full)
    together = _shared(requests.prefill_tokens * further, alone + dp * extra, x / dp)
    together = jnp.clip(together, 1.0, _most_shared(requests.prefill_tokens, engine.max_num_batched_tokens, slots / dp))
    joint = (extra + (together - 1.0) * requests.prefill_tokens * further / dp) / together
    turn = turn_s(requests.prefill_tokens, engine.max_num_batched_tokens, alone, dp * extra, full, slots / dp)
    single, extra = extra, jnp.where(requests.output_tokens > 0, extra, jnp.minimum(joint, turn))
    crowd = dp * requests.decode_steps * safe_divide(engine.max_num_batched_tokens, requests.prefill_tokens, 0.0)
    crowded = steps.full(jnp.minimum(crowd, slots))
    lasting = jnp.where(crowded < _UNBOUNDED_S, jnp.maximum(crowded, full), full)
    # Own inertia of the batch: 1 where steps cost the same at any batch, less where a fuller batch is slower, so that
    # it fills further. A birth-death chain with departures n/(E t(n)) has the variance n/inertia about its fluid n.
    inertia = jnp.clip(1.0 - safe_divide(alones[1] - alone, alone, 0.0) * spread_count, 1e-3, 1.0)
    busy = x * extra
    amplified = safe_divide(1.0, 1.0 - busy) ** 2
    return _Batch(
        n,
        alone,
        extra,
        further,
        turn,
        single,
        begun,
        full,
        lasting,
        steps.times(slots * _decoding(requests, engine)),
        busy,
        safe_divide(alone, 1.0 - busy),
        inertia,
        amplified,
        _noise(requests, amplified),
        overload,
    )


def _decoding(requests: Requests, engine: Engine) -> Real:
    """Share of the steps of a request in its slot that decode: not its prompt's."""
    own = jnp.maximum(requests.prefill_tokens / engine.max_num_batched_tokens, 1.0)
    return requests.decode_steps / (requests.decode_steps + own)


#: Weights of `LEVELS` for the mean of one draw, and of the smaller of two, linear in between.
_ONE = 0.5 * (np.diff(LEVELS, append=1.0) + np.diff(LEVELS, prepend=0.0))
_SMALLER = 2.0 * _ONE * (1.0 - LEVELS) + (np.diff(LEVELS, prepend=0.0) ** 2 - np.diff(LEVELS, append=1.0) ** 2) / 3.0


def _noise(requests: Requests, amplified: Real) -> Real:
    r"""Variance of the number that decodes over that of Poisson streams, $1 - \kappa + \kappa (1 - xK)^{-2}$.

    Of M/G/inf's variance the arrivals make a share $\kappa = E[\min(G_1, G_2)] / E[G]$ of two answers, 1 if all are of
    one length and one half if these are exponential; their lengths make the rest.
    """
    answers = jnp.maximum(requests.output_edge_tokens - 1.0, 1e-9)
    share = jnp.minimum(safe_divide(answers @ _SMALLER, answers @ _ONE, 0.5), 1.0)
    return 1.0 - share + share * amplified


#: Quantiles of a normal deviation.
_NORMAL = np.array([NormalDist().inv_cdf(min(max(level, 1e-4), 1.0 - 1e-4)) for level in LEVELS.tolist()])
#: The level of a long prompt.
_LONG = LEVELS.tolist().index(0.98)


def _further(prompt: Real, budget: Real, alone: Real, one: Real, full: Real) -> Real:
    """Seconds of one more token in a step that computes a prompt, up to the budget: what the step costs at least is
    paid already. Of prompts beyond the budget, a token's share of their time."""
    room = budget - prompt
    inside = safe_divide(full - alone - one, jnp.maximum(room, 1.0))
    most = safe_divide(one + alone * prompt / budget, prompt, 0.0)
    return jnp.clip(jnp.where(room > 0, inside, jnp.minimum(most, full / budget)), 0.0, most)


def _shared(further: Real, step: Real, x: Real) -> Real:
    """Prompts of a step that takes `step` with one and `further` for each more, k = x (step + (k - 1) further)."""
    room = 1.0 - x * further
    return jnp.where(room > 0, safe_divide(x * (step - further), room), 1e9)


def _most_shared(prompt: Real, budget: Real, slots: Real) -> Real:
    """Prompts that a step has room for, at least one."""
    return jnp.maximum(jnp.minimum(safe_divide(budget, prompt, 1.0), slots), 1.0)


def turn_s(prompt: Real, budget: Real, alone: Real, one: Real, full: Real, slots: Real) -> Real:
    """Seconds of a prompt in a prefill worker's steps when these hold as many as they can; `one`: what a prompt alone
    adds to the step."""
    together = _most_shared(prompt, budget, slots)
    joint = (alone + one + (together - 1.0) * prompt * _further(prompt, budget, alone, one, full)) / together
    return jnp.where(budget > prompt, joint, full * prompt / budget)


class _Prompts(NamedTuple):
    """Prompts: those in a backlog share steps, `max_num_batched_tokens` to a step."""

    one: Real  # seconds of a mean prompt
    inside: Real  # seconds of one more token, up to the budget
    beyond: Real  # and of one beyond that
    longer: Real  # what tokens beyond the budget take more than others, in the mean
    filled: Real  # share of a step's budget that it takes, at most 1
    square: Real  # second moment of its time over the mean's square
    busy: Real


def _prompts(requests: Requests, batch: _Batch, x: Real, engine: Engine, dp: Real) -> _Prompts:
    """Those of one of dp ranks, to which x prompts a second go."""
    prompt, budget = requests.prefill_tokens, engine.max_num_batched_tokens
    one = dp * batch.extra + batch.alone * (prompt / budget)
    # Tokens beyond the mean share the step up to the budget; those beyond that take full steps.
    inside, edges = batch.further, requests.prefill_edge_tokens
    most = jnp.minimum(batch.full_alone / budget, safe_divide(one, prompt, 0.0))
    beyond = jnp.where(budget > prompt, most, inside)
    over = jnp.maximum(edges - jnp.maximum(budget, prompt)[..., None], 0.0)
    longer = (beyond - inside) * (0.5 * (over[..., 1:] + over[..., :-1]) @ np.diff(LEVELS))
    # Of a prompt's time only what its own tokens take varies: as much as from the mean to a long prompt.
    long = edges[..., _LONG] - prompt
    own = safe_divide(_off(prompt, budget, inside, beyond, edges[..., _LONG]) * prompt, long * one, 0.0)
    spread = safe_divide(requests.prefill_square, prompt**2, 1.0) - 1.0
    square = 1.0 + own**2 * spread
    # Prompts queue for full steps; a prefill worker's that find one under way share the next.
    turn = jnp.where(requests.output_tokens > 0, one, batch.turn)
    filled = jnp.minimum(prompt / budget, 1.0)
    return _Prompts(one, inside, beyond, longer, filled, square, x * turn)


def _off(prompt: Real, budget: Real, inside: Real, beyond: Real, tokens: Real) -> Real:
    """Seconds of a prompt of so many `tokens`, less those of the mean one."""
    edge = jnp.maximum(budget, prompt)
    return inside * (jnp.minimum(tokens, edge) - prompt) + beyond * jnp.maximum(tokens - edge, 0.0)


class _Joint(NamedTuple):
    """Prompts that share steps, where the token budget has room for several; otherwise they fill them."""

    there: Real  # how far they share steps (`_sharing`)
    steps: SharedSteps
    packed: PackedSteps
    batch: _Batch  # in these steps
    one_s: Real  # a step with one prompt
    alone_s: Real  # what the prompt adds to it, of a rank
    wait: Real  # for what full steps leave over
    wait_square: Real


def _joint(
    requests: Requests, batch: _Batch, prompts: _Prompts, x: Real, slots: Real, engine: Engine, dp: Real
) -> _Joint:
    """Steps with prompts lie on the line through the mean one and a full one."""
    prompt, budget, decodes = requests.prefill_tokens, engine.max_num_batched_tokens, requests.output_tokens > 0
    there = _sharing(requests, budget)
    came = jnp.maximum(x / dp * batch.mean_step, 1e-6)
    several = jnp.minimum(
        came / -jnp.expm1(-came), budget / jnp.maximum(prompt, 1e-9)
    )  # prompts in a step that has any
    mean = batch.alone + dp * batch.extra * several  # such a step
    room = jnp.maximum(budget - several * prompt, 0.05 * budget)
    further = jnp.clip(safe_divide(batch.full_alone - mean, room) * prompt, 0.0, (mean - batch.alone) / several)
    further = jnp.where(decodes, further, batch.further * prompt)
    single = jnp.where(decodes, jnp.maximum(mean - batch.alone - (several - 1.0) * further, 0.0), dp * batch.single)
    most = _most_shared(prompt, budget, slots / dp)
    crowds = safe_divide(requests.prefill_square, prompt**2, 1.0)
    # A lone request waits half a step as well, as the calibrated loop of one client does.
    going = jnp.where(decodes, 1.0, 0.0)
    shared = batch.alone + single, further, most, further**2 * (crowds - 1.0), crowds
    steps = shared_steps(x / dp, *shared, bare_s=batch.alone, decoding=going)
    both, left, chance = jnp.where(decodes, there, 0.0), steps.left_over_s, steps.left_over_chance
    amplified = 1.0 / (1.0 - steps.carried) ** 2
    inside = batch._replace(
        amplified=_mixed(both, amplified, batch.amplified),
        noise=_mixed(both, _noise(requests, amplified), batch.noise),
    )
    packed = packed_steps(
        x / dp,
        bare_s=batch.alone,
        begun_s=jnp.minimum(batch.begun, batch.full_alone),
        full_s=batch.full_alone,
        budgets=prompt / budget,
        budgets_square=requests.prefill_square / budget**2,
        last=_last_step(requests, budget),
        step_s=batch.mean_step,
        decoding=going,
        lasting_s=batch.lasting,
        answer_s=requests.decode_steps * batch.full_alone,
    )
    return _Joint(
        there,
        steps,
        packed,
        inside,
        batch.alone + single,
        single / dp,
        _mixed(there, left, packed.left_over_s),
        _mixed(there, safe_divide(2.0 * left**2, chance, 0.0), packed.left_over_square),
    )


#: Gauss-Legendre rule on [0, 1].
_INSIDE, _WEIGHTS = 0.5 * np.polynomial.legendre.leggauss(5)[0] + 0.5, 0.5 * np.polynomial.legendre.leggauss(5)[1]


class _SlotQueue(NamedTuple):
    """The wait for a slot."""

    wait: Real
    wait_square: Real
    overload: Real


def _slot_queue(
    requests: Requests, batch: _Batch, prompts: _Prompts, joint: _Joint, x: Real, slots: Real
) -> _SlotQueue:
    """Who waits for a slot finds all of them taken, and steps as slow as that makes them. The chain's chance of it is
    Erlang C with slots and load scaled so that all slots are as far up in potential as they are in the chain."""
    decodes, outputs = requests.output_tokens > 0, requests.decode_steps
    slot_load = x * (outputs * batch.mean_step + batch.alone + prompts.one + joint.wait)
    full_alone = jnp.where(decodes, batch.full[0], batch.alone)
    full_busy = jnp.where(decodes, x * batch.full[1], batch.busy)
    full_service = outputs * safe_divide(full_alone, 1.0 - full_busy, 1e300) + full_alone + prompts.one
    spare = slots - x * full_service
    # ln of departures over arrivals, from what is there to all slots: the chain's, over that of Erlang's
    share = np.expand_dims(_INSIDE, tuple(range(np.ndim(slot_load))))
    load = jnp.maximum(slot_load, 1e-9)[..., None]
    at, asked = (load + share * (jnp.maximum(end, 1e-9)[..., None] - load) for end in (slots, x * full_service))
    chain, erlang = jnp.maximum(jnp.log(at / asked), 0.0) @ _WEIGHTS, jnp.log(at / load) @ _WEIGHTS
    noise = jnp.where(decodes, batch.noise, 1.0)
    stiff = jnp.clip(safe_divide(chain, erlang, 1.0), 1e-3, 1.0)
    # While all slots are taken only who leaves makes room for a prompt: an empty slot more is filled, and stalls all.
    calm = jnp.where(decodes, 1.0 - full_busy, 1.0) * spare
    # prompts vary as well, for as much of the time as they take
    varied = service_factor(stiff * slots, stiff * x * full_service, requests.output_scv)
    varied += jnp.where(decodes, 0.5 * full_busy**2 * (prompts.square - 1.0), 0.0)
    queued = safe_divide(varied * full_service, calm)
    below = inverse_erlang_b(stiff / noise * slots, stiff / noise * slot_load) - 1.0
    full = 1.0 / (1.0 + below * safe_divide(calm, stiff * slots, 0.0))
    wait = jnp.where(jnp.isfinite(queued), full * queued, jnp.inf)
    return _SlotQueue(wait, 2.0 * wait * queued, spare <= 0.0)


def _lasting(steps: SharedSteps, over: Real, gaps: Real, free: Real) -> tuple[Real, Real]:
    """Where prompts share steps, what its own step was longer than the mean goes on in the next ones of an answer.

    (seconds of that after `gaps` steps, the variance of all stalls by then)
    """
    r = steps.carried
    left = power(r, gaps)
    faded = 1.0 - left
    fading = 2.0 * r / (1.0 - r) * faded - r**2 / (1.0 - r**2) * (1.0 - left**2)
    varied = steps.sum_variance_s2 * jnp.maximum(gaps - fading, 0.0)
    varied += steps.shared_variance_s2 * (r / (1.0 - r) * faded) ** 2
    # who comes in the steps that its own one lengthens is chance as well
    met = jnp.maximum(faded * (1.0 + r * left) - 2.0 * (1.0 - r) * gaps * left, 0.0)
    varied += free * steps.drawn_s * jnp.maximum(over, 0.0) / (1.0 - r) ** 3 * met
    return r / (1.0 - r) * over * faded, varied


class _Tokens(NamedTuple):
    """The time between tokens."""

    tpot: Real  # at the SLO's percentile
    tpot_mean: Real
    each_s: Real  # a mean step of a running request
    backlog: Real  # seconds of stalls, over its life, by prompts that came before its first token
    crowd_s: Real  # deviation of a step as the number that decode goes up and down
    stalled_s: Real  # what others take of a request's steps, by stalls and by decoding: mean,
    stalled_variance: Real  # variance,
    room_s: Real  # and how much longer they can be, for one of mean length


class _Running(NamedTuple):
    """What an answer meets at every step."""

    shared_s: Real  # a step, of so many as it shares them with
    full_s: Real  # the same with a full budget
    worst_s: Real  # and in a crowd
    per_mate: Real  # seconds of a step for each of them
    mates: Real
    swing: Real  # deviation of their number
    free: Real  # of who comes in a crowd, the share that has a slot


def _running(steps: Roofline | StepTable, requests: Requests, batch: _Batch, slots: Real) -> _Running:
    """A request shares its steps with more than the fluid n: itself, and those that its own presence holds up."""
    decodes = requests.output_tokens > 0
    seen = jnp.minimum(batch.count + 1.0 + batch.noise * (1.0 / batch.inertia - 1.0), slots)
    swing = 3.0 * jnp.sqrt(batch.noise * batch.count / batch.inertia)
    crowd = jnp.minimum(seen + swing, slots)
    both = jnp.stack([seen, crowd])
    shared_s, crowded_s = jax.vmap(steps.times)(both)[0]
    full_s, worst_s = jax.vmap(steps.full)(both)
    per_mate = jnp.where(decodes, safe_divide(crowded_s - shared_s, crowd - seen, 0.0), 0.0)
    shared_s = jnp.where(decodes, shared_s, batch.alone)
    free = safe_divide(crowd - seen, swing, 0.0)  # of who comes, the rest waits for a slot
    return _Running(shared_s, full_s, worst_s, per_mate, seen, (crowd - seen) / 3.0, free)


class _Stalls(NamedTuple):
    """By prompts, of answers by their gaps (last axis)."""

    mean: Real
    variance: Real
    few: Real  # the share of them that few slots leave
    before: Real  # seconds by prompts that came before its first token


def _stalls(requests: Requests, batch: _Batch, prompts: _Prompts, joint: _Joint, met: _Running, slots: Real) -> _Stalls:
    mean_step = batch.mean_step
    # What comes after a prompt stalls its answer, but for what fills the rest of the prompt's last step; and what waits
    # at the answer's end, as at any other step's, does not.
    begets = batch.begets
    answered = joint.wait + joint.packed.own_s + joint.packed.met_s - mean_step
    answered_variance = prompts.filled * (joint.wait_square - joint.wait**2)
    answered_variance += prompts.one**2 * (prompts.square - 1.0)
    # stalls by prompts before the first token, and what they beget
    backlog = begets * jnp.maximum(batch.busy * answered - joint.packed.filled * batch.extra, 0.0)
    over, carried = joint.one_s + joint.steps.shared_s - mean_step, joint.steps.carried
    before = _mixed(joint.there, jnp.maximum(carried / (1.0 - carried) * over, 0.0), backlog)
    held = safe_divide(2.0 * met.free * (1.0 - batch.inertia), batch.inertia * batch.busy, 0.0)
    mean_gaps = requests.gap_tokens @ GAP_WEIGHTS

    def of(gaps: Real) -> tuple[Real, Real, Real]:
        mean = batch.busy * mean_step * gaps + backlog
        variance = batch.extra * prompts.square * begets**2 * mean + (batch.busy * begets) ** 2 * answered_variance
        longer, varied = _lasting(joint.steps, over, gaps, met.free)
        mean = _mixed(joint.there, jnp.maximum((mean_step - batch.alone) * gaps + longer, 0.0), mean)
        variance = _mixed(joint.there, varied, variance)
        # The other slots' prompts come before the first token, and again as often as their answers end in its life.
        others = (slots - 1.0) * batch.extra * (1.0 + gaps * safe_divide(1.0, requests.decode_steps, 1.0))
        few = jnp.minimum(safe_divide(others, mean, 1.0), 1.0)
        # The prompts that come in its life hold it up, and crowd it too, for as long as they are there.
        lifetimes = batch.inertia * gaps / mean_gaps
        variance *= 1.0 + held * (1.0 + safe_divide(jnp.expm1(-lifetimes), lifetimes, -1.0))
        return few * mean, few**2 * variance, few

    mean, variance, few = one_by_one(of, requests.gap_tokens)
    return _Stalls(mean, variance, few, before)


def _tokens(
    steps: Roofline | StepTable,
    requests: Requests,
    batch: _Batch,
    prompts: _Prompts,
    joint: _Joint,
    slots: Real,
    q: Real,
) -> _Tokens:
    met = _running(steps, requests, batch, slots)
    stalls = _stalls(requests, batch, prompts, joint, met, slots)
    each_s = safe_divide(met.shared_s, 1.0 - batch.busy)
    crowd_s = met.per_mate * met.swing
    crowded = batch.begets * crowd_s  # more prompts come in longer steps
    mean_gaps = requests.gap_tokens @ GAP_WEIGHTS
    most_s = jnp.maximum(met.full_s - met.shared_s, 0.0)

    def held(gaps: Real, share: Real, mean: Real, variance: Real, few: Real) -> tuple[Any, tuple[Real, Real]]:
        """However long the prompts, a token waits for one step, and that takes no more than a full budget of them."""
        # Over its life the crowd's deviations average out, by 1/(1 + a/3) of their variance if they die out a times.
        crowding = (gaps * crowded) ** 2 / (1.0 + batch.inertia * gaps / (3.0 * mean_gaps))
        own, most = few * (each_s - met.shared_s) * gaps, most_s * gaps
        whole = own + few * stalls.before
        least = jnp.maximum(capped_mean_s(whole, variance, most), jnp.minimum(own, most))
        capped = safe_divide(least, whole, 1.0)
        each = least, least / gaps, jnp.maximum(least - own, 0.0), most - least, (variance + crowding) * capped**2
        at_all = capped * mean + met.per_mate * met.mates * gaps, capped**2 * variance + crowding
        return [share * part for part in each], at_all

    classes = (requests.gap_tokens, GAP_WEIGHTS, stalls.mean, stalls.variance, stalls.few)
    (total, per_token, backlog, room, left), (mean, variance) = summed(held, *classes)
    alone = met.shared_s - met.per_mate * met.mates
    tpot = stalled_tpot_s(q, alone, mean, variance, requests.gap_tokens, GAP_WEIGHTS)
    return _Tokens(
        jnp.minimum(tpot, jnp.maximum(met.worst_s, met.shared_s)),
        met.shared_s + per_token,
        each_s,
        backlog,
        crowd_s,
        total + met.per_mate * met.mates * mean_gaps,
        left,
        room,
    )
