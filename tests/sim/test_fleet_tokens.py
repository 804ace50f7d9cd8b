"""Fleets whose iterations depend on the tokens they process, against plain Python that steps through each iteration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.latency import StepLaw
from dmodels.sim import batching, fleet
from dmodels.sim.batching import TokenLaw
from dmodels.sim.fleet import Change, Event, Pool
from dmodels.sim.requests import Prefill, Requests
from tests.sim import oracle as stepwise

from .test_fleet import same, traffic

SLOTS = 6
MODES = pytest.mark.parametrize("prefill", list(Prefill), ids=lambda mode: mode.name)


def seconds(n, tokens):
    """An iteration: weights, requests, tokens, and a bend where it becomes bound by arithmetic."""
    return 6e-3 + 4e-4 * n + 3e-5 * np.maximum(tokens, 256)


LAW = TokenLaw.tabulated(seconds, SLOTS, SLOTS * 512, points=25)  # a column at the bend, so that it is exact


@MODES
@pytest.mark.parametrize("emits", [False, True])
def test_a_fleet_of_one_steps_like_an_instance(prefill, emits):
    arrival, prompt, output = traffic(500, 4.0, most=80)
    cached = prompt // 3
    pool = Pool(1, SLOTS, LAW, prefill=prefill, emits=emits)
    slow = stepwise.simulate(
        Requests.checked(arrival, prompt, output, cached), seconds, SLOTS, prefill=prefill, emits=emits
    )
    same(fleet.simulate(arrival, prompt, output, pool, cached_tokens=cached), slow)


@given(data=st.data(), prefill=st.sampled_from(Prefill), emits=st.booleans(), decodes=st.booleans())
def test_exact_for_any_small_traffic(data, prefill, emits, decodes):
    n = data.draw(st.integers(1, 15))
    whole = lambda high: st.lists(st.integers(1, high), min_size=n, max_size=n)
    # arrivals on the grid of iteration times, so that ties with the ends of iterations are common
    arrival = np.sort(np.array(data.draw(whole(60)), float)) * 1e-3
    prompt, output = np.array(data.draw(whole(60))), np.array(data.draw(whole(6)))
    chunk = data.draw(st.sampled_from([1, 7, 16, 64]))
    t = lambda n, tokens: 1e-3 * (1 + n + tokens)
    law = TokenLaw.tabulated(t, SLOTS, 64, points=2, decodes=decodes)
    pool = Pool(1, SLOTS, law, chunk_tokens=chunk, prefill=prefill, emits=emits)
    slow = stepwise.simulate(
        Requests.checked(arrival, prompt, output), t, SLOTS, chunk, prefill, emits, decodes=decodes
    )
    same(fleet.simulate(arrival, prompt, output, pool), slow)
    same(batching.simulate(arrival, prompt, output, law, SLOTS, chunk_tokens=chunk, prefill=prefill, emits=emits), slow)


def test_pools_with_and_without_tokens_side_by_side():
    """Grids of different lengths stand in one table; each pool still follows its own law."""
    arrival, prompt, output = traffic(1200, 9.0, most=80)
    plain = StepLaw(8e-3, 0.65e-3)
    coarse = TokenLaw.tabulated(lambda n, tokens: 5e-3 + 1e-3 * n + 2e-5 * tokens, 3, 100.0, points=2)
    pools = [Pool(1, 8, plain, 1500), Pool(1, SLOTS, LAW, 2500), Pool(1, 3, coarse, 4000)]
    served = fleet.simulate(arrival, prompt, output, pools)
    for j, pool in enumerate(pools):
        mine = served.instance == j
        alone = batching.simulate(arrival[mine], prompt[mine], output[mine], pool.law, pool.slots)
        np.testing.assert_allclose(served.end_s[mine], alone.end_s, rtol=0, atol=1e-9)


def test_a_slow_instance_takes_proportionally_longer():
    plain = fleet.simulate([1.0], 1200, 100, Pool(1, SLOTS, LAW))
    slow = fleet.simulate([1.0], 1200, 100, Pool(1, SLOTS, LAW), events=[Event(0.5, Change.SLOW, 0, 3.0)])
    np.testing.assert_allclose(slow.e2e_s, 3 * plain.e2e_s, rtol=1e-9)
    # two whole chunks and one of 176 tokens; then a token at a time
    np.testing.assert_allclose(plain.e2e_s, 2 * seconds(1, 512) + seconds(1, 176) + 100 * seconds(1, 1), rtol=1e-12)
