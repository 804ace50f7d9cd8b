r"""The social optimum of routing games: a convex min-cost flow, certified by duality.

Social cost is $\sum_j g_j(n_j) + \sum_i c_{i\sigma_i}$ with $g_j(k) = k f_j(k)$. Where every $g_j$ is convex this is a
transportation problem with one slot per marginal $g_j(k) - g_j(k-1)$ (the singular curve is convex for all a, b, d >= 0
and beta > 0), so "finding social optima is NP-hard" does not apply to it. Where a $g_j$ is not convex (a latency that
steps or falls), its lower convex hull bounds the optimum from below, and a descent from the hull's placement from
above.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.flags import Flag
from dmodels.models.latency import TableCurve
from dmodels.solvers import congestion_transport
from dmodels.solvers.solution import Solution

from .equilibria import profile
from .game import RoutingArrays, RoutingGame, overload_flag
from .kernels import respond


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
    return out, convex


def optimum_flows(a: RoutingArrays) -> tuple[np.ndarray, np.ndarray]:
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
        s = congestion_transport(np.broadcast_to(each, (at.size, total, workers)), f[..., :total])
        sit = np.asarray(s.value.columns).astype(np.int64)
        missing = (s.flags & int(Flag.INFEASIBLE)) != 0
        gap = np.where(missing, 0.0, np.maximum(s.certificate["gap"], 0.0))
        bound[at] = np.where(missing, np.inf, s.value.cost - gap)
        game = np.repeat(at, total)
        np.add.at(flows, (game, np.broadcast_to(row, sit.shape).reshape(-1), np.maximum(sit, 0).reshape(-1)), 1)
    bent = ~np.broadcast_to(convex.all(-1), size) & np.isfinite(bound)
    step = marginals(a.f)
    for b in np.flatnonzero(bent):  # moves that lower the social cost, until none does
        respond(step[b % len(step)], a.cost[b % len(a.cost)], flows[b], 1e-12 * abs(bound[b]), 1_000_000)
    return flows, bound


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


def optimum(game: RoutingGame) -> Solution:
    """The assignment with the least social cost, certified: a convex min-cost flow (the paper says NP-hard).

    `value` is a `Profile`; `certificate["bound_s"]` is a lower bound from duality, equal to the cost where every
    k f_j(k) is convex. Where one is not, its convex hull gives the bound, and NOT_CONVERGED says that a gap is left.
    """
    a = game.arrays()
    flows, bound = optimum_flows(a)
    value = profile(a, flows.reshape(*a.batch, *flows.shape[1:]))
    finite = np.isfinite(value.cost_s)
    gap = np.where(finite, np.where(finite, value.cost_s, 0.0) - np.where(finite, bound.reshape(a.batch), 0.0), np.inf)
    loose = finite & (gap > 1e-9 * np.abs(value.cost_s))
    flags = np.where(loose, int(Flag.NOT_CONVERGED), 0).astype(np.int32) | overload_flag(value.cost_s)
    return Solution(value, {"bound_s": bound.reshape(a.batch), "gap_s": gap}, flags, np.zeros(a.batch, np.int64))
