"""Is there a pure equilibrium, and if not, what comes nearest? By theorem, by enumeration, or by play."""

from __future__ import annotations

import numpy as np

from dmodels.core.flags import Flag
from dmodels.solvers.solution import Solution

from .anarchy import random_placement
from .game import STAY_RTOL, PlacementGame, placement
from .hierarchy import hierarchical_equilibrium, not_hierarchical
from .pure_equilibria import equilibria, profiles_count
from .response import best_response_dynamics, gains_s

#: Shares of a worker's cost that a move must save, tried in turn until play comes to rest; at the last nobody moves.
WORTH_FRACS = (STAY_RTOL, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)


def approximate_equilibrium(game: PlacementGame, start=None, max_rounds: int = 20) -> Solution:
    """Where selfish play comes to rest, if need be because what a move would save is not worth it.

    On networks that data cross one way, or with two limited tiers, play may run for ever. From where `max_rounds`
    rounds of best responses have led, it goes on with moves that save a tenth of a per cent of the worker's cost, then
    with larger ones only, until nobody moves.

    value        `Placement`
    certificate  `gain_s` (n,): what each worker could still save; `worth_frac`: no worker can save a larger share of
                 its cost; 1e-12 at an equilibrium
    flags        NOT_CONVERGED: an approximate equilibrium
    steps        moves made

    >>> from dmodels.games.placement import complete
    >>> rates = np.tile([2.0, 3.0, 4.0], (2, 1))
    >>> s = approximate_equilibrium(PlacementGame(rates, [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0))
    >>> s.certificate["worth_frac"], bool((s.certificate["gain_s"] <= 0.1 * s.value.cost_s).all())
    (0.1, True)
    """
    moves = 0
    for worth in WORTH_FRACS:
        s = best_response_dynamics(game, start, max_rounds=max_rounds, worth_frac=worth)
        start, moves = s.value.tier, moves + int(s.steps)
        if not s.flags:
            break
    flags = np.int32(0 if worth == STAY_RTOL else int(Flag.NOT_CONVERGED))
    return Solution(s.value, {"gain_s": s.certificate["gain_s"], "worth_frac": worth}, flags, np.int64(moves))


def pure_equilibrium(
    game: PlacementGame, max_profiles: float = 2e5, starts: int = 8, rng: np.random.Generator | None = None
) -> Solution:
    """A pure equilibrium, or the best approximate one with the circle in which selfish play runs.

    In this order: the polynomial algorithm where it applies; the cheapest by enumeration of at most `max_profiles`
    profiles; a hundred rounds of best responses from empty tiers and from each of `starts` random placements in random
    orders of turns; and `approximate_equilibrium` from the best of what these passed.

    value        `Placement`
    certificate  `exists`: 1 found, 0 proved that there is none, -1 not known; `gain_s` (n,): what each worker could
                 still save; `factor`: no worker pays more than this times what its best response would (1 at an
                 equilibrium); `cycle` (k, n, m): placements through which play returns, empty where it settled
    flags        INFEASIBLE where none exists, NOT_CONVERGED where it is not known

    >>> from dmodels.games.placement import complete
    >>> rates = np.tile([2.0, 3.0, 4.0], (2, 1))
    >>> s = pure_equilibrium(PlacementGame(rates, [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0))
    >>> s.certificate["exists"], s.certificate["gain_s"].max()
    (0, np.float64(1.0))
    """
    none = np.empty((0, *game.demand_rps.shape), np.int8)
    if not not_hierarchical(game):
        s = hierarchical_equilibrium(game)
        return _answer(game, s.value.tier, 1, none, s.flags, s.steps)
    if profiles_count(game) <= max_profiles:
        s = equilibria(game, max_profiles)
        if len(s.value.tiers):
            return _answer(game, s.value.tiers[s.value.social_s.argmin()], 1, none, np.int32(0), s.steps)
        cycle = best_response_dynamics(game, s.value.nearest).certificate["cycle"]
        return _answer(game, s.value.nearest, 0, cycle, s.flags, s.steps)
    rng = np.random.default_rng(0) if rng is None else rng
    best, moves = None, 0
    for k in range(starts + 1):
        start = random_placement(game, rng) if k else None
        s = best_response_dynamics(game, start, rng.permutation(game.workers_count) if k else None, max_rounds=100)
        moves += int(s.steps)
        if not s.flags:
            return _answer(game, s.value.tier, 1, none, s.flags, np.int64(moves))
        if best is None or s.certificate["gain_s"].max() < best.certificate["gain_s"].max():
            best = s
    calm = approximate_equilibrium(game, best.value.tier)
    nearest = min(best, calm, key=lambda s: s.certificate["gain_s"].max())
    moves = np.int64(moves + int(calm.steps))
    return _answer(game, nearest.value.tier, -1, best.certificate["cycle"], np.int32(Flag.NOT_CONVERGED), moves)


def _answer(game: PlacementGame, tier: np.ndarray, exists: int, cycle: np.ndarray, flags, steps) -> Solution:
    value, gain = placement(game, tier), gains_s(game, tier)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(gain > 0, value.cost_s / np.maximum(value.cost_s - gain, 0.0), 1.0)
    certificate = {"exists": exists, "gain_s": gain, "factor": float(ratio.max()), "cycle": cycle}
    return Solution(value, certificate, flags, steps)
