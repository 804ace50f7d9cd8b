r"""Prompts that share steps: an engine computes in a step all that came during the one before, as many as fit.

A step with k prompts takes $s_1 + (k - 1) m$. With N arrivals of rate x during a step of length L the next one has N
prompts; if none came it takes $t_0$ where requests decode, and otherwise the engine stands still until one comes, so
that it has max(N, 1). With $p_0 = P(N = 0)$ and d the jump off the line at none ($m - s_1 + t_0$; m for an engine
that stands still),

$$E[L] = \frac{s_1 - m + d p_0}{1 - x m},\qquad
\mathrm{Var}[L] = \frac{m^2 x E[L] + d^2 p_0 (1 - p_0) - 2 m d x E[L] p_0 + v E[k]}{1 - x^2 m^2},$$

v the variance of a prompt's time. No prompt comes in a step that itself had none with the chance $e^{-x t_0}$ ($s_1$ in
place of $t_0$ for an engine that stands still), in one that had some with $E_1$, that of a gamma distributed length:
$p_0 = E_1 / (1 - e^{-x t_0} + E_1)$. A prompt finds a step with others or a bare one by their shares of the time, one
of length-biased mean $A = E[L^2]/E[L]$; it waits for the rest of it and shares its own step with x A others: $A (1/2 +
x m)$, which varies by $E[L^3]$, exact as well. What a step is longer than the mean goes on in the next ones, a share $r
= x m + d\,\mathrm{Cov}(e^{-xL}, L) / \mathrm{Var}[L]$ from step to step.

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
    none_s = jnp.where(goes_on, minimum(bare_s, one_s), one_s)  # a step that begins when none has come
    full = one_s + (most - 1.0) * m
    limit = _limit(most, x * full, square)
    steps = _steps(x, one_s, m, none_s, full, variance_s2=variance_s2, standing=jnp.logical_not(goes_on), limit=limit)
    step, variance, none, came = steps.mean_s, steps.variance_s2, steps.none, x * steps.mean_s
    next_s = m + (one_s - m - none_s) * steps.slope  # that one more prompt makes of the next step
    carried = clip(x * next_s, 0.0, 1.0 - 1e-6)
    drawn = x * (next_s**2 + variance_s2)
    busy = jnp.where(goes_on, decoding, came / (came + none))
    busy = maximum(busy, minimum(x * full / most, 1.0))  # what is left over keeps it busy
    # Who comes finds a step with prompts or one without, each by its share of the time.
    empty = jnp.where(goes_on, none, 0.0)
    some, varies = jnp.where(goes_on, steps.some_s, step), jnp.where(goes_on, steps.some_variance_s2, variance)
    chance = busy * clip(1.0 - empty * bare_s / step, 0.0, 1.0)
    biased = some + varies / some
    others = minimum(x * m, (most - 1.0) * m / biased)  # seconds for those that share its step, of each of that one
    squares = _biased_squares(x, one_s, m, none_s, empty, some, varies, steps=steps, variance_s2=variance_s2)
    single = x * biased * (m**2 + variance_s2)
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
        sum_variance_s2=(1.0 - steps.limited) * free_sum + steps.limited * full_sum,
    )


def _biased_squares(
    x: Real,
    one_s: Real,
    m: Real,
    none_s: Real,
    empty: Real,
    some: Real,
    varies: Real,
    *,
    steps: _Steps,
    variance_s2: Real,
) -> Real:
    """E[L^3]/E[L] of steps of mean `some` and variance `varies`, all but `empty` ones: as it follows from the moments
    of N where all find room, or a gamma distribution's as far as that bounds how steps vary."""
    least, came = one_s - m, x * steps.mean_s
    second = came + x**2 * (steps.variance_s2 + steps.mean_s**2)  # E[N^2]
    cubes = least**3 * (1.0 - steps.none) + none_s**3 * steps.none + 3.0 * least**2 * m * came
    cubes += 3.0 * least * (m**2 * second + variance_s2 * came)
    cubes += m * (m**2 * (3.0 * second - 2.0 * came) + 3.0 * variance_s2 * second)
    cubes = cubes / maximum(1.0 - (x * m) ** 3, 1e-9) - none_s**3 * empty
    cubes = cubes / (maximum(1.0 - empty, 1e-12) * some)
    gamma = (some**2 + varies) * (1.0 + 2.0 * varies / some**2)
    return maximum(gamma + steps.freely * (cubes - gamma), (some + varies / some) ** 2)


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


class _Steps(NamedTuple):
    """What steps are, by the share of them in which no prompt came."""

    mean_s: Real
    variance_s2: Real
    some_s: Real  # mean of those after one or more prompts came
    some_variance_s2: Real
    freely: Real  # how far they vary as if there were room for all
    none: Real  # p_0
    free: Real  # the same with room for all
    slope: Real  # -d p_0 / d N
    limited: Real  # how far what a step has room for decides


def _steps(
    x: Real, one_s: Real, m: Real, none_s: Real, full: Real, *, variance_s2: Real, standing: Real, limit: _Limit
) -> _Steps:
    """Steps by the share of them in which no prompt came, which follows from them again. `none_s`: the next one;
    `standing`: of an engine without requests to decode."""
    least, jump, room = one_s - m, m - one_s + none_s, maximum(1.0 - x * m, 1e-9)
    inertia = maximum(room * (1.0 + x * m), 1e-9)
    kept = exp(-x * none_s)  # no prompt comes after none, either

    def by(none: Real) -> _Steps:
        step = clip((least + jump * none) / room, none_s, full)
        came = x * step
        computed = came + jnp.where(standing, none, 0.0)
        number = (m**2 * came + jump**2 * none * (1.0 - none) - 2.0 * m * jump * came * none) / inertia
        # steps after some have come are gamma distributed
        some = 1.0 / maximum(1.0 - none, 1e-12)
        some_s = clip((step - none * none_s) * some, one_s, full)
        apart = some_s - none_s
        within = maximum(number * some - none * apart**2, 0.0)
        within, freely = _bounded(within, some_s - one_s, full - some_s, limit.most)
        within += variance_s2 * minimum(computed * some / inertia, limit.most)
        variance = (1.0 - none) * (within + none * apart**2)
        wide = x * within / maximum(some_s, 1e-300)
        after = exp(-x * some_s * jnp.where(wide > 1e-6, log1p(wide) / maximum(wide, 1e-6), 1.0))
        free = after / maximum(1.0 - kept + after, 1e-12)
        # -d p_0 / d N, from a step after none to one after some, and of longer ones after some
        tangent = after / (1.0 + wide)
        chord = jnp.where(x * apart > 1e-6, (kept - after) / maximum(x * apart, 1e-6), kept)
        varied = safe_divide(within, none * apart**2 + within, 0.0)
        alone = some * none * x * none_s * kept + x * some_s * tangent  # chance of one prompt, if any
        held, limited = _held(came, free, 1.0 - alone, limit)
        slope = (1.0 - limited) * (chord + varied * (tangent - chord)) + limited / held
        return _Steps(step, variance, some_s, within, freely, clip(1.0 - came / held, 0.0, free), free, slope, limited)

    def inside(far: Real, excess_far: Real, near: Real, excess_near: Real) -> Real:
        apart = excess_near - excess_far
        per_excess = jax.lax.stop_gradient((near - far) / jnp.where(apart == 0.0, 1.0, apart))
        return clip(near - excess_near * per_excess, 0.0, 1.0)

    def narrowed(state: tuple[Real, ...], none: Real) -> tuple[Real, ...]:
        """Anderson and Bjorck's rule, which always has the root between its two shares."""
        far, excess_far, near, excess_near = state
        over = none - by(none).none
        left = 1.0 - over / jnp.where(excess_near == 0.0, 1.0, excess_near)
        crossed, less = over * excess_near < 0.0, jnp.where(left > 0.0, left, 0.5) * excess_far
        return jnp.where(crossed, near, far), jnp.where(crossed, excess_near, less), none, over

    start = by(jnp.zeros_like(x * one_s * m * full))
    near = start.free  # nearly the most: with more steps without prompts the others are longer
    over = near - by(near).none
    far, excess_far = jnp.where(over > 0.0, 0.0, 1.0), jnp.where(over > 0.0, -start.none, 1.0 - near)
    # their length rises with the odds of one without, so that the logarithm of these falls nearly as a line
    odds, follow = _odds(near), _odds(near - over)
    odds = odds / maximum(1.0 + log(odds / follow), 0.5)
    state = narrowed(tuple(jnp.broadcast_arrays(far, excess_far, near, over)), odds / (1.0 + odds))
    # a loop of XLA's: unrolled, it compiles far longer
    return by(inside(*jax.lax.fori_loop(0, 4, lambda _, state: narrowed(state, inside(*state)), state)))


def _odds(share: Real) -> Real:
    share = clip(share, 1e-12, 1.0 - 1e-12)
    return share / (1.0 - share)


def _bounded(variance: Real, below: Real, above: Real, most: Real) -> tuple[Real, Real]:
    """(variance of steps of one prompt at least, how far they vary as if there were room for all).

    It is `variance` with room for all, and otherwise at most (B + 1) / 3 (B - 1) of Bhatia and Davis' bound, as if any
    number were as likely: all of it of one or two.
    """
    bound = maximum(below * above, 0.0) * minimum(safe_divide(most + 1.0, 3.0 * (most - 1.0), 1.0), 1.0)
    over = minimum(safe_divide(variance, bound, 1e6), 1e6)
    freely = 1.0 / (1.0 + over**4)
    return variance * jnp.sqrt(jnp.sqrt(freely)), freely


def _held(came: Real, none: Real, second: Real, limit: _Limit) -> tuple[Real, Real]:
    """(prompts of a step that has any, how far the limit decides). Without a limit they are what comes over the share
    of such steps, min(N, B) of those with one, and B in the middle of a backlog.

    `none`: steps without prompts if there were no limit; `second`: the chance of more than one prompt, if any.
    """
    free = maximum(jnp.where(came > 1e-6, came / maximum(1.0 - none, 1e-12), 1.0), 1.0)
    second, room = clip(second, 0.0, 1.0), limit.most - 1.0
    third = maximum(free - 1.0 - second, 0.0)
    # as many more as geometric ones of this mean; `second` is 1 where a bare step is out of the question
    more = minimum(third / maximum(free - 1.0, 1e-12), second)
    further = third * (1.0 - power(more, maximum(room - 1.0, 0.0)))
    held = minimum(1.0 + minimum(room, 1.0) * second + further, limit.most)
    held = limit.lasting * limit.most + (1.0 - limit.lasting) * held
    fewer = safe_divide(1.0 / held - 1.0 / free, 1.0 - 1.0 / free, 0.0)
    return held, maximum(clip(fewer, 0.0, 1.0), limit.lasting)


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
