"""The time between tokens: what an answer meets at every step, and how long prompts stall it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.numerics import exp, expm1, log, maximum, minimum, one_by_one, safe_divide, summed
from dmodels.core.records import Real

from ..queueing import SharedSteps, capped_mean_s, stalled_tpot_s
from ..traffic import GAP_WEIGHTS, Requests
from .batch import Batch
from .ladder import StepTable
from .prompts import Joint, Prompts, mixed
from .roofline import Roofline


class Tokens(NamedTuple):
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


def _running(steps: Roofline | StepTable, requests: Requests, batch: Batch, slots: Real) -> _Running:
    """A request shares its steps with more than the fluid n: itself, and those that its own presence holds up."""
    decodes = requests.output_tokens > 0
    seen = minimum(batch.count + 1.0 + batch.noise * (1.0 / batch.inertia - 1.0), slots)
    swing = 3.0 * jnp.sqrt(batch.noise * batch.count / batch.inertia)
    crowd = minimum(seen + swing, slots)
    both = jnp.stack([seen, crowd])
    shared_s, crowded_s = jax.vmap(steps.times)(both)[0]
    full_s, worst_s = jax.vmap(steps.full)(both)
    per_mate = jnp.where(decodes, safe_divide(crowded_s - shared_s, crowd - seen, 0.0), 0.0)
    shared_s = jnp.where(decodes, shared_s, batch.alone)
    free = safe_divide(crowd - seen, swing, 0.0)  # of who comes, the rest waits for a slot
    return _Running(shared_s, full_s, worst_s, per_mate, seen, (crowd - seen) / 3.0, free)


def _lasting(steps: SharedSteps, over: Real, free: Real) -> Callable[[Real], tuple[Real, Real]]:
    """Where prompts share steps, what its own step was longer than the mean goes on in the next ones of an answer.

    By the gaps of the answer: seconds of that by its end, and the variance of all stalls by then. A function, so that
    what is the same for all answers is worked out once.
    """
    r = steps.carried
    rate, onward, onward_twice = log(maximum(r, 1e-300)), r / (1.0 - r), r**2 / (1.0 - r**2)
    begun, drawn = onward * over, free * steps.drawn_s * maximum(over, 0.0) / (1.0 - r) ** 3

    def after(gaps: Real) -> tuple[Real, Real]:
        left = exp(gaps * rate)  # r^gaps
        faded = 1.0 - left
        fading = 2.0 * onward * faded - onward_twice * (1.0 - left**2)
        varied = steps.sum_variance_s2 * maximum(gaps - fading, 0.0)
        varied += steps.shared_variance_s2 * (onward * faded) ** 2
        # who comes in the steps that its own one lengthens is chance as well
        met = maximum(faded * (1.0 + r * left) - 2.0 * (1.0 - r) * gaps * left, 0.0)
        return begun * faded, varied + drawn * met

    return after


class _Stalls(NamedTuple):
    """By prompts, of answers by their gaps (last axis)."""

    mean: Real
    variance: Real
    few: Real  # the share of them that few slots leave
    before: Real  # seconds by prompts that came before its first token


def _stalls(requests: Requests, batch: Batch, prompts: Prompts, joint: Joint, met: _Running, slots: Real) -> _Stalls:
    mean_step = batch.mean_step
    # What comes after a prompt stalls its answer, but for what fills the rest of the prompt's last step; and what waits
    # at the answer's end, as at any other step's, does not.
    begets = batch.begets
    answered = joint.wait + joint.packed.own_s + joint.packed.met_s - mean_step
    answered_variance = prompts.filled * (joint.wait_square - joint.wait**2)
    answered_variance += prompts.one**2 * (prompts.square - 1.0)
    # stalls by prompts before the first token, and what they beget
    backlog = begets * maximum(batch.busy * answered - joint.packed.filled * batch.extra, 0.0)
    over, carried = joint.one_s + joint.steps.shared_s - mean_step, joint.steps.carried
    before = mixed(joint.there, maximum(carried / (1.0 - carried) * over, 0.0), backlog)
    held = safe_divide(2.0 * met.free * (1.0 - batch.inertia), batch.inertia * batch.busy, 0.0)
    lasting = _lasting(joint.steps, over, met.free)
    ends = safe_divide(1.0, requests.decode_steps, 1.0)
    lifetime = batch.inertia / (requests.gap_tokens @ GAP_WEIGHTS)
    per_stall, noise = batch.extra * prompts.square * begets**2, (batch.busy * begets) ** 2 * answered_variance

    def of(gaps: Real) -> tuple[Real, Real, Real]:
        mean = batch.busy * mean_step * gaps + backlog
        variance = per_stall * mean + noise
        longer, varied = lasting(gaps)
        mean = mixed(joint.there, maximum((mean_step - batch.alone) * gaps + longer, 0.0), mean)
        variance = mixed(joint.there, varied, variance)
        # The other slots' prompts come before the first token, and again as often as their answers end in its life.
        others = (slots - 1.0) * batch.extra * (1.0 + gaps * ends)
        few = minimum(safe_divide(others, mean, 1.0), 1.0)
        # The prompts that come in its life hold it up, and crowd it too, for as long as they are there.
        lifetimes = lifetime * gaps
        variance *= 1.0 + held * (1.0 + safe_divide(expm1(-lifetimes), lifetimes, -1.0))
        return few * mean, few**2 * variance, few

    mean, variance, few = one_by_one(of, requests.gap_tokens)
    return _Stalls(mean, variance, few, before)


def tokens_of(
    steps: Roofline | StepTable,
    requests: Requests,
    batch: Batch,
    prompts: Prompts,
    joint: Joint,
    slots: Real,
    q: Real,
) -> Tokens:
    met = _running(steps, requests, batch, slots)
    stalls = _stalls(requests, batch, prompts, joint, met, slots)
    each_s = safe_divide(met.shared_s, 1.0 - batch.busy)
    crowd_s = met.per_mate * met.swing
    crowded = batch.begets * crowd_s  # more prompts come in longer steps
    mean_gaps = requests.gap_tokens @ GAP_WEIGHTS
    most_s = maximum(met.full_s - met.shared_s, 0.0)
    dying = batch.inertia / (3.0 * mean_gaps)

    def held(gaps: Real, share: Real, mean: Real, variance: Real, few: Real) -> tuple[Any, tuple[Real, Real]]:
        """However long the prompts, a token waits for one step, and that takes no more than a full budget of them."""
        # Over its life the crowd's deviations average out, by 1/(1 + a/3) of their variance if they die out a times.
        crowding = (gaps * crowded) ** 2 / (1.0 + dying * gaps)
        own, most = few * (each_s - met.shared_s) * gaps, most_s * gaps
        whole = own + few * stalls.before
        least = maximum(capped_mean_s(whole, variance, most), minimum(own, most))
        capped = safe_divide(least, whole, 1.0)
        each = least, least / gaps, maximum(least - own, 0.0), most - least, (variance + crowding) * capped**2
        at_all = capped * mean + met.per_mate * met.mates * gaps, capped**2 * variance + crowding
        return [share * part for part in each], at_all

    classes = (requests.gap_tokens, GAP_WEIGHTS, stalls.mean, stalls.variance, stalls.few)
    (total, per_token, backlog, room, left), (mean, variance) = summed(held, *classes)
    alone = met.shared_s - met.per_mate * met.mates
    tpot = stalled_tpot_s(q, alone, mean, variance, requests.gap_tokens, GAP_WEIGHTS)
    return Tokens(
        minimum(tpot, maximum(met.worst_s, met.shared_s)),
        met.shared_s + per_token,
        each_s,
        backlog,
        crowd_s,
        total + met.per_mate * met.mates * mean_gaps,
        left,
        room,
    )
