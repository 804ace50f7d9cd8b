r"""Routing with temperature: logit equilibrium, and the stationary law of softmax re-routing.

Where requests are re-routed one at a time by a softmax of their own costs, the chain is reversible, and its law is
$\pi(\sigma) \propto e^{-\Phi(\sigma)/\tau}$ with $\Phi$ the exact potential: temperature does not trace a frontier of
equilibria, it smears the potential. tau -> 0 leaves the minimisers of the potential only, so bad equilibria disappear.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers.solution import Solution

from .game import RoutingGame, sums

#: Profiles that `gibbs_profiles` is willing to list.
_MOST_PROFILES = 2_000_000


class GibbsLoads(NamedTuple):
    """Law of the loads of m workers under re-routing, when all requests are alike."""

    load_probability: np.ndarray  # (m, n + 1): P(n_j = k)
    mean_cost_s: np.ndarray  # expected social cost
    mean_potential_s: np.ndarray
    log_partition: np.ndarray  # log Z over labelled profiles


def _one(game: RoutingGame):
    a = game.arrays()
    if a.size != 1:
        raise InputError(f"{a.size} games; accepted is one: take them one by one")
    return a.f[0], a.cost[0], a.counts[0]


def gibbs_profiles(game: RoutingGame, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """(profiles (m^n, n), probabilities) of softmax re-routing at temperature tau > 0 seconds, by enumeration."""
    _, _, counts = _one(game)
    n, m = int(counts.sum()), game.workers_count
    if m**n > _MOST_PROFILES:
        raise InputError(f"{m}^{n} profiles; accepted are at most {_MOST_PROFILES:,}: use gibbs_loads")
    profiles = np.array(list(itertools.product(range(m), repeat=n)))
    group = np.repeat(np.arange(len(counts)), counts)
    x = np.zeros((len(profiles), len(counts), m), np.int64)
    np.add.at(x, (np.arange(len(profiles))[:, None], group, profiles), 1)
    phi = sums(game.arrays(), x)[1]
    with np.errstate(invalid="ignore"):
        weight = np.exp(-(phi - phi.min()) / tau)
    return profiles, weight / weight.sum()


def gibbs_loads(game: RoutingGame, tau: float) -> GibbsLoads:
    r"""The stationary law in product form, for requests that are all alike (one prefix group, or omega = 0).

    $P(n_1..n_m) \propto \frac{N!}{\prod n_j!}\prod_j e^{-(\sum_{k \le n_j} f_j(k) + n_j c_j)/\tau}$: convolutions of m
    vectors of length N + 1, as for closed queueing networks (Buzen 1973), in logarithms. O(m N^2).
    """
    f, cost, counts = _one(game)
    if not tau > 0:
        raise InputError(f"tau = {tau}; accepted are positive numbers of seconds")
    cost, counts = cost[counts > 0], counts[counts > 0]
    if (cost != cost[0]).any():
        raise InputError("requests differ in their overlaps; accepted are games of one prefix group, or omega = 0")
    from scipy.special import gammaln

    n, m = int(counts.sum()), len(f)
    k = np.arange(n + 1.0)
    phi = np.concatenate([np.zeros((m, 1)), np.cumsum(f[:, :n], 1)], 1) + k * cost[0][:, None]
    log_weight = -phi / tau - gammaln(k + 1.0)
    before = [np.concatenate([[0.0], np.full(n, -np.inf)])]
    for w in log_weight:
        before.append(_convolve(before[-1], w))
    after = [before[0]]
    for w in log_weight[::-1]:
        after.append(_convolve(after[-1], w))
    log_z = before[-1][n]
    rest = [_convolve(before[j], after[m - 1 - j]) for j in range(m)]
    probability = np.array([np.exp(log_weight[j] + rest[j][::-1] - log_z) for j in range(m)])
    g = np.concatenate([np.zeros((m, 1)), f[:, :n] * k[1:]], 1) + k * cost[0][:, None]
    likely = probability > 0  # infinite values past a pole have no weight
    expect = lambda values: float((probability[likely] * values[likely]).sum())
    return GibbsLoads(probability, expect(g), expect(phi), log_z + gammaln(n + 1.0))


def _convolve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log of the convolution of exp(a) and exp(b), cut to their length."""
    from scipy.special import logsumexp

    n = len(a)
    table = np.full((n, n), -np.inf)
    for shift in range(n):
        table[shift, shift:] = a[shift] + b[: n - shift]
    with np.errstate(divide="ignore"):
        return logsumexp(table, axis=0)


def logit_equilibrium(
    game: RoutingGame, tau: float, tolerance: float = 1e-10, max_steps: int = 20_000, damping: float = 0.2
) -> Solution:
    r"""Quantal response: every request mixes over workers by a softmax of *expected* costs, given that all others do.

    $p_{gj} \propto e^{-E[f_j(1 + K_{-g,j}) + c_{gj}]/\tau}$ with $K_{-g,j}$ the others on j, a sum of independent
    binomials whose law is convolved exactly. Symmetric within groups. `value` has `probability` (G, m), `mean_cost_s`
    (the expected social cost); the certificate `residual` is the largest distance of p from its response. tau = inf:
    uniform, as is the row of a group without requests.
    """
    f, cost, counts = _one(game)
    if not tau > 0:
        raise InputError(f"tau = {tau}; accepted are positive numbers of seconds (0: use best_response)")
    if max_steps < 1:
        raise InputError(f"max_steps = {max_steps}; accepted are whole numbers from 1")
    from scipy.stats import binom  # half a second to import

    groups, m = cost.shape
    p = np.full((groups, m), 1.0 / m)
    here = np.zeros((groups, m))
    present = np.flatnonzero(counts)  # a group without requests has no cost to expect
    for step in range(1, max_steps + 1):  # noqa: B007
        for j in range(m):
            for g in present:
                others = np.ones(1)
                for h in present:
                    size = counts[h] - (h == g)
                    others = np.convolve(others, binom.pmf(np.arange(size + 1), size, p[h, j]))
                likely = np.flatnonzero(others)  # what never happens may cost infinity
                here[g, j] = (others[likely] * f[j, likely]).sum() + cost[g, j]
        finite = np.where(np.isfinite(here), here, 1e300)
        weight = np.exp(-(finite - finite.min(1, keepdims=True)) / tau)
        response = weight / weight.sum(1, keepdims=True)
        residual = float(np.abs(response - p).max())
        if residual <= tolerance:
            break
        p = p + damping * (response - p)
    on, at = np.nonzero(p)
    mean = float((counts[on] * p[on, at] * here[on, at]).sum())
    flags = np.int32(0 if residual <= tolerance else Flag.NOT_CONVERGED)
    return Solution({"probability": p, "mean_cost_s": mean}, {"residual": residual}, flags, step)
