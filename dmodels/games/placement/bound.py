r"""Lower bounds on the cost of every placement, checkable from prices alone; made for hundreds of workers.

Charge every byte of tier t at worker j a price $\mu_{jt} \ge 0$ and lift the capacities: what is left falls apart into
one facility-location problem per block, so for any prices

$$ \mathrm{OPT} \ \ge\ \sum_b \min_{X_b} \Big(\sum_i w_{ib}\, c_i(X_b) + \sum_{(j,t) \in X_b} \mu_{jt} s_b\Big)
   - \sum_{jt} \mu_{jt} C_{jt}. $$

On hierarchical networks the inner minimum is exact: a dynamic programme over the tree, whose state is the cheapest copy
outside of a part. On others a dual of it is taken: v_i is what client i will pay in all, at most the rate times gamma,
and what clients pay above their reads of (j, t) never exceeds its price. Prices are improved by Polyak's subgradient
steps towards a known placement's cost; any prices give a valid bound, so the certificate is the prices.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.threads import share
from dmodels.solvers import transport
from dmodels.solvers.solution import Solution

from . import kernels
from .bound_dual import dual_blocks, reads
from .bound_tree import tree_blocks, tree_nodes
from .game import PlacementArrays, PlacementGame
from .networks import levels


def price_bound(game: PlacementGame, prices) -> float:
    """The bound at given prices (n, T) of a byte of each tier; negative prices are refused.

    One worker, two blocks with rates 3 and 1, one place, access 1, recomputation 5: the optimum is 3 + 5 = 8, and a
    price of 4 for the place (what the second block would save) proves it.

    >>> game = PlacementGame([[3.0, 1.0]], [1.0], [1.0], [[0.0]], 5.0)
    >>> price_bound(game, [[4.0]]), price_bound(game, [[0.0]])
    (8.0, 4.0)
    """
    a = game.arrays()
    prices = np.asarray(prices, np.float64)
    if prices.shape != a.access.shape or np.isnan(prices).any() or (prices < 0).any():
        raise InputError(f"prices of shape {prices.shape}; accepted: numbers from 0, (workers, tiers) {a.access.shape}")
    return _Lagrangian(a).at(prices)[0]


def best_bound(game: PlacementGame, target_s: float | None = None, iterations: int = 60, tier=None) -> Solution:
    """A bound on every placement's cost from the best prices found in `iterations` subgradient steps.

    target_s  the cost of some placement, towards which steps are measured; by default that of `tier`
    tier      a placement from which to take first prices (an equilibrium, say); two rounds of coordinated responses
              if None

    value: the bound. certificate: `prices` (n, T), from which `price_bound` gives the value again.
    """
    a = game.arrays()
    lagrangian = _Lagrangian(a)
    if tier is None:
        from .response import best_response_dynamics

        tier = best_response_dynamics(game, coordinated=True, max_rounds=2).value.tier
    tier = np.ascontiguousarray(tier, np.int8)
    if target_s is None:
        target_s = float(kernels.costs(tier, a).sum())
    limited = np.isfinite(a.capacity) & (a.slots > 0)
    prices = np.where(limited, first_prices(a, tier), 0.0)
    best, best_prices, step, since = -np.inf, prices, 1.0, 0
    for _ in range(iterations):
        value, used = lagrangian.at(prices)
        if value > best:
            since = 0 if value > best + 1e-4 * abs(target_s - best) else since + 1
            best, best_prices = value, prices
        else:
            since += 1
        if since >= 4:  # no progress: shorter steps, from the best prices
            step, since, prices = step / 2, 0, best_prices
            value, used = lagrangian.at(prices)
        slope = np.where(limited, used - lagrangian.room, 0.0)
        slope = np.where((prices <= 0) & (slope < 0), 0.0, slope)
        norm = float((slope * slope).sum())
        if norm == 0.0 or target_s - best <= 1e-9 * abs(target_s) or step < 1e-3:
            break
        prices = np.maximum(prices + step * max(target_s - value, 0.0) / norm * slope, 0.0)
    return Solution(np.float64(max(best, 0.0)), {"prices": best_prices}, np.int32(0), np.int64(iterations))


def first_prices(a: PlacementArrays, tier: np.ndarray) -> np.ndarray:
    """(n, T): what one more byte of each tier would save all workers at the placement `tier`, others as they are."""
    n, m = a.demand.shape
    saved = np.empty((a.access.shape[1], m, n))
    access = np.ascontiguousarray(a.access.T)
    loop = lambda start, stop: kernels.savings(start, stop, tier, a, access, saved)
    share(loop, m, 1e-9 * n * n * m)
    out = np.zeros(a.access.shape)
    for i in range(n):
        cost = np.append(-saved[:, :, i].T, np.zeros((m, 1)), axis=1)
        s = transport(cost, np.append(a.slots[i], m).astype(float))
        out[i] = np.maximum(-s.certificate["column_duals"][:-1], 0.0) / a.size.mean()
    return out


class _Lagrangian:
    """The bound and the bytes that the relaxed optimum uses, at given prices."""

    def __init__(self, a: PlacementArrays):
        self.a = a
        self.room = a.slots * a.size[0] if a.alike else a.capacity  # whole blocks only
        net = levels(a.distance) if (a.access == a.access[0]).all() else None
        self.nodes = None if net is None else tree_nodes(net, a.access[0])
        self.reads = reads(a.distance, a.access, a.recompute) if net is None else None

    def at(self, prices: np.ndarray) -> tuple[float, np.ndarray]:
        """(bound, bytes used (n, T))."""
        a = self.a
        m = a.demand.shape[1]
        value, used = np.empty(m), np.zeros((m, *a.access.shape), np.bool_)
        if self.nodes is not None:
            loop = lambda first, last: tree_blocks(first, last, a, prices, self.nodes, (value, used))
        else:
            found = value, used.reshape(m, -1)
            loop = lambda first, last: dual_blocks(first, last, a, prices.reshape(-1), self.reads, found)
        share(loop, m, 1e-7 * m * a.access.size)
        dear = prices > 0
        bound = value.sum() - prices[dear] @ self.room[dear]
        return float(bound), np.tensordot(a.size, used.astype(float), axes=(0, 0))
