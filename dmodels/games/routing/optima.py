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


def marginals(f: np.ndarray) -> np.ndarray:
    """g(k) - g(k-1) of g(k) = k f(k), along the last axis; infinite from the first infinite latency on."""
    room = np.isfinite(f)
    g = np.where(room, f, 0.0) * np.arange(1.0, f.shape[-1] + 1.0)
    step = np.diff(g, axis=-1, prepend=0.0)
    return np.where(np.logical_and.accumulate(room, axis=-1), step, np.inf)


def hull(step: np.ndarray) -> np.ndarray:
    """Marginals of the greatest convex function below: pool neighbours until they rise (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for value in step:
        blocks.append([value, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, size), (last, more) = blocks[-2:]
            blocks[-2:] = [[(mean * size + last * more) / (size + more), size + more]]
    return np.concatenate([np.full(int(size), mean) for mean, size in blocks])


def convex_marginals(f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(marginals, True where g was convex) of curves (..., K); the hull's marginals where it was not."""
    step = marginals(f)
    finite = np.where(np.isfinite(step), step, np.inf)
    with np.errstate(invalid="ignore"):
        fall = np.diff(finite, axis=-1) < -1e-12 * np.abs(finite[..., :-1])
    convex = ~fall.any(-1)
    out = np.maximum.accumulate(step, axis=-1)  # equal but for rounding where convex
    for at in np.argwhere(~convex):
        out[tuple(at)] = hull(step[tuple(at)])
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
        np.add.at(flows, (game, np.broadcast_to(row, sit.shape).reshape(-1), np.maximum(sit, 0).reshape(-1)), 1)
    bent = ~np.broadcast_to(convex.all(-1), size) & np.isfinite(bound)
    step = marginals(a.f)
    for b in np.flatnonzero(bent):  # moves that lower the social cost, until none does
        rise, cost = step[b % len(step)], a.cost[b % len(a.cost)]
        respond(rise, cost, flows[b], 1e-12 * abs(bound[b]), 1_000_000)
        flows[b], bound[b] = _branch(rise, cost, a.counts[b % len(a.counts)], flows[b], bound[b])
    return flows, bound


def _branch(step: np.ndarray, c: np.ndarray, q: np.ndarray, flow: np.ndarray, bound: float) -> tuple[np.ndarray, float]:
    """(flow, lower bound) of one game with marginals `step` (m, K): branch and bound over ranges of loads.

    In a range lo <= n <= hi each g_j is replaced by its hull between the ends, which is a convex flow; the range is cut
    where the hull is furthest below the curve at the loads of that flow.
    """
    workers, total = len(step), int(q.sum())
    room = np.isfinite(step[:, :total]).sum(-1)
    g = np.concatenate([np.zeros((workers, 1)), np.cumsum(np.where(np.isfinite(step), step, 0.0), -1)], -1)
    row, every = np.repeat(np.arange(len(q)), q), np.arange(workers)
    real = [step[j, : room[j]] for j in range(workers)]
    low = min((float(rise.min()) for rise in real if rise.size), default=0.0)
    high = max((float(rise.max()) for rise in real if rise.size), default=0.0)
    forced = low - 2.0 * (high - low) - 2.0 * (c.max() - c.min())  # cheaper than any exchange: fills lo first

    def cost_of(x: np.ndarray) -> float:
        return float(g[every, x.sum(0)].sum() + (x * c).sum())

    def relaxed(ends: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """(bound, flow, how far the hull is below the curve at its loads) of each range."""
        slots = np.full((len(ends), workers, total), np.inf)
        for slot, (lo, hi) in zip(slots, ends, strict=True):
            for j in range(workers):
                slot[j, : lo[j]] = forced
                slot[j, lo[j] : hi[j]] = hull(step[j, lo[j] : hi[j]]) if hi[j] > lo[j] else ()
        s = congestion_transport(np.broadcast_to(c[row], (len(ends), total, workers)), slots)
        out = []
        for k, (lo, _) in enumerate(ends):
            if int(s.flags[k]) & int(Flag.INFEASIBLE):
                out.append((np.inf, flow, np.zeros(workers)))
                continue
            x = np.zeros(c.shape, np.int64)
            np.add.at(x, (row, np.asarray(s.value.columns[k]).astype(np.int64)), 1)
            n = x.sum(0)
            below = np.array([g[j, lo[j]] + slots[k, j, lo[j] : n[j]].sum() for j in range(workers)])
            value = below.sum() + float((x * c).sum())
            out.append((value - max(float(s.certificate["gap"][k]), 0.0), x, g[every, n] - below))
        return out

    best, number = cost_of(flow), itertools.count()
    whole = (np.zeros(workers, np.int64), room.astype(np.int64))
    heap = [(least, next(number), whole, x, excess) for least, x, excess in relaxed([whole])]
    for _ in range(BRANCHES):
        least, _, (lo, hi), x, excess = heap[0]
        bound = max(bound, min(least, best))
        if not least < best - 1e-12 * abs(best):
            return flow, best if least >= best else bound
        heapq.heappop(heap)
        j = int(excess.argmax())
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
    return flow, max(bound, min(heap[0][0], best))


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
