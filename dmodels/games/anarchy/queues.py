r"""Selfish and optimal splits of a Poisson stream over parallel queues: M/M/1 in closed form, M/M/c by water-filling.

Requests see mean response times and choose; nobody gains by switching at the equilibrium, the mean response is least at
the optimum. Haviv and Roughgarden (2007): the ratio is below the number of servers at every load, and that is tight.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dmodels.core.records import Real
from dmodels.models.queueing import wait_mean_s
from dmodels.solvers.solution import Solution
from dmodels.solvers.wardrop import marginal, wardrop


def mm1_equilibrium(service_rps: Real, arrival_rps: Real) -> Real:
    r"""Arrivals at each of m M/M/1 queues when all used ones respond alike: $x_j = (\mu_j - s)^+$, one free capacity s.

    Rates (..., m), total (...) below their sum. mu = (10, 5, 4), 12 requests/s: s = 7/3.

    >>> mm1_equilibrium(np.array([10.0, 5.0, 4.0]), 12.0).round(3).tolist()
    [7.667, 2.667, 1.667]
    """
    return _split(np.asarray(service_rps, np.float64), np.asarray(arrival_rps, np.float64), power=0.0)


def mm1_optimum(service_rps: Real, arrival_rps: Real) -> Real:
    r"""Arrivals that minimise the mean response: free capacity $\mu_j - x_j \propto \sqrt{\mu_j}$ where used."""
    return _split(np.asarray(service_rps, np.float64), np.asarray(arrival_rps, np.float64), power=0.5)


def _split(mu: np.ndarray, total: np.ndarray, power: float) -> np.ndarray:
    """x = (mu - s mu^power)^+ with sum `total`: the k fastest queues are used, the largest such k."""
    order = np.argsort(-mu, axis=-1, kind="stable")
    fast = np.take_along_axis(mu, order, -1)
    scale = (np.cumsum(fast, -1) - total[..., None]) / np.cumsum(fast**power, -1)  # s if exactly the first k are used
    used = fast > scale * fast**power
    last = mu.shape[-1] - 1 - np.argmax(used[..., ::-1], axis=-1)
    s = np.take_along_axis(scale, last[..., None], -1)
    fits = (total < mu.sum(-1))[..., None]
    return np.where(fits, np.maximum(mu - s * mu**power, 0.0), np.nan)


def mm1_price(service_rps: Real, arrival_rps: Real) -> Real:
    """Mean response at equilibrium over the least possible; NaN at and above saturation."""
    mu, total = np.asarray(service_rps, np.float64), np.asarray(arrival_rps, np.float64)
    cost = [(x / (mu - x)).sum(-1) for x in (mm1_equilibrium(mu, total), mm1_optimum(mu, total))]
    return cost[0] / cost[1]


def mmc_split(service_s: Real, servers: Real, arrival_rps: Real, optimal: bool = False) -> Solution:
    r"""Arrivals at parallel M/M/c stations (..., m) at equilibrium, or at the optimum: certified by `solvers.wardrop`.

    Response of a station: $S + \frac{C(c, xS)\,S}{c - xS}$ with Erlang's C. Differentiable in all three.
    """
    servers = jnp.asarray(servers, float)
    response = lambda x: service_s + wait_mean_s(x, service_s, servers)
    return wardrop(marginal(response) if optimal else response, arrival_rps, servers / service_s)
