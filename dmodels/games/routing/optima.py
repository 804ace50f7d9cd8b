r"""The social optimum of routing games: a convex min-cost flow, certified by duality.

Social cost is $\sum_j g_j(n_j) + \sum_i c_{i\sigma_i}$ with $g_j(k) = k f_j(k)$. Where every $g_j$ is convex this is a
transportation problem with one slot per marginal $g_j(k) - g_j(k-1)$ (the singular curve is convex for all a, b, d >= 0
and beta > 0), so "finding social optima is NP-hard" does not apply to it. Where a $g_j$ is not convex (a latency that
steps or falls), its lower convex hull bounds the optimum from below, a descent from the hull's placement from above,
and branch and bound over ranges of loads closes the gap: on a range that ends at the step the hull is the curve itself.
"""

from __future__ import annotations

import heapq
import itertools

import numpy as np

from dmodels.core.flags import Flag
from dmodels.models.latency import TableCurve
from dmodels.solvers import congestion_transport
from dmodels.solvers.solution import Solution

from .equilibria import profile
from .game import RoutingArrays, RoutingGame, overload_flag
from .kernels import respond

#: Ranges of loads that branch and bound looks at, per game.
BRANCHES = 2_000
#: Relative distance of bound and cost at which they are called equal.
CLOSED = 1e-10


def load_costs(f: np.ndarray) -> np.ndarray:
    """g(k) = k f(k) for k = 0..K along the last axis; infinite from the first infinite latency on."""
    room = np.logical_and.accumulate(np.isfinite(f), axis=-1)
    g = np.where(room, f, np.inf) * np.arange(1.0, f.shape[-1] + 1.0)
    return np.concatenate([np.zeros((*f.shape[:-1], 1)), g], axis=-1)


def steps(g: np.ndarray) -> np.ndarray:
    """g(k) - g(k-1) along the last axis, infinite with g(k)."""
    before = np.where(np.isfinite(g), g, 0.0)[..., :-1]
    return np.asarray(np.where(np.isfinite(g[..., 1:]), g[..., 1:] - before, np.inf))


def marginals(f: np.ndarray) -> np.ndarray:
    """g(k) - g(k-1) of g(k) = k f(k), along the last axis; infinite from the first infinite latency on."""
    return steps(load_costs(f))


def hull(g: np.ndarray) -> np.ndarray:
    """The greatest convex function below g(0..K), which is infinite from some load on or nowhere, at the same places.

    Where the two meet it is g to the last bit, not what sums and differences of larger terms leave of it.
    """
    room = int(np.isfinite(g).sum())
    corners: list[int] = []
    for k in range(room):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (g[b] - g[a]) * (k - b) < (g[k] - g[b]) * (b - a):
                break
            corners.pop()
        corners.append(k)
    return np.asarray(np.r_[np.interp(np.arange(room), corners, g[corners]), g[room:]])


def convex_marginals(f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(marginals, True where g was convex) of curves (..., K); the hull's marginals where it was not."""
    g = load_costs(f)
    step = steps(g)
    with np.errstate(invalid="ignore"):
        fall = np.diff(step, axis=-1) < -1e-12 * np.abs(step[..., :-1])
    convex = ~fall.any(-1)
    out = np.maximum.accumulate(step, axis=-1)  # equal but for rounding where convex
    for at in np.argwhere(~convex):
        out[tuple(at)] = steps(hull(g[tuple(at)]))
    return out, np.asarray(convex)


def optimum_flows(a: RoutingArrays, *, backend: str = "auto") -> tuple[np.ndarray, np.ndarray]:
    """(flows (B, G, m), lower bound (B,)) of the batch: the optimum where the bound equals the flow's cost."""
    step, convex = convex_marginals(a.f)
    size, (groups, workers) = a.size, a.cost.shape[1:]
    flows, bound = np.zeros((size, groups, workers), np.int64), np.empty(size)
    totals = np.broadcast_to(a.counts.sum(-1), size)
    for total in np.unique(totals):
        at = np.flatnonzero(totals == total)
        counts = a.counts[at % len(a.counts)]
        row = np.array([np.repeat(np.arange(groups), c) for c in (counts[:1] if len(a.counts) == 1 else counts)])
        cost, f = (b if len(b) == 1 else b[at] for b in (a.cost, step))
        one = len(cost) == len(row) == 1
        each = cost[0, row[0]] if one else np.take_along_axis(cost, row[..., None], axis=1)
        s = congestion_transport(np.broadcast_to(each, (at.size, total, workers)), f[..., :total], backend=backend)
        sit = np.asarray(s.value.columns).astype(np.int64)
        missing = (s.flags & int(Flag.INFEASIBLE)) != 0
        gap = np.where(missing, 0.0, np.maximum(s.certificate["gap"], 0.0))
        bound[at] = np.where(missing, np.inf, s.value.cost - gap)
        game = np.repeat(at, total)
        np.add.at(flows, (game, np.broadcast_to(row, sit.shape).ravel(), np.maximum(sit, 0).ravel()), 1)
    bent = ~np.broadcast_to(convex.all(-1), size) & np.isfinite(bound)
    for b in np.flatnonzero(bent):  # moves that lower the social cost, until none does
        g, cost = load_costs(a.f[b % len(a.f)]), a.cost[b % len(a.cost)]
        respond(steps(g), cost, flows[b], 1e-12 * abs(bound[b]), 1_000_000)
        flows[b], bound[b] = _branch(g, cost, a.counts[b % len(a.counts)], flows[b])
    return flows, bound


def _slots(g: np.ndarray, c: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(hulls of g (m, K + 1) on lo..hi, infinite outside, and their marginals (m, K) with those below lo forced)."""
    below, slot = np.full(g.shape, np.inf), np.full((len(g), g.shape[1] - 1), np.inf)
    for j in range(len(g)):
        below[j, lo[j] : hi[j] + 1] = hull(g[j, lo[j] : hi[j] + 1])
        slot[j, lo[j] : hi[j]] = steps(below[j, lo[j] : hi[j] + 1])
    known = np.r_[0.0, slot[np.isfinite(slot)]]
    forced = known.min() - 2.0 * (np.ptp(known) + np.ptp(c))  # cheaper than any exchange: fills lo first
    slot[np.arange(slot.shape[1]) < lo[:, None]] = forced
    return below, slot


def _dual_bound(below: np.ndarray, c: np.ndarray, q: np.ndarray, price: np.ndarray) -> float:
    """Every request's cheapest place and every worker's best load at prices (m,) of a place, less the sum's rounding:
    at most what any placement costs with loads' costs `below` (m, K + 1)."""
    price = np.where(np.isfinite(price), price, 0.0)
    at = np.where(np.isfinite(below[:, 1:]).any(-1), c + price, np.inf).argmin(-1)
    load = (below - price[:, None] * np.arange(below.shape[1])).argmin(-1)
    terms = np.r_[q * c[np.arange(len(q)), at], q * price[at], below[np.arange(len(below)), load], -price * load]
    return float(terms.sum() - 4.0 * np.finfo(float).eps * np.abs(terms).sum())


def _branch(g: np.ndarray, c: np.ndarray, q: np.ndarray, flow: np.ndarray) -> tuple[np.ndarray, float]:
    """(flow, lower bound) of one game with costs `g` (m, K + 1) of loads: branch and bound over ranges of loads.

    In a range lo <= n <= hi each g_j is replaced by its hull between the ends, which is a convex flow; the range is cut
    where the hull is furthest below the curve at the loads of that flow. A bound is lowered by what rounding can have
    added to it, so that a range with much dearer loads than the optimum's is cut until it is without them.
    """
    workers, total = len(g), int(q.sum())
    g = g[:, : total + 1]
    row, every = np.repeat(np.arange(len(q)), q), np.arange(workers)

    def cost_of(x: np.ndarray) -> float:
        return float(g[every, x.sum(0)].sum() + (x * c).sum())

    def relaxed(ends: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """(bound, flow, how far the hull is below the curve at its loads) of each range."""
        hulls, slots = zip(*(_slots(g, c, *e) for e in ends), strict=True)
        s = congestion_transport(np.broadcast_to(c[row], (len(ends), total, workers)), np.array(slots))
        out = []
        for k, below in enumerate(hulls):
            if int(s.flags[k]) & int(Flag.INFEASIBLE):
                out.append((np.inf, flow, np.zeros(workers)))
                continue
            x = np.zeros(c.shape, np.int64)
            np.add.at(x, (row, np.asarray(s.value.columns[k]).astype(np.int64)), 1)
            n = x.sum(0)
            bound = _dual_bound(below, c, q, -np.asarray(s.certificate["column_duals"])[k])
            out.append((bound, x, g[every, n] - below[every, n]))
        return out

    best, number = cost_of(flow), itertools.count()
    whole = (np.zeros(workers, np.int64), np.isfinite(g[:, 1:]).sum(-1))
    heap = [(least, next(number), whole, x, excess) for least, x, excess in relaxed([whole])]
    for _ in range(BRANCHES):
        least, _, (lo, hi), x, excess = heap[0]
        if not least < best - CLOSED * abs(best) or (lo == hi).all():
            break
        heapq.heappop(heap)
        j = int(excess.argmax()) if excess.any() else int((hi - lo).argmax())
        n = int(x.sum(0)[j])
        cut = n if n < hi[j] and n >= lo[j] else (lo[j] + hi[j]) // 2
        below, above = (lo, np.where(every == j, cut, hi)), (np.where(every == j, cut + 1, lo), hi)
        children = [ends for ends in (below, above) if ends[0].sum() <= total <= ends[1].sum()]
        for ends, (value, x, excess) in zip(children, relaxed(children) if children else [], strict=True):
            if (cost := cost_of(x)) < best and np.isfinite(value):
                best, flow = cost, x
            heapq.heappush(heap, (max(value, least), next(number), ends, x, excess))
        if not heap:
            return flow, best
    return flow, min(heap[0][0], best)


def least_potential_flow(f: np.ndarray, c: np.ndarray, q: np.ndarray) -> np.ndarray | None:
    """Flow of one game that minimises the potential, an equilibrium: Rosenthal's potential has increments f_j(k), so it
    is a convex min-cost flow where every f is nondecreasing (None elsewhere, and where a pole leaves no room)."""
    row = np.repeat(np.arange(len(q)), q)
    s = congestion_transport(c[row], f[:, : row.size])
    if s.flags:
        return None
    flow = np.zeros(c.shape, np.int64)
    np.add.at(flow, (row, np.asarray(s.value.columns).astype(np.int64)), 1)
    return flow


def marginal_cost_game(game: RoutingGame) -> RoutingGame:
    r"""The game in which each request is charged what it costs all requests: f_j(k) becomes g_j(k) - g_j(k-1).

    Its potential is the social cost of `game`, so an optimum of `game` is an equilibrium of it (Pigou's toll); without
    cache terms every equilibrium is then optimal.
    """
    a = game.arrays()
    step = TableCurve(marginals(a.shaped()[0]))
    return RoutingGame(step, game.overlap, game.omega, game.counts)


def optimum(game: RoutingGame, *, backend: str = "auto") -> Solution:
    """The assignment with the least social cost, certified: a convex min-cost flow (the paper says NP-hard).

    `value` is a `Profile`; `certificate["bound_s"]` is a lower bound from duality, equal to the cost where every
    k f_j(k) is convex. Where one is not, branch and bound over hulls of its parts closes the gap; NOT_CONVERGED says
    that `BRANCHES` parts left one.
    `backend` as in `solvers.transport`.
    """
    a = game.arrays()
    flows, bound = optimum_flows(a, backend=backend)
    value = profile(a, flows.reshape(*a.batch, *flows.shape[1:]))
    finite = np.isfinite(value.cost_s)
    gap = np.where(finite, np.where(finite, value.cost_s, 0.0) - np.where(finite, bound.reshape(a.batch), 0.0), np.inf)
    loose = finite & (gap > 1e-9 * np.abs(value.cost_s))
    flags = np.where(loose, int(Flag.NOT_CONVERGED), 0).astype(np.int32) | overload_flag(value.cost_s)
    return Solution(value, {"bound_s": bound.reshape(a.batch), "gap_s": gap}, flags, np.zeros(a.batch, np.int64))
