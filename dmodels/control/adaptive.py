"""Algorithm 1 of "The Price of Anarchy in Disaggregated Inference": router parameters by regime, as (init, update)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.records import Real
from dmodels.models.router import block_costs, choose

from . import regime


class RegimeSettings(NamedTuple):
    """tau and omega for Below, Transition, Saturated (last axis 3)."""

    tau: Real
    omega: Real


class Action(NamedTuple):
    """What the router uses until the next sample."""

    regime: Real
    tau: Real
    omega: Real


def table_2() -> RegimeSettings:
    """The paper's Table 2. Its Saturated row never fired in any of its experiments (conjectural, as it says)."""
    return RegimeSettings(jnp.array([0.0, 0.7, 0.8]), jnp.array([1.0, 1.0, 0.1]))


def init(shape: tuple[int, ...] = ()) -> regime.DetectorState:
    """The detector's state: the controller remembers nothing else."""
    return regime.init(shape)


def update(
    state: regime.DetectorState, ttft_p99_s: Real, params: regime.Detector, settings: RegimeSettings
) -> tuple[regime.DetectorState, Action]:
    """One sample of TTFT P99 in, (state, Action) out."""
    state, now = regime.update(state, ttft_p99_s, params)
    return state, action(now, settings)


def action(now: Real, settings: RegimeSettings) -> Action:
    """The parameters of a regime, without sampling."""
    pick: Callable[[Real], Real] = lambda values: jnp.take(jnp.asarray(values), now, axis=-1)
    return Action(now, pick(settings.tau), pick(settings.omega))


def route(
    act: Action, prefill_blocks: Real, active_blocks: Real, uniform: Real, normalized: bool = False
) -> tuple[Real, Real]:
    """(worker, costs in blocks) of one request under the current parameters: Eq. (1) and (2), lines 3 to 6.

    `uniform` is the request's random number in [0, 1), so that a replay chooses the same workers.
    """
    costs = block_costs(prefill_blocks, active_blocks, jnp.asarray(act.omega)[..., None])
    return choose(costs, act.tau, uniform, normalized), costs
