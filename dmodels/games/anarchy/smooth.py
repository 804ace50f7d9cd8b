r"""(lambda, mu)-smoothness of given latency curves: a price of anarchy for every coarse correlated equilibrium.

If on every worker, for all loads o >= 1 of one placement and n of another,

$$o\,f_j(n + 1) \le \lambda\,o f_j(o) + \mu\,n f_j(n),$$

then the sum of what requests would pay at their places in the optimum is at most lambda OPT + mu SC, so that
$SC \le \frac{\lambda}{1 - \mu} OPT$ in every pure, mixed, correlated and coarse correlated equilibrium (Roughgarden,
J. ACM 62 (2015) 32, Theorem 3.1). A miss is a private constant cost, which needs lambda >= 1 and mu >= 0 only: the
price holds for every omega and all overlaps in [0, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.threads import share
from dmodels.games.routing import RoutingArrays, RoutingGame, optimum_flows
from dmodels.games.routing.smooth import smooth_ceiling

#: The s = 1/(1 - mu) at which `coarse_ceiling_s` bounds a game against its optimum.
_MULTIPLIERS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


class Smoothness(NamedTuple):
    """The best pair for the curves, one per game, and lambda/(1 - mu); inf where the curves are not smooth."""

    lam: np.ndarray
    mu: np.ndarray
    price: np.ndarray


@kernel
def _worst_ratio(f, total, s):
    """(L(s), its slope): L is the greatest over workers, n < total and o of s a + (1 - s) b with a = f(n+1)/f(o), b =
    n f(n)/(o f(o)). Always at least s, from n = 0, o = 1."""
    best, slope = s, 1.0
    for j in range(f.shape[0]):
        for n in range(total):
            new = f[j, n]
            paid = n * f[j, n - 1] if n > 0 else 0.0
            for o in range(1, total + 1):
                own = f[j, o - 1]
                if own > 0:
                    a, b = new / own, paid / (o * own)
                    value = s * a - (s - 1.0) * b
                    if value > best:
                        best, slope = value, a - b
                elif new > 0:  # free at o, not at n + 1: who first pays meets n who do not, and no s will do
                    return np.inf, 1.0
    return best, slope


@kernel(tiered=True)
def _least_price(f, total):
    """(s, L) with L(s) least over s >= 1: L is convex and piecewise linear, so the lines at both ends of a bracket
    meet at or below the minimum, which is found exactly after finitely many cuts."""
    low, high = 1.0, 2.0
    at_low, rise_low = _worst_ratio(f, total, low)
    if rise_low >= 0:
        return low, at_low
    at_high, rise_high = _worst_ratio(f, total, high)
    while rise_high < 0:
        low, at_low, rise_low = high, at_high, rise_high
        if high > 1e9:
            return high, np.inf
        high *= 2.0
        at_high, rise_high = _worst_ratio(f, total, high)
    for _ in range(200):
        s = (at_low - rise_low * low - at_high + rise_high * high) / (rise_high - rise_low)
        floor = at_high + rise_high * (s - high)
        s = min(max(s, low), high)
        value, rise = _worst_ratio(f, total, s)
        if value <= floor * (1.0 + 1e-14) or s == low or s == high:
            return (s, value) if value <= at_high else (high, at_high)
        if rise < 0:
            low, at_low, rise_low = s, value, rise
        else:
            high, at_high, rise_high = s, value, rise
    return high, at_high


@kernel(tiered=True)
def _least_prices(f, totals, first, last, s, price):
    for b in range(first, last):
        fb, total = f[b % len(f)], totals[b % len(totals)]
        smooth = True
        for j in range(fb.shape[0]):
            for k in range(total):
                smooth &= np.isfinite(fb[j, k]) and (k == 0 or fb[j, k] >= fb[j, k - 1])
        s[b], price[b] = _least_price(fb, total) if smooth else (1.0, np.inf)


def smooth_prices(a: RoutingArrays) -> tuple[np.ndarray, np.ndarray]:
    """(s = 1/(1 - mu), price) of the games in a batch; time grows as workers x requests^2."""
    s, price = np.empty(a.size), np.empty(a.size)
    totals = a.counts.sum(-1)
    share(lambda i, j: _least_prices(a.f, totals, i, j, s, price), a.size, a.size * 1e-8 * a.f[0].size * a.f.shape[-1])
    return s.reshape(a.batch), price.reshape(a.batch)


def smoothness(game: RoutingGame) -> Smoothness:
    """The pair (lambda, mu) with the least lambda/(1 - mu), over the curves' values at the loads that can occur.

    Curves must be nondecreasing and finite up to all requests on one worker (inf otherwise: a pole is not smooth).
    Affine curves give at most 5/2, and f = n^d the exact prices of Aland et al. (`anarchy_bounds.polynomial_atomic`).

    >>> from dmodels.games.routing import RoutingGame
    >>> found = smoothness(RoutingGame([[1.0, 2.0, 3.0, 4.0]], np.zeros((4, 1))))
    >>> round(float(found.lam), 6), round(float(found.mu), 6), round(float(found.price), 6)
    (1.666667, 0.333333, 2.5)
    """
    s, price = smooth_prices(game.arrays())
    return Smoothness(price / s, 1.0 - 1.0 / s, price)


def coarse_ceiling_s(game: RoutingGame) -> np.ndarray:
    """What any coarse correlated equilibrium costs at most: smoothness against this game's optimum and its loads.

    See `smooth`. It uses what the optimum costs in each place and that loads sum to the number of requests, and
    is usually far below `smoothness(game).price` times the optimum. inf where loads up to all requests meet a pole.
    """
    a = game.arrays()
    flows, _ = optimum_flows(a)
    out = np.empty(a.size)
    for b in range(a.size):
        f, c, q = a.f[b % len(a.f)], a.cost[b % len(a.cost)], a.counts[b % len(a.counts)]
        box = np.zeros(len(f), np.int64), np.full(len(f), q.sum())
        ceilings = np.full(len(q), np.inf), float((q * c.min(-1)).sum())
        out[b] = min(smooth_ceiling(f, c, flows[b], box, ceilings, s) for s in _MULTIPLIERS)
    return out.reshape(a.batch)
