r"""Whole fleets by integer programme: which GPUs, in which layouts, for which pools, in which regions.

Integers $n_{opr}$ (instances of option o for pool p in region r) and $m_{kr}$ (nodes of GPU kind k), flows
$f_{sapr} \ge 0$ (requests a second of scenario s that come from area a and are served by pool p in region r):

$$\min \sum_{kr} c_k g_k m_{kr} + \textstyle\sum_{spr,a} w_s e_{ar} f_{sapr} \quad\text{s.t.}\quad
\sum_r f_{sapr} \ge d_{sap}(1 - z_s),\; \sum_a f_{sapr} \le \sum_o \mu_{op} n_{opr},\;
\sum_{op: k} g_o n_{opr} \le g_k m_{kr} \le S_{kr},\; \sum_k P_k g_k m_{kr} \le P_r.$$

$z_s$ are binaries with $\sum_s w_s z_s \le$ `risk`: scenarios that may be missed (chance constraint; 0: robust). The
relaxation without integrality is the bound, and its duals are the shadow prices. HiGHS solves both through cvxpy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import Real, Record, quantity
from dmodels.solvers.solution import Solution


class Options(Record):
    """Layouts that can be bought: o options over k kinds of GPU."""

    capacity_rps: Real = quantity()  # (o, p) requests a second of one instance in each pool; 0: cannot serve it
    gpus: Real = quantity()  # (o,) of one instance
    kind: Real = quantity()  # (o,) place of its GPU kind
    price_usd_per_hour: Real = quantity()  # (k,) of one GPU
    node_gpus: Real = quantity(1.0)  # (k,) GPUs that are bought together; 1: single GPUs
    gpu_w: Real = quantity(0.0)  # (k,) of one GPU


class Limits(Record):
    """What there is, per region; inf: no limit."""

    stock_gpus: Real = quantity(np.inf)  # (k, r)
    power_w: Real = quantity(np.inf)  # (r,)
    budget_usd_per_hour: Real = quantity(np.inf)  # of the whole fleet; the dearest that can be paid


def fleet(
    options: Options,
    demand_rps,
    limits: Limits | None = None,
    *,
    scenario_frac=None,
    risk_frac: float = 0.0,
    reach=None,
    egress_usd_per_request=0.0,
    intervals: Sequence[tuple[int, int]] | None = None,
    most_pools: int | None = None,
    gap_frac: float = 1e-6,
) -> Solution:
    """The cheapest fleet for `demand_rps` (pools,), (areas, pools) or (scenarios, areas, pools).

    scenario_frac           (s,) probabilities of the scenarios; default: equal
    risk_frac               share of probability that may go unserved; 0: every scenario is served
    reach                   (areas, regions) which region may serve which area; default: each area its own region
    egress_usd_per_request  (areas, regions) price of a request served there
    intervals               pools as candidate intervals (i, j) of cuts 0..K, of which a chain from 0 to K is chosen
    most_pools              the longest chain

    `value`: instances (o, p, r), nodes (k, r), cost_usd_per_hour, served (s,), pools (p,) in use. `certificate`:
    bound_usd_per_hour (the relaxation; no fleet is cheaper), gap_frac between the two, and shadow prices of the
    relaxation: demand (s, a, p) USD/h per req/s, stock (k, r) USD/h per GPU, power (r,) USD/h per W, budget. Flags:
    INFEASIBLE where no fleet serves the demand, NOT_CONVERGED where the gap is wider than asked.
    """
    demand = np.asarray(demand_rps, np.float64)
    demand = demand.reshape((1,) * (3 - demand.ndim) + demand.shape)
    limits = Limits() if limits is None else limits
    asked = _Programme(
        options, demand, limits, scenario_frac, risk_frac, reach, egress_usd_per_request, intervals, most_pools
    )
    whole, relaxed = asked.solve(True, gap_frac), asked.solve(False, gap_frac)
    bound = relaxed["cost_usd_per_hour"]
    if whole["instances"] is None:
        none = {"instances": None, "cost_usd_per_hour": np.inf}
        return Solution(none, {"bound_usd_per_hour": bound}, np.int32(Flag.INFEASIBLE), np.int32(0))
    gap = (whole["cost_usd_per_hour"] - bound) / max(abs(bound), 1e-12)
    value = {name: part for name, part in whole.items() if name not in ("duals", "optimal", "steps")}
    flags = np.int32(0 if whole["optimal"] else Flag.NOT_CONVERGED)
    return Solution(value, {"bound_usd_per_hour": bound, "gap_frac": gap, **relaxed["duals"]}, flags, whole["steps"])


class _Programme:
    """Sizes and data, checked; `solve` states the programme."""

    def __init__(self, options, demand, limits, scenario_frac, risk, reach, egress, intervals, most_pools):
        self.capacity = np.asarray(options.capacity_rps)
        self.o, self.p = self.capacity.shape if self.capacity.ndim == 2 else (0, 0)
        self.s, self.a, pools = demand.shape
        if self.capacity.ndim != 2 or pools != self.p:
            raise InputError(f"capacity_rps {self.capacity.shape} and demand {demand.shape}: accepted is one pool axis")
        if not (np.isfinite(demand).all() and (demand >= 0).all()):
            raise InputError("demand_rps: accepted are finite rates from 0")
        self.demand = demand
        self.gpus, self.kind = np.broadcast_to(options.gpus, self.o), np.asarray(options.kind, int).reshape(self.o)
        self.price = np.atleast_1d(options.price_usd_per_hour)
        self.k = len(self.price)
        if self.kind.min(initial=0) < 0 or self.kind.max(initial=0) >= self.k:
            raise InputError(f"kind {sorted(set(self.kind))}: accepted are places of {self.k} kinds with prices")
        self.node, self.watts = (np.broadcast_to(x, self.k) for x in (options.node_gpus, options.gpu_w))
        self.reach = np.eye(self.a, dtype=bool) if reach is None else np.asarray(reach, bool)
        self.r = self.reach.shape[1]
        self.egress = np.broadcast_to(egress, (self.a, self.r))
        self.stock = np.broadcast_to(limits.stock_gpus, (self.k, self.r))
        self.power = np.broadcast_to(limits.power_w, self.r)
        self.budget = float(limits.budget_usd_per_hour)
        self.frac = np.full(self.s, 1 / self.s) if scenario_frac is None else np.asarray(scenario_frac, np.float64)
        if self.frac.shape != (self.s,) or abs(self.frac.sum() - 1) > 1e-9 or (self.frac < 0).any():
            raise InputError(f"scenario_frac {self.frac}: accepted are {self.s} shares that sum to 1")
        if not 0 <= risk < 1:
            raise InputError(f"risk_frac = {risk:g}: accepted are shares from 0 to below 1")
        self.risk, self.intervals, self.most = risk, intervals, most_pools
        if intervals is not None and len(intervals) != self.p:
            raise InputError(f"{len(intervals)} intervals for {self.p} pools; accepted is one for each")

    def solve(self, whole: bool, gap: float) -> dict:
        """The programme with integers, or its relaxation with duals."""
        import cvxpy as cp

        n = [cp.Variable((self.o, self.p), integer=whole, nonneg=True) for _ in range(self.r)]
        m = cp.Variable((self.k, self.r), integer=whole, nonneg=True)
        f = [[cp.Variable((self.a, self.p), nonneg=True) for _ in range(self.r)] for _ in range(self.s)]
        kinds = np.equal.outer(np.arange(self.k), self.kind) * self.gpus  # (k, o)
        rows, duals = [], {}
        missed = cp.Variable(self.s, boolean=True) if whole else cp.Variable(self.s, nonneg=True)
        rows += [missed <= 1, self.frac @ missed <= self.risk]
        used = self._chain(cp, whole, rows)
        for s in range(self.s):
            need = self.demand[s] if used is None else cp.multiply(self.demand[s], np.ones((self.a, 1)) @ used)
            slack = self.demand[s] * missed[s] if self.risk > 0 else 0.0
            duals["demand", s] = sum(f[s]) >= need - slack
            rows.append(duals["demand", s])
            for r in range(self.r):
                rows.append(cp.sum(f[s][r], axis=0) <= cp.sum(cp.multiply(self.capacity, n[r]), axis=0))
                if not self.reach[:, r].all():
                    rows.append(f[s][r][~self.reach[:, r]] == 0)
        cost = cp.sum(cp.multiply(np.tile((self.price * self.node)[:, None], self.r), m))
        for s in range(self.s):
            cost = cost + sum(self.frac[s] * 3600.0 * cp.sum(self.egress[:, r] @ f[s][r]) for r in range(self.r))
        bought = cp.multiply(np.tile(self.node[:, None], self.r), m)
        for r in range(self.r):
            rows.append(kinds @ cp.sum(n[r], axis=1) <= bought[:, r])
            rows.append(n[r][self.capacity <= 0] == 0) if (self.capacity <= 0).any() else None
        for name, left, limit in (("stock", bought, self.stock), ("power", self.watts @ bought, self.power)):
            if np.isfinite(limit).any():
                duals[name] = left[np.isfinite(limit)] <= limit[np.isfinite(limit)]
                rows.append(duals[name])
        if np.isfinite(self.budget):
            duals["budget"] = cost <= self.budget
            rows.append(duals["budget"])
        problem = cp.Problem(cp.Minimize(cost), [row for row in rows if row is not None])
        problem.solve(solver=cp.HIGHS, **({"mip_rel_gap": gap} if whole else {}))
        return self._read(problem, n, m, f, duals, missed, used, whole)

    def _chain(self, cp, whole: bool, rows: list):
        """Which intervals are pools: a path from the first cut to the last (None: every pool is one)."""
        if self.intervals is None:
            return None
        used = cp.Variable((1, self.p), boolean=True) if whole else cp.Variable((1, self.p), nonneg=True)
        cuts = np.unique(np.asarray(self.intervals))
        for cut in cuts:
            out, into = (np.array([pair[side] == cut for pair in self.intervals], float) for side in (0, 1))
            rows.append(used @ (out - into) == float(cut == cuts[0]) - float(cut == cuts[-1]))
        if self.most is not None:
            rows.append(cp.sum(used) <= self.most)
        return used

    def _read(self, problem, n, m, f, duals, missed, used, whole) -> dict:
        prices = {
            "demand_usd_per_hour": np.zeros((self.s, self.a, self.p)),
            "stock_usd_per_hour": np.zeros((self.k, self.r)),
            "power_usd_per_hour": np.zeros(self.r),
            "budget_usd_per_hour": np.zeros(()),
        }
        if m.value is None:
            return {
                "instances": None,
                "cost_usd_per_hour": np.inf,
                "duals": prices,
                "optimal": False,
                "steps": np.int32(0),
            }
        if not whole:
            for s in range(self.s):
                prices["demand_usd_per_hour"][s] = np.asarray(duals["demand", s].dual_value)
            for name, limit in (("stock", self.stock), ("power", self.power)):
                if name in duals:
                    prices[f"{name}_usd_per_hour"][np.isfinite(limit)] = np.asarray(duals[name].dual_value)
            if "budget" in duals:
                prices["budget_usd_per_hour"] = np.asarray(duals["budget"].dual_value)
        instances = np.stack([np.round(x.value) if whole else x.value for x in n], -1)
        return {
            "instances": instances,
            "nodes": np.round(m.value) if whole else m.value,
            "cost_usd_per_hour": float(problem.value),
            "flows_rps": np.stack([[x.value for x in row] for row in f]).transpose(0, 2, 3, 1),
            "served": missed.value < 0.5,
            "pools": np.ones(self.p, bool) if used is None else used.value.ravel() > 0.5,
            "duals": prices,
            "optimal": problem.status == "optimal",
            "steps": np.int32(problem.solver_stats.num_iters or 0),
        }
