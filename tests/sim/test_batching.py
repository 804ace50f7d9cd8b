"""The fast simulators against plain Python that steps through every iteration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw
from dmodels.sim import batching
from dmodels.sim.batching import TokenLaw
from dmodels.sim.requests import KVCache, Prefill, Requests
from tests.sim import oracle as stepwise

LAW = StepLaw(8e-3, 0.65e-3)
MODES = pytest.mark.parametrize("prefill", list(Prefill), ids=lambda mode: mode.name)


def traffic(seed: int, n: int, rate_rps: float, longest_prompt: int = 3000, longest_output: int = 60):
    rng = np.random.default_rng(seed)
    return (
        np.cumsum(rng.exponential(1 / rate_rps, n)),
        rng.integers(1, longest_prompt, n),
        rng.integers(1, longest_output, n),
    )


def agree(fast, slow, tolerance_s: float = 1e-9) -> None:
    for name in ("admitted_s", "first_token_s", "end_s"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=0, atol=tolerance_s, err_msg=name)


@MODES
@pytest.mark.parametrize("emits", [False, True])
@pytest.mark.parametrize(("slots", "rate_rps"), [(1, 2.0), (4, 12.0), (16, 25.0), (128, 60.0)])
def test_two_events_per_request_are_exact(prefill, emits, slots, rate_rps):
    arrival, prompt, output = traffic(slots, 800, rate_rps)
    cached = prompt // 3
    fast = batching.simulate(arrival, prompt, output, LAW, slots, prefill=prefill, emits=emits, cached_tokens=cached)
    slow = stepwise.simulate(
        Requests.checked(arrival, prompt, output, cached),
        lambda n, _: LAW.iteration_s(n),
        slots,
        prefill=prefill,
        emits=emits,
    )
    agree(fast, slow)


@given(data=st.data(), prefill=st.sampled_from(Prefill), emits=st.booleans())
def test_exact_for_any_small_traffic(data, prefill, emits):
    n = data.draw(st.integers(1, 25))
    whole = lambda high: st.lists(st.integers(1, high), min_size=n, max_size=n)
    # arrivals on a grid of the iteration time, so that ties with the ends of iterations are common
    arrival = np.sort(np.array(data.draw(whole(40)), float)) * data.draw(st.sampled_from([0.005, 0.01, 0.0173]))
    prompt, output = np.array(data.draw(whole(300))), np.array(data.draw(whole(9)))
    slots, chunk = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([1, 7, 64, 512]))
    times = np.cumsum(np.array(data.draw(st.lists(st.integers(1, 20), min_size=slots, max_size=slots)))) * 1e-3
    requests = Requests.checked(arrival, prompt, output)
    slow = stepwise.simulate(requests, lambda k, _: times[k - 1], slots, chunk, prefill, emits)
    agree(
        batching.simulate(arrival, prompt, output, times, slots, chunk_tokens=chunk, prefill=prefill, emits=emits), slow
    )


@MODES
@pytest.mark.parametrize("emits", [False, True])
@pytest.mark.parametrize("kv", [None, KVCache(210), KVCache(240, reserve=True), KVCache(5000, 1)], ids=str)
def test_memory_tokens_and_preemption_step_alike(prefill, emits, kv):
    arrival, prompt, output = traffic(7, 500, 9.0, 1500, 400)
    t = lambda n, tokens: 6e-3 + 4e-4 * n + 2e-5 * tokens
    law = TokenLaw.tabulated(t, 12, 12 * 512)
    fast = batching.simulate(
        arrival, prompt, output, law, 12, prefill=prefill, emits=emits, kv=kv, cached_tokens=prompt // 4
    )
    requests = Requests.checked(arrival, prompt, output, prompt // 4)
    slow = stepwise.simulate(requests, t, 12, 512, prefill, emits, kv)
    agree(fast, slow)
    if kv is not None:
        np.testing.assert_array_equal(fast.restarts, slow.restarts)
        assert (fast.restarts.sum() > 0) == (not kv.reserve)  # memory was short, so this tests something


def test_ample_memory_changes_nothing():
    arrival, prompt, output = traffic(3, 3000, 14.0)
    plain = batching.simulate(arrival, prompt, output, LAW, 8)
    agree(batching.simulate(arrival, prompt, output, LAW, 8, kv=KVCache(100_000)), plain)


def test_one_request_alone_takes_its_iterations():
    alone = batching.simulate([5.0], 1025, 100, LAW, 16)  # 3 chunks, then 100 tokens, at 8.65 ms
    np.testing.assert_allclose(alone.ttft_s, 4 * 8.65e-3, rtol=1e-12)
    np.testing.assert_allclose(alone.e2e_s, 103 * 8.65e-3, rtol=1e-12)
    np.testing.assert_allclose(alone.tpot_s, 8.65e-3, rtol=1e-12)


def test_a_full_cache_hit_still_needs_one_iteration():
    hit = batching.simulate([0.0], 5000, 10, LAW, 4, cached_tokens=5000)
    np.testing.assert_allclose(hit.e2e_s, 11 * 8.65e-3, rtol=1e-12)


def test_a_single_output_token_has_no_tpot():
    assert np.isnan(batching.simulate([0.0], 100, 1, LAW, 4).tpot_s[0])


@given(seed=st.integers(0, 10**6), slots=st.integers(1, 20), prefill=st.sampled_from(Prefill))
def test_first_come_first_served_and_never_more_than_the_slots(seed, slots, prefill):
    arrival, prompt, output = traffic(seed, 120, 8.0)
    served = batching.simulate(arrival, prompt, output, LAW, slots, prefill=prefill)
    assert (np.diff(served.admitted_s) >= -1e-9).all()
    assert (served.wait_s >= -1e-9).all()
    ordered = np.lexsort((np.repeat([1, 0], arrival.size), np.concatenate([served.admitted_s, served.end_s])))
    in_flight = np.cumsum(np.repeat([1, -1], arrival.size)[ordered])  # at equal times, leaving comes first
    assert in_flight.max() <= slots
    assert (served.end_s >= served.first_token_s).all()
    assert (served.first_token_s > served.arrival_s).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival_s": [2.0, 1.0]}, "arrival_s"),
        ({"arrival_s": [0.0, np.nan]}, "arrival_s"),
        ({"output_tokens": 0}, "output_tokens"),
        ({"input_tokens": [1, 2, 3]}, "input_tokens"),
        ({"cached_tokens": 1000}, "cached_tokens"),
        ({"slots": 0}, "slots"),
        ({"law": [0.0, 0.0]}, "law"),
        ({"law": [0.1, 0.1, 0.1, 0.1]}, "law"),
        ({"kv": KVCache(3)}, "kv"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {"arrival_s": [0.0, 1.0], "input_tokens": 100, "output_tokens": 5, "law": LAW, "slots": 2}
    with pytest.raises(InputError, match=message):
        batching.simulate(**(good | change))
