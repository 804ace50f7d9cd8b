"""What the papers' simulated tables rest on, at a size that a test can afford; benchmarks/papers has all of it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.catalog.workloads import totals_cdf
from dmodels.models.latency import StepLaw
from dmodels.sim import arrivals, fleet, lengths
from dmodels.sim.fleet import Pool, RoutingPolicy, closed_loop
from dmodels.sim.requests import Prefill

LAW = StepLaw(8e-3, 0.65e-3)


def azure(count: int, seed: int = 0):
    key_arrivals, key_lengths = jax.random.split(jax.random.key(seed))
    drawn = lengths.draw_totals(key_lengths, totals_cdf("azure-paper"), count)
    return arrivals.poisson(key_arrivals, 1000.0, count), drawn.input_tokens, drawn.output_tokens


def test_table_3_of_the_token_budget_paper_is_a_start_up_transient():
    """TPOT near the printed 12 ms needs the first ten seconds; P99 TTFT of round robin then grows with the run."""
    pool = Pool(361, 16, LAW)
    short, long = (fleet.simulate(*azure(n), pool, RoutingPolicy.ROUND_ROBIN) for n in (10_000, 200_000))
    assert np.nanmedian(short.tpot_s[2000:]) < 0.0125 < 0.0155 < np.nanmedian(long.tpot_s[40_000:])
    tails = [np.quantile(s.ttft_s[s.ttft_s.size // 5 :], 0.99) for s in (short, long)]
    assert tails[0] < 2.0 < 10.0 < tails[1]
    joined = fleet.simulate(*azure(200_000), pool, RoutingPolicy.SHORTEST_QUEUE)
    assert np.quantile(joined.ttft_s[40_000:], 0.99) < 2.0


def test_its_short_pool_is_unstable_with_the_chunk_that_its_appendix_describes():
    arrival, prompt, output = azure(120_000)
    short = prompt + output <= 8192
    requests = arrival[short], prompt[short], output[short]
    waits = [fleet.simulate(*requests, Pool(n, 128, LAW, prefill=Prefill.PACKED)).ttft_s for n in (72, 88)]
    first, second = np.array_split(waits[0], 2)
    assert second.mean() > 2 * first.mean() > 2.0
    assert np.quantile(waits[1], 0.99) < 2.0


@pytest.mark.parametrize("clients", [192, 384])
def test_no_first_come_first_served_queue_gives_the_anarchy_papers_ttft_tail(clients):
    """Table 4 prints P99 TTFTs of 45.7 and 109 s; the closed loop that gives its throughput bounds FIFO's far below."""
    noise = np.random.default_rng(0).gamma(4.0, 0.25, (clients, 60))
    think = np.full(noise.shape, 5.54)
    think[:, 0] = 30.0 * np.arange(clients) / clients
    asked, _, done = closed_loop.serial(think, 0.0571 * noise, until_s=150.0)
    ttft = (done - asked)[np.isfinite(done)]
    printed = {192: 45.7, 384: 109.0}[clients]
    assert np.quantile(ttft, 0.99) < printed / 4
    assert abs(np.isfinite(done).sum() / 150.0 / {192: 17.1, 384: 18.0}[clients] - 1) < 0.1
