"""What a shared pool of KV caches is worth: alone, pooled and selfish, pooled and coordinated, and the bound on all.

`studies.place_game` makes the game of a trace and of a cluster's tiers, for `dmodels place`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.flags import describe

from .bound import best_bound
from .game import Placement, PlacementGame
from .response import best_response_dynamics, isolated_s


class Sharing(NamedTuple):
    """Costs per second of all reads, rate times seconds (mean reads in flight), from most to least.

    isolated_s     every worker for itself, no reads from others
    selfish        the pool where every worker looks after itself: an equilibrium (or the best of a cycle, see flags)
    coordinated    the pool with all workers' reads in view: a local optimum
    bound_s        no placement in the pool costs less
    flags          NOT_CONVERGED: selfish play never settles
    """

    isolated_s: float
    selfish: Placement
    coordinated: Placement
    bound_s: float
    flags: np.int32

    @property
    def pooling_frac(self) -> float:
        """Share of the isolated cost that the selfish pool saves."""
        return 1 - self.selfish.social_s / self.isolated_s if self.isolated_s > 0 else 0.0

    @property
    def coordination_frac(self) -> tuple[float, float]:
        """What coordination saves of the selfish pool's cost: (surely, at most)."""
        paid = self.selfish.social_s
        return (1 - self.coordinated.social_s / paid, 1 - self.bound_s / paid) if paid > 0 else (0.0, 0.0)

    def __str__(self) -> str:
        low, high = self.coordination_frac
        text = (
            f"pooling saves {100 * self.pooling_frac:.1f} % of the cost of reads; central placement saves another "
            f"{100 * low:.1f} % (at most {100 * high:.1f} %)"
        )
        return text if not self.flags else f"{text}; selfish placement never settles ({describe(int(self.flags))})"


def value_of_sharing(game: PlacementGame, iterations: int = 20, max_rounds: int = 100) -> Sharing:
    """Isolated caches against one pool, selfish and coordinated, with a certified bound.

    Two workers that need the same two blocks, one place each, distance 1, access 1, recomputation 10, rates 1: alone
    each prefills one block, 2 (1 + 10) = 22; pooled each keeps one and reads the other, 2 (1 + 2) = 6.

    >>> from dmodels.games.placement import complete
    >>> s = value_of_sharing(PlacementGame(np.ones((2, 2)), [1.0], [1.0], complete(2, 1.0), 10.0))
    >>> s.isolated_s, s.selfish.social_s, round(s.bound_s, 6)
    (22.0, 6.0, 6.0)
    """
    alone = float(isolated_s(game).sum())
    selfish = best_response_dynamics(game, max_rounds=max_rounds)
    together = best_response_dynamics(game, selfish.value.tier, coordinated=True, max_rounds=max_rounds).value
    bound = float(best_bound(game, together.social_s, iterations, together.tier).value)
    return Sharing(alone, selfish.value, together, min(bound, together.social_s), selfish.flags)
