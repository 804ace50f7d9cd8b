"""A planner that buys what its forecast needs: one pool, workers that take their time to start, a fluid queue."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.records import Real

from .loop import late_frac


class ScalingCourse(NamedTuple):
    """One value per interval, shape (t,)."""

    instances: Real  # that serve
    wait_s: Real  # at the end of the interval
    violation_frac: Real  # share of the interval in which a request would wait longer than the SLO


def scale(
    demand: Real,
    forecast: Real,
    worker: Real,
    *,
    headroom: Real = 1.0,
    startup: int = 1,
    wait_slo_s: Real = 1.0,
    interval_s: Real = 600.0,
    least: Real = 1.0,
) -> ScalingCourse:
    r"""The course of `demand` (t,) when the pool has ceil(headroom forecast / worker) workers.

    `worker` is what one worker serves, in the unit of the demand (requests/s, tokens/s). `forecast` (t,) is what was
    expected, at the end of each interval, of the one `startup` + 1 later; workers ordered then serve in it, and leave
    in the same way. The first `startup` + 1 intervals have what their demand needs. Backlog Q += (a - mu n) T, never
    negative.
    """
    demand, forecast = jnp.asarray(demand, float), jnp.asarray(forecast, float)
    ahead = startup + 1
    known = jnp.concatenate([demand[:ahead], forecast[:-ahead]])
    instances = jnp.maximum(jnp.ceil(headroom * known / worker * (1.0 - 1e-12)), least)

    def step(backlog: Real, now: tuple[Real, Real]) -> tuple[Real, tuple[Real, Real]]:
        rate, served = now
        left = jnp.maximum(backlog + (rate - served) * interval_s, 0.0)
        return left, (left / served, late_frac(backlog / served, left / served, wait_slo_s))

    _, (wait, late) = jax.lax.scan(step, jnp.zeros(()), (demand, worker * instances))
    return ScalingCourse(instances, wait, late)
