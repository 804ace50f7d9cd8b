"""The compiled flow simulator against one in plain Python: every request, under every policy and option."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.control.netkv import POLICIES
from dmodels.models.latency import BatchingCurve
from dmodels.sim.network import Arrivals, NetworkCluster, fat_tree, simulate, summary
from dmodels.sim.network.simulation import NetworkRun
from tests.sim.network_oracle import Network


def a_cluster(rng):
    """Two pods of two racks of two servers of two instances, one link of each kind; memory for some requests."""
    fabric = fat_tree(
        tier_bytes_per_s=(40e9, 4e9, *(float(x) for x in rng.choice([3e9, 6e9], 2))),
        tier_latency_s=(1e-4, 5e-4, 2e-3, 9e-3),
        host_ports=1,
        rack_uplinks=1,
        pod_uplinks=1,
        host_bytes_per_s=float(rng.choice([3e9, 5e9])),
        nic_bytes_per_s=float(rng.choice([np.inf, 2.5e9])),
    )
    prefill = np.sort(rng.choice(16, 3, replace=False))
    decode = np.setdiff1d(rng.permutation(16)[:10], prefill)
    return NetworkCluster(
        fabric,
        prefill,
        decode,
        kv_bytes_per_token=1e5,
        kv_memory_bytes=float(rng.choice([1.6e9, 6e9])),
        curve=BatchingCurve(0.02, 1e-3, 4.0),
        shards=int(rng.integers(1, 4)),
        block_tokens=512.0,
        reserve_tokens=100.0,
    )


def requests(rng, pool, blocks):
    n = 60
    tokens = np.round(rng.uniform(200, 6000, n))
    tokens[0] = 9000.0  # whoever comes next lands before it
    at, work = np.cumsum(rng.exponential(0.12, n)), 0.01 + 2e-5 * tokens
    output = rng.integers(1, 30, n).astype(float)
    if not blocks:
        hits = np.where(rng.random((n, pool)) < 0.4, rng.uniform(0, 1, (n, pool)), 0.0)
        hits[rng.random((n, pool)) < 0.03] = 1.0
        return Arrivals(at, work, tokens, output, hits)
    chains = [rng.integers(0, 40, 12) for _ in range(6)]  # some share blocks, none repeats one
    chains = [np.array(list(dict.fromkeys(chain.tolist()))) + 100 * k for k, chain in enumerate(chains)]
    lists = [chains[rng.integers(6)][: int(rng.integers(1, 9))] for _ in range(n)]
    tokens = np.array([512.0 * len(row) - rng.choice([0.0, 100.0]) for row in lists])
    starts = np.concatenate([[0], np.cumsum([len(row) for row in lists])])
    return Arrivals(at, work, tokens, output, None, np.concatenate(lists), starts)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_is_where_and_when_the_plain_version_has_it(policy, blocks):
    for seed in range(3):
        rng = np.random.default_rng([seed, policy.number, blocks])
        cluster = a_cluster(rng)
        arrivals = requests(rng, len(cluster.decode), blocks)
        options = {
            "background": rng.uniform(0, 0.7, (int(rng.integers(1, 9)), 4)),
            "background_step_s": 0.7,
            "refresh_s": float(rng.choice([0.3, 2.0])),
            "max_in_flight": float(rng.choice([2, 16])),
            "cache_weight": rng.uniform(0.2, 0.8),
            "destination_aware": bool(rng.integers(2)),
            "sees_inbound": bool(rng.integers(2)),
            "serial_prefill": bool(rng.integers(2)),
        }
        if seed == 1:
            options["readings"] = rng.uniform(0, 0.9, (5, 4))
        run = simulate(cluster, arrivals, policy, seed=seed, **options)
        slow = Network(cluster, arrivals, policy, run.choice, options).run()
        column = lambda f, slow=slow: np.array([f(r) for r in slow.requests], float)
        np.testing.assert_array_equal(run.choice, column(lambda r: r.choice))
        np.testing.assert_array_equal(run.tier, column(lambda r: r.tier))
        came = column(lambda r: r.choice) >= 0
        np.testing.assert_allclose(run.hit_frac, column(lambda r: r.hit), atol=1e-12)
        since = lambda values, a=arrivals: values - np.asarray(a.arrival_s)
        for told, own in (
            (run.transfer_s, column(lambda r: r.landed) - column(lambda r: r.ready)),
            (run.ttft_s, since(column(lambda r: r.first))),
            (run.e2e_s, since(column(lambda r: r.end))),
            (run.step_s, column(lambda r: r.step)),
        ):
            np.testing.assert_allclose(told, own, rtol=1e-7, atol=1e-7)
        assert np.isfinite(run.e2e_s[came]).all() and came.mean() > 0.5
        assert run.carried_bytes.sum() == pytest.approx(slow.carried, rel=1e-6) and run.stuck_bytes == 0
        size = arrivals.input_tokens * (1 - run.hit_frac) * 1e5
        np.testing.assert_allclose(run.payload_bytes, np.where(came, size, 0.0), atol=1e-3)


def test_metrics_of_a_window_by_counting():
    """Requests from 10 s up to, not with, 20 s; percentiles of those served, shares of all."""
    rng = np.random.default_rng(0)
    n = 200
    ttft, step, transfer = rng.uniform(0.1, 9.0, n), rng.uniform(0.01, 0.09, n), rng.uniform(0.0, 1.0, n)
    ttft[::7] = step[::7] = transfer[::7] = np.nan
    tier, arrival = rng.integers(-1, 4, n), np.sort(np.append(rng.uniform(5, 25, n - 2), [10.0, 20.0]))
    whole = np.zeros(n)
    run = NetworkRun(
        arrival, tier, tier, whole, transfer, ttft, step, whole, whole, whole.astype(int), whole, 0.0, 0, ()
    )
    mine = [i for i in range(n) if 10.0 <= arrival[i] < 20.0]
    told, served = summary(run, 10.0, 20.0, 3.0), [i for i in mine if np.isfinite(ttft[i])]
    assert (told.requests_count, told.served_frac) == (len(mine), len(served) / len(mine))
    for name, values in (("ttft", ttft), ("tbt", step), ("transfer", transfer)):
        assert getattr(told, f"{name}_mean_s") == pytest.approx(sum(values[i] for i in served) / len(served))
    ranks = sorted(ttft[i] for i in served)
    for percent in (50, 95, 99):
        place = percent / 100 * (len(ranks) - 1)
        at = ranks[int(place)] + (place % 1) * (ranks[min(int(place) + 1, len(ranks) - 1)] - ranks[int(place)])
        assert getattr(told, f"ttft_p{percent}_s") == pytest.approx(at)
    good = sum(ttft[i] <= 3.0 for i in served)
    assert told.slo_frac == pytest.approx(good / len(mine))
    assert told.goodput_rps == pytest.approx(good / (max(arrival[i] for i in mine) - 10.0))
    soon = [i for i in mine if arrival[i] < 10.5 and ttft[i] <= 3.0]  # half a second, in which the last comes earlier
    last = max(arrival[i] for i in mine if arrival[i] < 10.5)
    assert soon and summary(run, 10.0, 10.5, 3.0).goodput_rps == pytest.approx(len(soon) / (last - 10.0))
    chosen = [tier[i] for i in mine if tier[i] >= 0]
    for k in range(4):
        assert getattr(told, f"tier_{k}_frac") == pytest.approx(chosen.count(k) / len(chosen))
    first = int(np.flatnonzero((tier > 0) & np.isfinite(ttft))[0])
    one = summary(run, arrival[first], arrival[first + 1], ttft[first])  # of one request, in time to the instant
    assert one.requests_count == one.slo_frac == 1
    assert [getattr(one, f"tier_{k}_frac") for k in range(4)] == [float(tier[first] == k) for k in range(4)]
    none = summary(run, 30.0, 40.0)
    assert none.requests_count == none.slo_frac == 0 and np.isnan([none.served_frac, none.goodput_rps]).all()
