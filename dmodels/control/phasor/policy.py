r"""Phasor's micro level: each request to the prefill worker with the most freeness, as (init, update, route).

State is the virtual load and the queue of every prefill worker. `route` picks argmax of $\Phi(w) - u_r/C_w$, freeness
after the dispatch (for equal workers the same worker as argmax Phi; for unequal ones Phi before the dispatch prefers an
idle slow worker to a busy fast one); `before=True` is Algorithm 1 line 3 as printed.

With exact *remaining* costs the rule serves every request at the time a central first-come queue would (M/G/k), job by
job. `update` therefore takes progress off the load, not only finished requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.records import Real
from dmodels.models.freeness import freeness_after, prefill_freeness


class Workers(NamedTuple):
    """The prefill pool, (w,) each."""

    flop_per_s: Real  # effective peak
    slo_s: Real  # TTFT budget
    open: Real  # 1 where it takes requests


class State(NamedTuple):
    """Load of each prefill worker, (w,) each."""

    queued_flop: Real  # costs of requests that are not finished, less progress
    queued_count: Real


def workers(count: int, flop_per_s: Real, slo_s: Real) -> Workers:
    """Equal or unequal workers, all open."""
    spread: Callable[[Real], Real] = lambda value: jnp.broadcast_to(jnp.asarray(value, float), (count,))
    return Workers(spread(flop_per_s), spread(slo_s), jnp.ones((count,), float))


def init(count: int) -> State:
    """Idle."""
    return State(jnp.zeros((count,), float), jnp.zeros((count,), float))


def freeness(state: State, pool: Workers) -> Real:
    """Phi_T of each worker, Eq. (2)."""
    return prefill_freeness(state.queued_flop, pool.flop_per_s, pool.slo_s)


def route(state: State, request_flop: Real, pool: Workers, before: bool = False) -> tuple[State, Real]:
    """(state with the request dispatched, worker); ties go to the first worker, -1 and no change if none is open.

    Never refuses: where all are over budget the least negative wins (Appendix B.4). That does not minimise the sum of
    violations, as the paper says it does; with equal budgets it keeps the largest load within 2 - 1/w of the least.
    """
    after = freeness_after(state.queued_flop, 0.0 if before else request_flop, pool.flop_per_s, pool.slo_s)
    score = jnp.where(pool.open > 0, after, -jnp.inf)
    found = jnp.any(pool.open > 0)
    worker = jnp.where(found, jnp.argmax(score), 0).astype(jnp.int32)
    flop = jnp.where(jnp.isfinite(request_flop) & found, jnp.maximum(request_flop, 0.0), 0.0)
    one = jnp.where(found, 1.0, 0.0)
    new = State(state.queued_flop.at[worker].add(flop), state.queued_count.at[worker].add(one))
    return new, jnp.where(found, worker, jnp.int32(-1))


def update(state: State, worker: Real, done_flop: Real, done_count: Real = 0.0) -> State:
    """Progress of a worker: so much of its virtual load is done, and so many requests have left.

    Loads stay at least 0, and a worker without requests has none, so that rounding and estimates that differ from what
    a request cost leave nothing behind.
    """
    valid = jnp.isfinite(done_flop) & jnp.isfinite(done_count)
    left = jnp.maximum(state.queued_count[worker] - jnp.where(valid, jnp.maximum(done_count, 0.0), 0.0), 0.0)
    load = jnp.maximum(state.queued_flop[worker] - jnp.where(valid, jnp.maximum(done_flop, 0.0), 0.0), 0.0)
    return State(
        state.queued_flop.at[worker].set(jnp.where(left > 0, load, 0.0)), state.queued_count.at[worker].set(left)
    )
