"""The backlog recursion against Lindley's, arithmetic, and the simulator, which steps through what is a fluid here."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.models.queueing import StepGrid, trace_backlog
from dmodels.sim.batching import TokenLaw
from dmodels.sim.deployments import ServingFleet, ServingPool
from dmodels.sim.requests import Requests

TOKENS = np.array([0.0, 2048.0])
#: 8 ms, 0.1 ms for each answer under way, 20 us for each prompt token.
STEPS = StepGrid(8e-3 + 1e-4 * np.arange(65.0)[:, None] + 2e-5 * TOKENS, TOKENS)


def bursty(count: int, rate_rps: float, seed: int = 0) -> Requests:
    """Gaps of CV 3, prompts and answers of very different lengths."""
    rng = np.random.default_rng(seed)
    when = np.cumsum(rng.gamma(1 / 9, 9 / rate_rps, count))
    inputs = np.rint(np.minimum(rng.lognormal(5.5, 1.2, count), 20_000.0)) + 1.0
    return Requests.checked(when, inputs, np.rint(rng.lognormal(4.0, 1.0, count)) + 1.0, np.zeros(count))


def test_prompts_that_fill_a_step_each_wait_as_lindley_says():
    rng = np.random.default_rng(1)
    when, count = np.cumsum(rng.exponential(1.0, 500)), 500
    grid = StepGrid(np.array([[0.1, 0.8], [0.1, 0.8]]), np.array([0.0, 100.0]))
    found = trace_backlog(when, np.full(count, 100.0), np.ones(count), grid, slots=1, budget_tokens=100)
    end = 0.0
    for k, arrival in enumerate(when):
        end = max(end, arrival) + 0.8
        assert found.end_s[k] == found.first_token_s[k] == pytest.approx(end, abs=1e-9)


def test_answers_share_the_steps_and_the_slots():
    """Three at once, two slots: two decode together for 9 steps of 20 ms, the third begins when they have left."""
    grid = StepGrid(np.array([[0.0, 0.0], [0.01, 0.01], [0.02, 0.02]]) + np.array([0.0, 0.1]), np.array([0.0, 100.0]))
    three = np.zeros(3), np.full(3, 50.0), np.full(3, 10.0)
    found = trace_backlog(*three, grid, slots=2, budget_tokens=100)
    assert found.first_token_s == pytest.approx([0.1, 0.1, 0.33])  # 0.28 and a step with half a budget
    assert found.end_s == pytest.approx([0.28, 0.28, 0.42])


@pytest.mark.parametrize(("instances", "load_rps"), [(1, 4.0), (1, 9.0), (5, 7.0), (40, 8.0)])
def test_it_tells_what_the_simulator_finds(instances, load_rps):
    """A mean within 10 % and a 99th percentile within 15 %, of one instance and of pools behind a router."""
    requests = bursty(12_000 if instances == 1 else 30_000, load_rps * instances)
    pool = ServingPool("all", TokenLaw(*STEPS, True), slots=64, chunk_tokens=2048)
    fleet = ServingFleet((pool,))
    seen, said = fleet.serve(0, requests, (instances,)), fleet.backlog(0, requests, (instances,))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        true, told = getattr(seen, name), getattr(said, name)
        assert np.nanmean(told) == pytest.approx(np.nanmean(true), rel=0.1), name
        assert np.nanquantile(told, 0.99) == pytest.approx(np.nanquantile(true, 0.99), rel=0.15), name


def test_of_large_pools_a_sample_is_looked_at_and_no_request_is_none():
    requests = bursty(30_000, 800.0)
    work = requests.arrival_s, requests.input_tokens, requests.output_tokens
    options = {"slots": 64, "budget_tokens": 2048, "instances": 100}
    some, every = (trace_backlog(*work, STEPS, sample=n, **options) for n in (5000, 30_000))
    known = np.isfinite(some.end_s)
    assert 5000 <= known.sum() < 10_000 and np.isfinite(every.end_s).all()
    assert (some.end_s[known] == every.end_s[known]).all()
    assert trace_backlog(*(np.empty(0),) * 3, STEPS, **options).end_s.size == 0
