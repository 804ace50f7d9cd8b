"""KV transfer for a planner: its share of TTFT, which upgrade pays, how stale telemetry may be, which policy to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dmodels.control.netkv import POLICIES
from dmodels.core.answers import Answer
from dmodels.core.records import float64
from dmodels.core.routing import RoutingPolicy
from dmodels.models import transfer as law
from dmodels.models.latency import NETKV_CURVE, BatchingCurve
from dmodels.sim.network import (
    Arrivals,
    Metrics,
    NetworkCluster,
    advertised_bytes_per_s,
    fat_tree,
    simulate_many,
    summary,
)

#: The paper's protocol: five seconds to warm up, fifteen that count.
WARMUP_S, MEASURE_S = 5.0, 15.0
#: Weights of the cache term that the grid search for CLA* tries.
CACHE_WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)


class Site(NamedTuple):
    """A cluster by the numbers that an upgrade changes. `fabric` are options of `fat_tree`."""

    fabric: Mapping[str, Any] = {}
    prefill_instances: int = 4
    kv_bytes_per_token: float = 327680.0
    kv_memory_bytes: float = 180e9
    shards: int = 4
    curve: BatchingCurve = NETKV_CURVE

    def cluster(self) -> NetworkCluster:
        """The first instances prefill, the others decode."""
        fabric = fat_tree(**self.fabric)
        every = np.arange(fabric.instances)
        return NetworkCluster(
            fabric,
            every[: self.prefill_instances],
            every[self.prefill_instances :],
            self.kv_bytes_per_token,
            self.kv_memory_bytes,
            curve=self.curve,
            shards=self.shards,
        )


@dataclass(frozen=True)
class PolicyMetrics(Metrics):
    """Means over windows under one policy, with standard errors of the two that matter."""

    policy: str
    ttft_se_s: float
    transfer_se_s: float
    ttft_vs_first_frac: float  # reduction of mean TTFT against the first policy, paired
    ttft_vs_first_se_frac: float


@dataclass(frozen=True)
class Upgrade(PolicyMetrics):
    """The same after one change of the cluster."""

    upgrade: str
    ttft_saved_frac: float


@dataclass(frozen=True)
class TransferShare(Answer):
    """What the KV transfer takes of TTFT at one context over one tier, sent after prefill or layer by layer."""

    context_tokens: float
    tier: int
    prefill_s: float
    transfer_s: float
    ttft_s: float
    share_frac: float
    pipelined_ttft_s: float
    pipelined_share_frac: float


@dataclass(frozen=True)
class Staleness(Answer):
    """How wrong and how old telemetry may be for a choice between two tiers."""

    fast_tier: int
    slow_tier: int
    far_hit_frac: float
    bandwidth_tolerance: float
    cost_tolerance: float
    regret_at_twice_s: float
    refresh_s: float


def compare_policies(
    cluster: NetworkCluster,
    arrivals: Callable[[int], Arrivals],
    policies: Iterable[RoutingPolicy] = POLICIES,
    **options: Any,
) -> list[PolicyMetrics]:
    """One record per policy: the paper's metrics averaged over windows, and two standard errors.

    `options` as of `by_window`. Policies meet the same requests and ECMP draws, so that differences between them are
    paired: `ttft_vs_first_frac` is the reduction of mean TTFT against the first policy, with the standard error of the
    paired differences.
    """
    policies = list(policies)
    return averaged(policies, by_window(cluster, arrivals, policies, **options))


def by_window(
    cluster: NetworkCluster,
    arrivals: Callable[[int], Arrivals],
    policies: Sequence[RoutingPolicy],
    *,
    runs: int = 20,
    ttft_slo_s: float = 5.0,
    warmup_s: float = WARMUP_S,
    measure_s: float = MEASURE_S,
    **options: Any,
) -> list[dict[str, np.ndarray]]:
    """For each policy the paper's metrics of every window, (runs,) each.

    `arrivals(k)` are the requests of window k; `options` go to `simulate`.
    """
    windows = [arrivals(k) for k in range(runs)]
    results = simulate_many(
        {"cluster": cluster, "arrivals": a, "policy": p, "seed": k, **options}
        for p in policies
        for k, a in enumerate(windows)
    )
    each = [vars(summary(r, warmup_s, warmup_s + measure_s, ttft_slo_s)) for r in results]
    rows = [each[i * runs : (i + 1) * runs] for i in range(len(policies))]
    return [{name: np.array([row[name] for row in mine], float) for name in mine[0]} for mine in rows]


def averaged(policies: Sequence[RoutingPolicy], windows: Sequence[dict[str, np.ndarray]]) -> list[PolicyMetrics]:
    """`by_window` averaged, a window weighing as much as it has requests."""
    rows, first = [], None
    for policy, column in zip(policies, windows, strict=True):
        count = column["requests_count"].sum()
        weight, ttft = column["requests_count"] / count, column["ttft_mean_s"]
        first = ttft if first is None else first
        base = first @ weight
        means: dict[str, Any] = {name: float(values @ weight) for name, values in column.items()}
        means["requests_count"] = int(count)
        found = PolicyMetrics(
            **means,
            policy=policy.name,
            ttft_se_s=standard_error(ttft, weight),
            transfer_se_s=standard_error(column["transfer_mean_s"], weight),
            ttft_vs_first_frac=float(1.0 - (ttft @ weight) / base),
            ttft_vs_first_se_frac=standard_error((first - ttft) / base, weight),
        )
        rows.append(found)
    return rows


def tune_cache_weight(
    cluster: NetworkCluster,
    arrivals: Callable[[int], Arrivals],
    weights: Sequence[float] = CACHE_WEIGHTS,
    **options: Any,
) -> tuple[float, list[float]]:
    """The cache weight of CLA* with the least mean TTFT on windows that are kept apart from those measured."""
    means = [
        compare_policies(cluster, arrivals, [RoutingPolicy.CACHE_LOAD], cache_weight=w, **options)[0].ttft_mean_s
        for w in weights
    ]
    return float(weights[int(np.argmin(means))]), means


@float64
def transfer_share(
    cluster: NetworkCluster,
    context_tokens: Sequence[float],
    prefill_s: Callable[[np.ndarray], np.ndarray],
    *,
    congestion: Any = 0.0,
    in_flight: Any = 0.0,
    hit_frac: float = 0.0,
    batch: float = 8.0,
    layers: float = 80.0,
) -> list[TransferShare]:
    """Share of TTFT that the KV transfer takes, by context and tier, serial and layer by layer."""
    context = np.asarray(context_tokens, np.float64)
    rates = np.asarray(
        law.effective_bandwidth_bytes_per_s(
            advertised_bytes_per_s(cluster),
            np.broadcast_to(np.asarray(congestion, float), (4,)),
            np.broadcast_to(np.asarray(in_flight, float), (4,)),
        )
    )
    latency, compute = np.asarray(cluster.fabric.tier_latency_s), np.asarray(prefill_s(context), np.float64)
    step = float(law.first_step_s(batch, cluster.curve))
    rows = []
    for t in _tiers(cluster):
        moved = law.effective_bytes(context * cluster.kv_bytes_per_token, context, context * hit_frac)
        send = np.asarray(law.transfer_time_s(moved, rates[t], latency[t]))
        shown = np.asarray(law.pipelined_transfer_s(moved, rates[t], compute, layers)) + latency[t]
        for i, tokens in enumerate(context):
            ttft, hidden = compute[i] + send[i] + step, compute[i] + shown[i] + step
            rows.append(
                TransferShare(
                    context_tokens=float(tokens),
                    tier=int(t),
                    prefill_s=float(compute[i]),
                    transfer_s=float(send[i]),
                    ttft_s=float(ttft),
                    share_frac=float(1.0 - (compute[i] + step) / ttft),
                    pipelined_ttft_s=float(hidden),
                    pipelined_share_frac=float(1.0 - (compute[i] + step) / hidden),
                )
            )
    return rows


def upgrades(
    site: Site,
    arrivals: Callable[[int, NetworkCluster], Arrivals],
    *,
    policy: RoutingPolicy = RoutingPolicy.CACHE_LOAD,
    aware: RoutingPolicy = RoutingPolicy.NETKV_FULL,
    **options: Any,
) -> list[Upgrade]:
    """What each change alone does to mean TTFT under `policy`: faster links by tier, more of them, a network-aware
    policy, a KV cache of half the size. Same requests and draws throughout."""
    fabric = dict(site.fabric)
    built = site.cluster().fabric
    speed = list(fabric.get("tier_bytes_per_s", built.link_bytes_per_s[built.first[[0, 1, 3, 5]]]))

    def double(tier: int) -> dict[str, Any]:
        return {"tier_bytes_per_s": tuple(2 * s if i == tier else s for i, s in enumerate(speed))}

    nic = {} if "nic_bytes_per_s" not in fabric else {"nic_bytes_per_s": 2 * fabric["nic_bytes_per_s"]}
    port = {} if fabric.get("host_bytes_per_s") is None else {"host_bytes_per_s": 2 * fabric["host_bytes_per_s"]}
    cases = {
        "as it is": (site, policy),
        f"{aware.name} instead of {policy.name}": (site, aware),
        "KV cache in 8 bits": (site._replace(kv_bytes_per_token=site.kv_bytes_per_token / 2), policy),
        "host ports and NIC x2": (site._replace(fabric=fabric | (port or double(1)) | nic), policy),
        "rack uplinks x2 speed": (site._replace(fabric=fabric | double(2)), policy),
        "pod uplinks x2 speed": (site._replace(fabric=fabric | double(3)), policy),
        "pod uplinks x2 number": (site._replace(fabric=fabric | {"pod_uplinks": 2 * int(built.parallel[3])}), policy),
    }
    rows: list[Upgrade] = []
    for name, (changed, chosen) in cases.items():
        cluster = changed.cluster()
        row = compare_policies(cluster, partial(_on, arrivals, cluster), [chosen], **options)[0]
        base = rows[0].ttft_mean_s if rows else row.ttft_mean_s
        rows.append(Upgrade(**vars(row), upgrade=name, ttft_saved_frac=1.0 - row.ttft_mean_s / base))
    return rows


@float64
def stale_telemetry(
    cluster: NetworkCluster,
    kv_bytes: float,
    *,
    congestion: Any = 0.3,
    std: float = 0.05,
    correlation_time_s: float = 60.0,
    near_hit_frac: float = 0.0,
    far_hit_frac: Any = (0.0, 0.3, 0.6),
    fixed_s: float = 0.0,
) -> list[Staleness]:
    """How wrong and how old telemetry may be for each pair of neighbouring tiers: Proposition 2 against the true cost.

    One record per pair of tiers and prefix hit on the slower one: tolerance of the bandwidth order, tolerance of the
    choice, regret when the error is twice that, and the refresh interval that keeps the drift within tolerance.
    """
    rates, level = advertised_bytes_per_s(cluster), np.broadcast_to(np.asarray(congestion, float), (4,))
    tiers = _tiers(cluster)
    rows = []
    for fast, slow in pairwise(tiers[rates[tiers] > 0]):
        for hit in np.atleast_1d(far_hit_frac):
            idle = kv_bytes * (1 - near_hit_frac) / rates[fast], kv_bytes * (1 - hit) / rates[slow]
            by_rate = float(law.tier_staleness_tolerance(rates[fast] / rates[slow], level[fast], level[slow]))
            by_cost = float(law.cost_staleness_tolerance(*idle, level[fast], level[slow], 0.0, fixed_s))
            regret = law.worst_stale_regret_s(
                np.array(idle), np.array([level[fast], level[slow]]), np.array([0.0, fixed_s]), 2 * by_cost
            )
            rows.append(
                Staleness(
                    fast_tier=int(fast),
                    slow_tier=int(slow),
                    far_hit_frac=float(hit),
                    bandwidth_tolerance=by_rate,
                    cost_tolerance=by_cost,
                    regret_at_twice_s=float(regret),
                    refresh_s=float(law.refresh_interval_s(by_cost, std, correlation_time_s)),
                )
            )
    return rows


def _on(arrivals: Callable[[int, NetworkCluster], Arrivals], cluster: NetworkCluster, window: int) -> Arrivals:
    return arrivals(window, cluster)


def _tiers(cluster: NetworkCluster) -> np.ndarray:
    """Tiers that some pair of a prefill and a decode instance is on."""
    p, d = np.asarray(cluster.prefill), np.asarray(cluster.decode)
    return np.unique(cluster.fabric.tier(p[:, None], d[None, :]))


def standard_error(values: np.ndarray, weight: np.ndarray) -> float:
    """Of a weighted mean of independent values; NaN of one."""
    if len(values) < 2:
        return float("nan")
    spread = weight @ (values - weight @ values) ** 2
    return float(np.sqrt(spread * np.square(weight).sum() / (1 - np.square(weight).sum())))
