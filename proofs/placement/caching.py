r"""Selfish caching without capacities: one block, and every node decides whether to pay for a copy of its own.

A node that keeps a copy pays $\alpha$, another pays $w_i$ times the distance of the nearest copy, or $w_i \gamma$ if
there is none. The block is one of many: without capacities the game falls apart into one game per block (Chun et al.,
PODC 2004). This is the classical model that the price-of-anarchy paper quotes; its own Definition 2 has no alpha and
has capacities, so none of these bounds carries over to it (`anarchy`).

What holds, for $\gamma = \infty$: pure equilibria exist on undirected networks (Chun's greedy finds one); the price of
anarchy is at most n, because at an equilibrium nobody pays more than alpha and the optimum pays for one copy at least;
it is 1 on a complete graph with equal rates, of order sqrt(n) on a line with equal links, of order n on a line whose
links may differ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import HOST, Real, Record, quantity
from dmodels.solvers.solution import Solution


class CachingGame(Record):
    """One block on a network.

    distance_s     (n, n): what node i pays per read from node j; inf where there is no path
    replication_s  alpha, one number or (n,): what a copy costs its owner, in the unit of rate times seconds
    demand_rps     one number or (n,): reads per second
    recompute_s    gamma: a read while nobody has a copy; inf: somebody must have one
    """

    distance_s: Real = quantity()
    replication_s: Real = quantity()
    demand_rps: Real = quantity(1.0)
    recompute_s: Real = quantity(np.inf)

    def __check_init__(self):
        if not all(isinstance(leaf, HOST) for leaf in vars(self).values()):
            return
        shape = self.distance_s.shape
        if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
            raise InputError(f"distance_s has shape {shape}; accepted: (nodes, nodes)")
        for name in ("replication_s", "demand_rps"):
            value = getattr(self, name)
            if value.shape not in ((), shape[:1]) or not np.isfinite(value).all() or (value < 0).any():
                raise InputError(f"{name} = {value}; accepted: one finite number from 0, or one for each node")
        off = self.distance_s[~np.eye(shape[0], dtype=bool)]
        if np.isnan(off).any() or (off < 0).any():
            raise InputError("distance_s holds NaN or negative numbers; accepted are numbers from 0, or inf")
        if self.recompute_s.shape != () or not self.recompute_s >= 0:
            raise InputError(f"recompute_s = {self.recompute_s}; accepted: one number from 0, or inf")

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """(distance (n, n) with zero diagonal, alpha (n,), demand (n,), gamma)."""
        n = len(self.distance_s)
        distance = np.array(self.distance_s, np.float64)
        np.fill_diagonal(distance, 0.0)
        alpha, demand = (np.array(np.broadcast_to(v, (n,))) for v in (self.replication_s, self.demand_rps))
        return distance, alpha, demand, float(self.recompute_s)


class CachingRange(NamedTuple):
    """Cheapest and costliest pure equilibrium, and the optimum: costs, and who keeps a copy (n,)."""

    best_s: float
    worst_s: float
    optimum_s: float
    best: np.ndarray
    worst: np.ndarray
    optimum: np.ndarray


def caching_cost_s(game: CachingGame, kept) -> np.ndarray:
    """What each node pays if those with `kept` (n,) have a copy."""
    distance, alpha, demand, gamma = game.arrays()
    kept = np.asarray(kept, bool)
    read = np.minimum(np.where(kept, distance, np.inf).min(1), gamma)
    return np.where(kept, alpha, np.where(demand > 0, demand * np.where(demand > 0, read, 0.0), 0.0))


def caching_equilibrium(game: CachingGame) -> Solution:
    """An equilibrium by Chun's greedy: the node that bears the least distance takes a copy; whom it contents drop out.

    For symmetric distances without recomputation (gamma infinite). value: kept (n,); certificate: `gain_s`.
    """
    distance, alpha, demand, gamma = game.arrays()
    if not np.array_equal(distance, distance.T) or np.isfinite(gamma):
        raise InputError("greedy needs symmetric distances and recompute_s = inf; caching_range takes other games")
    bears = np.where(demand > 0, alpha / np.where(demand > 0, demand, 1.0), np.inf)
    left, kept = np.ones(len(alpha), bool), np.zeros(len(alpha), bool)
    while np.isfinite(bears[left]).any():  # nodes without demand keep nothing
        i = int(np.where(left, bears, np.inf).argmin())
        kept[i] = True
        left &= distance[:, i] > bears
        left[i] = False
    return Solution(kept, {"gain_s": _gain(game, kept)}, np.int32(0), np.int64(kept.sum()))


def _gain(game: CachingGame, kept: np.ndarray) -> np.ndarray:
    """What each node saves by changing its mind."""
    now = caching_cost_s(game, kept)
    out = np.empty(len(now))
    for i in range(len(now)):
        other = kept.copy()
        other[i] = not other[i]
        after = caching_cost_s(game, other)[i]
        out[i] = 0.0 if now[i] == after else now[i] - after
    return out


def caching_range(game: CachingGame, most_nodes: int = 20) -> Solution:
    """All pure equilibria by enumeration of the 2^n profiles: `CachingRange`.

    certificate: `price_of_anarchy`, `price_of_stability`, `equilibria_count`. flags: INFEASIBLE without equilibrium.
    """
    distance, alpha, demand, gamma = game.arrays()
    n = len(alpha)
    if n > most_nodes:
        raise InputError(f"{n} nodes; accepted are at most {most_nodes} (2^n profiles); line_range takes long lines")
    total, stable = _profiles(distance, alpha, demand, gamma)
    mask = lambda p: (np.array(p) >> np.arange(n)) & 1 == 1
    least, found = int(total.argmin()), np.flatnonzero(stable)
    if not found.size:
        none, nan = np.zeros(n, bool), float("nan")
        value = CachingRange(nan, nan, float(total[least]), none, none, mask(least))
        return Solution(
            value,
            {"price_of_anarchy": nan, "price_of_stability": nan, "equilibria_count": 0},
            np.int32(Flag.INFEASIBLE),
            np.int64(total.size),
        )
    best, worst = found[total[found].argmin()], found[total[found].argmax()]
    value = CachingRange(*(float(total[p]) for p in (best, worst, least)), *(mask(p) for p in (best, worst, least)))
    ratio = lambda cost: cost / value.optimum_s if value.optimum_s > 0 else (1.0 if cost == 0 else math.inf)
    certificate = {
        "price_of_anarchy": ratio(value.worst_s),
        "price_of_stability": ratio(value.best_s),
        "equilibria_count": found.size,
    }
    return Solution(value, certificate, np.int32(0), np.int64(total.size))


@kernel
def _profiles(distance, alpha, demand, gamma):
    """(social cost, is it an equilibrium) of all subsets of nodes as bit masks."""
    n = alpha.size
    total = np.zeros(1 << n)
    stable = np.ones(1 << n, np.bool_)
    for p in range(1 << n):
        for i in range(n):
            other = gamma  # nearest copy but one's own
            for j in range(n):
                if j != i and p >> j & 1 and distance[i, j] < other:
                    other = distance[i, j]
            read = demand[i] * other if demand[i] > 0.0 else 0.0
            if p >> i & 1:
                total[p] += alpha[i]
                if read < alpha[i] * (1 - 1e-12):
                    stable[p] = False
            else:
                total[p] += read
                if alpha[i] < read * (1 - 1e-12):
                    stable[p] = False
    return total, stable


def line_range(nodes: int, replication_s: float) -> CachingRange:
    """Exact range for a line with links of length 1, unit demand, gamma infinite; by dynamic programming over copies.

    Equilibria: gaps g between copies with alpha <= g and floor(g / 2) <= alpha, ends of at most alpha. A gap costs
    floor(g^2 / 4), an end of e nodes e (e + 1) / 2. `best`, `worst`, `optimum` are the positions of copies.

    >>> r = line_range(9, 8.0)  # one copy at the end: 8 + 36
    >>> r.worst_s, r.optimum_s
    (44.0, 26.0)
    """
    if nodes < 1 or not replication_s >= 0:
        raise InputError(f"nodes = {nodes}, replication_s = {replication_s}; accepted: at least 1, from 0")
    gap = np.arange(nodes, dtype=float)
    inside = np.floor(gap * gap / 4)
    end = gap * (gap + 1) / 2
    stable_gap = (gap >= replication_s) & (np.floor(gap / 2) <= replication_s) & (gap >= 1)
    stable_end = gap <= replication_s
    best, best_at = _chain(nodes, replication_s, inside, end, stable_gap, stable_end, 1.0)
    worst, worst_at = _chain(nodes, replication_s, inside, end, stable_gap, stable_end, -1.0)
    least, least_at = _chain(nodes, replication_s, inside, end, gap >= 1, gap >= 0, 1.0)
    return CachingRange(best, worst, least, best_at, worst_at, least_at)


def _chain(nodes, alpha, inside, end, gap_ok, end_ok, sign):
    """Least (sign 1) or most (sign -1) cost over positions of copies with allowed gaps and ends."""
    gaps = np.where(gap_ok, sign * inside, np.inf)
    ends = np.where(end_ok, sign * end, np.inf)
    cost, before = np.empty(nodes), np.full(nodes, -1)
    for p in range(nodes):
        cost[p] = sign * alpha + ends[p]
        if p:
            via = cost[:p] + gaps[p:0:-1]
            k = int(via.argmin())
            if via[k] + sign * alpha < cost[p]:
                cost[p], before[p] = via[k] + sign * alpha, k
    last = cost + ends[::-1]
    p = int(last.argmin())
    value, at = float(sign * last[p]), []
    while p >= 0:
        at.append(p)
        p = int(before[p])
    return value, np.array(at[::-1])


def line_price_bound(nodes: int, replication_s: float) -> float:
    r"""At most this is the price of anarchy on a line with equal links (length 1, unit demand): of order sqrt(n).

    r copies leave r parts of n_k nodes with sum n, whose reads cost at least $(n_k^2 - 1)/4$ each, so
    $OPT \ge r\alpha + (n^2/r - r)/4 \ge n\sqrt{\alpha - 1/4}$, and an equilibrium costs at most $n\alpha$: the ratio is
    at most $\alpha/\sqrt{\alpha - 1/4}$ for alpha >= 1. At alpha >= n - 1 an equilibrium has one copy and costs at
    most $\alpha + n(n-1)/2$. Below 1 every worker keeps a copy, which is optimal.
    """
    n, alpha = float(nodes), float(replication_s)
    if alpha < 1:
        return 1.0
    bound = alpha / math.sqrt(alpha - 0.25)
    if alpha >= n - 1:
        least = min(r * alpha + (n * n / r - r) / 4 for r in range(1, nodes + 1))
        bound = min(bound, (alpha + n * (n - 1) / 2) / least)
    return max(1.0, min(bound, n))
