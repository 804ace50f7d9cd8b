r"""Fair shares among tenants: dominant resource fairness, Fisher markets, Nash bargaining.

Agents i, goods (or resources) j. Each rule returns an allocation (agents, goods) with a certificate by which it can be
checked without this code.
"""

from __future__ import annotations

import warnings

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag

from .solution import Solution

#: Relative residuals beyond which an answer is flagged NOT_CONVERGED.
_TOLERANCE = 1e-5


def drf(demands, capacities, weights=None) -> Solution:
    r"""Dominant resource fairness by progressive filling, for tasks that can be divided.

    Agent i turns $d_{ij}$ of each resource into one task; its dominant share is $t_i \max_j d_{ij} / C_j$. All shares
    (over weights) rise together; an agent stops when a resource that it needs is used up, the others go on.

    A. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, Algorithm 1 and section 4 (their example: 9 CPU, 18 GB,
    demands (1, 4) and (3, 1) give 3 and 2 tasks, dominant shares 2/3).

    `value`: tasks (n,), allocation (n, m), share_frac (n,) dominant shares. `certificate`: bottleneck (n,), a resource
    that the agent needs, that is used up, and of whose users none with a smaller weighted share exists: so nobody can
    have more without a poorer agent having less. `steps`: rounds, at most one per resource.
    """
    d, c = np.asarray(demands, np.float64), np.asarray(capacities, np.float64)
    n, m = _sizes(d, c, "demands", "capacities")
    if not ((c > 0).all() and (d.max(axis=1, initial=0.0) > 0).all()):
        raise InputError("capacities must be positive, and each agent must demand something")
    w = _weights(weights, n)
    dominant = (d / c).max(axis=1)
    rate = w / dominant  # tasks per unit of weighted share
    tasks, left, active = np.zeros(n), c.copy(), np.ones(n, bool)
    bottleneck = np.full(n, -1)
    steps = 0
    while active.any():
        use = (rate * active) @ d
        room = np.full(m, np.inf)
        np.divide(left, use, out=room, where=use > 0)
        rise = room.min()
        tasks += rise * rate * active
        left = np.maximum(left - rise * use, 0.0)
        full = (use > 0) & (room <= rise * (1 + 1e-12))
        left[full] = 0.0
        stopped = active & (d[:, full] > 0).any(axis=1)
        for i in np.flatnonzero(stopped):
            bottleneck[i] = np.flatnonzero(full & (d[i] > 0))[0]
        active &= ~stopped
        steps += 1
    value = {"tasks": tasks, "allocation": tasks[:, None] * d, "share_frac": tasks * dominant}
    return Solution(value, {"bottleneck": bottleneck, "unused": left}, np.int32(0), np.int32(steps))


def fisher_market(values, budgets, supply=None) -> Solution:
    r"""Equilibrium of a Fisher market with linear utilities, by the Eisenberg-Gale programme.

    $\max \sum_i B_i \log \sum_j v_{ij} x_{ij}$ subject to $\sum_i x_{ij} \le s_j$; the duals are the prices.

    E. Eisenberg, D. Gale, "Consensus of subjective probabilities", Ann. Math. Stat. 30 (1959). With equal budgets the
    equilibrium is envy-free, efficient and better for all than equal division (CEEI; H. R. Varian, 1974).

    `value`: allocation (n, m), prices (m,), utilities (n,). `certificate`, all relative and 0 at an equilibrium:
    clearing (goods with a price are sold), budget (each buyer spends its budget), bang (each buyer buys only goods with
    the most value per money), and gap: no utilities have a larger objective than by this (weak duality).
    """
    v, s = _values(values, supply)
    b = np.broadcast_to(np.asarray(budgets, np.float64), len(v))
    if not (b > 0).all():
        raise InputError(f"budgets {b}: accepted are positive numbers")
    x, p, flags, steps = _concave(v, np.zeros(len(v)), b, s)
    u = (v * x).sum(axis=1)
    bang = (v / np.maximum(p, 1e-300)).max(axis=1)
    spent = x * p
    certificate = {
        "clearing": np.abs((s - x.sum(axis=0)) * p).max() / b.sum(),
        "budget": np.abs(spent.sum(axis=1) - b).max() / b.sum(),
        "bang": (spent * (1.0 - v / np.maximum(p, 1e-300) / bang[:, None])).max() / b.sum(),
        "gap": (s * (b[:, None] * v / u[:, None]).max(axis=0)).sum() - b.sum(),
    }
    flags = flags if max(certificate.values()) < _TOLERANCE * max(1.0, b.sum()) else np.int32(Flag.NOT_CONVERGED)
    return Solution({"allocation": x, "prices": p, "utilities": u}, certificate, flags, steps)


def nash_bargaining(values, disagreement, supply=None, weights=None) -> Solution:
    r"""Nash's solution: $\max \prod_i (u_i - d_i)^{w_i}$ over divisions of the supply, linear utilities.

    J. F. Nash, "The bargaining problem", Econometrica 18 (1950); weights: Kalai 1977. With d = 0 it is the Fisher
    market with budgets w.

    `value`: allocation, utilities. `certificate`: gap, by which the weighted relative gains of any other division over
    this one may exceed 0 in sum: $\sum_j s_j \max_i g_i v_{ij} - \sum_i g_i u_i$, $g_i = w_i / (u_i - d_i)$. Flags:
    INFEASIBLE where no division gives all more than d.
    """
    v, s = _values(values, supply)
    d = np.broadcast_to(np.asarray(disagreement, np.float64), len(v))
    w = _weights(weights, len(v))
    x, _, flags, steps = _concave(v, d, w, s)
    u = (v * x).sum(axis=1)
    if flags & Flag.INFEASIBLE or (u <= d).any():
        nothing = {"allocation": np.full_like(v, np.nan), "utilities": np.full(len(v), np.nan)}
        return Solution(nothing, {"gap": np.inf}, np.int32(Flag.INFEASIBLE), steps)
    g = w / (u - d)
    gap = (s * (g[:, None] * v).max(axis=0)).sum() - g @ u
    flags = flags if gap < _TOLERANCE * (1.0 + abs(g @ u)) else np.int32(Flag.NOT_CONVERGED)
    return Solution({"allocation": x, "utilities": u}, {"gap": gap}, flags, steps)


def envy(values, allocation) -> np.ndarray:
    """(n,) how much more each agent would have with the best of the others' shares (linear utilities); at most 0: none.

    >>> float(envy([[1.0, 3.0], [2.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]).max())
    -1.0
    """
    v, x = np.asarray(values, np.float64), np.asarray(allocation, np.float64)
    if len(v) < 2:
        return np.full(len(v), -np.inf)
    worth = v @ x.T
    others = np.where(np.eye(len(v), dtype=bool), -np.inf, worth)
    return others.max(axis=1) - np.diag(worth)


def _concave(v, d, w, s):
    """max sum w log(u - d) over divisions of s: (allocation, prices, flags, steps)."""
    import cvxpy as cp

    scale = v.max(axis=1) * s.sum()  # utilities of the order of 1
    share = cp.Variable(v.shape, nonneg=True)  # of each good
    gains = cp.sum(cp.multiply(v * s / scale[:, None], share), axis=1) - d / scale
    sold = cp.sum(share, axis=0) <= 1
    problem = cp.Problem(cp.Maximize(w @ cp.log(gains)), [sold])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": the certificates tell how much
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    except cp.SolverError:
        return np.full(v.shape, np.nan), np.full(len(s), np.nan), np.int32(Flag.NOT_CONVERGED), np.int32(0)
    steps = np.int32(problem.solver_stats.num_iters or 0)
    if share.value is None or problem.status not in ("optimal", "optimal_inaccurate"):
        return np.full(v.shape, np.nan), np.full(len(s), np.nan), np.int32(Flag.INFEASIBLE), steps
    part = np.maximum(share.value, 0.0)
    part /= np.maximum(part.sum(axis=0), 1.0)
    return part * s, np.asarray(sold.dual_value) / s, np.int32(0), steps


def _values(values, supply) -> tuple[np.ndarray, np.ndarray]:
    v = np.asarray(values, np.float64)
    s = np.ones(v.shape[-1]) if supply is None else np.asarray(supply, np.float64)
    _sizes(v, s, "values", "supply")
    if not ((s > 0).all() and (v.max(axis=1) > 0).all() and (v.max(axis=0) > 0).all()):
        raise InputError("supply must be positive, each agent must value a good, and each good must be valued")
    return v, s


def _sizes(a, b, first: str, second: str) -> tuple[int, int]:
    if a.ndim != 2 or b.shape != a.shape[1:] or not a.size:
        raise InputError(f"{first} {a.shape} and {second} {b.shape}: accepted are (n, m) and (m,)")
    if not (np.isfinite(a).all() and (a >= 0).all() and np.isfinite(b).all()):
        raise InputError(f"{first} and {second}: accepted are finite numbers from 0")
    return a.shape


def _weights(weights, n: int) -> np.ndarray:
    w = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    if w.shape != (n,) or not ((w > 0).all() and np.isfinite(w).all()):
        raise InputError(f"weights {w}: accepted are {n} positive numbers")
    return w
