"""What a call leaves out, written out: the same answer."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels import Workload
from dmodels.models.latency import StepLaw
from dmodels.models.traffic import Trace
from dmodels.sim import batching, engines, estimate, fleet, recordings, study, verify
from dmodels.sim.batching import TokenLaw
from dmodels.sim.deployments import ServingPool
from dmodels.sim.fleet import Change, Event, Pool, Prefixes, RoutingPolicy, closed_loop
from dmodels.sim.recordings import Recording
from dmodels.sim.replay import replay_trace
from dmodels.sim.requests import KVCache, Prefill, Requests, Served

KEY, RNG = jax.random.key(4), np.random.default_rng(0)
LAW, STRAIGHT = StepLaw(8e-3, 1e-3), engines.EngineLaw.straight(1.0, 0.5)
VALUES = RNG.exponential(size=2000)
ARRIVAL = np.cumsum(VALUES)
SERVED = Served(ARRIVAL, ARRIVAL, ARRIVAL + VALUES, ARRIVAL + VALUES + 1.0, np.full(2000, 5))
BUSY = Workload.fixed(600.0, 100.0, rate_rps=9.0).replace(arrival_cv=np.float64(3.0))
TRACE = Trace("a trace", ARRIVAL[:300], np.full(300, 700.0), np.full(300, 20.0))


def noisy(scale):
    """Replications of mean 10, whatever the key."""
    values = iter(np.random.default_rng(1).normal(10.0, scale, 300).tolist())
    return lambda key: {"a": next(values)}


def settled(scale):
    return lambda **told: estimate.replicate(noisy(scale), KEY, **told)


def routed(**told):
    """Few prefixes on two instances that remember one: its weight decides."""
    rng = np.random.default_rng(2)
    requests = np.cumsum(rng.exponential(0.05, 300)), 513, rng.integers(1, 60, 300)
    prefixes = Prefixes(rng.integers(0, 3, 300), 400, 1)
    return fleet.simulate(*requests, Pool(2, 4, LAW), RoutingPolicy.DYNAMO, prefixes=prefixes, **told)


CASES = {
    "mean_of": (lambda **told: estimate.mean_of(VALUES, **told), {"confidence": 0.95}),
    "difference": (lambda **told: estimate.difference(VALUES, VALUES**2, **told), {"confidence": 0.95}),
    "batch_means": (lambda **told: estimate.batch_means(VALUES, **told), {"batches": 20, "confidence": 0.95}),
    "batch_quantile": (
        lambda **told: estimate.batch_quantile(VALUES, 0.9, **told),
        {"batches": 20, "confidence": 0.95},
    ),
    "replicate at once": (settled(0.5), {"target_frac": 0.05, "at_least": 8, "at_most": 256, "confidence": 0.95}),
    "replicate": (settled(3.0), {"target_frac": 0.05}),
    "replicate in vain": (settled(30.0), {"at_most": 256}),
    "measure at once": (
        lambda **told: verify.measure(BUSY, Pool(3, 8, LAW), KEY, count=400, target_frac=9.0, **told),
        {"percentile": 0.99, "at_least": 5, "confidence": 0.95},
    ),
    "measure in vain": (
        lambda **told: verify.measure(BUSY, Pool(3, 8, LAW), KEY, count=400, **told),
        {"target_frac": 0.05, "at_most": 40},
    ),
    "summary": (lambda **told: verify.summary(SERVED, 2, **told), {"percentile": 0.99}),
    "trace_metrics": (
        lambda **told: verify.trace_metrics(SERVED, **told),
        {"percentile": 0.99, "batches": 20, "stationary": False},
    ),
    "replay_trace": (
        lambda **told: replay_trace(TRACE, [Pool(2, 8, LAW)], KEY, RoutingPolicy.SHORTEST_QUEUE, **told),
        {"percentile": 0.99, "stationary": False},
    ),
    "study": (
        lambda **told: study.run(Workload.fixed(513.0, 20.0, rate_rps=9.0), LAW, 8, KEY, 3000, chunk=1000, **told),
        {"percentile": 0.99, "chunk_tokens": 512, "prefill": Prefill.OWN, "emits": False},
    ),
    "one instance": (
        lambda **told: batching.simulate([0.0, 0.0], 513, 9, LAW, 2, **told),
        {"chunk_tokens": 512, "prefill": Prefill.OWN, "cached_tokens": 0, "emits": False},
    ),
    "fleet": (routed, {"cached_tokens": 0, "cache_weight": 1.0}),
    "serial": (lambda **told: closed_loop.serial(np.ones((9, 4)), 0.7, **told), {"lifo": False}),
    "engines": (
        lambda **told: engines.simulate([0.0] * 4, 50, 9, STRAIGHT, engines.VllmV1(99), **told),
        {"instances": 1, "balance": engines.Balance.LEAST_LOADED, "sent": False},
    ),
    "recorded": (
        lambda **told: recordings.recorded(Trace("one", np.zeros(9), np.ones(9), np.ones(9)), 2.0, **told),
        {"limit_tokens": 0.0, "seed": 0},
    ),
    "checked": (lambda **told: Requests.checked([0.0], 5, 1, **told), {"cached_tokens": 0}),
    "straight": (lambda **told: engines.EngineLaw.straight(1.0, 0.5, **told), {"per_prompt_token_s": 0.0}),
    "tabulated": (
        lambda **told: TokenLaw.tabulated(lambda n, tokens: 1.0 + tokens, 1, 8.0, **told),
        {"points": 257, "decodes": False},
    ),
}


@pytest.mark.parametrize("call, told", CASES.values(), ids=CASES)
def test_what_is_left_out(call, told):
    np.testing.assert_equal(call(), call(**told))


def test_records_with_what_is_left_out():
    assert KVCache(9) == KVCache(9, 16, False)
    assert Pool(1, 2, LAW) == Pool(1, 2, LAW, np.inf, 512, Prefill.OWN, False)
    assert Event(0.0, Change.SLOW, 0) == Event(0.0, Change.SLOW, 0, 1.0)
    assert ServingPool("x", LAW, 1, 2) == ServingPool("x", LAW, 1, 2, 0.0, np.inf, True, True, 0.0, 0.0, 0.0)
    assert estimate.Estimate(4.0, 3.0, 5.0, 9) == (4.0, 3.0, 5.0, 9, 0)
    assert Recording(*(ARRIVAL[:1],) * 4, 1.0, "x").warm_s == 0.0
    edge = estimate.Estimate(4.0, 3.0, 5.0, 9)
    assert edge.holds(5.0) and not edge.holds(5.01) and edge.holds(3.0) and not edge.holds(2.99)
    assert edge.holds(5.5, 0.5) and not edge.holds(5.51, 0.5) and edge.holds(2.5, 0.5) and not edge.holds(2.49, 0.5)
