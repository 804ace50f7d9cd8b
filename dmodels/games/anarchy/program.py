r"""A linear programme that bounds what all equilibria of a routing game cost, where there are too many to enumerate.

Unknowns, for groups g of alike requests and workers j: $p_j(k)$, the probability that j has k requests, and
$y_{gj}(k)$, the expected number of g's requests on j while it has k. Every pure, mixed or coarse correlated
equilibrium satisfies

$$\sum_k p_j(k) = 1,\quad \sum_g y_{gj}(k) = k\,p_j(k),\quad y_{gj}(k) \le \min(q_g, k)\,p_j(k),\quad
\sum_{jk} y_{gj}(k) = q_g,$$

$$\sum_{jk} y_{gj}(k)\,(f_j(k) + c_{gj}) \le \sum_k \big[(q_g p_t(k) - y_{gt}(k))\,(f_t(k+1) + c_{gt})
+ y_{gt}(k)\,(f_t(k) + c_{gt})\big] \quad\text{for every worker } t,$$

the last because no request gains by going to t whatever happens. The greatest and the least social cost over these
are a ceiling and a floor; `Smoothness` is a dual solution of a coarser programme (Nadav and Roughgarden, *The limits
of smoothness*, WINE 2010). For pure equilibria the unknowns shrink to the loads and pairs that the necessary conditions
of `boxes` leave, and nobody pays more than these allow. HiGHS solves it; the bounds are recomputed from its
duals, so that they hold whatever its tolerances were.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.games.routing import RoutingGame
from dmodels.games.routing.equilibria import merge, shape_of, tolerance
from dmodels.games.routing.smooth import cost_ceilings
from dmodels.games.routing.tighten import root_box
from dmodels.solvers.solution import Solution

#: Unknowns up to which the programme takes seconds at most.
UNKNOWNS = 6_000


class Programme(NamedTuple):
    """Social cost `unit_s` (`pay` x) over `above` x <= 0, `equal` x = `right`, 0 <= x <= `upper`."""

    unit_s: float  # the costliest request, so that all coefficients are about 1
    pay: np.ndarray
    above: Any  # scipy.sparse
    equal: Any
    right: np.ndarray
    upper: np.ndarray


def unknowns_count(f: np.ndarray, c: np.ndarray, q: np.ndarray) -> int:
    """How many unknowns the programme of the pure equilibria has at most."""
    (lo, hi, arc, *_), _ = _support(f, *_merged(c, q), coarse=False)
    room = hi - lo + 1
    return int(room.sum() + (arc * room).sum())


def _merged(c: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return merge(np.ascontiguousarray(c), np.ascontiguousarray(q))[:2]


def _support(f, c, q, coarse: bool):
    """((lo, hi, arc, reach), what each group pays at most)."""
    (groups, workers), total = c.shape, int(q.sum())
    if coarse:
        box = (np.zeros(workers, np.int64), np.full(workers, total), np.ones(c.shape, bool), np.full(c.shape, np.inf))
        return box, np.full(groups, np.inf)
    box = root_box(f, c, q, shape_of(f, total)[0], tolerance(f, c, total))
    return box, cost_ceilings(f, c, q, *box)[0]


def programme(f: np.ndarray, c: np.ndarray, q: np.ndarray, coarse: bool = False) -> Programme:
    """The programme of one game: latencies f (m, K), private costs c (G, m), sizes q (G,) of the groups."""
    from scipy.sparse import csr_array, vstack

    c, q = _merged(c, q)
    (lo, hi, arc, reach), most = _support(f, c, q, coarse)
    (groups, workers), total = c.shape, int(q.sum())
    room = hi - lo + 1
    begins = np.cumsum(room) - room
    pj, pk = np.repeat(np.arange(workers), room), np.arange(room.sum()) - np.repeat(begins - lo, room)
    at = np.concatenate([np.zeros((workers, 1)), f[:, :total]], axis=1)[pj, pk]  # f_j(k), 0 at k = 0
    slack = 1e-9 * (at[np.isfinite(at)].max() + np.abs(c).max())
    yg, state = np.nonzero(arc[:, pj] & (pk > 0) & (at <= reach[:, pj] + slack))
    yj, yk = pj[state], pk[state]
    states, number = len(pj), len(pj) + len(yg)
    y = states + np.arange(len(yg))
    unit_s = float(np.abs(at[state] + c[yg, yj]).max(initial=0.0))
    unit_s = unit_s if 0 < unit_s < np.inf else 1.0
    pay = np.concatenate([np.zeros(states), (at[state] + c[yg, yj]) / unit_s])
    limit = np.minimum(q[yg], yk).astype(float)

    def matrix(rows, columns, values, count):
        return csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), (count, number))

    each = np.arange(len(yg))
    share = matrix([each, each], [y, state], [np.ones(len(yg)), -limit], len(yg))
    equal = matrix(
        [np.arange(states), state, states + pj, states + workers + yg],
        [np.arange(states), y, np.arange(states), y],
        [-pk.astype(float), np.ones(len(yg)), np.ones(states), np.ones(len(yg))],
        states + workers + groups,
    )
    right = np.concatenate([np.zeros(states), np.ones(workers), q.astype(float)])
    # regret of group g towards worker t, row g * workers + t
    newcomer = np.minimum(f[pj, np.minimum(pk, total - 1)] + c[:, pj], most[:, None]) / unit_s  # (groups, states)
    spread = np.repeat(yg * workers, workers) + np.tile(np.arange(workers), len(yg))
    g_all = np.repeat(np.arange(groups), states)
    with np.errstate(invalid="ignore"):  # behind a pole; these rows are left out below
        stay = newcomer[yg, state] - pay[y]
    regret = matrix(
        [spread, yg * workers + yj, g_all * workers + np.tile(pj, groups)],
        [np.repeat(y, workers), y, np.tile(np.arange(states), groups)],
        [np.repeat(pay[y], workers), stay, -(q[:, None] * newcomer).reshape(-1)],
        groups * workers,
    )
    finite = np.logical_and.reduceat(np.isfinite(newcomer), begins, axis=1).reshape(-1)
    above = vstack([share, regret[np.flatnonzero(finite)]]).tocsr()
    return Programme(unit_s, pay, above, equal, right, np.concatenate([np.ones(states), limit]))


def dual_bound(p: Programme, sense: float, above_duals: np.ndarray, equal_duals: np.ndarray) -> float:
    """Lower bound (s) on sense * SC from any duals (`above_duals` <= 0 is enforced): weak duality with 0 <= x <= upper.

    What is left of the reduced costs below 0 is charged at the unknowns' upper limits, so no tolerance enters.
    """
    multiplier = np.minimum(above_duals, 0.0)
    reduced = sense * p.pay - p.above.T @ multiplier - p.equal.T @ equal_duals
    return p.unit_s * float(p.right @ equal_duals + np.minimum(reduced, 0.0) @ p.upper)


def equilibrium_program(game: RoutingGame, coarse: bool = False) -> Solution:
    """Ceiling and floor on the social cost of all pure equilibria of one game, or of all coarse correlated ones.

    `value` has `ceiling_s` and `floor_s`; `certificate` the duals (`dual_bound` makes the bounds from them) and `gap_s`
    (2,), how far each is from what HiGHS reports. A bound is infinite, with the flag NOT_CONVERGED, where a pole lies
    among the loads or HiGHS finds nothing.

    Two requests at home on two workers with f = n and a miss of 3/4 (`nash_range`: from 2 to 7/2):

    >>> from dmodels.models.latency import affine
    >>> s = equilibrium_program(RoutingGame(affine([1.0, 1.0], 0.0), np.eye(2), 0.75))
    >>> round(float(s.value["floor_s"]), 6), round(float(s.value["ceiling_s"]), 6)
    (2.0, 3.5)
    """
    a = game.arrays()
    if a.batch:
        raise InputError(f"game is a batch of shape {a.batch}; accepted is one game")
    return solve_program(programme(a.f[0], a.cost[0], a.counts[0], coarse))


def solve_program(p: Programme) -> Solution:
    """Both bounds of a programme; see `equilibrium_program`."""
    from scipy.optimize import linprog

    if not np.isfinite(p.pay).all():
        value = {"ceiling_s": np.float64(np.inf), "floor_s": np.float64(-np.inf)}
        return Solution(value, {"gap_s": np.full(2, np.inf)}, np.int32(Flag.NOT_CONVERGED), np.int64(0))
    bounds, gaps, steps, duals = [], [], 0, {}
    for sense, name in ((-1.0, "ceiling"), (1.0, "floor")):
        found = linprog(sense * p.pay, p.above, np.zeros(p.above.shape[0]), p.equal, p.right, method="highs")
        if found.status != 0:
            bounds.append(-sense * np.inf)
            gaps.append(np.inf)
            continue
        duals |= {f"{name}_above_duals": found.ineqlin.marginals, f"{name}_equal_duals": found.eqlin.marginals}
        least = dual_bound(p, sense, found.ineqlin.marginals, found.eqlin.marginals)
        bounds.append(sense * least)
        gaps.append(abs(least - p.unit_s * found.fun))
        steps += found.nit
    flag = np.int32(0 if np.isfinite(bounds).all() else Flag.NOT_CONVERGED)
    value = {"ceiling_s": np.float64(bounds[0]), "floor_s": np.float64(bounds[1])}
    return Solution(value, {"gap_s": np.array(gaps), **duals}, flag, np.int64(steps))
