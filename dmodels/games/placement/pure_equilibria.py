r"""All pure equilibria of small placement games, by enumeration; what comes nearest to one where there is none.

With at most one limited tier on a hierarchical network pure equilibria exist (`hierarchy`). With two they
need not: two workers, three blocks, one place in HBM and one in DRAM each, access (1, 2), distance 2, recomputation 5,
rates (2, 3, 4) for both: none of the 169 profiles is one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers.solution import Solution

from .game import PlacementArrays, PlacementGame

#: Gains below this share of the largest cost are ties.
TIE_RTOL = 1e-11


class Equilibria(NamedTuple):
    """What enumeration finds.

    tiers         (k, n, m) int8: all pure equilibria, in no particular order; k may be 0
    social_s      (k,): their social costs
    optimum       (n, m): a placement with the least social cost, `optimum_s`
    nearest       (n, m): the profile whose largest gain is least, `nearest_gain_s`: an equilibrium if there is one,
                  else the best approximate one
    """

    tiers: np.ndarray
    social_s: np.ndarray
    optimum: np.ndarray
    optimum_s: float
    nearest: np.ndarray
    nearest_gain_s: float


def profiles_count(game: PlacementGame) -> float:
    """How many profiles there are: the product of the workers' ways to fill their tiers, unused places included.

    inf where one worker alone has more than 1e15 ways.
    """
    a = game.arrays()
    m = a.demand.shape[1]
    most = min(int(a.slots.max()), m // 2)
    if a.alike and math.lgamma(m + 1) - math.lgamma(most + 1) - math.lgamma(m - most + 1) > math.log(1e15):
        return math.inf  # ways to fill the largest tier alone; the exact number would take long
    if a.alike:  # ways of placing k_1, ..., k_T of m blocks
        ways = [_ways(m, tuple(slots)) for slots in a.slots.tolist()]
    elif (a.access.shape[1] + 1) ** a.demand.shape[1] > 1e7:
        return math.inf
    else:
        ways = [len(_strategies(a, i)) for i in range(len(a.demand))]
    return math.prod(float(w) for w in ways)


def equilibria(game: PlacementGame, max_profiles: float = 2e6) -> Solution:
    """All pure Nash equilibria, the social optimum, and the best approximate equilibrium, by looking at every profile.

    value        `Equilibria`
    certificate  `gain_s` (k, n): what each worker could still save at each equilibrium (ties up to rounding)
    flags        INFEASIBLE: there is no pure equilibrium, every profile has a worker who gains by moving
    steps        profiles looked at; more than `max_profiles` are refused

    >>> from dmodels.games.placement import complete
    >>> game = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)
    >>> s = equilibria(game)
    >>> int(s.steps), len(s.value.tiers), round(s.value.nearest_gain_s, 6)
    (169, 0, 1.0)
    """
    count = profiles_count(game)
    if count > max_profiles:
        raise InputError(
            f"the game has {count:.3g} profiles; accepted are at most {max_profiles:.3g}; "
            "best_response_dynamics finds single equilibria of large games"
        )
    a = game.arrays()
    n = len(a.demand)
    lists = [_strategies(a, i) for i in range(n)]
    sizes = np.array([len(rows) for rows in lists])
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    rows = np.concatenate(lists)
    cost = _all_costs(rows, starts, sizes, a.demand, a.access, a.distance, a.recompute)
    shaped = cost.reshape(n, *sizes)
    gain = np.stack([shaped[i] - shaped[i].min(axis=i, keepdims=True) for i in range(n)]).reshape(n, -1)
    worst = gain.max(0)
    tie = TIE_RTOL * cost.max()
    stable, total, near = np.flatnonzero(worst <= tie), cost.sum(0), int(worst.argmin())
    least = int(total.argmin())
    profile = lambda at: rows[starts + np.stack(np.unravel_index(at, sizes), axis=-1)]
    value = Equilibria(
        profile(stable), total[stable], profile(least), float(total[least]), profile(near), float(worst[near])
    )
    flags = np.int32(0 if stable.size else int(Flag.INFEASIBLE))
    return Solution(value, {"gain_s": gain[:, stable].T}, flags, np.int64(cost.shape[1]))


def _ways(blocks: int, slots: tuple[int, ...]) -> int:
    """Ways of keeping at most k_t different blocks in tier t."""
    if not slots:
        return 1
    return sum(math.comb(blocks, k) * _ways(blocks - k, slots[1:]) for k in range(min(slots[0], blocks) + 1))


def _strategies(a: PlacementArrays, i: int) -> np.ndarray:
    """All tiers (count, m) that worker i may choose, int8."""
    m, tiers = a.demand.shape[1], a.access.shape[1]
    rows = np.zeros((1, 0), np.int8)
    used = np.zeros((1, tiers))
    for b in range(m):
        grown = [(np.concatenate([rows, np.full((len(rows), 1), -1, np.int8)], 1), used)]
        for t in range(tiers):
            fits = used[:, t] + a.size[b] <= a.capacity[i, t]
            more = used[fits].copy()
            more[:, t] += a.size[b]
            grown.append((np.concatenate([rows[fits], np.full((fits.sum(), 1), t, np.int8)], 1), more))
        rows, used = (np.concatenate(parts) for parts in zip(*grown, strict=True))
    return rows


@kernel
def _all_costs(rows, starts, sizes, demand, access, distance, recompute):
    """(n, P): what each worker pays at each profile; the last worker's strategy runs fastest."""
    n, m = demand.shape
    total = 1
    for s in sizes:
        total *= s
    out = np.zeros((n, total))
    at = np.zeros(n, np.int64)
    for p in range(total):
        for b in range(m):
            for i in range(n):
                w = demand[i, b]
                if w == 0.0:
                    continue
                least = recompute[b]
                for j in range(n):
                    t = rows[starts[j] + at[j], b]
                    if t >= 0:
                        least = min(least, distance[i, j] + access[j, t])
                out[i, p] += w * least
        k = n - 1
        while k >= 0:
            at[k] += 1
            if at[k] < sizes[k]:
                break
            at[k] = 0
            k -= 1
    return out
