"""Prefill and decode apart: textbook queues at the first stage, conservation and order through both."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw
from dmodels.sim import arrivals, batching, estimate
from dmodels.sim.cluster import Control, Flow, Signal, Workers, disaggregated
from dmodels.sim.fleet import Pool
from tests.sim import cluster_oracle

LAW = StepLaw(8e-3, 0.65e-3)
POOL = Pool(3, 16, LAW)
ARRIVAL = arrivals.poisson(jax.random.key(0), 6.0, 3000)
RNG = np.random.default_rng(0)
PROMPT, OUTPUT = RNG.integers(100, 3000, 3000), RNG.integers(1, 120, 3000)


def test_the_prefill_stage_is_a_queue():
    """One worker: M/D/1 (Pollaczek-Khinchine). Least work over k workers: first come first served at k servers."""
    when = arrivals.poisson(jax.random.key(1), 7.0, 200_000)
    _, start, _ = disaggregated.prefill(when, 1, 0.1, 1)
    assert estimate.batch_means(start - when, 30, 0.999).holds(0.7 / 0.3 * 0.1 / 2)
    seconds = RNG.exponential(0.3, 5000)
    when = arrivals.poisson(jax.random.key(2), 9.0, 5000)
    _, start, _ = disaggregated.prefill(when, 1, seconds, 4, Signal.WORK)
    ends = np.zeros(4)  # Kiefer and Wolfowitz: the earliest free server takes the next request
    for i in range(5000):
        ends.sort()
        expected = max(when[i], ends[0])
        ends[0] = expected + seconds[i]
        assert abs(start[i] - expected) < 1e-9


def test_workers_serve_one_prompt_at_a_time_in_order():
    for signal in Signal:
        worker, start, end = disaggregated.prefill(ARRIVAL, PROMPT, 1e-4 * PROMPT, 3, signal)
        for w in range(3):
            mine = worker == w
            assert mine.any() and (start[mine][1:] >= end[mine][:-1] - 1e-12).all()
        assert (start >= ARRIVAL).all()


def test_stages_follow_each_other():
    stages = disaggregated.simulate(ARRIVAL, PROMPT, OUTPUT, 1e-4 * PROMPT, 3, POOL, transfer_s=1e-5 * PROMPT)
    np.testing.assert_allclose(stages.ready_s - stages.prefill_end_s, 1e-5 * PROMPT, rtol=1e-9, atol=1e-12)
    many = OUTPUT > 1
    assert (stages.end_s[many] > stages.ready_s[many]).all()
    np.testing.assert_array_equal(stages.decoder == -1, ~many)
    np.testing.assert_array_equal(stages.end_s[~many], stages.prefill_end_s[~many])
    np.testing.assert_array_equal(stages.first_token_s, stages.prefill_end_s)
    assert np.isfinite(stages.e2e_s).all() and (np.isnan(stages.tpot_s) == ~many).all()


def test_an_empty_system_takes_the_sum_of_its_parts():
    alone = disaggregated.simulate([0.0], 1000, 50, 0.1, 2, POOL, transfer_s=0.02)
    np.testing.assert_allclose([alone.ttft_s[0], alone.e2e_s[0]], [0.1, 0.12 + 49 * 8.65e-3], rtol=1e-12)
    later = disaggregated.simulate([0.0], 1000, 50, 0.1, 2, POOL, transfer_s=0.02, prefill_emits=False)
    np.testing.assert_allclose([later.ttft_s[0], later.e2e_s[0]], [0.12865, 0.12 + 50 * 8.65e-3], rtol=1e-12)


def test_separation_spares_decoding_from_prompts():
    """The same requests: with prompts elsewhere, fewer iterations are held in a slot."""
    apart = disaggregated.simulate(ARRIVAL, PROMPT, OUTPUT, 1e-5 * PROMPT, 8, Pool(1, 128, LAW))
    mixed = batching.simulate(ARRIVAL, PROMPT, OUTPUT, LAW, 128)
    assert np.nanmean(apart.tpot_s) < np.nanmean(mixed.tpot_s)


def test_a_signal_that_cannot_see_the_queue_lets_it_diverge():
    """Phasor's Figure 7: by memory in service one worker's queue outgrows the others'; by work they stay alike."""

    def longest_over_mean(signal):
        rng = np.random.default_rng(4)
        when = arrivals.gamma(jax.random.key(3), 30.0, 3.0, 20_000)
        tokens = np.maximum(1, rng.lognormal(np.log(1024) - 0.32, 0.8, 20_000))
        worker, start, _ = disaggregated.prefill(when, tokens, 1.2e-4 * tokens, 4, signal)
        work = [(start - when)[worker == w].sum() for w in range(4)]
        return max(work) / np.mean(work)

    assert longest_over_mean(Signal.MEMORY) > 1.0 + 5 * (longest_over_mean(Signal.WORK) - 1.0) > 1.0


@pytest.mark.parametrize("change", [{"workers": 0}, {"prefill_s": 0.0}, {"transfer_s": -1.0}])
def test_bad_input_is_refused(change):
    good = {
        "arrival_s": [0.0],
        "input_tokens": 10,
        "output_tokens": 5,
        "prefill_s": 0.1,
        "workers": 1,
        "decoders": POOL,
    }
    with pytest.raises(InputError, match=next(iter(change))):
        disaggregated.simulate(**(good | change))


@pytest.mark.parametrize("signal", list(Signal))
def test_prompts_go_where_a_plain_router_sends_them(signal):
    """Answers of one token, so that nothing but the prefill workers of `cluster_oracle` counts."""
    for seed in range(4):
        rng = np.random.default_rng([seed, int(signal)])
        n, workers = 150, int(rng.integers(1, 5))
        arrival, prompt = np.cumsum(rng.exponential(0.05, n)), rng.integers(10, 4000, n)
        seconds = workers * 0.08 * rng.lognormal(0, 0.8, n)
        worker, start, end = disaggregated.prefill(arrival, prompt, seconds, workers, signal)
        machines = Workers(workers, 1, kv_blocks=1e6)
        rules = Control(signal, Flow.NONE, theta_frag=0.0, epoch_s=1e9)
        slow = cluster_oracle.simulate(arrival, prompt, np.ones(n), seconds, machines, rules)
        assert worker.tolist() == [r.worker for r in slow.requests]
        np.testing.assert_allclose(end, [r.first for r in slow.requests], rtol=1e-9)
        np.testing.assert_allclose(end - start, seconds)
