r"""Waiting and occupancy of one batching instance whose pace depends on what is in flight: a birth-death chain.

With n in flight an iteration takes t(n), so requests of E iterations on average leave at $\mu_n = n / (E\,t(n))$, and
with N slots $\mu_n = \mu_N$ beyond N. Arrivals at rate x give $p_n \propto \prod_{k \le n} x / \mu_k$. Exact for
geometric lengths; while nobody waits all requests share the pace alike, so that $p_n$ does not depend on the length
distribution. Erlang C, which fixes the pace, misses how a fuller batch slows itself down and fills further;
`benchmarks/agreement.py` measures both.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_where
from dmodels.core.records import Real


class Occupancy(NamedTuple):
    """Steady state of the chain."""

    wait_probability: Real  # that an arrival finds every slot taken
    wait_mean_s: Real
    in_flight_count: Real  # mean number in slots
    tpot_mean_s: Real  # iteration time that a token sees on average
    flags: Real


def occupancy(arrival_rps: Real, iterations: Real, times_s: Real, iterations_scv: Real = 1.0) -> Occupancy:
    r"""The chain's waiting and occupancy; `times_s` (..., N) are t(1), ..., t(N), the rest broadcasts to (...).

    $P_w = \sum_{n \ge N} p_n$; $E[W] = \frac{P_w}{\mu_N - x}\,\frac{1 + c_s^2}{2}$ (exact for $c_s = 1$);
    $E[\mathrm{TPOT}] = E[n] / (x E)$ by Little's law. A constant law gives Erlang C: N = 2, x E t = 1: 1/3.

    >>> round(float(occupancy(1.0, 100.0, jnp.array([0.01, 0.01])).wait_probability), 9)
    0.333333333
    """
    arrival, work, scv = (jnp.asarray(x, float) for x in (arrival_rps, iterations, iterations_scv))
    times = jnp.asarray(times_s, float)
    slots = times.shape[-1]
    count = jnp.arange(1.0, slots + 1.0, dtype=times.dtype)
    count = count.reshape((1,) * (times.ndim - 1) + count.shape)
    ratio = (arrival * work)[..., None] * times / count  # x / mu_n
    log_p = jnp.concatenate([jnp.zeros_like(ratio[..., :1]), jnp.cumsum(jnp.log(ratio), axis=-1)], axis=-1)
    p = jnp.exp(log_p - jnp.max(log_p, axis=-1, keepdims=True))
    last = ratio[..., -1]
    stable = last < 1.0
    room = jnp.where(stable, 1.0 - last, 1.0)
    tail = p[..., -1] / room  # p_N + p_(N+1) + ...
    total = jnp.sum(p[..., :-1], axis=-1) + tail
    chance = tail / total
    busy = jnp.sum(count[..., :-1] * p[..., 1:-1], axis=-1)
    in_flight = (busy + slots * tail) / total
    rate_full = slots / (work * times[..., -1])
    wait = chance / (rate_full * room) * (1.0 + scv) / 2.0
    return Occupancy(
        jnp.where(stable, chance, 1.0), jnp.where(stable, wait, jnp.inf), jnp.where(stable, in_flight, slots + 0.0),
        jnp.where(stable, in_flight / (arrival * work), times[..., -1]), flag_where(~stable, Flag.OVERLOAD),
    )  # fmt: skip
