r"""Prompts that share steps: an engine computes in a step all that came during the one before, as many as fit.

A step with k prompts takes $s_1 + (k - 1) m$. With N arrivals of rate x during a step of length L the next one has
max(N, 1) prompts (an idle engine begins when the first one comes), so in the mean, with $p_0 = e^{-x E[L]}$,

$$E[L] = \frac{s_1 - m + m p_0}{1 - x m},\qquad
\mathrm{Var}[L] = \frac{m^2 (x E[L] (1 - 2 p_0) + p_0 (1 - p_0)) + v (x E[L] + p_0)}{1 - x^2 m^2},$$

v the variance of a prompt's time. A prompt finds a step under way with probability
$b = E[L]/(E[L] + p_0/x)$ (or the load, if that is greater), one of length-biased mean $A = E[L^2]/E[L]$; it waits for
the rest of it and shares its own step with x A others: $b A (1/2 + x m)$. Of a step with room for B prompts what is
left over is a random walk with steps of N - B, whose maximum has an exponential tail and the mean
$\sigma\,(1/2u + \zeta(1/2)/\sqrt{2\pi} + u/4 + \dots)$, u its drift over its deviation (Chang and Peres, 1997). With
B = 1 this is M/G/1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.stats import norm

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real, jit


class SharedSteps(NamedTuple):
    """What a prompt waits for beyond a step of its own."""

    mean_s: Real  # for the step under way, and for those that share its own
    variance_s2: Real
    left_over_s: Real  # mean wait while prompts before it fill whole steps
    left_over_chance: Real  # of such a wait, which is exponential


@jit
def shared_steps(
    arrival_rps: Real, one_s: Real, further_s: Real, most: Real, variance_s2: Real, square: Real
) -> SharedSteps:
    """Steps of `one_s` with one prompt, `further_s` for each more, `most` at most.

    variance_s2  of a prompt's time in a step
    square       second moment of a prompt's tokens, which fill a step, over the square of their mean

    >>> alone = shared_steps(9.5, 0.1, 0.05, 1.0, 0.0, 1.0)  # M/D/1 at load 0.95: a wait of 0.95 s
    >>> round(float(alone.mean_s + alone.left_over_s), 1)
    0.9
    """
    x, m = arrival_rps, jnp.minimum(further_s, one_s)
    full = one_s + (most - 1.0) * m
    room = jnp.maximum(1.0 - x * m, 1e-9)
    step = one_s + 0.0 * x
    for _ in range(8):
        none = jnp.exp(-x * step)
        step = jnp.clip((one_s - m + m * none) / room, one_s, full)
    none, came = jnp.exp(-x * step), x * step
    inertia = jnp.maximum(room * (1.0 + x * m), 1e-9)
    number = m**2 * (came * (1.0 - 2.0 * none) + none * (1.0 - none)) / inertia
    number = jnp.minimum(number, (full - step) * (step - one_s))  # Bhatia and Davis
    variance = number + variance_s2 * jnp.minimum((came + none) / inertia, most)
    busy = jnp.maximum(came / (came + none), jnp.minimum(x * full / most, 1.0))  # what is left over keeps it busy
    biased = step + variance / step
    others = jnp.minimum(x * m, (most - 1.0) * m / biased)  # seconds for those that share its step, of each of that one
    mean = busy * (0.5 + others) * biased
    second = busy * ((1.0 / 3.0 + others + others**2) * (step**2 + 3.0 * variance) + x * biased * (m**2 + variance_s2))
    # what a full step leaves
    drift = jnp.maximum(most - x * full, 1e-9 * most)
    deviation = jnp.sqrt(jnp.maximum(x * full * square, 1e-300))
    u = jnp.minimum(drift / deviation, 30.0)
    near = 0.5 / u - 0.5826 + 0.25 * u - 0.0415 * u**2
    left = jnp.maximum(jnp.where(u < 1.6, near, 0.0), norm.pdf(u) - u * norm.sf(u))
    tail = jnp.maximum(0.5 / u, left)
    left = left * step / full  # as far as steps are full
    each = deviation * full / most
    return SharedSteps(mean, jnp.maximum(second - mean**2, 0.0), left * each, safe_divide(left, tail, 0.0))
