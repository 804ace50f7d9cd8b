"""Flow-level simulation of disaggregated serving: who decodes a request, and what the fabric makes of it.

A prefill ends, a policy picks a decode instance from what a scheduler can see, the KV cache crosses a fat-tree as
parallel flows with max-min fair rates, and the request joins the running batch at the next iteration boundary. Time
goes from event to event, so rates, ends and boundaries are exact; ECMP is drawn per flow by a hash of (seed, request,
shard), the same under every policy.

What it leaves out: packets, congestion-control transients, NIC processing, prefix replication, prefill on the network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmodels.control.netkv.policy import scoring_of
from dmodels.core.answers import Answer
from dmodels.core.compiled import NONE
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.core.units import gbit_per_s
from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve

from .engine import run
from .fabric import Fabric, fabric_problems, fat_tree, fat_tree_of_radix
from .fill import max_min_rates
from .state import UNREACHABLE, Jobs, Outcome, Rules

__all__ = [
    "Arrivals",
    "Fabric",
    "NetworkCluster",
    "NetworkRun",
    "fabric_problems",
    "fat_tree",
    "fat_tree_of_radix",
    "max_min_rates",
    "netkv_cluster",
    "simulate",
    "simulate_many",
    "summary",
]


class NetworkCluster(NamedTuple):
    """Where prefill and decode run on a fabric, and what a decode instance holds."""

    fabric: Fabric
    prefill: np.ndarray  # (P,) instance numbers
    decode: np.ndarray  # (D,)
    kv_bytes_per_token: float = 327680.0  # Llama-3-70B in 16 bits, all shards
    kv_memory_bytes: float = 180e9  # KV memory of one decode instance, all GPUs
    curve: BatchingCurve = NETKV_CURVE
    shards: int = 4  # parallel flows of one transfer
    block_tokens: float = 512.0  # of the prefix caches
    reserve_tokens: float = 512.0  # kept free when choosing


class Arrivals(NamedTuple):
    """N requests by arrival. Prefix hits either as shares of the prompt per instance, or from blocks and LRU caches."""

    arrival_s: np.ndarray
    prefill_s: np.ndarray  # time in prefill
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    hit_frac: np.ndarray | None = None  # (N, D)
    block_ids: np.ndarray | None = None
    block_starts: np.ndarray | None = None  # (N + 1,)


class NetworkRun(NamedTuple):
    """One simulation, per request in order of arrival (nan or -1 where it never came to that) and per link."""

    arrival_s: np.ndarray
    choice: np.ndarray  # decode instance
    tier: np.ndarray
    hit_frac: np.ndarray
    transfer_s: np.ndarray
    ttft_s: np.ndarray
    step_s: np.ndarray  # iteration time on joining its batch: the paper's TBT
    e2e_s: np.ndarray
    payload_bytes: np.ndarray
    flags: np.ndarray  # NO_FIT: rejected; OVERLOAD: unfinished when the simulation stopped; INFEASIBLE: unreachable
    carried_bytes: np.ndarray  # (L,)
    stuck_bytes: float  # still in flight at the end
    events: int
    problems: tuple[str, ...]


def netkv_cluster(pods: int = 2, **options: Any) -> NetworkCluster:
    """The paper's cluster: prefill fills the first rack of every second pod, all other instances decode.

    Two pods are its 64 GPUs (4 prefill, 12 decode instances); 32 pods its 1,024. Options go to `fat_tree`; unless they
    say otherwise, the ports of an instance (400 Gbit/s each) do not bind: with one NIC of 50 Gbit/s per instance the
    paper's gains vanish.
    """
    fabric = fat_tree(pods=pods, **({"host_bytes_per_s": gbit_per_s(400)} | options))
    racks = int(fabric.rack.max()) + 1
    per_pod = racks // pods
    first = np.isin(fabric.rack, np.arange(0, racks, 2 * per_pod))
    return NetworkCluster(fabric, np.flatnonzero(first), np.flatnonzero(~first))


def simulate(
    cluster: NetworkCluster,
    arrivals: Arrivals,
    policy: RoutingPolicy,
    *,
    seed: int = 0,
    cache_weight: float = 0.5,
    background: Any = 0.0,
    background_step_s: float = 1.0,
    readings: np.ndarray | None = None,
    refresh_s: float = 1.0,
    max_in_flight: float = MAX_IN_FLIGHT,
    destination_aware: bool = False,
    sees_inbound: bool = True,
    serial_prefill: bool = False,
    until_s: float = np.inf,
) -> NetworkRun:
    """One run of one policy.

    `background` is the share of capacity that other traffic takes: a number (all links but NVLink), (4,) by kind of
    link, (S, 4) in steps of `background_step_s`, or (S, L) by link. The oracle reports its mean by tier every
    `refresh_s` unless `readings` (R, 4), one row per refresh, says otherwise (a forecast, a noisy or a wrong oracle).
    `destination_aware` adds the destination's NIC, shared by what is already on its way there, to Eq. (4).
    `sees_inbound`: whether a decision counts those requests as part of the batch they are going to join.
    `serial_prefill` queues requests at their prefill instance; without it prefill is a pure delay.
    """
    fabric = cluster.fabric
    _check(cluster, arrivals)
    level = _background(background, fabric)
    count, pool = len(arrivals.arrival_s), len(cluster.decode)
    source = np.arange(count) % len(cluster.prefill)
    ready = _prefill_end(arrivals, source, len(cluster.prefill), serial_prefill)
    order = np.argsort(ready, kind="stable")
    if readings is None:
        changes_s = min((len(level) - 1) * background_step_s, float(ready.max(initial=0.0)))  # the last that is seen
        at = np.arange(np.ceil(changes_s / refresh_s) + 1.0) * refresh_s
        by_tier = level if level.shape[1] == 4 else _tier_means(level, fabric)
        readings = by_tier[np.minimum(at / background_step_s, len(level) - 1).astype(int)]
    blocks, starts, hit = _blocks(arrivals, order, pool)
    jobs = Jobs(
        ready_s=ready[order],
        source=source[order],
        input_tokens=np.asarray(arrivals.input_tokens, np.float64)[order],
        output_tokens=np.asarray(arrivals.output_tokens, np.float64)[order],
        hit_frac=hit,
        blocks=blocks,
        block_starts=starts,
    )
    rates = advertised_bytes_per_s(cluster)
    aware_of = float(rates[1]) if destination_aware else np.inf
    scoring = scoring_of(
        policy,
        cluster.curve,
        cache_weight=cache_weight,
        max_in_flight=max_in_flight,
        destination_bytes_per_s=aware_of,
    )
    rules = Rules(
        scoring=scoring,
        seed=int(seed),
        shards=int(cluster.shards),
        kv_bytes_per_token=float(cluster.kv_bytes_per_token),
        capacity_tokens=float(cluster.kv_memory_bytes / cluster.kv_bytes_per_token),
        reserve_tokens=float(cluster.reserve_tokens),
        block_tokens=float(cluster.block_tokens),
        refresh_s=float(refresh_s),
        background_step_s=float(background_step_s),
        sees_inbound=bool(sees_inbound),
        until_s=float(until_s),
    )
    instances = np.asarray(cluster.prefill, np.int64), np.asarray(cluster.decode, np.int64)
    moving = level, np.ascontiguousarray(readings, np.float64)
    out, carried, stuck, events = run(fabric, *instances, jobs, rules, rates, *moving)
    back = np.empty_like(order)
    back[order] = np.arange(count)
    out = type(out)(*(column[back] for column in out))
    return _result(cluster, arrivals, ready, out, carried, float(stuck), int(events))


def simulate_many(cases: Iterable[Mapping[str, Any]], threads: int | None = None) -> list[NetworkRun]:
    """Many runs, given as keyword arguments of `simulate`, on all cores: the loop releases the interpreter."""
    cases = list(cases)
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as workers:
        return list(workers.map(lambda case: simulate(**case), cases))


@dataclass(frozen=True)
class Metrics(Answer):
    """The paper's metrics of one run, or their means over several."""

    requests_count: int
    served_frac: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    tbt_mean_s: float
    slo_frac: float
    goodput_rps: float
    transfer_mean_s: float
    tier_0_frac: float  # of the requests, by the tier that their KV cache crosses
    tier_1_frac: float
    tier_2_frac: float
    tier_3_frac: float


def summary(result: NetworkRun, from_s: float = 0.0, to_s: float = np.inf, ttft_slo_s: float = np.inf) -> Metrics:
    """The paper's metrics over requests that arrived in a window. Those without a first token miss every SLO."""
    here = (result.arrival_s >= from_s) & (result.arrival_s < to_s)
    ttft = result.ttft_s[here]
    served = np.isfinite(ttft)
    tiers = result.tier[here]
    chosen = max(int((tiers >= 0).sum()), 1)
    p50, p95, p99 = np.percentile(ttft[served], [50, 95, 99]) if served.any() else [np.nan] * 3
    good = float((ttft <= ttft_slo_s).sum())
    window = min(to_s, float(result.arrival_s[here].max(initial=from_s))) - from_s
    return Metrics(
        requests_count=int(here.sum()),
        served_frac=float(served.mean()) if here.any() else np.nan,
        ttft_mean_s=float(ttft[served].mean()) if served.any() else np.nan,
        ttft_p50_s=float(p50),
        ttft_p95_s=float(p95),
        ttft_p99_s=float(p99),
        tbt_mean_s=float(np.nanmean(result.step_s[here])) if served.any() else np.nan,
        slo_frac=good / max(int(here.sum()), 1),
        goodput_rps=good / window if window > 0 else np.nan,
        transfer_mean_s=float(np.nanmean(result.transfer_s[here])) if served.any() else np.nan,
        **{f"tier_{t}_frac": float((tiers == t).sum() / chosen) for t in range(4)},
    )


def advertised_bytes_per_s(cluster: NetworkCluster) -> np.ndarray:
    """What the oracle calls the bandwidth of a tier: one whole transfer, all shards, on an idle fabric."""
    fabric = cluster.fabric
    shards = cluster.shards
    rate = fabric.tier_bytes_per_s * shards
    ports = fabric.link_bytes_per_s[fabric.first[1]] * min(shards, int(fabric.parallel[1]))
    nic = fabric.link_bytes_per_s[fabric.first[7]] if fabric.shared_nic else np.inf
    return np.array([fabric.tier_bytes_per_s[0], *np.minimum(rate[1:], min(ports, nic))])


def _check(cluster: NetworkCluster, arrivals: Arrivals) -> None:
    pools = {"prefill": cluster.prefill, "decode": cluster.decode}
    for name, pool in pools.items():
        pool = np.asarray(pool)
        if pool.size == 0:
            raise InputError(f"{name}: the pool is empty; accepted: at least one instance")
        if (strange := pool[(pool < 0) | (pool >= cluster.fabric.instances)]).size:
            raise InputError(f"{name}: instance {strange[0]}; accepted: 0..{cluster.fabric.instances - 1}")
    if np.intersect1d(cluster.prefill, cluster.decode).size:
        raise InputError("prefill, decode: an instance is in both pools; accepted: disjoint pools")
    for name in ("arrival_s", "prefill_s", "input_tokens", "output_tokens"):
        values = np.asarray(getattr(arrivals, name))
        if values.shape != np.shape(arrivals.arrival_s):
            raise InputError(f"{name}: shape {values.shape}; accepted: one per request {np.shape(arrivals.arrival_s)}")
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise InputError(f"{name}: {values[~(np.isfinite(values) & (values >= 0))][0]}; accepted: finite and >= 0")
    if (np.asarray(arrivals.input_tokens) <= 0).any():
        raise InputError("input_tokens: 0; accepted: at least 1")


def _background(background: Any, fabric: Fabric) -> np.ndarray:
    level = np.asarray(background, np.float64)
    if level.ndim == 0:
        level = np.array([0.0, level, level, level])
    level = np.atleast_2d(level)
    if level.shape[1] not in (4, len(fabric.link_bytes_per_s)):
        raise InputError(f"background: {level.shape[1]} columns; accepted: 4 or one per link")
    if not ((level >= 0) & (level <= 1)).all():
        raise InputError(f"background: {level[~((level >= 0) & (level <= 1))][0]}; accepted: 0 to 1")
    return np.ascontiguousarray(level)


def _tier_means(level: np.ndarray, fabric: Fabric) -> np.ndarray:
    means = [level[:, fabric.link_tier == kind] for kind in range(4)]
    return np.stack([m.mean(1) if m.shape[1] else np.zeros(len(level)) for m in means], 1)


def _prefill_end(arrivals: Arrivals, source: np.ndarray, prefill: int, serial: bool) -> np.ndarray:
    arrival, work = np.asarray(arrivals.arrival_s, np.float64), np.asarray(arrivals.prefill_s, np.float64)
    if not serial:
        return arrival + work
    end = np.empty_like(arrival)
    for p in range(prefill):  # Lindley: end_k = max(arrival_k, end_{k-1}) + work_k
        mine = source == p
        done = np.cumsum(work[mine])
        end[mine] = done + np.maximum.accumulate(arrival[mine] - (done - work[mine]))
    return end


def _blocks(arrivals: Arrivals, order: np.ndarray, pool: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Block lists in the order of the jobs, with numbers from 0; or none, and the shares."""
    count = len(order)
    if arrivals.block_ids is None:
        hit = np.zeros((count, pool)) if arrivals.hit_frac is None else np.asarray(arrivals.hit_frac, np.float64)
        if hit.shape != (count, pool) or not ((hit >= 0) & (hit <= 1)).all():
            raise InputError(f"hit_frac: shape {hit.shape}; accepted: {(count, pool)}, shares from 0 to 1")
        return np.zeros(0, np.int64), np.zeros(count + 1, np.int64), np.ascontiguousarray(hit[order])
    starts = np.asarray(arrivals.block_starts, np.int64)
    _, number = np.unique(arrivals.block_ids, return_inverse=True)
    lengths = np.diff(starts)[order]
    ends = np.cumsum(lengths)
    index = np.arange(ends[-1] if count else 0) - np.repeat(ends - lengths, lengths) + np.repeat(starts[order], lengths)
    # a matrix of pool + 1 columns can never be taken for shares, whatever the size of the pool
    return number[index].astype(np.int64), np.concatenate([[0], ends]), np.zeros((1, pool + 1))


def _result(
    cluster: NetworkCluster,
    arrivals: Arrivals,
    ready: np.ndarray,
    out: Outcome,
    carried: np.ndarray,
    stuck: float,
    events: int,
) -> NetworkRun:
    arrival = np.asarray(arrivals.arrival_s, np.float64)
    flags = np.zeros(len(arrival), np.int32)
    flags[out.choice == NONE] |= Flag.NO_FIT
    flags[out.choice == UNREACHABLE] |= Flag.INFEASIBLE
    kv = np.asarray(arrivals.input_tokens) * cluster.kv_bytes_per_token
    problems = fabric_problems(cluster.fabric)
    largest = (kv + np.asarray(arrivals.output_tokens) * cluster.kv_bytes_per_token).max(initial=0.0)
    if largest > cluster.kv_memory_bytes:
        problems.append(
            f"the largest request needs {largest:.4g} B of KV memory; an instance has {cluster.kv_memory_bytes:.4g} B"
        )
    unfinished = (out.choice >= 0) & ~np.isfinite(out.finished_s)
    flags[unfinished] |= Flag.INFEASIBLE if stuck > 0 and problems else Flag.OVERLOAD
    hit = out.hit_tokens / np.asarray(arrivals.input_tokens)
    return NetworkRun(
        arrival,
        np.maximum(out.choice, NONE),
        out.tier,
        hit,
        out.landed_s - ready,
        out.first_token_s - arrival,
        out.step_s,
        out.finished_s - arrival,
        np.where(out.choice >= 0, kv * (1.0 - hit), 0.0),
        flags,
        carried,
        stuck,
        events,
        tuple(problems),
    )
