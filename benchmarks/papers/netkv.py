"""NetKV's Experiments 1 to 7, what its greedy loses on a burst, and where its gain ends.

Experiment 3: oversubscription o:1 makes links slower, as the paper's tier bandwidths do: 50/o Gbit/s across pods, at
most 25 within a pod from 2:1 on. Background is one fraction on all links, as the paper has it; then every tier reports
the same congestion and the live signal changes nothing but its weight against the queue. `pod_only` puts the same
background on the pod uplinks alone, where the signal has something to say.

Experiment 4: the paper's background is steady, so its curve must be flat whatever the policy does with the signal. Here
the tiers wander as first-order autoregressions of a given standard deviation and correlation time, mildly (as the paper
says it measured: an order below 0.42 over a minute) and strongly, where staleness has a price. "forecast" replaces a
reading by what an autoregression, fitted to ten minutes of earlier telemetry, expects half a refresh later.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.papers._netkv_setting import LADDER, PROFILES, compare, trace, windows
from benchmarks.papers._netkv_verdicts import LENGTHS, LOADS, RATIOS, REFRESH_S, SHARES, SIZES, write
from benchmarks.registry import Row, benchmark, interleaved
from dmodels.control import congestion as forecasts
from dmodels.control.netkv import DecodePool, Oracle, burst_cost_s, choose, dispatch, joint_assignment
from dmodels.core.routing import RoutingPolicy
from dmodels.core.units import gbit_per_s
from dmodels.sim.network import RAG, advertised_bytes_per_s, netkv_cluster, simulate

RR, CACHE, CLA, TOPO, STATIC, FULL = (
    RoutingPolicy.ROUND_ROBIN,
    RoutingPolicy.CACHE,
    RoutingPolicy.CACHE_LOAD,
    RoutingPolicy.NETKV_TOPO,
    RoutingPolicy.NETKV_STATIC,
    RoutingPolicy.NETKV_FULL,
)


def runs(quick: bool, count: int) -> int:
    """Windows of an experiment."""
    return 2 if quick else count


@benchmark(write=write)
def netkv_load(quick: bool) -> Iterator[Row]:
    """Experiment 1 (Table II): TTFT, TBT, SLO attainment and transfer time against load, three workloads."""
    for name, profile in PROFILES.items():
        for load in LOADS[name]:
            for row in compare((RR, CLA, FULL), profile, load, runs(quick, 40)):
                yield {"workload": name, "load": load} | row


@benchmark(write=write)
def netkv_context(quick: bool) -> Iterator[Row]:
    """Experiment 2 (Table III): every prompt overridden, 1K to 64K tokens, RAG arrivals at 100 %."""
    for tokens in LENGTHS:
        for row in compare((RR, CACHE, CLA, FULL), runs=runs(quick, 20), arrivals={"input_tokens": tokens}):
            yield {"input_tokens": tokens} | row


def oversubscribed(ratio: float):
    """NetKV's cluster at a cross-pod oversubscription of ratio:1."""
    rack, pod = gbit_per_s(50 / min(ratio, 2)), gbit_per_s(50 / ratio)
    return netkv_cluster(tier_bytes_per_s=(450e9, gbit_per_s(50), rack, pod))


@benchmark(write=write)
def netkv_topology(quick: bool) -> Iterator[Row]:
    """Experiment 3 (Fig. 1): oversubscription 1:1 to 8:1 against background load 0 to 40 %, three workloads."""
    for name, profile in PROFILES.items():
        for ratio in RATIOS:
            for level in (0.0, 0.1, 0.2, 0.3, 0.4):
                for where, load in (("all links", level), ("pod_only", np.array([0, 0, 0, level]))):
                    if where == "pod_only" and (level == 0 or name != "rag"):
                        continue
                    options = {"cluster": oversubscribed(ratio), "background": load}
                    for row in compare((CLA, STATIC, FULL), profile, runs=runs(quick, 12), **options):
                        yield {"workload": name, "ratio": ratio, "background": level, "where": where} | row


STEP_S = 0.1
#: name -> (mean, standard deviation, correlation time)
WANDERS = {"mild": (0.2, 0.02, 20.0), "strong": (0.4, 0.25, 5.0)}


def background(mean: float, std: float, tau_s: float, seed: int = 0, seconds: float = 660.0) -> np.ndarray:
    """(S, 4) of autoregressions, independent by tier, clipped to [0, 0.95]; NVLink idle. All but 60 s is history."""
    rng = np.random.default_rng(seed)
    steps, phi = int(seconds / STEP_S), np.exp(-STEP_S / tau_s)
    x = np.empty((steps, 4))
    x[0] = rng.normal(0, std, 4)
    for k in range(1, steps):
        x[k] = phi * x[k - 1] + np.sqrt(1 - phi**2) * rng.normal(0, std, 4)
    x = np.clip(mean + x, 0.0, 0.95)
    x[:, 0] = 0.0
    return x


def forecast(history: np.ndarray, level: np.ndarray, refresh_s: float) -> np.ndarray:
    """Readings (R, 4): at each refresh, what the fitted autoregression expects half an interval later."""
    import jax

    with jax.enable_x64(True):
        step = lambda state, reading: (forecasts.ar1_update(state, reading, 0.002), None)
        fitted, _ = jax.lax.scan(step, forecasts.ar1_init(history[0]), history)
        seen = level[:: max(round(refresh_s / STEP_S), 1)]
        expect = lambda reading: forecasts.ar1_forecast(fitted._replace(last=reading), refresh_s / 2 / STEP_S)
        return np.asarray(jax.vmap(expect)(seen))


@benchmark(write=write)
def netkv_staleness(quick: bool) -> Iterator[Row]:
    """Experiment 4 (Fig. 2): oracle refresh 0.1 to 60 s, under background that wanders."""
    for name, wander in WANDERS.items():
        for refresh in REFRESH_S:
            for draw in range(1 if quick else 3):
                whole = background(*wander, seed=draw)
                history, level = whole[:-600], whole[-600:]
                options = {"runs": runs(quick, 12), "background": level, "background_step_s": STEP_S}
                options["refresh_s"] = refresh
                got = compare((CLA, STATIC, FULL), **options)
                ahead = compare((CLA, FULL), readings=forecast(history, level, refresh), **options)[-1]
                for row in [*got, ahead | {"policy": "NETKV_FULL, forecast"}]:
                    yield {"wander": name, "refresh_s": refresh, "draw": draw} | row


@benchmark(write=write)
def netkv_prefix(quick: bool) -> Iterator[Row]:
    """Experiment 5 (Fig. 3): share of requests whose prefix some decode instance holds, 0 to 0.9.

    `own blocks` replaces the drawn hits by the trace's block hashes and LRU caches in the instances.
    """
    policies, count = (CACHE, CLA, FULL), runs(quick, 20)
    for share in SHARES:
        for row in compare(policies, RAG._replace(share_frac=share), runs=count):
            yield {"share": share} | row
    own = {"own_blocks": True, "seconds": 120.0}
    for row in compare(policies, runs=count, arrivals=own, warmup_s=60.0, measure_s=60.0):
        yield {"share": "own blocks"} | row


@benchmark(write=write)
def netkv_ablation(quick: bool) -> Iterator[Row]:
    """Experiment 6 (Tables IV and VI): the ladder CLA*, + static tiers, + self-contention, + congestion."""
    for name, profile in PROFILES.items():
        for row in compare(LADDER, profile, runs=runs(quick, 40)):
            yield {"workload": name} | row


@benchmark(write=write)
def netkv_scale(quick: bool) -> Iterator[Row]:
    """Experiment 7 (Table V): 64 to 1,024 GPUs, with the simulator's speed and the scorer's latency at each size."""
    for gpus, pods in list(SIZES.items())[: 2 if quick else None]:  # the trace is too short for more windows at the top
        cluster = netkv_cluster(pods=pods)
        for row in compare((CLA, FULL), load=pods / 2, runs=runs(quick, 8), cluster=cluster):
            yield {"gpus": gpus, "decode_instances": len(cluster.decode)} | row | speed(cluster, pods)


def speed(cluster, pods: int) -> dict[str, float]:
    """Simulated over elapsed seconds, one thread; microseconds per decision, batched and one after another."""
    arrivals = windows(load=pods / 2, runs=1, pool=len(cluster.decode))(0)
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        out = simulate(cluster, arrivals, RoutingPolicy.NETKV_FULL)
        best = min(best, time.perf_counter() - start)
    rng, count, pool = np.random.default_rng(0), 20_000, len(cluster.decode)
    tier = cluster.fabric.tier(cluster.prefill[:, None], cluster.decode[None, :])
    oracle = Oracle(tier, advertised_bytes_per_s(cluster), cluster.fabric.tier_latency_s, np.full(4, 0.2))
    state = DecodePool(np.full(pool, 1e14), np.zeros(pool), rng.integers(0, 20, pool).astype(float))
    source, kv = rng.integers(0, len(cluster.prefill), count), rng.uniform(1e8, 1e10, count)
    hits = rng.uniform(0, 1, (count, pool))
    took = interleaved(
        {
            "batch": lambda: choose(RoutingPolicy.NETKV_FULL, oracle, source, kv, hits, state),
            "sequence": lambda: dispatch(RoutingPolicy.NETKV_FULL, oracle, source, kv, hits, state),
        }
    )
    return {
        "times_real_time": float(np.nanmax(out.arrival_s + out.e2e_s)) / best,
        "events_per_s": out.events / best,
        "decision_us": took["batch"] / count * 1e6,
        "sequential_decision_us": took["sequence"] / count * 1e6,
        "decisions_per_s": count / took["batch"],
    }


@benchmark()
def netkv_burst(quick: bool) -> Iterator[Row]:
    """What the per-request greedy loses against the joint optimum of a burst: the bound that the paper leaves open.

    Bursts of n requests leave one prefill instance of the paper's cluster at once; lengths from the conversation trace,
    hits as in the setting. Costs of both by Eq. (4) with every transfer of the burst sharing its tier.
    """
    cluster, rng = netkv_cluster(), np.random.default_rng(0)
    tier = cluster.fabric.tier(cluster.prefill[:, None], cluster.decode[None, :])
    rates, tokens = advertised_bytes_per_s(cluster), trace().input_tokens
    for n in (2, 4, 8, 16, 32):
        excess = {policy.name: [] for policy in (RR, CLA, TOPO, STATIC, FULL)}
        for _ in range(5 if quick else 60):
            level = np.array([0.0, 0.0, *rng.uniform(0, 0.6, 2)])
            oracle = Oracle(tier, rates, cluster.fabric.tier_latency_s, level)
            pool = DecodePool(np.full(12, 1e15), np.zeros(12), rng.integers(0, 30, 12).astype(float))
            kv = rng.choice(tokens, n) * cluster.kv_bytes_per_token
            hits = np.where(rng.random((n, 12)) < 0.24 / 12, rng.uniform(0.2, 0.8, (n, 12)), 0.0)
            best = joint_assignment(oracle, 0, kv, hits, pool).value.cost_s
            for policy in (RR, CLA, TOPO, STATIC, FULL):
                chosen, *_ = dispatch(policy, oracle, np.zeros(n, int), kv, hits, pool)
                excess[policy.name].append(burst_cost_s(oracle, 0, kv, hits, pool, chosen.index) / best - 1)
        for name, values in excess.items():
            mean, p95 = float(np.mean(values)), float(np.percentile(values, 95))
            yield {"burst": n, "policy": name, "excess_mean_frac": mean, "excess_p95_frac": p95}


STEADY = {"warmup_s": 60.0, "measure_s": 180.0, "runs": 6, "arrivals": {"seconds": 240.0}}


def open_settings() -> dict[str, dict]:
    """Name -> options of `compare` that differ from the setting."""
    nic = lambda rate: netkv_cluster(nic_bytes_per_s=gbit_per_s(rate))
    base = netkv_cluster()
    return {
        "as set": {},
        **{f"NIC {rate} Gbit/s per instance": {"cluster": nic(rate)} for rate in (800, 400, 200, 100, 50)},
        "NIC 50 Gbit/s, half the load": {"cluster": nic(50), "load": 0.5},
        "NIC 50 Gbit/s, no prefix hits": {"cluster": nic(50), "profile": RAG._replace(share_frac=0.0)},
        "NIC 50, no hits, half the load": {"cluster": nic(50), "profile": RAG._replace(share_frac=0.0), "load": 0.5},
        "long runs (60 + 180 s), 100 %": STEADY,
        "long runs (60 + 180 s), 250 %": STEADY | {"load": 2.5},
        "one flow per transfer": {"cluster": base._replace(shards=1)},
        "sixteen flows per transfer": {"cluster": base._replace(shards=16)},
        "a quarter of the uplinks": {"cluster": netkv_cluster(rack_uplinks=16, pod_uplinks=32)},
        "spine fixes the way down": {"cluster": netkv_cluster(aligned=True)},
        "ports of 50 Gbit/s": {"cluster": netkv_cluster(host_bytes_per_s=gbit_per_s(50))},
        "KV cache in 8 bits": {"cluster": base._replace(kv_bytes_per_token=163840.0)},
        "requests on their way count as batch": {"sees_inbound": True},
        "counter capped at 1": {"max_in_flight": 1.0},
        "destination term, NIC 50, no prefix hits": {
            "destination_aware": True,
            "cluster": nic(50),
            "profile": RAG._replace(share_frac=0.0),
        },
        "destination term added": {"destination_aware": True, "cluster": nic(200)},
        "destination term added, NIC 50": {"destination_aware": True, "cluster": nic(50)},
        "timestamps not spread over their 3 s": {"arrivals": {"tick_s": 1e-9}},
        "no prefix hits": {"profile": RAG._replace(share_frac=0.0)},
        "all prompts of at most 32K": {"profile": RAG._replace(high_tokens=32768.0)},
        "background 40 % on all links": {"background": 0.4},
        "background 40 % within pods only": {"background": np.array([0, 0, 0.4, 0])},
    }


@benchmark()
def netkv_regimes(quick: bool) -> Iterator[Row]:
    """Where NetKV's gain comes from and where it ends: every setting that the text leaves open, one at a time.

    The NIC decides most. Eq. (4) counts a source's transfers per tier. It sees neither the source's NIC, which all
    tiers share, nor the destination's, on which transfers of several sources meet: when NICs bind, a faster tier gains
    nothing, and the four instances within the pod are crowded. Round robin, which spreads evenly, then wins unless
    there are prefix hits to be had. The destination term repairs most of it.
    """
    for name, options in open_settings().items():
        for row in compare((RR, CLA, TOPO, STATIC), **({"runs": runs(quick, 20)} | options)):
            yield {"case": name} | row


@benchmark()
def netkv_dispatch(quick: bool) -> Iterator[Row]:
    """Llumnix' dispatch by freeness beside load, cache and network in NetKV's setting, three workloads at 100 %."""
    for name, profile in PROFILES.items():
        for row in compare((RR, RoutingPolicy.LOAD, RoutingPolicy.FREENESS, CLA, FULL), profile, runs=runs(quick, 20)):
            yield {"workload": name} | row
