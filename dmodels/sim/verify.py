"""A fleet measured by simulation, to stand beside what closed forms say of it.

Nothing here knows a queueing formula: pools, an iteration law, a workload and a router go in, estimates with confidence
intervals come out. Runs are independent replications; each drops its warm-up by MSER-5, and at its end the requests
that saw a fleet running dry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.units import counted
from dmodels.core.workload import Workload

from . import arrivals, estimate, fleet, lengths
from .batching import step_times as laws
from .estimate import Estimate
from .fleet import Pool, RoutingPolicy
from .requests import Served


def measure(
    workload: Workload,
    pools: Pool | Sequence[Pool],
    key: jax.Array,
    policy: RoutingPolicy = RoutingPolicy.SHORTEST_QUEUE,
    *,
    percentile: float = 0.99,
    spill_queue: float = np.inf,
    count: int | None = None,
    target_frac: float = 0.05,
    at_least: int = 5,
    at_most: int = 40,
    confidence: float = 0.95,
) -> list[dict[str, Estimate]]:
    """Estimates for each pool of a fleet that serves `workload` at its rate (all pools together) and burstiness.

    Metrics are those of `summary`. Replications of `count` requests (by default long enough for forty mean service
    times) run until every half-width is at most `target_frac` of its value, or `at_most` have run: NOT_CONVERGED. A
    fleet that cannot keep up shows OVERLOAD, since its waits grow with the length of the run.
    """
    pools = (pools,) if isinstance(pools, Pool) else tuple(pools)
    rate = float(workload.rate_rps)
    if not rate > 0:
        raise InputError(f"rate_rps = {rate:g}; accepted: rates above 0")
    count = _enough(workload, pools) if count is None else int(count)
    overloaded = np.zeros(len(pools), int)

    def run(key: jax.Array) -> dict[tuple[int, str], float]:
        key_arrivals, key_lengths, key_router = jax.random.split(key, 3)
        cv = float(workload.arrival_cv)
        when = arrivals.poisson(key_arrivals, rate, count) if cv == 1 else arrivals.gamma(key_arrivals, rate, cv, count)
        long = lengths.draw(key_lengths, workload, count)
        served = fleet.simulate(
            when,
            long.input_tokens,
            long.output_tokens,
            pools,
            policy,
            key=key_router,
            cached_tokens=long.cached_tokens,
            spill_queue=spill_queue,
        )
        found: dict[tuple[int, str], float] = {}
        for p, (pool, part) in enumerate(zip(pools, fleet.by_pool(served, pools), strict=True)):
            overloaded[p] += outrun(part)
            values = summary(part.at(steady(part)), pool.instances, percentile)
            found |= {(p, name): value for name, value in values.items()}
        return found

    found = estimate.replicate(run, key, target_frac, at_least, at_most, confidence)
    result = []
    for p in range(len(pools)):
        runs = next(e.samples for (pool, _), e in found.items() if pool == p)
        bad = int(Flag.OVERLOAD) if overloaded[p] > runs / 2 else 0
        result.append({name: e._replace(flags=e.flags | bad) for (pool, name), e in found.items() if pool == p})
    return result


def summary(served: Served, instances: int, percentile: float = 0.99) -> dict[str, float]:
    """Metrics of one run: means and percentiles of TTFT, TPOT, E2E and waiting in seconds, the share that waits longer
    than a microsecond, requests in flight per instance (by Little's law on the run), and the rate served: departures a
    second, which are fewer than arrivals where a fleet does not keep up, but for the first and last percent."""
    tag = f"p{100 * percentile:g}"
    ends = np.sort(served.end_s)
    edge = ends.size // 100
    ends = ends[edge : ends.size - edge]
    served_rps = float((ends.size - 1) / (ends[-1] - ends[0])) if ends.size > 1 else np.nan
    found = {}
    for name in ("ttft_s", "tpot_s", "e2e_s", "wait_s"):
        values = getattr(served, name)
        values = values[np.isfinite(values)]
        stem = name[:-2]
        found[f"{stem}_mean_s"] = float(values.mean()) if values.size else np.nan
        found[f"{stem}_{tag}_s"] = float(np.quantile(values, percentile)) if values.size else np.nan
    if not np.isfinite(found["tpot_mean_s"]):  # every answer is one token long
        del found["tpot_mean_s"], found[f"tpot_{tag}_s"]
    found["in_flight_count"] = served_rps * float((served.end_s - served.admitted_s).mean()) / instances
    found["served_rps"] = served_rps
    return found


def steady(served: Served) -> np.ndarray:
    """The requests of the steady part.

    From MSER-5's warm-up of the end-to-end times, up to the last arrival less the longest end-to-end time but 1 in a
    1,000: what arrived later was served by a fleet to which nothing more came.
    """
    e2e = served.e2e_s
    if e2e.size < 200:
        raise InputError(
            f"{counted(e2e.size, 'request')} in a pool; accepted: at least 200: a larger count, or another threshold"
        )
    begin, _ = estimate.warmup_count(e2e)
    horizon = served.arrival_s[-1] - np.quantile(e2e, 0.999)
    end = int(np.searchsorted(served.arrival_s, horizon))
    if end - begin < e2e.size // 4:  # the run is dominated by its ends
        return np.arange(begin, e2e.size)
    return np.arange(begin, end)


def outrun(served: Served) -> bool:
    """Whether the arrivals of one run, in the mean, are more than the fleet can serve.

    Requests wait for more than half of the time, and while any waits fewer are admitted a second than arrive in the
    mean. A burst that is served in the end is none of that, wherever in the run it comes. Waits of less than a
    twentieth of a mean service, such as those for the end of an iteration, do not count.
    """
    arrival, admitted = served.arrival_s, served.admitted_s
    if arrival.size < 2:
        return False
    span = float(arrival[-1] - arrival[0])
    waits = served.wait_s > 0.05 * float((served.end_s - admitted).mean())
    if not waits.any() or not span > 0:
        return False
    begin, reach = arrival[waits], np.maximum.accumulate(admitted[waits])
    starts = np.flatnonzero(np.concatenate([[True], begin[1:] > reach[:-1]]))
    begins, ends = begin[starts], reach[np.append(starts[1:] - 1, reach.size - 1)]
    taken = np.searchsorted(np.sort(admitted), [begins, ends], side="right")
    busy_s = float((ends - begins).sum())
    return bool(busy_s > span / 2 and (taken[1] - taken[0]).sum() / busy_s < (arrival.size - 1) / span)


class Row(NamedTuple):
    """One prediction beside its measurement."""

    metric: str
    predicted: float
    measured: Estimate
    error_frac: float  # predicted / measured - 1
    agrees: bool  # within the interval


def against(predicted: Mapping[str, float], measured: Mapping[str, Estimate]) -> list[Row]:
    """Predictions beside measurements of the same name, in the order of the predictions."""
    rows = []
    for name, value in predicted.items():
        if name not in measured:
            raise InputError(f"{name!r} is not measured; accepted: {', '.join(measured)}")
        e = measured[name]
        error = float(value) / e.value - 1.0 if e.value else np.nan
        rows.append(Row(name, float(value), e, error, e.holds(float(value))))
    return rows


def _enough(workload: Workload, pools: Sequence[Pool]) -> int:
    """Requests for forty mean service times of the slowest pool, between 20 and 400 thousand."""
    longest = 0.0
    for pool in pools:
        total = np.asarray(workload.total_tokens)
        fits = (total <= pool.max_tokens) & (np.asarray(workload.weight_frac) > 0)
        if not fits.any():
            raise InputError(f"max_tokens = {pool.max_tokens:g}: no request of the workload fits this pool")
        chunks = np.ceil((workload.input_tokens - workload.cached_tokens)[fits] / pool.chunk_tokens)
        iterations = np.average(chunks + workload.output_tokens[fits], weights=workload.weight_frac[fits])
        longest = max(longest, iterations * float(laws.token_table(pool.law, pool.slots)[0][-1].max()))
    return int(np.clip(40 * longest * float(workload.rate_rps), 20_000, 400_000))


def trace_metrics(
    served: Served, percentile: float = 0.99, batches: int = 20, *, stationary: bool = False
) -> dict[str, Estimate]:
    """Metrics of one long run, such as a trace that cannot be replicated, with intervals from batches.

    Every request counts, for a burst is part of a trace, wherever it comes. Only where the run is said to be
    `stationary` are its ends left out as warm-up and running dry (`steady`); `requests_count` says how many remain.
    """
    count = served.arrival_s.size
    if count < 2 * batches:
        raise InputError(f"{counted(count, 'request')} in a pool; accepted: at least {2 * batches}, two for each batch")
    kept = steady(served) if stationary else np.arange(count)
    tag = f"p{100 * percentile:g}"
    found = {"requests_count": Estimate(kept.size, kept.size, kept.size, 1)}
    for name in ("ttft_s", "tpot_s", "e2e_s", "wait_s"):
        values = getattr(served, name)[kept]
        values = values[np.isfinite(values)]
        if values.size >= 2 * batches:
            found[f"{name[:-2]}_mean_s"] = estimate.batch_means(values, batches)
            found[f"{name[:-2]}_{tag}_s"] = estimate.batch_quantile(values, percentile, batches)
    bad = int(Flag.OVERLOAD) if outrun(served) else 0
    return {name: e._replace(flags=e.flags | bad) for name, e in found.items()}
