r"""Waiting and occupancy of one batching instance whose pace depends on what is in flight: a birth-death chain.

With n in flight an iteration takes t(n), so requests of E iterations on average leave at $\mu_n = n / (E\,t(n))$, and
with N slots $\mu_n = \mu_N$ beyond N. Arrivals at rate x give $p_n \propto \prod_{k \le n} x / \mu_k$. Exact for
geometric lengths; while nobody waits all requests share the pace alike, so that $p_n$ does not depend on the length
distribution. Erlang C, which fixes the pace, misses how a fuller batch slows itself down and fills further;
`tools/make_agreement.py` measures both.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_where
from dmodels.core.numerics import clip, maximum
from dmodels.core.records import Real, jit


class Occupancy(NamedTuple):
    """Steady state of the chain."""

    wait_probability: Real  # that an arrival finds every slot taken
    wait_mean_s: Real
    in_flight_count: Real  # mean number in slots
    tpot_mean_s: Real  # iteration time that a token sees on average
    flags: Real


@jit
def occupancy(arrival_rps: Real, iterations: Real, times_s: Real, iterations_scv: Real = 1.0) -> Occupancy:
    r"""The chain's waiting and occupancy; `times_s` (..., N) are t(1), ..., t(N), the rest broadcasts to (...).

    $P_w = \sum_{n \ge N} p_n$; $E[W] = \frac{P_w}{\mu_N - x}\,\frac{1 + c_s^2}{2}$ (exact for $c_s = 1$);
    $E[\mathrm{TPOT}] = E[n] / (x E)$ by Little's law. A constant law gives Erlang C: N = 2, x E t = 1: 1/3.

    >>> round(float(occupancy(1.0, 100.0, jnp.array([0.01, 0.01])).wait_probability), 9)
    0.333333333
    """
    chain = _chain(arrival_rps, iterations, times_s, iterations_scv)
    n = jnp.arange(0.0, chain.below.shape[-1], dtype=chain.below.dtype)
    busy = jnp.sum(jnp.broadcast_to(n, chain.below.shape) * chain.below, axis=-1)
    slots = chain.below.shape[-1] + 0.0
    in_flight = busy + slots * chain.waits
    stable = chain.stable
    return Occupancy(
        jnp.where(stable, chain.waits, 1.0),
        jnp.where(stable, chain.waits * chain.theta_s, jnp.inf),
        jnp.where(stable, in_flight, slots),
        jnp.where(stable, in_flight / chain.x, chain.last_s),
        flag_where(~stable, Flag.OVERLOAD),
    )


@jit  # or its loop would be compiled anew at each call
def ttft_quantile_s(
    q: Real,
    arrival_rps: Real,
    iterations: Real,
    times_s: Real,
    iterations_scv: Real = 1.0,
    first_iterations: Real = 2.0,
) -> Real:
    r"""Quantile q of the time to first token: the rest of the iteration in progress, a wait if every slot is taken, and
    `first_iterations` (those of the prompt, and one for the token unless the last prompt chunk emits it).

    An arrival that finds n < N in flight takes $(u + F)\,t(n + 1)$, u uniform; one that waits takes
    $W + F\,t(N)$ with W exponential of mean $\frac{1}{\mu_N - x}\frac{1 + c_s^2}{2}$. Solved by bisection; a last
    Newton step carries the derivatives. inf under overload.
    """
    chain = _chain(arrival_rps, iterations, times_s, iterations_scv)
    first = jnp.broadcast_to(jnp.asarray(first_iterations, float), chain.theta_s.shape)[..., None]
    theta = jnp.where(chain.stable, chain.theta_s, 1.0)

    def beyond(x):
        """P(TTFT > x)."""
        rest = clip(first + 1.0 - x[..., None] / chain.times, 0.0, 1.0)
        left = maximum(x - first[..., 0] * chain.last_s, 0.0)
        return jnp.sum(chain.below * rest, axis=-1) + chain.waits * jnp.exp(-left / theta)

    target = jnp.broadcast_to(1.0 - jnp.asarray(q, float), theta.shape)
    high = (first[..., 0] + 1.0) * jnp.max(chain.times, axis=-1) + theta * maximum(-jnp.log(target), 0.0)

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2.0
        over = beyond(middle) > target
        return jnp.where(over, middle, low), jnp.where(over, high, middle)

    low, high = jax.lax.fori_loop(0, 60, halve, jax.lax.stop_gradient((jnp.zeros_like(high), high)))
    x = (low + high) / 2.0
    slope = jax.lax.stop_gradient(jax.jvp(beyond, (x,), (jnp.ones_like(x),))[1])
    polished = x - jnp.where(slope < 0, (beyond(x) - target) / jnp.where(slope < 0, slope, 1.0), 0.0)
    return jnp.where(chain.stable, polished, jnp.inf)


class _Chain(NamedTuple):
    times: Real  # (..., N)
    below: Real  # (..., N): p_0, ..., p_(N-1)
    waits: Real  # p_N + p_(N+1) + ...
    theta_s: Real  # mean wait of those who wait
    last_s: Real  # t(N)
    x: Real  # arrivals times iterations: iterations asked for per second
    stable: Real


def _chain(arrival_rps: Real, iterations: Real, times_s: Real, iterations_scv: Real) -> _Chain:
    arrival, work, scv = (jnp.asarray(v, float) for v in (arrival_rps, iterations, iterations_scv))
    times = jnp.asarray(times_s, float)
    slots = times.shape[-1]
    count = jnp.arange(1.0, slots + 1.0, dtype=times.dtype)
    x = arrival * work
    x, scv, last = jnp.broadcast_arrays(x, scv, times[..., -1])
    ratio = x[..., None] * (times / jnp.broadcast_to(count, times.shape) + jnp.zeros((*x.shape, slots)))  # x / mu_n
    log_p = jnp.concatenate([jnp.zeros_like(ratio[..., :1]), jnp.cumsum(jnp.log(ratio), axis=-1)], axis=-1)
    p = jnp.exp(log_p - jnp.max(log_p, axis=-1, keepdims=True))
    stable = ratio[..., -1] < 1.0
    room = jnp.where(stable, 1.0 - ratio[..., -1], 1.0)
    tail = p[..., -1] / room
    total = jnp.sum(p[..., :-1], axis=-1) + tail
    theta = work * last / (slots * room) * (1.0 + scv) / 2.0
    shape = (*x.shape, slots)
    return _Chain(jnp.broadcast_to(times, shape), p[..., :-1] / total[..., None], tail / total, theta, last, x, stable)
