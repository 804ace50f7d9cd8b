r"""The placement with the least total cost: exactly by HiGHS, or within a certified factor by greedy for large games.

A worker's reads of one block, sorted by cost $D_1 < \dots < D_K < D_{K+1} = \gamma$, cost
$w\,(D_1 + \sum_k (D_{k+1} - D_k)\, z_k)$, where z_k says that no copy is within D_k:
$z_k \ge z_{k-1} - \sum_{(j,t):\, c = D_k} x_{jtb}$. Only the places x need be whole. (The "radius" form of facility
location: as strong as the usual one, and small on networks with few different distances.)

What the copies save is monotone and submodular, and capacities of blocks of one size form a partition matroid. So
greedy saves at least half of what the optimum saves (Fisher, Nemhauser and Wolsey, 1978), and the marginal savings that
are left bound the optimum from the other side.
"""

from __future__ import annotations

import heapq

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers.solution import Solution

from . import kernels
from .game import PlacementArrays, PlacementGame, empty, placed
from .response import best_response_dynamics

#: Variables from which HiGHS is no longer asked.
MOST_VARIABLES = 400_000


def social_optimum(game: PlacementGame, time_limit_s: float = 60.0, rel_gap: float = 1e-9) -> Solution:
    """The least-cost placement by mixed-integer programming (HiGHS), with its bounds.

    value        `Placement`; never dearer than that of `greedy_optimum`, however wide the gap that `rel_gap` allows
    certificate  `bound_s`: HiGHS's bound on every placement's cost; `lp_bound_s`: the bound of the linear relaxation;
                 `prices` (n, T): what a byte of each tier is worth in it, from which `placement_bound.price_bound`
                 finds that bound again, without HiGHS; `gap_s`: cost - bound_s
    flags        NOT_CONVERGED: the time ran out; the placement and the bound still hold
    steps        nodes of the search

    Games with more than `MOST_VARIABLES` variables are refused; for these there is `greedy_optimum` and
    `placement_bound.best_bound`.
    """
    a = game.arrays()
    program = _Program(a)
    if not program.objective.any():  # nobody needs what could be kept
        best, zero = placed(a, empty(game)), np.zeros(a.access.shape)
        certificate = {"bound_s": best.social_s, "lp_bound_s": best.social_s, "gap_s": 0.0, "prices": zero}
        return Solution(best, certificate, np.int32(0), np.int64(0))
    relaxed = program.relaxed()
    whole = program.whole(time_limit_s, rel_gap)
    best = greedy_optimum(game).value
    if whole.x is not None:  # nothing found in time, or within a wide gap something dearer
        best = min(placed(a, program.tier(whole.x)), best, key=lambda found: found.social_s)
    bound = program.constant + program.unit * (relaxed.fun if whole.mip_dual_bound is None else whole.mip_dual_bound)
    lp = program.constant + program.unit * relaxed.fun
    bound, lp = (min(max(float(v), 0.0), best.social_s) for v in (max(bound, lp), lp))
    gap = best.social_s - bound
    flags = np.int32(0 if gap <= max(rel_gap, 1e-7) * best.social_s else int(Flag.NOT_CONVERGED))
    certificate = {"bound_s": bound, "lp_bound_s": lp, "gap_s": gap, "prices": program.prices(relaxed)}
    return Solution(best, certificate, flags, np.int64(whole.mip_node_count or 0))


def variables_count(game: PlacementGame) -> int:
    """Variables of the programme of `social_optimum`."""
    a = game.arrays()
    return _variables_count(a, _rings(_reads(a)))


def _variables_count(a: PlacementArrays, rings: list[np.ndarray]) -> int:
    """Of all x, and of a z for each worker, block that it needs, and different cost of a read."""
    steps = [np.count_nonzero(need) * ring.size for need, ring in zip(a.demand, rings, strict=True)]
    return int(_fits(a).sum()) + sum(steps)


def _fits(a: PlacementArrays) -> np.ndarray:
    """Which block has room in which tier, (m, n T)."""
    return a.size[:, None] <= a.capacity.reshape(-1)


def _reads(a: PlacementArrays) -> np.ndarray:
    """What i pays to read from (j, t), (n, n T)."""
    return (a.distance[:, :, None] + a.access).reshape(len(a.distance), -1)


def _rings(read: np.ndarray) -> list[np.ndarray]:
    """The different costs of each worker's reads, rising."""
    return [np.unique(row[np.isfinite(row)]) for row in read]


class _Program:
    """The programme as sparse arrays: first the places x (one per worker, tier and block), then the z."""

    def __init__(self, a: PlacementArrays):
        self.a, self.constant = a, 0.0
        n, m = a.demand.shape
        read = _reads(a)
        rings = _rings(read)
        if (size := _variables_count(a, rings)) > MOST_VARIABLES:
            raise InputError(
                f"the programme has {size} variables; accepted are at most {MOST_VARIABLES}; "
                "greedy_optimum and placement_bound.best_bound take larger games"
            )
        self.block, self.at = np.nonzero(_fits(a))
        number = np.full((m, read.shape[1]), -1)
        number[self.block, self.at] = np.arange(self.block.size)
        cost, rows, columns, values, count, rhs = [], [], [], [], 0, []
        z = self.block.size
        for i in range(n):
            inside = [np.flatnonzero(read[i] == value) for value in rings[i]]
            for b in np.flatnonzero(a.demand[i]):
                radius = rings[i][rings[i] < a.recompute[b]]
                if not radius.size:
                    self.constant += a.demand[i, b] * a.recompute[b]
                    continue
                self.constant += a.demand[i, b] * radius[0]
                step = np.diff(np.append(radius, a.recompute[b]))
                for k in range(radius.size):  # z_k + copies at radius k - z_{k-1} >= 0, z_{-1} = 1
                    x = number[b, inside[k]]
                    x = x[x >= 0]
                    entries = [*x, z + k] + ([z + k - 1] if k else [])
                    rows += [count] * len(entries)
                    columns += entries
                    values += [1.0] * (len(x) + 1) + ([-1.0] if k else [])
                    rhs.append(0.0 if k else 1.0)
                    count += 1
                cost += list(a.demand[i, b] * step)
                z += radius.size
        self.size, self.reads = z, count
        self.objective = np.concatenate([np.zeros(self.block.size), np.array(cost)])
        self.unit = float(self.objective.max(initial=0.0))
        self._rows, self._columns, self._values = rows, columns, values
        self.least = np.array(rhs)

    def _matrix(self, rows, columns, values, count):
        from scipy.sparse import csr_array

        return csr_array((values, (rows, columns)), shape=(count, self.size))

    def _constraints(self):
        """(cover >= least, room <= capacity, one tier per worker and block <= 1)."""
        a, places = self.a, np.arange(self.block.size)
        n, tiers = a.access.shape
        cover = self._matrix(self._rows, self._columns, self._values, self.reads)
        room = self._matrix(self.at, places, a.size[self.block], n * tiers)
        once = self._matrix(
            self.at // tiers * a.demand.shape[1] + self.block, places, np.ones(places.size), n * a.demand.shape[1]
        )
        return cover, room, np.minimum(a.capacity.reshape(-1), 2 * a.size.sum()), once

    def relaxed(self):
        """The linear relaxation by HiGHS."""
        from scipy.optimize import linprog
        from scipy.sparse import vstack

        cover, room, most, once = self._constraints()
        matrix = vstack([-cover, room, once]).tocsr()
        right = np.concatenate([-self.least, most, np.ones(once.shape[0])])
        answer = linprog(self.objective / self.unit, A_ub=matrix, b_ub=right, bounds=(0, 1), method="highs")
        if answer.status != 0:
            raise RuntimeError(f"HiGHS could not solve the relaxation: {answer.message}")
        return answer

    def prices(self, answer) -> np.ndarray:
        """Shadow price of each tier's bytes (n, T), at least 0."""
        n, tiers = self.a.access.shape
        dual = answer.ineqlin.marginals[self.reads : self.reads + n * tiers]
        return np.maximum(-dual * self.unit, 0.0).reshape(n, tiers)

    def whole(self, time_limit_s: float, rel_gap: float):
        """The integer programme by HiGHS."""
        from scipy.optimize import LinearConstraint, milp

        cover, room, most, once = self._constraints()
        kinds = np.zeros(self.size)
        kinds[: self.block.size] = 1
        return milp(
            self.objective / self.unit,
            integrality=kinds,
            bounds=(0, 1),
            constraints=[
                LinearConstraint(cover, self.least, np.inf),
                LinearConstraint(room, -np.inf, most),
                LinearConstraint(once, -np.inf, 1.0),
            ],
            options={"time_limit": time_limit_s, "mip_rel_gap": rel_gap},
        )

    def tier(self, x: np.ndarray) -> np.ndarray:
        """The placement (n, m) of a whole solution."""
        a = self.a
        out = np.full(a.demand.shape, -1, np.int8)
        for at in np.flatnonzero(x[: self.block.size] > 0.5):
            j, t = divmod(int(self.at[at]), a.access.shape[1])
            out[j, self.block[at]] = t
        return out


def greedy_optimum(game: PlacementGame, polish: bool = True) -> Solution:
    """Copies one after another where the next one saves all workers the most (per byte), then coordinated responses.

    value        `Placement`
    certificate  `greedy_s`: cost before polishing; `bound_s`: no placement costs less, from the marginal savings that
                 are left after greedy; `half_s`: the bound that follows from the factor of a half alone (blocks of one
                 size; -inf otherwise)
    flags        0
    steps        copies that greedy placed

    `polish` lets each worker in turn rearrange its own tiers for the social cost until that lowers nothing.
    """
    a = game.arrays()
    tier, best, steps = _greedy(a)
    result = placed(a, tier)
    left = _left(a, best)
    saved = float((a.demand * a.recompute).sum()) - result.social_s
    half = float((a.demand * a.recompute).sum()) - 2.0 * saved if a.alike else -np.inf
    certificate = {"greedy_s": result.social_s, "bound_s": max(result.social_s - left, half, 0.0), "half_s": half}
    if polish:
        result = best_response_dynamics(game, tier, coordinated=True).value
    return Solution(result, certificate, np.int32(0), np.int64(steps))


def _greedy(a: PlacementArrays) -> tuple[np.ndarray, np.ndarray, int]:
    """(tiers (n, m), what each worker then pays for a read of each block (m, n), how many copies were placed).

    A worker's second copy of a block saves something only where it is faster than the first, whose place it takes.
    """
    n, m = a.demand.shape
    tiers = a.access.shape[1]
    room = a.capacity.copy()
    tier = np.full((n, m), -1, np.int8)
    best = np.repeat(a.recompute[:, None], n, axis=1)
    out = np.empty((n, tiers))

    def next_copy(b: int) -> tuple[float, int]:
        kernels.gains(a, best[b], b, out)
        out[room < a.size[b]] = 0.0
        at = int(out.argmax())
        return float(out.flat[at] / a.size[b]), at

    heap = []
    for b in range(m):
        gain, at = next_copy(b)
        if gain > 0:
            heap.append((-gain, b, at))
    heapq.heapify(heap)
    steps = 0
    while heap:
        _, b, at = heapq.heappop(heap)
        j, t = divmod(at, tiers)
        if room[j, t] >= a.size[b]:  # nothing of this block has changed, so its savings have not
            tier[j, b] = t
            room[j, t] -= a.size[b]
            best[b] = np.minimum(best[b], a.distance[:, j] + a.access[j, t])
            steps += 1
        gain, at = next_copy(b)
        if gain > 0:
            heapq.heappush(heap, (-gain, b, at))
    return tier, best, steps


def _left(a: PlacementArrays, best: np.ndarray) -> float:
    """What more copies could still save at most: each tier filled with its best marginal savings, in fractions."""
    n, m = a.demand.shape
    tiers = a.access.shape[1]
    gains = np.empty((m, n, tiers))
    for b in range(m):
        kernels.gains(a, best[b], b, gains[b])
    total = 0.0
    for j in range(n):
        for t in range(tiers):
            fits = a.size <= a.capacity[j, t]
            gain = np.where(fits, gains[:, j, t], 0.0)
            order = np.argsort(-gain / a.size)
            filled = np.cumsum(a.size[order])
            share = np.clip((a.capacity[j, t] - (filled - a.size[order])) / a.size[order], 0.0, 1.0)
            total += float((gain[order] * share).sum())
    return total
