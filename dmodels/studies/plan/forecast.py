"""A fleet's latencies before it is replayed, two ways.

By the closed forms, which size it: Poisson arrivals at each instance, in steady state. And by recursion over the
requests themselves, with their own times (`models.queueing.trace_backlog`), behind a router that looks at loads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmodels.core.hardware import SLO
from dmodels.sim.deployments import ServingFleet
from dmodels.sim.recordings import Recording

from .deployment import Pool
from .designs import Role


class Latency(NamedTuple):
    """Of one metric, seconds; nan: not known."""

    mean_s: float
    percentile_s: float  # the SLO's


#: TTFT, TPOT and E2E of a pool, or of the whole where every request passes all pools.
Latencies = dict[str, Latency]


def in_turn(pools: Sequence[Pool]) -> bool:
    """Whether these are the two stages of a split."""
    return len(pools) == 2 and pools[0].stage.role == Role.PREFILL


def by_forms(pools: Sequence[Pool]) -> list[Latencies]:
    """The closed forms of each part that is measured by itself; over the stages of a split they add up."""
    found = [
        {
            "TTFT": Latency(pool.ttft_mean_s, pool.ttft_s),
            "TPOT": Latency(pool.tpot_mean_s, pool.tpot_s),
            "E2E": Latency(math.nan, pool.e2e_s),
        }
        for pool in pools
    ]
    if not in_turn(pools):
        return found
    first, second = found
    whole = {name: _sum(first[name], second[name]) for name in ("TTFT", "E2E")}
    return [whole | {"TPOT": second["TPOT"]}]


def _sum(one: Latency, other: Latency) -> Latency:
    return Latency(one.mean_s + other.mean_s, one.percentile_s + other.percentile_s)


def by_recursion(
    fleet: ServingFleet, requests: Recording, instances: Sequence[int], percentiles: Sequence[float]
) -> list[Latencies]:
    """The same of these requests, as many as count; each part at a percentile of its own."""
    found = []
    parts = fleet.own(requests.requests())
    for k, (own, percentile) in enumerate(zip(parts, percentiles, strict=True)):
        counted = fleet.backlog(k, own, instances).at(own.arrival_s >= requests.warm_s)
        times = {"TTFT": counted.ttft_s, "TPOT": counted.tpot_s, "E2E": counted.e2e_s}
        found.append({name: _latency(seconds[np.isfinite(seconds)], percentile) for name, seconds in times.items()})
    return found


def kept(found: Sequence[Latencies], slo: SLO, by: float = 1.0) -> bool:
    """Whether no part exceeds a bound times `by`."""
    bounds = {"TTFT": slo.ttft_s, "TPOT": slo.tpot_s, "E2E": slo.e2e_s}
    return not any(one[name].percentile_s > by * float(bounds[name]) for one in found for name in one)


def _latency(seconds: np.ndarray, percentile: float) -> Latency:
    if not seconds.size:
        return Latency(math.nan, math.nan)
    return Latency(float(seconds.mean()), float(np.quantile(seconds, percentile)))
