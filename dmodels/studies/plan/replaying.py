"""A deployment replayed request by request: all pools, all instances, the router, and whether the SLOs hold."""

from __future__ import annotations

import math

import jax
import numpy as np

from dmodels.core.hardware import SLO
from dmodels.core.routing import RoutingPolicy
from dmodels.sim import estimate
from dmodels.sim.deployments import LEAST_LOADED
from dmodels.sim.recordings import Recording
from dmodels.sim.requests import Served

from .deployment import Deployment
from .forecast import Latencies, by_forms, by_recursion
from .machines import serving_fleet
from .promises import Promise, Replayed
from .sizing import Priced

#: The worst minute of a replay; of one shorter than ten minutes, the worst tenth.
_WINDOW_S = 60.0
#: Batches of the intervals.
_BATCHES = 20


def replay(
    priced: Priced,
    deployment: Deployment,
    requests: Recording,
    policy: RoutingPolicy = LEAST_LOADED,
    key: jax.Array | None = None,
) -> Replayed:
    """Every SLO of a deployment in a replay of `requests`, beside the closed form.

    The policies are those of `sim.fleet`; RANDOM and POWER_OF_TWO need a `key`.
    """
    pools = deployment.pools
    rows = [priced.layouts.index(pool.layout) for pool in pools]
    stages = [priced.stages.index(pool.stage) for pool in pools]
    fleet = serving_fleet(priced, rows, stages, deployment.in_turn)
    instances = tuple(pool.instances for pool in pools)
    ready = requests.warm(max(pool.e2e_s for pool in pools))
    own = fleet.own(ready.requests())
    served = [fleet.serve(k, part, instances, policy, key) for k, part in enumerate(own)]
    slo, window = priced.question.slo, min(_WINDOW_S, requests.period_s / 10.0)
    promises: list[Promise] = []
    expected = by_forms(pools)
    if priced.question.trace is not None and policy == LEAST_LOADED:
        expected = by_recursion(fleet, ready, instances, [float(slo.percentile)] * len(own))
    for label, part, said in zip(fleet.parts, served, expected, strict=True):
        counted = part.at(part.arrival_s >= ready.warm_s) if ready.warm_s else part
        promises += _promises(label, counted, slo, window, said)
    return Replayed(
        deployment.name,
        instances,
        tuple(pool.layout.gpus for pool in pools),
        source=requests.source,
        policy=str(policy),
        requests_count=requests.size,
        period_s=requests.period_s,
        window_s=window,
        percentile=float(slo.percentile),
        promises=tuple(promises),
        overloaded=bool((np.array(instances) < priced.stable_instances[rows, stages]).any()),
    )


def values(served: Served, slo: SLO) -> list[tuple[str, float, np.ndarray]]:
    """(metric, bound, seconds of each request) of every SLO (inf: no bound); nan where a request has no such time."""
    times = (
        ("TTFT", slo.ttft_s, served.ttft_s),
        ("TPOT", slo.tpot_s, served.tpot_s),
        ("E2E", slo.e2e_s, served.e2e_s),
    )
    return [(name, float(bound), seconds) for name, bound, seconds in times]


def percentiles(served: Served, slo: SLO) -> list[tuple[str, float, float]]:
    """(metric, seconds at the SLO's percentile, bound) of every SLO that is bounded."""
    q, known = float(slo.percentile), values(served, slo)
    return [(name, quantile(seconds, q), bound) for name, bound, seconds in known if bound < math.inf]


def broken(served: Served, slo: SLO) -> list[str]:
    """The metrics whose percentile is beyond its bound."""
    return [name for name, seconds, bound in percentiles(served, slo) if seconds > bound]


def quantile(seconds: np.ndarray, percentile: float) -> float:
    """Of the requests that have such a time; 0 where none has."""
    known = seconds[np.isfinite(seconds)]
    return float(np.quantile(known, percentile)) if known.size else 0.0


def _promises(label: str, served: Served, slo: SLO, window_s: float, predicted: Latencies) -> list[Promise]:
    found = []
    for metric, bound, seconds in values(served, slo):
        known = np.isfinite(seconds)
        if not known.any():
            continue
        taken, when, q = seconds[known], served.arrival_s[known], float(slo.percentile)
        measured = quantile(taken, q)
        low = high = math.nan
        if taken.size >= 2 * _BATCHES:
            interval = estimate.batch_quantile(taken, q, _BATCHES)
            low, high = max(0.0, measured - interval.half_width), measured + interval.half_width
        worst, start = _worst(when - served.arrival_s[0], taken, q, window_s)
        found.append(
            Promise(
                label,
                metric,
                bound_s=bound,
                measured_s=measured,
                low_s=low,
                high_s=high,
                mean_s=float(taken.mean()),
                kept_frac=float(np.mean(taken <= bound)),
                predicted_s=predicted[metric].percentile_s,
                worst_s=worst,
                worst_start_s=start,
                holds=measured <= bound,
            )
        )
    return found


def _worst(when_s: np.ndarray, seconds: np.ndarray, percentile: float, window_s: float) -> tuple[float, float]:
    """(the percentile in the worst window, its start)."""
    if not window_s > 0:
        return quantile(seconds, percentile), 0.0
    place = np.floor(when_s / window_s).astype(np.int64)
    edges = np.flatnonzero(np.diff(place, prepend=-1, append=place[-1] + 1))
    first, rank = edges[:-1], percentile * (np.diff(edges) - 1)
    below, rest = np.floor(rank).astype(np.int64), rank % 1.0
    ordered = seconds[np.lexsort((seconds, place))]
    low, high = ordered[first + below], ordered[first + below + (rest > 0)]
    each = low + rest * (high - low)
    k = int(np.argmax(each))
    return float(each[k]), float(place[edges[k]] * window_s)
