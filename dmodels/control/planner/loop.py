"""A planner in its loop: two pools in tandem as fluid queues, sampled once per planning interval."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.records import Real, Record, quantity

from .planners import INTERVAL_S, Observation, Planner


class TandemPools(Record):
    """What one worker of each pool serves, and what counts as late."""

    prefill_rps: Real = quantity()  # per prefill worker
    decode_rps: Real = quantity()  # per decode worker
    ttft_wait_slo_s: Real = quantity(1.0)
    decode_wait_slo_s: Real = quantity(1.0)
    interval_s: Real = quantity(INTERVAL_S)


class Course(NamedTuple):
    """One value per interval, shape (t,)."""

    prefill_instances: Real  # as decided
    prefill_wait_s: Real
    decode_wait_s: Real
    ttft_violation_frac: Real
    itl_violation_frac: Real


class Score(NamedTuple):
    """How a planner did over a course."""

    violation_frac: Real  # of requests, late in either pool (union bound, at most 1), weighted by arrivals
    moves_count: Real  # workers moved
    worst_wait_s: Real
    recovery_s: Real  # from the first violation to the last


def run(
    planner: Planner, pools: TandemPools, arrival_rps: Real, prefill: Real, total: Real, forecast: Real = 1.0
) -> Course:
    """The course of `arrival_rps` (t,) under a planner that starts with `prefill` of `total` workers.

    Per interval T: backlog of prompts Q += (a - mu_P n_P) T, never negative; what leaves prefill enters decode, whose
    backlog D does the same. A worker that changes pools serves in neither for one interval. The planner sees the
    waits Q/(mu_P n_P), D/(mu_D n_D), and the last interval's rate times `forecast` as its forecast.
    """
    t = pools.interval_s

    def step(carry, rate):
        state, before, prompts, answers = carry
        n_p = jnp.minimum(state.prefill, before)
        n_d = state.total - jnp.maximum(state.prefill, before)
        serve_p, serve_d = pools.prefill_rps * n_p, pools.decode_rps * n_d
        left = jnp.maximum(prompts + (rate - serve_p) * t, 0.0)
        passed = prompts + rate * t - left
        waiting = jnp.maximum(answers + passed - serve_d * t, 0.0)
        wait_p, wait_d = (prompts / serve_p, left / serve_p), (answers / serve_d, waiting / serve_d)
        late_p, late_d = late_frac(*wait_p, pools.ttft_wait_slo_s), late_frac(*wait_d, pools.decode_wait_slo_s)
        after = planner.update(state, Observation(rate * forecast, wait_p[1], wait_d[1]))
        return (after, state.prefill, left, waiting), Course(state.prefill, wait_p[1], wait_d[1], late_p, late_d)

    start = planner.init(prefill, total)
    zero = jnp.zeros_like(start.prefill)
    return jax.lax.scan(step, (start, start.prefill, zero, zero), jnp.asarray(arrival_rps, float))[1]


def late_frac(before: Real, after: Real, slo: Real) -> Real:
    """Share of an interval in which a wait that changes linearly lies above the SLO."""
    high, low = jnp.maximum(before, after), jnp.minimum(before, after)
    span = jnp.maximum(high - low, 1e-9)
    return jnp.clip((high - slo) / span, 0.0, 1.0)


def score(course: Course, arrival_rps: Real, interval_s: Real = INTERVAL_S) -> Score:
    """The numbers by which planners are compared."""
    late = jnp.minimum(course.ttft_violation_frac + course.itl_violation_frac, 1.0)
    bad = late > 0.0
    index = jnp.arange(late.shape[0], dtype=float)
    first = jnp.min(jnp.where(bad, index, jnp.inf))
    last = jnp.max(jnp.where(bad, index, -jnp.inf))
    return Score(
        jnp.sum(late * arrival_rps) / jnp.sum(arrival_rps),
        jnp.sum(jnp.abs(jnp.diff(course.prefill_instances))),
        jnp.max(jnp.maximum(course.prefill_wait_s, course.decode_wait_s)),
        jnp.where(jnp.any(bad), (last - first + 1.0) * interval_s, 0.0),
    )
