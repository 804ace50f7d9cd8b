r"""Where a closed loop saturates: the knee N* = 1 + Z/S of its two asymptotes, with an interval.

Below N* throughput is N/(Z + S), above it 1/S. Both come from throughputs measured at any loads, also from loads below
the knee alone, because the queue that builds up towards it already bends the curve.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from .curves import CurveFit, fit_closed_loop, sweep


class Knee(NamedTuple):
    """The knee of a load sweep, in concurrent clients."""

    clients: float
    low: float  # 95 % interval, delta method on log(N* - 1)
    high: float
    ceiling_rps: float  # 1/S
    fit: CurveFit
    warnings: tuple[str, ...]


def knee(clients: Any, rate_rps: Any, level: float = 0.95) -> Knee:
    """The knee of measured throughputs, from a closed-loop fit."""
    x, _ = sweep(clients, rate_rps, 3)
    found = fit_closed_loop(clients, rate_rps)
    service, think = found.values["service_s"], found.values["think_s"]
    ratio = think / service
    slope = np.array([-1.0, 1.0])  # of log(Z/S) in (log S, log Z)
    free = max(len(found.residuals) - 2, 1)
    half = stats.t.ppf(0.5 + level / 2.0, free) * float(np.sqrt(slope @ found.log_covariance @ slope))
    said = []
    if x.max() < 0.5 * (1.0 + ratio):
        said.append(f"the loads end at {x.max():g}, far below the knee at {1.0 + ratio:.4g}: it is extrapolated")
    if found.runs_p() < 0.02:
        said.append("the residuals change sign too rarely: one exponential stage is not the shape of this sweep")
    low, high = 1.0 + ratio * np.exp(-half), 1.0 + ratio * np.exp(half)
    return Knee(1.0 + ratio, float(low), float(high), 1.0 / service, found, tuple(said))


def bracket(load: Any, latency_s: Any, factor: float = 3.0) -> tuple[float, float]:
    """The neighbouring loads between which latency first jumps by more than `factor` times the growth of the load.

    What a sweep says without any law: the anarchy paper's Table 4 puts the jump in (96, 128]. (inf, inf): no jump.
    """
    x, y = sweep(load, latency_s, 2)
    jumps = np.flatnonzero(y[1:] / y[:-1] > factor * x[1:] / x[:-1])
    return (float(x[jumps[0]]), float(x[jumps[0] + 1])) if jumps.size else (float("inf"), float("inf"))
