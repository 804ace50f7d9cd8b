r"""Prompts that share steps: an engine computes in a step all that came during the one before, as many as fit.

A step with k prompts takes $s_1 + (k - 1) m$. With N arrivals of rate x during a step of length L the next one has N
prompts; if none came it takes $t_0$ where requests decode, and otherwise the engine stands still until one comes, so
that it has max(N, 1). With $p_0 = P(N = 0)$ and d the jump off the line at none ($m - s_1 + t_0$; m for an engine
that stands still),

$$E[L] = \frac{s_1 - m + d p_0}{1 - x m},\qquad
\mathrm{Var}[L] = \frac{m^2 x E[L] + d^2 p_0 (1 - p_0) - 2 m d x E[L] p_0 + v E[k]}{1 - x^2 m^2},$$

v the variance of a prompt's time. A prompt finds a step with others or a bare one by their shares of the time, one of
length-biased mean $A = E[L^2]/E[L]$; it waits for the rest of it and shares its own step with x A others: $A (1/2 + x
m)$. What a step is longer than the mean goes on in the next ones, a share $r = x (m - d p_0)$ from step to step.

Of a step with room for B prompts what is left over is a random walk with steps of N - B, whose maximum has the mean
$\sigma\,(1/2u + \zeta(1/2)/\sqrt{2\pi} + u/4 + \dots)$, u its drift over its deviation (Chang and Peres, 1997), and an
exponential tail of the rate at which $E[e^{\eta (N - B)}] = 1$ (Cramer and Lundberg). With B = 1 this is M/G/1. A
prompt that found no room has a step later, so that fewer steps are bare: $1 - p_0 = x E[L] / b$, b the prompts of a
step that has any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.numerics import (
    clip,
    exp,
    log,
    log1p,
    maximum,
    minimum,
    normal_loss,
    normal_quantile,
    power,
    safe_divide,
)
from dmodels.core.records import Real, jit

from .stalls import gamma_quantiles


class SharedSteps(NamedTuple):
    """What a prompt waits for beyond a step of its own."""

    mean_s: Real  # for the step under way, and for those that share its own
    chance: Real  # that the step under way has prompts
    met_s: Real  # mean of such a wait, if it has
    met_variance_s2: Real
    bare_s: Real  # and if it has not
    left_over_s: Real  # mean wait while prompts before it fill whole steps
    left_over_chance: Real  # of such a wait, which is exponential
    step_s: Real  # a mean step
    step_variance_s2: Real
    shared_s: Real  # mean time of those that share its own step
    shared_variance_s2: Real
    carried: Real  # of a step's excess over the mean, what the next one has of it
    sum_variance_s2: Real  # of many steps together, each
    drawn_s: Real  # of each second of a step, the variance of the next one: s^2, who comes meanwhile is chance


@jit
def shared_steps(
    arrival_rps: Real,
    one_s: Real,
    further_s: Real,
    most: Real,
    variance_s2: Real,
    square: Real,
    bare_s: Real = 0.0,
    decoding: Real = 0.0,
) -> SharedSteps:
    """Steps of `one_s` with one prompt, `further_s` for each more, `most` at most.

    variance_s2  of a prompt's time in a step
    square       second moment of a prompt's tokens, which fill a step, over the square of their mean
    bare_s       a step without prompts, of an engine that has requests to decode
    decoding     chance that it has; an engine without either stands still until a prompt comes

    >>> alone = shared_steps(9.5, 0.1, 0.05, 1.0, 0.0, 1.0)  # M/D/1 at load 0.95: a wait of 0.95 s
    >>> round(float(alone.mean_s + alone.left_over_s), 1)
    0.9
    """
    x, m = arrival_rps, minimum(further_s, one_s)
    goes_on = decoding > 0.0
    jump = m - jnp.where(goes_on, maximum(one_s - bare_s, 0.0), 0.0)  # of a step of none, off the line in N
    full = one_s + (most - 1.0) * m
    limit = _limit(most, x * full, square)
    step, variance = _mean_step(x, one_s, m, jump, full, variance_s2=variance_s2, standing=~goes_on, limit=limit)
    (none, slope, limited), came = _bare(x, step, jnp.where(goes_on, variance, 0.0), limit), x * step
    carried = clip(x * (m - jump * slope), 0.0, 1.0 - 1e-6)
    drawn = x * ((m - jump * slope) ** 2 + variance_s2)
    busy = jnp.where(goes_on, decoding, came / (came + none))
    busy = maximum(busy, minimum(x * full / most, 1.0))  # what is left over keeps it busy
    # Who comes finds a step with prompts or one without, each by its share of the time.
    empty = jnp.where(goes_on, none, 0.0)
    each = maximum(came, 1e-9) / maximum(1.0 - none, 1e-9)  # prompts in a step that has any
    each = jnp.where(came > 1e-4, each, 1.0 + 0.5 * came)
    several = each * (1.0 + came - each + x * variance / step)  # their variance
    some = jnp.where(goes_on, one_s + (each - 1.0) * m, step)  # a step with prompts
    varies = jnp.where(goes_on, maximum(m**2 * several + variance_s2 * each, 0.0), variance)
    chance = busy * clip(1.0 - empty * bare_s / step, 0.0, 1.0)
    biased = some + varies / some
    others = minimum(x * m, (most - 1.0) * m / biased)  # seconds for those that share its step, of each of that one
    squares, single = (some**2 + varies) * (1.0 + 2.0 * varies / some**2), x * biased * (m**2 + variance_s2)
    mean = (0.5 + others) * biased
    second = (1.0 / 3.0 + others + others**2) * squares + single
    bare = (busy - chance) * bare_s
    shared = chance * others * biased + bare * x * m
    shared_second = chance * (others**2 * squares + single) + bare * x * m**2
    left = limit.left * minimum(some / full, 1.0)  # as far as steps are full
    free_sum, full_sum = variance * (1.0 + carried) / (1.0 - carried), drawn * step / (1.0 - carried) ** 2
    return SharedSteps(
        mean_s=chance * mean + bare * (0.5 + x * m),
        chance=chance,
        met_s=mean,
        met_variance_s2=maximum(second - mean**2, 0.0),
        bare_s=safe_divide(bare * (0.5 + x * m), 1.0 - chance, 0.0),
        left_over_s=left * full / most,
        left_over_chance=safe_divide(left, limit.tail, 0.0),
        step_s=step,
        step_variance_s2=variance,
        shared_s=shared,
        shared_variance_s2=maximum(shared_second - shared**2, 0.0),
        carried=carried,
        drawn_s=drawn,
        sum_variance_s2=(1.0 - limited) * free_sum + limited * full_sum,
    )


class _Limit(NamedTuple):
    """What a step has room for, and what full steps leave over, in prompts."""

    most: Real
    lasting: Real  # of the steps with prompts, the share that begins and ends with some left over
    left: Real  # mean of what is left over
    tail: Real  # the same where any is


def _limit(most: Real, came: Real, square: Real) -> _Limit:
    """A random walk with steps of N - B, N Poisson of mean `came`."""
    drift = maximum(most - came, 1e-9 * most)
    deviation = jnp.sqrt(maximum(came * square, 1e-300))
    u = minimum(drift / deviation, 30.0)
    near = 0.5 / u - 0.5826 + 0.25 * u - 0.0415 * u**2
    left = maximum(jnp.where(u < 1.6, near, 0.0), normal_loss(u))
    # E[exp(eta (N - B))] = 1, which is eta/2 + ln sinhc(eta/2) = ln(B/E[N]), to 2 %
    eta = 6.0 * (jnp.sqrt(1.0 + 2.0 / 3.0 * log1p(drift / (came + 1e-300))) - 1.0)
    # of M/D/1 a busy step leaves some with the chance 1 - (e - 1) u near saturation
    return _Limit(most, jnp.exp(-2.0 * (math.e - 1.0) * u), left * deviation, maximum(square / eta, left * deviation))


def _mean_step(
    x: Real, one_s: Real, m: Real, jump: Real, full: Real, *, variance_s2: Real, standing: Real, limit: _Limit
) -> tuple[Real, Real]:
    """(mean, variance) of steps: the mean says how many of them are bare, and so the variance, from which the mean
    follows again. `standing`: of an engine without requests to decode."""
    room = maximum(1.0 - x * m, 1e-9)
    each_inertia = 1.0 / maximum(room * (1.0 + x * m), 1e-9)
    each_jump = 1.0 / jnp.where(jump == 0.0, 1.0, jump)
    least = one_s - m

    def varied(step: Real) -> Real:
        came, none = x * step, clip((step * room - least) * each_jump, 0.0, 1.0)
        number = (m**2 * came + jump**2 * none * (1.0 - none) - 2.0 * m * jump * came * none) * each_inertia
        number = clip(number, 0.0, (full - step) * (step - least - jump))  # Bhatia and Davis
        computed = came + jnp.where(standing, none, 0.0)
        return number + variance_s2 * minimum(computed * each_inertia, limit.most)

    def over(step: Real) -> tuple[Real, Real]:
        """By how much the mean is over what follows from it, and how much that rises with it."""
        none, slope, _ = _bare(x, step, jnp.where(standing, 0.0, varied(step)), limit)
        return step * room - (least + jump * none), room + jump * x * slope

    def closer(step: Real, excess: Real, slope: Real) -> Real:
        return clip(step - excess / slope, least + jump, full)

    # a loop of XLA's: unrolled, it compiles far longer
    def secant(_: Real, state: tuple[Real, ...]) -> tuple[Real, ...]:
        before, excess_before, slope, step = state
        excess, apart = over(step)[0], step - before
        rises = (excess - excess_before) * apart > 1e-3 * apart**2
        slope = jnp.where(rises, (excess - excess_before) / jnp.where(rises, apart, 1.0), slope)
        slope = jax.lax.stop_gradient(slope)
        return step, excess, slope, closer(step, excess, slope)

    step = clip(least / room, least + jump, full)
    excess, slope = over(step)
    slope = maximum(slope, 0.02)
    first = jnp.broadcast_arrays(step, excess, slope, closer(step, excess, slope))
    step = jax.lax.fori_loop(0, 5, secant, tuple(first))[3]
    return step, varied(step)


def _bare(x: Real, step_s: Real, variance_s2: Real, limit: _Limit) -> tuple[Real, Real, Real]:
    """(share p_0 of steps without prompts, -dp_0 by what comes in a step, how far the limit decides).

    Steps with prompts are what comes over what such a step has: b prompts without a limit, min(N, B) of those with one,
    and B in the middle of a backlog.
    """
    none, came = _none(x, step_s, variance_s2), x * step_s
    free = maximum(jnp.where(came > 1e-6, came / maximum(1.0 - none, 1e-12), 1.0), 1.0)
    second = clip(1.0 - free * none, 0.0, 1.0)  # the chance of more than one
    room = limit.most - 1.0
    third = maximum(free - 1.0 - second, 0.0)
    # as many more as geometric ones of this mean; `second` is 1 where a bare step is out of the question
    more = minimum(third / maximum(free - 1.0, 1e-12), second)
    further = third * (1.0 - power(more, maximum(room - 1.0, 0.0)))
    held = minimum(1.0 + minimum(room, 1.0) * second + further, limit.most)
    held = limit.lasting * limit.most + (1.0 - limit.lasting) * held
    fewer = safe_divide(1.0 / held - 1.0 / free, 1.0 - 1.0 / free, 0.0)
    limited = maximum(clip(fewer, 0.0, 1.0), limit.lasting)
    return clip(1.0 - came / held, 0.0, none), (1.0 - limited) * none + limited / held, limited


def _none(x: Real, step_s: Real, variance_s2: Real) -> Real:
    """Chance of no arrival in a step of gamma distributed length."""
    wide = x * variance_s2 / step_s
    grown = 1.0 + maximum(wide, 1e-6)
    return exp(-x * step_s * jnp.where(wide > 1e-6, log(grown) / (grown - 1.0), 1.0))


def met_quantiles(steps: SharedSteps) -> Callable[[Real], Real]:
    """Quantile, less the mean, of the wait for the step under way and for those that share its own, by its level."""
    off = gamma_quantiles(steps.met_s, steps.met_variance_s2)
    none = 1.0 - steps.chance
    by_chance, by_none = 1.0 / maximum(steps.chance, 1e-9), 1.0 / maximum(none, 1e-9)

    def at(level: Real) -> Real:
        inside = (level - none) * by_chance
        long = steps.met_s + off(normal_quantile(clip(inside, 1e-4, 1.0 - 1e-4)))
        short = 2.0 * steps.bare_s * clip(level * by_none, 0.0, 1.0)
        return jnp.where(inside > 0, maximum(long, short), short) - steps.mean_s

    return at
