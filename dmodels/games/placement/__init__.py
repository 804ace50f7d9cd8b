"""The KV placement game: who holds which block in which tier, selfishly and at best.

`dmodels place` uses `sharing` and `paradox`; equilibria, certified optima and special networks are used by the ledger
and open to callers.
"""

from __future__ import annotations

from .anarchy import PlacementPrice, price_of_anarchy, random_placement
from .bound import best_bound, price_bound
from .existence import approximate_equilibrium, pure_equilibrium
from .game import Placement, PlacementGame, empty, placement
from .hierarchy import hierarchical_equilibrium
from .networks import complete, fat_tree, levels, line, ring, shortest_paths, two_level
from .optimum import greedy_optimum, social_optimum
from .paradox import Rise, Risk, at_risk, more_memory, paradox_search, rises
from .pure_equilibria import Equilibria, equilibria, profiles_count
from .response import best_response, best_response_dynamics, gains_s, isolated_s, regrets
from .sharing import Sharing, value_of_sharing

__all__ = [
    "Equilibria",
    "Placement",
    "PlacementGame",
    "PlacementPrice",
    "Rise",
    "Risk",
    "Sharing",
    "approximate_equilibrium",
    "at_risk",
    "best_bound",
    "best_response",
    "best_response_dynamics",
    "complete",
    "empty",
    "equilibria",
    "fat_tree",
    "gains_s",
    "greedy_optimum",
    "hierarchical_equilibrium",
    "isolated_s",
    "levels",
    "line",
    "more_memory",
    "paradox_search",
    "placement",
    "price_bound",
    "price_of_anarchy",
    "profiles_count",
    "pure_equilibrium",
    "random_placement",
    "regrets",
    "ring",
    "rises",
    "shortest_paths",
    "social_optimum",
    "two_level",
    "value_of_sharing",
]
