r"""Prices of anarchy and of stability of placement games, as certified intervals.

Worst (best) pure equilibrium over the least cost. Small games are enumerated: the interval is a point. Otherwise the
numerator lies between equilibria that were found and what all would pay alone (at an equilibrium nobody pays more
than it would with nobody to read from), the denominator between a placement that was found and a bound by duality.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.flags import Flag, describe

from .bound import best_bound
from .game import PlacementGame
from .hierarchy import hierarchical_equilibrium, not_hierarchical
from .optimum import greedy_optimum, social_optimum, variables_count
from .pure_equilibria import equilibria, profiles_count
from .response import best_response_dynamics, isolated_s

#: Variables up to which the optimum is sought by HiGHS and not by greedy.
EXACT_VARIABLES = 6_000


class PlacementPrice(NamedTuple):
    """An interval that holds the true price of anarchy, one for the price of stability, and what they are made of.

    lower, upper            price of anarchy; NaN where there is no pure equilibrium (or none is known: lower)
    stability_lower, _upper price of stability
    exact                   the game was enumerated: the intervals are points
    exists                  1: a pure equilibrium is known, 0: there is none, -1: none was found
    worst_s, best_s         costs of the worst and the best equilibrium known
    ceiling_s               no equilibrium costs more
    optimum_s, optimum_bound_s  the cheapest placement known, and a bound on all
    equilibria_count        different costs of equilibria found, or all equilibria if exact
    flags                   INFEASIBLE: no pure equilibrium exists; NOT_CONVERGED: none was found
    """

    lower: float
    upper: float
    stability_lower: float
    stability_upper: float
    exact: bool
    exists: int
    worst_s: float
    best_s: float
    ceiling_s: float
    optimum_s: float
    optimum_bound_s: float
    equilibria_count: int
    flags: np.int32

    def __str__(self) -> str:
        if self.exists == 0:
            return "no pure equilibrium exists: the placement keeps changing under selfish play"
        text = f"price of anarchy {self.lower:.4g}" + ("" if self.exact else f" to {self.upper:.4g}")
        return text if not self.flags else f"{text} ({describe(int(self.flags))})"


def price_of_anarchy(
    game: PlacementGame, max_profiles: float = 3e5, starts: int = 8, rng: np.random.Generator | None = None
) -> PlacementPrice:
    """The intervals. Games of more than `max_profiles` profiles are searched from `starts` random placements.

    Two workers, two blocks, one place each, access 1, distance 1, recomputation 3, rates (5, 2) for both: both keep
    the first block; the worst equilibrium costs 22 and the optimum 21.

    >>> from dmodels.games.placement import complete
    >>> p = price_of_anarchy(PlacementGame(np.tile([5.0, 2.0], (2, 1)), [1.0], [1.0], complete(2, 1.0), 3.0))
    >>> p.exact, round(p.worst_s, 9), round(p.optimum_s, 9)
    (True, 22.0, 21.0)
    """
    if profiles_count(game) <= max_profiles:
        return _enumerated(game, max_profiles)
    rng = np.random.default_rng(0) if rng is None else rng
    found = [s.value.social_s for s in _equilibria(game, starts, rng) if not s.flags]
    ceiling = float(isolated_s(game).sum())
    if variables_count(game) <= EXACT_VARIABLES:
        s = social_optimum(game)
        least, bound = s.value.social_s, s.certificate["bound_s"]
    else:
        s = greedy_optimum(game)
        least, bound = s.value.social_s, max(s.certificate["bound_s"], float(best_bound(game).value))
    least = min([least, *found])
    bound = min(bound, least)
    worst, best = (max(found), min(found)) if found else (np.nan, np.nan)
    flags = np.int32(0 if found else int(Flag.NOT_CONVERGED))
    upper = _ratio(ceiling, bound)
    return PlacementPrice(
        _ratio(worst, least),
        upper,
        1.0 if found else np.nan,
        _ratio(best, bound) if found else upper,
        False,
        1 if found else -1,
        worst,
        best,
        ceiling,
        least,
        bound,
        len(set(found)),
        flags,
    )


def _enumerated(game: PlacementGame, max_profiles: float) -> PlacementPrice:
    s = equilibria(game, max_profiles)
    least, costs = s.value.optimum_s, s.value.social_s
    ceiling = float(isolated_s(game).sum())
    if not costs.size:
        nan = float("nan")
        return PlacementPrice(nan, nan, nan, nan, True, 0, nan, nan, ceiling, least, least, 0, s.flags)
    worst, best = float(costs.max()), float(costs.min())
    anarchy, stability = _ratio(worst, least), _ratio(best, least)
    return PlacementPrice(
        anarchy, anarchy, stability, stability, True, 1, worst, best, ceiling, least, least, len(costs), s.flags
    )


def _equilibria(game: PlacementGame, starts: int, rng: np.random.Generator):
    """Solutions of the dynamics from several placements, and of the polynomial algorithm where it applies."""
    if not not_hierarchical(game):
        yield hierarchical_equilibrium(game)
    yield best_response_dynamics(game)
    yield best_response_dynamics(game, greedy_optimum(game).value.tier)
    for _ in range(starts):
        order = rng.permutation(game.workers_count)
        yield best_response_dynamics(game, random_placement(game, rng), order)


def random_placement(game: PlacementGame, rng: np.random.Generator) -> np.ndarray:
    """Tiers (n, m) filled with blocks in random order."""
    a = game.arrays()
    tier = np.full(a.demand.shape, -1, np.int8)
    for i in range(len(tier)):
        room = a.capacity[i].copy()
        for b in rng.permutation(tier.shape[1]):
            open_ = np.flatnonzero(room >= a.size[b])
            if open_.size:
                t = open_[0]
                tier[i, b] = t
                room[t] -= a.size[b]
    return tier


def _ratio(cost: float, least: float) -> float:
    if least > 0:
        return cost / least
    return 1.0 if cost == 0 else cost * float("inf")
