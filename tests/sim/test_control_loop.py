"""Controllers in the loop: idle ones change nothing, a saturation detector sees a burst, a scaler relieves it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.control import regime
from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw
from dmodels.sim import arrivals, fleet
from dmodels.sim.fleet import Pool, RoutingPolicy
from tests.sim import control_loop

POOL = Pool(6, 8, StepLaw(8e-3, 0.65e-3))


def burst():
    """15 requests/s, and 75 of them between 60 and 100 s; six instances carry about 45."""
    unit = arrivals.poisson(jax.random.key(1), 1.0, 6000)
    when = arrivals.in_profile(unit, [0.0, 60.0, 100.0], [15.0, 75.0, 15.0])
    rng = np.random.default_rng(0)
    return when, rng.integers(1, 1500, 6000), rng.integers(20, 130, 6000)


class Nothing(NamedTuple):
    pass


class Regime(NamedTuple):
    regime: int


def test_a_controller_that_does_nothing_changes_nothing():
    requests = burst()
    plain = fleet.simulate(*requests, POOL)
    looped, history = control_loop.simulate(fleet.start(*requests, POOL), lambda s, w: (s, Nothing()), None, 5.0, 150.0)
    np.testing.assert_array_equal(plain.end_s, looped.end_s)
    assert len(history) == 30 and sum(tick.seen.arrivals for tick in history) == (requests[0] <= 150.0).sum()


def test_the_saturation_detector_sees_the_burst_and_its_end():
    detector = regime.detector(0.03)
    step = jax.jit(lambda state, ttft: regime.update(state, ttft, detector))

    def update(state, seen):
        state, now = step(state, jnp.asarray(seen.ttft_p99_s))
        return state, Regime(int(now))

    _, history = control_loop.simulate(fleet.start(*burst(), POOL), update, regime.init(), 5.0, 300.0)
    regimes = [tick.action.regime for tick in history]
    assert set(regimes[:12]) == {0} and regimes[19] == 2 and regimes[-1] == 0


class Scale(NamedTuple):
    open_instances: int


def test_scaling_out_on_queues_shortens_waits_and_scaling_in_frees_instances():
    def update(opened, seen):
        waiting = seen.waiting.sum()
        opened = min(6, opened + 1) if waiting > 4 else max(2, opened - 1) if waiting == 0 else opened
        return opened, Scale(opened)

    requests = burst()
    scaled, history = control_loop.simulate(fleet.start(*requests, POOL), update, 2, 2.0, 250.0)
    fixed = fleet.simulate(*requests, POOL._replace(instances=2))
    full = fleet.simulate(*requests, POOL)
    assert full.wait_s.mean() < scaled.wait_s.mean() < 0.7 * fixed.wait_s.mean()
    opened = [tick.action.open_instances for tick in history]
    assert max(opened) == 6 and min(opened) == 2 and np.mean(opened) < 5
    assert np.isfinite(scaled.end_s).all()


class Switch(NamedTuple):
    policy: RoutingPolicy


def test_the_policy_can_change_while_running():
    requests = burst()
    switched, _ = control_loop.simulate(
        fleet.start(*requests, POOL, RoutingPolicy.ROUND_ROBIN),
        lambda s, w: (s, Switch(RoutingPolicy.SHORTEST_QUEUE)),
        None,
        5.0,
        10.0,
    )
    early = requests[0] < 5.0
    turns = fleet.simulate(*requests, POOL, RoutingPolicy.ROUND_ROBIN)
    np.testing.assert_array_equal(switched.instance[early], turns.instance[early])
    assert switched.wait_s.mean() < turns.wait_s.mean()


def test_bad_input_is_refused():
    run = fleet.start(*burst(), POOL)
    with pytest.raises(InputError, match="interval_s"):
        control_loop.simulate(run, lambda s, w: (s, Nothing()), None, 0.0, 10.0)
    with pytest.raises(InputError, match="open_instances"):
        control_loop.simulate(run, lambda s, w: (s, Scale(0)), None, 1.0, 10.0)
