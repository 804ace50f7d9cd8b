"""The simulators beside their peers: speed in requests per second on one core, and the same answers on the same input.

Peers, all from the registry (`pip install -e '.[bench]'`): vllm-sr-sim's discrete-event simulator (the token-budget
paper's author's), Vidur's event loop (see `_vidur`), and Ciw (queueing networks).
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator

import jax
import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from dmodels.models.latency import StepLaw
from dmodels.sim import arrivals, batching, fleet
from dmodels.sim.batching import TokenLaw, scan
from dmodels.sim.fleet import Pool, RoutingPolicy
from dmodels.sim.requests import KVCache, Prefill

LAW = StepLaw(8e-3, 0.65e-3)


def traffic(count: int, rate_rps: float, seed: int = 0):
    """Poisson arrivals, prompts up to 3,000 tokens, outputs up to 500: about 250 iterations a request."""
    rng = np.random.default_rng(seed)
    when = arrivals.poisson(jax.random.key(seed), rate_rps, count)
    return when, rng.integers(1, 3000, count), rng.integers(1, 500, count)


def peer_fleet(instances: int, slots: int, requests, policy: RoutingPolicy):
    """vllm-sr-sim's fleet with our iteration law: least loaded instance first, or in turn."""
    from fleet_sim.core.fleet import Fleet, FleetConfig, PoolConfig
    from fleet_sim.core.request import Request
    from fleet_sim.gpu_profiles.manual import ManualProfile

    gpu = ManualProfile(
        "linear",
        W=LAW.base_s,
        H=LAW.per_sequence_s,
        chunk=512,
        blk_size=16,
        total_kv_blks=10**7,
        max_slots=slots,
        cost_per_hr=1.0,
    )
    strategy = "least_loaded" if policy == RoutingPolicy.SHORTEST_QUEUE else "round_robin"
    pool = PoolConfig("all", gpu, instances, 8192, lb_strategy=strategy)
    config = FleetConfig([pool], "LengthRouter", {"threshold": 10**9})
    rows = enumerate(zip(*requests, strict=True))
    coming = [(float(a), Request(i, float(a), int(p), int(o))) for i, (a, p, o) in rows]
    result = Fleet(config).run(coming)
    if len(result.completed) < 0.9 * len(coming):
        raise RuntimeError(f"the peer completed {len(result.completed)} of {len(coming)} requests")
    return result


def ciw_waits(servers: int, gaps, services) -> np.ndarray:
    """Waits in the order of arrival, from Ciw, for given gaps and service times."""
    import ciw

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps.tolist(), 1e12])],
        service_distributions=[ciw.dists.Sequential(services.tolist())],
        number_of_servers=[servers],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(len(gaps), method="Complete")
    records = sorted(simulation.get_all_records(), key=lambda r: r.id_number)
    return np.array([r.waiting_time for r in records])


def against_ciw(count: int = 20_000):
    """Waits request by request on the same input: M/M/4, M/D/1 and a lognormal M/G/8, on a grid of one tick."""
    tick = 1e-3
    rng = np.random.default_rng(5)
    for name, servers, service in (
        ("M/M/4", 4, rng.exponential(1.0, count)),
        ("M/D/1", 1, np.ones(count)),
        ("M/G/8, lognormal CV 1.4", 8, rng.lognormal(-0.55, 1.05, count)),
    ):
        ticks = np.maximum(2, np.rint(service / tick))
        gaps = np.maximum(1, np.rint(rng.exponential(1.0 / (0.85 * servers), count) / tick))  # no two at one instant
        arrival = tick * np.cumsum(gaps)
        start = time.process_time()
        theirs = ciw_waits(servers, tick * gaps, tick * ticks)
        peer_s = time.process_time() - start
        call = lambda a=arrival, t=ticks, c=servers: batching.simulate(a, 1, t - 1, np.full(c, tick), c)
        own_s, ours = least_cpu(call), call().wait_s
        yield {
            "case": f"Ciw, {name}",
            "requests": count,
            "ours_rps": count / own_s,
            "peer_rps": count / peer_s,
            "ratio": peer_s / own_s,
            "largest_difference_s": float(np.abs(ours - theirs).max()),
            "ours_p99_s": np.quantile(ours, 0.99),
            "peer_p99_s": np.quantile(theirs, 0.99),
        }


def against_vidur(count: int = 4000):
    """The same requests, slots and iteration law: request by request where prompts are prefilled whole, as Vidur's own
    table of metrics has it; with chunks of 512 tokens, which the two share out differently, by mean and tail."""
    if importlib.util.find_spec("vidur") is None:
        print("Vidur is not installed: case left out; pip install 'vidur>=0.0.26' brings it")
        return
    from benchmarks.speed import _vidur

    for slots, rate in ((16, 2.6), (128, 4.5)):
        requests = traffic(count, rate)
        for name, chunk, mode in (("whole prompts", 10**6, Prefill.OWN), ("chunks of 512", 512, Prefill.PACKED)):
            call = lambda r=requests, s=slots, c=chunk, m=mode: batching.simulate(
                *r, LAW, s, chunk_tokens=c, prefill=m, emits=True
            )
            own_s, ours = least_cpu(call, 20), call()
            peer_s, _ = _vidur.run(requests, LAW, slots, chunk, metrics=False)
            measured_s, table = _vidur.run(requests, LAW, slots, chunk, metrics=True)
            row = {
                "case": f"Vidur, {slots} slots, {name}",
                "requests": count,
                "ours_rps": count / own_s,
                "peer_rps": count / peer_s,
                "peer_with_metrics_rps": count / measured_s,
                "ratio": peer_s / own_s,
            }
            pairs = (("ttft", ours.ttft_s, table["prefill_e2e_time"]), ("e2e", ours.e2e_s, table["request_e2e_time"]))
            largest = max(float(np.abs(mine - theirs).max()) for _, mine, theirs in pairs)
            row |= {
                f"{who}_{metric}_{what}_s": float(of(times))
                for metric, mine, theirs in pairs
                for what, of in (("mean", np.mean), ("p99", lambda x: np.quantile(x, 0.99)))
                for who, times in (("ours", mine), ("peer", theirs))
            }
            if mode == Prefill.OWN:
                if largest > 1e-9:
                    raise RuntimeError(f"Vidur's times differ from ours by up to {largest:g} s on the same requests")
                row["largest_difference_s"] = largest
            yield row


def least_cpu(run, repeats: int = 4) -> float:
    """Least CPU seconds of a call, after one that compiles; CPU time, so that others' work does not count."""
    return interleaved({"": run}, repeats, time.process_time)[""]


def speeds():
    """Rates of the formulations, each case with its peer on comparable work in the same run."""
    million = 1_000_000
    for slots, rate in ((16, 2.6), (128, 6.0)):
        requests = traffic(million, rate)
        seconds = least_cpu(lambda r=requests, s=slots: batching.simulate(*r, LAW, s))
        yield {"case": f"one instance, {slots} slots, event-driven", "rps": million / seconds}
        some = tuple(column[:100_000] for column in requests)
        seconds = least_cpu(lambda r=some, s=slots: batching.simulate(*r, LAW, s, kv=KVCache(10**6)), 2)
        yield {"case": f"one instance, {slots} slots, iteration by iteration with KV blocks", "rps": 100_000 / seconds}
        for lanes in (64, 1024):
            n = 262_144 // lanes
            batch = tuple(column[: lanes * n].reshape(lanes, n) for column in requests)
            batch = (batch[0] - batch[0][:, :1], *batch[1:])
            seconds = least_cpu(lambda b=batch, s=slots: scan.simulate(*b, LAW, s), 2)
            yield {"case": f"scan over {lanes} instances, {slots} slots", "rps": lanes * n / seconds}
    for instances, slots, each in ((361, 16, 2.6), (72, 128, 6.0), (36, 16, 2.6), (4, 16, 2.6)):
        requests = traffic(300_000, each * instances)
        pool = Pool(instances, slots, LAW)
        for policy in (RoutingPolicy.SHORTEST_QUEUE, RoutingPolicy.ROUND_ROBIN):
            seconds = least_cpu(lambda r=requests, p=pool, q=policy: fleet.simulate(*r, p, q), 3)
            row = {"case": f"fleet of {instances} x {slots} slots, {policy.name.lower()}", "rps": 300_000 / seconds}
            if slots == 16:
                few = tuple(column[:4000] for column in requests)
                start = time.process_time()
                peer_fleet(instances, slots, few, policy)
                row["vllm_sr_sim_rps"] = 4000 / (time.process_time() - start)
                row["ratio"] = row["rps"] / row["vllm_sr_sim_rps"]
            yield row
    requests = tuple(column[:100_000] for column in traffic(300_000, 2.6 * 361))
    pool = Pool(361, 16, TokenLaw.tabulated(lambda n, tokens: 8e-3 + 0.65e-3 * n + 1e-6 * tokens, 16, 16 * 512, 2))
    seconds = least_cpu(lambda: fleet.simulate(*requests, pool, RoutingPolicy.SHORTEST_QUEUE), 2)
    yield {"case": "fleet of 361 x 16 slots, jsq, t(n, tokens)", "rps": 100_000 / seconds}


def memory_rows():
    """Peak memory grows in proportion to the requests, no faster: bytes per request at two sizes."""
    import tracemalloc

    for count in (100_000, 400_000):
        requests = traffic(count, 2.6)
        tracemalloc.start()
        batching.simulate(*requests, LAW, 16)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield {"case": f"memory, {count} requests", "bytes_per_request": peak / count}


@benchmark("vllm-sr-sim", "vidur", "Ciw")
def sim(quick: bool) -> Iterator[Row]:
    """The simulators beside their peers: requests per second on one core, and the same answers on the same input."""
    if not quick:
        yield from speeds()
        yield from against_vidur()
        yield from memory_rows()
    yield from against_ciw(500 if quick else 20_000)
