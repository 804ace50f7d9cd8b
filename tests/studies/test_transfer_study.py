"""What a transfer takes of a first token, and how stale a reading may be, one pair of tiers at a time."""

from __future__ import annotations

import math
import statistics
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels.core.routing import RoutingPolicy
from dmodels.sim.network import Metrics, netkv_cluster
from dmodels.studies.transfer import policies
from dmodels.studies.transfer.policies import averaged, stale_telemetry, transfer_share

TOKEN_BYTES, GBIT = 327680.0, 1e9 / 8


def test_shares_of_a_first_token_by_sending_layer_after_layer():
    """Four flows of 50, 25 and 12.5 Gbit/s; half of the prompt is there; 20 % congestion and two others on tier 3."""
    cluster = netkv_cluster(tier_latency_s=(1e-6, 0.01, 0.02, 0.04))
    congestion, flying = [0.0, 0.0, 0.0, 0.2], [0.0, 0.0, 1.0, 2.0]
    prefill = lambda tokens: 0.05 + 68e-6 * np.asarray(tokens)
    options = {"congestion": congestion, "in_flight": flying, "hit_frac": 0.5, "batch": 9.0, "layers": 40.0}
    rows = transfer_share(cluster, [8192.0, 65536.0], prefill, **options)
    assert [(row.context_tokens, row.tier) for row in rows] == [(n, t) for t in (2, 3) for n in (8192.0, 65536.0)]
    rate = {2: 4 * 25 * GBIT / 2, 3: 4 * 12.5 * GBIT * 0.8 / 3}
    step = cluster.curve.base_s + 10.0 * cluster.curve.per_sequence_s
    for row in rows:
        late, compute = 0.01 * row.tier if row.tier == 2 else 0.04, 0.05 + 68e-6 * row.context_tokens
        send = 0.5 * row.context_tokens * TOKEN_BYTES / rate[row.tier]
        assert row.prefill_s == pytest.approx(compute) and row.transfer_s == pytest.approx(send + late)
        assert row.ttft_s == pytest.approx(compute + send + late + step)
        assert row.share_frac == pytest.approx((send + late) / row.ttft_s)
        sent = 0.0
        for layer in range(1, 41):  # a layer is sent once it is computed and the one before is gone
            sent = max(sent, compute * layer / 40) + send / 40
        assert row.pipelined_ttft_s == pytest.approx(sent + late + step)
        assert row.pipelined_share_frac == pytest.approx((sent + late - compute) / row.pipelined_ttft_s)


def test_what_nobody_says_of_a_transfer():
    """Nothing else on the links, nothing cached, a batch of 8, 80 layers; telemetry of 30 % congestion that wanders by
    5 % in a minute."""
    cluster, prefill = netkv_cluster(), lambda tokens: 68e-6 * np.asarray(tokens)
    idle = {"congestion": 0.0, "in_flight": 0.0, "hit_frac": 0.0, "batch": 8.0, "layers": 80.0}
    assert transfer_share(cluster, [8192.0], prefill) == transfer_share(cluster, [8192.0], prefill, **idle)
    stale = {"congestion": 0.3, "std": 0.05, "correlation_time_s": 60.0, "far_hit_frac": (0.0, 0.3, 0.6)}
    stale |= {"near_hit_frac": 0.0, "fixed_s": 0.0}
    assert stale_telemetry(cluster, 1e9) == stale_telemetry(cluster, 1e9, **stale)


def test_policies_meet_the_same_twenty_windows_of_fifteen_seconds(monkeypatch):
    """After five to warm up; who is late comes more than five seconds after asking."""
    asked = []
    monkeypatch.setattr(policies, "simulate_many", lambda runs: [asked.append(one) or one["seed"] for one in runs])
    monkeypatch.setattr(policies, "summary", lambda run, *times: SimpleNamespace(run=run, times=times))
    rows = policies.by_window("a cluster", lambda k: f"window {k}", ["one", "other"], refresh_s=2.0)
    assert [row["run"].tolist() for row in rows] == [list(range(20))] * 2
    assert all((row["times"] == [5.0, 20.0, 5.0]).all() for row in rows)
    given = [(one["policy"], one["arrivals"], one["cluster"], one["refresh_s"]) for one in asked]
    assert given == [(name, f"window {k}", "a cluster", 2.0) for name in ("one", "other") for k in range(20)]


def test_windows_weigh_what_their_requests_are_and_errors_are_the_textbooks():
    """Windows of as many requests: s / sqrt(n), of seconds and of the seconds saved in each."""
    names = [one.name for one in fields(Metrics)]
    window = {name: np.array([k, k + 1.0, k + 5.0]) for k, name in enumerate(names)}
    first = window | {"requests_count": np.full(3, 20.0), "ttft_mean_s": np.array([1.0, 2.0, 3.0])}
    other = first | {"ttft_mean_s": np.array([0.5, 1.5, 1.0]), "transfer_mean_s": np.array([0.1, 0.2, 0.6])}
    rows = averaged([RoutingPolicy.LOAD, RoutingPolicy.CACHE], [first, other])
    assert [row.policy for row in rows] == ["LOAD", "CACHE"] and [row.requests_count for row in rows] == [60, 60]
    for k, name in enumerate(names):
        if name not in ("requests_count", "ttft_mean_s", "transfer_mean_s"):
            assert [getattr(row, name) for row in rows] == pytest.approx([k + 2.0] * 2), name
    error = lambda *values: statistics.stdev(values) / math.sqrt(3)
    told = lambda row: (row.ttft_mean_s, row.ttft_se_s, row.transfer_mean_s, row.transfer_se_s)
    sent = names.index("transfer_mean_s")
    assert told(rows[0]) == pytest.approx((2.0, error(1, 2, 3), sent + 2.0, error(0, 1, 5)))
    assert told(rows[1]) == pytest.approx((1.0, error(0.5, 1.5, 1.0), 0.3, error(0.1, 0.2, 0.6)))
    gains = [(row.ttft_vs_first_frac, row.ttft_vs_first_se_frac) for row in rows]
    assert gains == [(0.0, 0.0), pytest.approx((0.5, error(0.5, 0.5, 2.0) / 2.0))]
    first["requests_count"] = np.array([10.0, 30.0, 0.0])
    (row,) = averaged([RoutingPolicy.LOAD], [first])
    assert (row.ttft_mean_s, row.requests_count) == (1.75, 40)


def test_a_site_is_the_papers_cluster_where_nothing_is_said():
    ours, papers = policies.Site().cluster(), netkv_cluster()
    for name in ("prefill", "decode", "kv_bytes_per_token", "kv_memory_bytes", "shards", "curve"):
        assert np.array_equal(getattr(ours, name), getattr(papers, name)), name
    assert ours.fabric.instances == papers.fabric.instances


def largest(holds):
    """The largest error under which something holds, by halving."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def check(row, level, fast, slow, fixed):
    """A pair of 100 and 40 Gbit/s, so many bytes on each, and the slow one that much later."""
    left = lambda tier, error: 4 * {2: 25, 3: 10}[tier] * GBIT * (1 - level[tier] + error)
    assert row.bandwidth_tolerance == pytest.approx(largest(lambda e: left(2, -e) >= left(3, e)), abs=1e-6)
    gap = lambda a, b: fixed + slow / left(3, b) - fast / left(2, a)  # the slow tier is dearer
    sign = np.sign(gap(0.0, 0.0))
    drift = math.sqrt(2.0 * (1.0 - math.exp(-row.refresh_s / 60.0))) * 0.05  # of telemetry that wanders, in a minute
    assert row.cost_tolerance == pytest.approx(2.576 * drift, rel=1e-6) or row.refresh_s == math.inf
    same = lambda e: all(left(2, a) > 0 and sign * gap(a, b) >= 0 for a in (-e, e) for b in (-e, e))
    assert row.cost_tolerance == pytest.approx(largest(same), rel=1e-4)
    assert row.regret_at_twice_s == pytest.approx(abs(gap(0.0, 0.0))) and row.refresh_s >= 0  # the wrong one is chosen


@pytest.mark.parametrize("near", [0.0, 0.3])
def test_a_reading_may_be_as_wrong_as_leaves_the_order_of_the_tiers(near):
    """Both readings off by as much, either way: bandwidths keep their order, and so do seconds of the transfers."""
    cluster = netkv_cluster(tier_bytes_per_s=(450e9, *(x * GBIT for x in (50, 25, 10))))
    level = np.array([0.0, 0.1, 0.3, 0.2])
    hits, size, fixed = (0.0, 0.5), 8192 * TOKEN_BYTES, 0.2
    rows = stale_telemetry(
        cluster, size, congestion=level, std=0.05, near_hit_frac=near, far_hit_frac=hits, fixed_s=fixed
    )
    assert [(row.fast_tier, row.slow_tier, row.far_hit_frac) for row in rows] == [(2, 3, 0.0), (2, 3, 0.5)]
    for row in rows:
        check(row, level, size * (1 - near), size * (1 - row.far_hit_frac), fixed)
    looser = stale_telemetry(cluster, size, congestion=level, std=0.025, near_hit_frac=near, far_hit_frac=hits)
    assert all(
        b.refresh_s >= a.refresh_s for a, b in zip(rows, looser, strict=True) if a.cost_tolerance <= b.cost_tolerance
    )
