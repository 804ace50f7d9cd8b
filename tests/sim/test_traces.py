"""Measured traces through a simulated fleet: at their own pace and compressed in time."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import TraceError
from dmodels.models.latency import StepLaw
from dmodels.models.traffic import Trace, read_trace
from dmodels.sim import arrivals, fleet
from dmodels.sim.fleet import Pool, Prefixes, RoutingPolicy
from dmodels.sim.recordings import recorded
from dmodels.sim.replay import replay_trace

LAW = StepLaw(8e-3, 0.65e-3)


@pytest.mark.parametrize(
    ("name", "instances"),
    [("azure_2023_conv.csv", 2), ("azure_2023_code.csv", 2), ("mooncake_conversation.jsonl", 6)],
)
def test_compressed_traces_wait_longer_and_nothing_is_lost(shared_data, name, instances):
    trace = read_trace(shared_data / name)
    p99 = []
    for speed in (1.0, 4.0, 12.0):
        when = arrivals.replay(trace.time_s, trace.rate_rps * speed)
        gaps = np.diff(when)
        served = fleet.simulate(
            when, np.maximum(1, trace.input_tokens), np.maximum(1, trace.output_tokens), Pool(instances, 32, LAW)
        )
        assert np.isfinite(served.end_s).all()
        p99.append(np.quantile(served.ttft_s, 0.99))
        plain = np.diff(trace.time_s)
        np.testing.assert_allclose(gaps.std() / gaps.mean(), plain.std() / plain.mean(), rtol=1e-6)  # as bursty
    assert p99[0] <= p99[1] <= p99[2] and p99[2] > 1.2 * p99[0]


def test_cache_aware_routing_keeps_mooncakes_conversations_together(shared_data):
    """The first blocks of a prompt identify a conversation: routing by them finds more tokens cached than JSQ does."""
    trace = read_trace(shared_data / "mooncake_conversation.jsonl")
    when = arrivals.replay(trace.time_s, 20.0)
    second = np.minimum(trace.block_starts[:-1] + 1, trace.block_starts[1:] - 1)
    prompt = np.maximum(1, trace.input_tokens)
    prefixes = Prefixes(trace.block_ids[second], np.minimum(1024, prompt), remembered=200)
    args = (when, prompt, np.maximum(1, trace.output_tokens), Pool(24, 32, LAW))
    blind, aware = (
        fleet.simulate(*args, policy, prefixes=prefixes, cache_weight=50.0).ttft_s.mean()
        for policy in (RoutingPolicy.SHORTEST_QUEUE, RoutingPolicy.DYNAMO)
    )
    assert aware < blind


def test_a_replay_has_the_gaps_of_its_trace_and_counts_all():
    """201 requests half a second apart are 2 a second; and the rate asked for."""
    trace = Trace("clock", 0.5 * np.arange(201.0), np.full(201, 100.0), np.full(201, 10.0))
    pool, key = [fleet.Pool(2, 8, StepLaw(8e-3, 1e-3))], jax.random.key(0)
    own = replay_trace(trace, pool, key, fleet.RoutingPolicy.SHORTEST_QUEUE)
    assert own.rate_rps == pytest.approx(2.0) and (own.requests_count, own.cut_count) == (201, 0)
    fast = replay_trace(trace, pool, key, fleet.RoutingPolicy.SHORTEST_QUEUE, rate_rps=5.0, count=402)
    assert fast.rate_rps == pytest.approx(5.0) and fast.requests_count == 402


def test_requests_of_one_instant_need_a_rate():
    """There is no time to scale: without a rate it is said, with one they come as a Poisson stream."""
    trace = Trace("instant", np.full(200, 7.0), np.full(200, 100.0), np.full(200, 10.0))
    pool, key = [fleet.Pool(2, 8, StepLaw(8e-3, 1e-3))], jax.random.key(0)
    with pytest.raises(TraceError, match="instant: all requests arrive at one instant, so there is no rate"):
        replay_trace(trace, pool, key, fleet.RoutingPolicy.SHORTEST_QUEUE)
    given = replay_trace(trace, pool, key, fleet.RoutingPolicy.SHORTEST_QUEUE, rate_rps=3.0)
    assert given.requests_count == 200 and given.rate_rps == pytest.approx(3.0, rel=5 / np.sqrt(200))
    when = recorded(trace, 3.0).time_s
    assert when[0] > 0.0 and given.rate_rps == pytest.approx(199 / (when[-1] - when[0]))
