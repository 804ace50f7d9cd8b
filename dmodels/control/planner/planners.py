r"""Planners that move workers between prefill and decode, each a pair of pure functions `(init, update)`.

Every interval (30 s in Dynamo) a planner sees one `Observation` and says how many workers prefill should have.
All share one state, so that they can be scanned, mapped over gains, and swapped in a router. Numbers are workers.

[1] The Price of Anarchy in Disaggregated Inference, sections 2.2, 4.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.records import Real

INTERVAL_S = 30.0
GRACE = 3.0  # intervals in which the planner leaves a pool alone after decode was given a worker


class Observation(NamedTuple):
    """What the metrics say at the end of an interval."""

    arrival_rps: Real  # forecast for the next interval
    prefill_wait_s: Real  # backlog of prompts over prefill's rate
    decode_wait_s: Real  # backlog of answers over decode's rate


class PlannerState(NamedTuple):
    """The decision and what the planner remembers."""

    prefill: Real  # workers
    total: Real
    grace: Real  # intervals left in which nothing moves
    seen: Observation  # the last observations, oldest first: leaves of shape (delay + 1,)


class Planner(NamedTuple):
    """init(prefill, total) -> state; update(state, observation) -> state."""

    init: Callable[[Real, Real], PlannerState]
    update: Callable[[PlannerState, Observation], PlannerState]


#: pressure(prefill, total, observation) -> signed number of workers that should go to prefill
Pressure = Callable[[Real, Real, Observation], Real]
#: cost(prefill, total, arrival_rps) of a split
Cost = Callable[[Real, Real, Real], Real]


def planner(pressure: Pressure, step: Real = 1.0, grace: Real = GRACE, delay: int = 0, least: Real = 1.0) -> Planner:
    """A planner that follows `pressure`, at most `step` workers an interval, and waits `grace` intervals after decode
    was given a worker. It acts on the observation of `delay` intervals ago. Each pool keeps `least` workers."""

    def init(prefill: Real, total: Real) -> PlannerState:
        zero = jnp.zeros(delay + 1)
        prefill, total = jnp.asarray(prefill, float), jnp.asarray(total, float)
        return PlannerState(prefill, total, jnp.zeros_like(prefill), Observation(zero, zero, zero))

    def update(state: PlannerState, observation: Observation) -> PlannerState:
        seen = jax.tree.map(lambda old, new: jnp.append(old[1:], new), state.seen, observation)
        known = jax.tree.map(lambda values: values[0], seen)
        wanted = jnp.clip(jnp.round(pressure(state.prefill, state.total, known)), -step, step)
        ready = state.grace <= 0.0
        moved = jnp.clip(state.prefill + jnp.where(ready, wanted, 0.0), least, state.total - least)
        to_decode = moved < state.prefill
        left = jnp.where(to_decode, jnp.asarray(grace, float), jnp.maximum(state.grace - 1.0, 0.0))
        return PlannerState(moved, state.total, left, seen)

    return Planner(init, update)


def reactive(dead_band_s: Real = 0.5, decode_weight: Real = 1.0, gain: Real | None = None) -> Pressure:
    """The load-based planner: towards the pool whose work waits longer; by one worker, or `gain` workers per second."""

    def pressure(prefill: Real, total: Real, seen: Observation) -> Real:
        gap = seen.prefill_wait_s - decode_weight * seen.decode_wait_s
        if gain is not None:
            return gain * gap
        return jnp.where(jnp.abs(gap) > dead_band_s, jnp.sign(gap), 0.0)

    return pressure


def best_response(cost: Cost) -> Pressure:
    """+-1 in the direction that lowers cost(prefill, total, arrival_rps) most, or nothing if neither lowers it.

    With the social cost this is the repaired planner: the cost is a potential, each accepted move lowers it, and the
    planner stops at a split that no single move improves. ("The pool with the larger gain from its next GPU", as [1]
    has it, cycles between two splits.)
    """

    def pressure(prefill: Real, total: Real, seen: Observation) -> Real:
        splits = jnp.stack([prefill, prefill + 1.0, prefill - 1.0])
        stay, up, down = jax.vmap(lambda prefill: cost(prefill, total, seen.arrival_rps))(splits)
        best = jnp.minimum(up, down)
        return jnp.where(best < stay, jnp.where(up <= down, 1.0, -1.0), 0.0)

    return pressure


def anarchy_driven(cost: Cost, target: Callable[[Real, Real], Real], threshold: Real = 1.05) -> Pressure:
    """The faster planner that [1] leaves to future work: it moves only when the price of its split is high, and then
    all the way. price = cost(now) / cost(target), target(total, arrival_rps) the best split at that load."""

    def pressure(prefill: Real, total: Real, seen: Observation) -> Real:
        best = target(total, seen.arrival_rps)
        now, least = jax.vmap(lambda prefill: cost(prefill, total, seen.arrival_rps))(jnp.stack([prefill, best]))
        return jnp.where((now + 1e-6) / (least + 1e-6) > threshold, best - prefill, 0.0)

    return pressure


def sla_target(prefill_rps: Real, decode_rps: Real) -> Pressure:
    """The SLA-based planner: straight to the replica counts that the forecast needs, in proportion if short.

    prefill_rps, decode_rps: requests per second that one worker of each kind serves within its SLO.
    """

    def pressure(prefill: Real, total: Real, seen: Observation) -> Real:
        need_prefill, need_decode = seen.arrival_rps / prefill_rps, seen.arrival_rps / decode_rps
        share = need_prefill / jnp.maximum(need_prefill + need_decode, 1e-12)
        return jnp.round(share * total) - prefill

    return pressure
