"""Recordings keep their rate, bursts and requests; the stages of a deployment add up."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import Workload
from dmodels.core.errors import InputError
from dmodels.models.traffic import Trace, burstiness
from dmodels.sim.batching import TokenLaw
from dmodels.sim.deployments import ServingFleet, ServingPool
from dmodels.sim.fleet import RoutingPolicy
from dmodels.sim.recordings import Recording, drawn, recorded
from dmodels.sim.requests import Requests

CHUNK, SLOTS = 4096, 8
LAW = TokenLaw.tabulated(lambda n, tokens: 0.01 + 1e-3 * n + 1e-5 * tokens, SLOTS, CHUNK, 2, decodes=True)


def trace(times, inputs=100.0, outputs=10.0):
    times = np.asarray(times, float)
    return Trace("a trace", times, np.full(times.size, inputs), np.full(times.size, outputs))


def volleys(count=40, size=25):
    """Volleys of requests every ten seconds, their inputs numbered."""
    when = np.concatenate([10.0 * k + 0.01 * np.arange(size) for k in range(count)])
    return Trace("volleys", when, 1.0 + np.arange(when.size), np.full(when.size, 5.0))


def rate(found: Recording) -> float:
    return found.size / found.period_s


@given(data=st.data())
def test_parts_resamples_and_growth_keep_the_rate_and_the_order_of_time(data):
    gaps = data.draw(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=40).filter(lambda x: sum(x) > 0))
    whole = recorded(trace(np.cumsum([0.0, *gaps])), 7.0)
    split = data.draw(st.floats(0.0, 1.0))
    seed = data.draw(st.integers(0, 9))
    parts = whole.part(0.0, split), whole.part(split, 1.0)
    for found in (whole, *parts, whole.resampled(seed, 4), whole.sampled(max(1, whole.size // 2))):
        assert rate(found) == pytest.approx(7.0)
        assert np.isfinite(found.time_s).all() and (np.diff(found.time_s) >= 0).all()
        assert 0.0 <= found.time_s[0] and found.time_s[-1] <= found.period_s * (1 + 1e-9)
    assert rate(whole.faster(2.0)) == pytest.approx(14.0)


def test_each_part_of_a_fleet_is_served_by_its_own_instances_and_router():
    """Half a minute apart nobody waits: a prompt's step and one for each further token, on an instance drawn."""
    requests = Requests.checked(30.0 * np.arange(40), np.tile([100, 3000], 20), np.tile([5, 9], 20), 40)
    pools = tuple(
        ServingPool(*of) for of in (("short", LAW, SLOTS, CHUNK, 0.0, 2000.0), ("long", LAW, SLOTS, CHUNK, 2000.0))
    )
    apart, turns = ServingFleet(pools), ServingFleet(pools, in_turn=True)
    assert (apart.parts, turns.parts) == (("short", "long"), ("all",))
    assert [own.input_tokens.tolist() for own in apart.own(requests)] == [[100] * 20, [3000] * 20]
    assert [own is requests for own in turns.own(requests)] == [True]
    key = jax.random.key(0)
    for part, (own, most, tokens) in enumerate(zip(apart.own(requests), (2, 3), (5, 9), strict=True)):
        served = apart.serve(part, own, (2, 3), RoutingPolicy.RANDOM, key)
        assert set(served.instance) == set(range(most)) and served.output_tokens.tolist() == [tokens] * 20
        assert served.ttft_s == pytest.approx(0.01 + 1e-5 * (own.input_tokens - 40))
        assert served.e2e_s - served.ttft_s == pytest.approx(0.011 * (tokens - 1))
        fluid = apart.backlog(part, own, (2, 3))
        assert fluid.ttft_s[np.isfinite(fluid.ttft_s)] == pytest.approx(served.ttft_s[0], rel=1e-6)
    with pytest.raises(InputError, match="key: missing"):
        apart.serve(0, requests, (2, 3), RoutingPolicy.RANDOM)


def test_a_resample_keeps_the_volleys_and_a_poisson_stream_has_none():
    whole = recorded(volleys(), 2.5)
    bursts = lambda found: burstiness(found.time_s, [1.0]).dispersion_count[0]
    assert bursts(whole) > 15
    again = whole.resampled(3, 4)
    assert bursts(again) > 0.6 * bursts(whole)
    # neighbours of the recording stay neighbours, but where two of the four stretches meet or one wraps round
    assert (np.diff(again.input_tokens) == 1.0).mean() > 0.98
    assert bursts(drawn(Workload.fixed(100.0, 5.0, 2.5), 0, 2000)) < 1.3


def test_a_short_recording_is_played_before_it_counts():
    short = recorded(trace(np.arange(10.0)), 1.0)
    assert short.warm(1.0).warm_s == 0.0
    ready = short.warm(15.0)
    assert ready.warm_s == 15.0
    assert ready.requests().arrival_s == pytest.approx(np.arange(25.0))
    assert ready.requests().input_tokens[:5] == pytest.approx(short.input_tokens[5:])


def test_what_a_context_refuses_is_left_out_and_what_it_cuts_is_shorter():
    inputs, outputs = np.array([10.0, 99.0, 100.0, 50.0]), np.array([5.0, 9.0, 1.0, 90.0])
    found = recorded(Trace("a trace", np.arange(4.0), inputs, outputs), 1.0, limit_tokens=100.0)
    assert found.input_tokens.tolist() == [10.0, 99.0, 50.0]
    assert found.output_tokens.tolist() == [5.0, 1.0, 50.0]
    assert found.period_s == 4.0  # the others come no faster for it


@pytest.mark.parametrize("times", [[0.0], [0.0, 0.0, 0.0]], ids=["one request", "equal times"])
def test_without_a_span_of_time_arrivals_are_poisson_and_said_so(times):
    found = recorded(trace(times), 10.0)
    assert "Poisson" in found.source and np.isfinite(found.time_s).all() and found.period_s > 0


def test_one_request_passes_prefill_transfer_and_decode():
    """Its prompt's iteration, the transfer of its tokens, and an iteration for each token at the decoder, the first of
    which takes its place with a token of prompt."""
    prefill = ServingPool("prefill", LAW, SLOTS, CHUNK, decodes=False, fixed_s=0.5, token_s=1e-4)
    decode = ServingPool("decode", LAW, SLOTS, CHUNK, prefills=False)
    fleet = ServingFleet((prefill, decode), in_turn=True)
    served = fleet.serve(0, Requests.checked([1.0], 1000, 11), (1, 1))
    first = (0.01 + 1e-5 * 1000) + 0.5 + 1e-4 * 1000 + (0.01 + 1e-5)
    assert served.ttft_s[0] == pytest.approx(first, rel=1e-12)
    assert served.e2e_s[0] == pytest.approx(first + 10 * 0.011, rel=1e-12)


@pytest.mark.parametrize("late_steps", [0.0, 1.5])
def test_on_a_slower_server_every_time_is_longer_by_the_same_factor(late_steps):
    pool = ServingPool("all", LAW, SLOTS, CHUNK, fixed_s=0.5, token_s=1e-4, late_steps=late_steps)
    requests = Requests.checked(np.zeros(3), 1000, 11)
    once, twice = (one.serve(requests, 1) for one in (pool, pool.slower(2.0)))
    assert twice.ttft_s == pytest.approx(2 * once.ttft_s) and twice.e2e_s == pytest.approx(2 * once.e2e_s)


def test_a_prompt_that_waits_in_a_slot_costs_no_iteration_anything():
    """Eight prompts of a chunk each at once: the k-th is computed in the k-th iteration, beside k - 1 that decode."""
    pool = ServingPool("all", LAW, SLOTS, CHUNK)
    served = pool.serve(Requests.checked(np.zeros(8), CHUNK, 100), 1)
    steps = 0.01 + 1e-5 * CHUNK + 1e-3 * np.arange(8)
    assert served.ttft_s == pytest.approx(np.cumsum(steps), rel=1e-9)


def test_pools_that_share_the_requests_serve_each_as_if_alone():
    rng = np.random.default_rng(0)
    requests = Requests.checked(np.sort(rng.uniform(0, 60, 400)), rng.integers(1, 4000, 400), rng.integers(1, 50, 400))
    short, long = ServingPool("short", LAW, SLOTS, CHUNK, 0.0, 2000.0), ServingPool("long", LAW, SLOTS, CHUNK, 2000.0)
    fleet = ServingFleet((short, long))
    assert fleet.parts == ("short", "long")
    own = fleet.own(requests)
    assert sum(part.arrival_s.size for part in own) == 400
    for k, pool in enumerate((short, long)):
        one = fleet.serve(k, own[k], (2, 3), RoutingPolicy.ROUND_ROBIN)
        np.testing.assert_array_equal(one.end_s, pool.serve(own[k], (2, 3)[k], RoutingPolicy.ROUND_ROBIN).end_s)


def test_a_sample_is_as_bursty_as_the_whole_and_no_larger_than_asked():
    whole = recorded(volleys(4000), 2.5)
    sample = whole.sampled(10_000)
    assert abs(sample.size - 10_000) < 1500 and rate(sample) == pytest.approx(2.5)
    bursts = [burstiness(found.time_s, [1.0]).dispersion_count[0] for found in (whole, sample)]
    assert bursts[1] == pytest.approx(bursts[0], rel=0.1)
    assert whole.sampled(whole.size) is whole


def test_what_is_in_the_cache_costs_no_transfer_and_the_engine_sees_a_prompt_later():
    """800 of 1,000 tokens cached: the iteration and the transfer of 200; one and a half mean iterations late."""
    requests = Requests.checked([0.0], 1000, 11, 800)
    one = ServingPool("all", LAW, SLOTS, CHUNK, fixed_s=0.5, token_s=1e-4)
    first = 0.01 + 1e-5 * 200 + 0.5 + 1e-4 * 200
    assert one.serve(requests, 1).ttft_s[0] == pytest.approx(first)
    late = one._replace(late_steps=1.5).serve(requests, 1)
    assert late.ttft_s[0] == pytest.approx(first + 1.5 * 0.011)
    assert late.e2e_s[0] - late.ttft_s[0] == pytest.approx(0.11)


def test_a_part_of_a_burst_takes_as_long_as_its_requests_do_in_the_whole():
    """Ten requests of a volley a hundredth of a second apart, at 2.5 req/s: 4 s, with their gaps in proportion."""
    whole = recorded(volleys(), 2.5)
    first, last = 100 / whole.size, 110 / whole.size
    part = whole.part(first, last)
    assert part.size == 10 and part.period_s == pytest.approx(4.0)
    np.testing.assert_allclose(np.diff(part.time_s), 0.4)


def test_a_request_on_the_threshold_is_the_short_pools():
    requests = Requests.checked(np.arange(3.0), [90, 91, 89], [10, 10, 10])
    short, long = (ServingPool("x", LAW, SLOTS, CHUNK, *limits) for limits in ((0.0, 100.0), (100.0, np.inf)))
    assert [pool.own(requests).input_tokens.tolist() for pool in (short, long)] == [[90, 89], [91]]


@pytest.mark.parametrize("role", [{}, {"decodes": False}, {"prefills": False}, None])
def test_lone_requests_take_as_long_by_recursion_as_step_by_step(role):
    """Of a pool that does all, prefill workers, decoders, and both in turn: nobody waits, so that fluid is exact."""
    rng = np.random.default_rng(0)
    alone = Requests.checked(20.0 * np.arange(1, 30), rng.integers(100, 4000, 29), rng.integers(2, 300, 29), 50)
    own = {"fixed_s": 0.5, "token_s": 1e-4, "late_steps": 1.0}
    if role is None:
        first = ServingPool("p", LAW, SLOTS, CHUNK, decodes=False, fixed_s=0.5, token_s=1e-4)
        pools = ServingFleet((first, ServingPool("d", LAW, SLOTS, CHUNK, prefills=False, **own)), in_turn=True)
        steps, fluid = pools.serve(0, alone, (1, 2)), pools.backlog(0, alone, (1, 2))
    else:
        pool = ServingPool("all", LAW, SLOTS, CHUNK, **own, **role)
        steps, fluid = pool.serve(alone, 2), pool.backlog(alone, 2, all_of_them=True)
    np.testing.assert_allclose(fluid.ttft_s, steps.ttft_s, rtol=1e-6)
    np.testing.assert_allclose(fluid.e2e_s, steps.e2e_s, rtol=1e-6)
    assert fluid.output_tokens.tolist() == steps.output_tokens.tolist()
    if role is not None:  # a prompt's own time, and what a token or a cache that is there leaves of it
        todo = alone.prefill_tokens if role.get("prefills", True) else np.ones(29)
        gap = 0.011 if role.get("decodes", True) else 0.0
        late = 0.5 + 1e-4 * alone.prefill_tokens + gap  # an iteration until the engine sees it
        np.testing.assert_allclose(steps.ttft_s, 0.01 + 1e-5 * todo + late, rtol=1e-9)
        answers = alone.output_tokens if role.get("decodes", True) else np.ones(29)
        np.testing.assert_allclose(steps.e2e_s - steps.ttft_s, 0.011 * (answers - 1), rtol=1e-9)


def test_a_split_is_given_up_by_what_has_become_of_requests_since_they_came():
    """The second prompt is read before the first, on a worker of its own; a decoder is looked at seven times."""
    arrival = np.array([0.0, 0.001, *range(1, 17)])
    requests = Requests.checked(arrival, [4000, *[10] * 17], 5)
    workers = ServingPool("p", LAW, SLOTS, CHUNK, decodes=False)
    split = ServingFleet((workers, ServingPool("d", LAW, SLOTS, CHUNK, prefills=False)), in_turn=True)
    seen = []
    whole = split.serve(0, requests, (2, 1), give_up=lambda so_far: bool(seen.append(so_far)))
    np.testing.assert_array_equal(whole.end_s, split.serve(0, requests, (2, 1)).end_s)
    order = [1, 0, *range(2, 18)]
    assert [one.arrival_s.tolist() for one in seen] == [arrival[order].tolist()] * 7
    done = [int(np.isfinite(one.end_s).sum()) for one in seen]
    assert done == sorted(done) and 0 < done[0] < 4 and 14 < done[-1] < 18
    cut = split.serve(0, requests, (2, 1), give_up=lambda so_far: np.isfinite(so_far.end_s).sum() > done[2])
    assert np.isfinite(cut.end_s).sum() == done[3] and np.isfinite(cut.end_s)[: done[3]].all()
    assert cut.arrival_s.tolist() == arrival.tolist()


def test_where_nothing_is_found_the_recording_stays_as_it_is():
    """All come at the ends of the stretches that a sample begins; a lone request is in none of four, or in one."""
    late = Recording(20.0 * np.arange(50) + 19.0, *(np.ones(50),) * 3, 1000.0, "x")
    assert late.sampled(25) is late and late.sampled(48).size == 50  # of 20 s the first 10, or 19.2
    lone = Recording(np.array([3.0]), *(np.full(1, n) for n in (5.0, 6.0, 4.0)), 8.0, "x")
    found = [lone.resampled(seed, 4) for seed in range(400)]
    times = [0 if one is lone else one.size for one in found]
    shares = [times.count(k) / 400 for k in range(5)]
    assert shares == pytest.approx(np.array([81, 108, 54, 12, 1]) / 256, abs=0.1)  # four trials of one in four
    assert all(rate(one) == pytest.approx(1 / 8) for one in found)


def test_a_poisson_stream_is_as_long_as_its_rate_says_or_as_it_takes():
    """Three of one instant at two a second: 1.5 s, or until the last one came."""
    found = [recorded(trace([7.0, 7.0, 7.0]), 2.0, seed=seed) for seed in range(20)]
    assert [one.period_s for one in found] == [max(1.5, one.time_s[-1]) for one in found]
    assert 3 < sum(one.period_s == 1.5 for one in found) < 17


def test_an_instance_is_drawn_among_all_and_only_who_looks_at_loads_leaves_some_empty():
    requests = Requests.checked(np.arange(3.0), 100, 5)
    pool = ServingPool("all", LAW, SLOTS, CHUNK)
    drawn_of = pool.serve(requests, 50, RoutingPolicy.RANDOM, jax.random.key(0))
    assert drawn_of.instance.max() > 3 and pool.serve(requests, 50).instance.max() < 3
    assert pool.serve(requests.at(np.zeros(0, int)), 2).end_s.size == 0


def test_who_is_read_first_is_decoded_first_by_recursion_too():
    """A prompt of 4,000 tokens and a millisecond later one of 10 on another worker, then one place to decode in."""
    alone = TokenLaw.tabulated(lambda n, tokens: 0.01 + 1e-3 * n + 1e-5 * tokens, 1, CHUNK, 2, decodes=True)
    workers = ServingPool("p", LAW, SLOTS, CHUNK, decodes=False)
    split = ServingFleet((workers, ServingPool("d", alone, 1, CHUNK, prefills=False)), in_turn=True)
    requests = Requests.checked([0.0, 0.001], [4000, 10], [5, 3])
    first = np.array([0.05, 0.001 + 0.0101]) + 0.01001  # a prompt's step, and one with a token of prompt
    for served in (split.serve(0, requests, (2, 1)), split.backlog(0, requests, (2, 1))):
        np.testing.assert_allclose(served.first_token_s, first)
        np.testing.assert_allclose(served.end_s, first + 0.011 * np.array([4, 2]))


def test_short_prompts_share_a_chunk():
    """Two of half a chunk are read in one iteration, and the third, which came with them, in the next one."""
    served = ServingPool("all", LAW, SLOTS, CHUNK).serve(Requests.checked(np.zeros(3), CHUNK // 2, 2), 1)
    first = 0.01 + 1e-5 * CHUNK
    np.testing.assert_allclose(served.ttft_s, [first, first, first + 0.012 + 1e-5 * CHUNK / 2])


def test_a_split_takes_a_request_where_its_prompt_is_taken():
    """One worker reads 4,000 tokens in 50 ms; who comes a millisecond after them is taken when they are read."""
    split = ServingFleet(
        (ServingPool("p", LAW, SLOTS, CHUNK, decodes=False), ServingPool("d", LAW, SLOTS, CHUNK)), True
    )
    served = split.serve(0, Requests.checked([0.0, 0.001], [4000, 10], 5), (1, 1))
    np.testing.assert_allclose(served.admitted_s, [0.0, 0.05], rtol=0, atol=1e-12)


def test_of_a_large_pool_a_sample_is_told_unless_all_are_asked_for():
    """Of 40,000 requests on 400 instances half, but of prefill workers all: decoders are told of by halves again."""
    many = Requests.checked(0.5 * np.arange(40_000), 100, 2)
    pool = ServingPool("p", LAW, SLOTS, CHUNK)
    told = lambda served: int(np.isfinite(served.end_s).sum())
    sample = told(pool.backlog(many, 400))
    assert 20_000 <= sample < 22_000 and told(pool.backlog(many, 400, all_of_them=True)) == 40_000
    assert told(ServingFleet((pool, pool), in_turn=True).backlog(0, many, (400, 400))) == sample
