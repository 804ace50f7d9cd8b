r"""The cache paradox: more memory, or one more worker that caches, and all together pay more.

The least cost never rises with memory. What selfish workers settle on may: a worker with one place more takes in a
block that a neighbour held for both, the neighbour then turns to something else, and a third pays for it. As in
Braess's road network every equilibrium can rise: three workers and two blocks are enough, on a line as well as with
NVLink inside a node and InfiniBand between (proofs/placement/prop_cp.py).

`at_risk` tries this cluster: it plays from the present equilibrium with the memory added, and bounds any equilibrium
from above by what all would pay alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError

from .game import PlacementGame
from .pure_equilibria import equilibria, profiles_count
from .response import best_response_dynamics, isolated_s


def _unchanged(cost_s: float) -> float:
    """The most that a cost becomes by the rounding of sums alone."""
    return cost_s * (1 + 1e-9)


class Rise(NamedTuple):
    """What one more place in one tier of one worker does to a small game, exactly. Costs NaN without equilibrium."""

    worker: int
    tier: int
    worst_s: tuple[float, float]  # before, after
    best_s: tuple[float, float]
    optimum_s: tuple[float, float]

    @property
    def paradox(self) -> bool:
        """The worst equilibrium rises."""
        return bool(self.worst_s[1] > _unchanged(self.worst_s[0]))


def more_memory(game: PlacementGame, worker: int, tier: int = 0, extra_bytes: float | None = None) -> PlacementGame:
    """The game with more room in one tier of one worker; by default for one block (the largest)."""
    n, tiers = game.workers_count, game.tiers_count
    if not (0 <= worker < n and 0 <= tier < tiers):
        raise InputError(f"worker {worker}, tier {tier}; accepted: 0..{n - 1}, 0..{tiers - 1}")
    extra = float(np.max(game.block_bytes)) if extra_bytes is None else extra_bytes
    capacity = np.array(np.broadcast_to(game.capacity_bytes, (n, tiers)))
    capacity[worker, tier] += extra
    return game.replace(capacity_bytes=capacity)


def rises(game: PlacementGame, max_profiles: float = 1e5) -> list[Rise]:
    """One more block of memory in each tier of each worker, by enumeration before and after."""
    before = _extremes(game, max_profiles)
    out = []
    for worker, tier in itertools.product(range(game.workers_count), range(game.tiers_count)):
        after = _extremes(more_memory(game, worker, tier), max_profiles)
        out.append(Rise(worker, tier, *zip(before, after, strict=True)))
    return out


def _extremes(game: PlacementGame, max_profiles: float) -> tuple[float, float, float]:
    found = equilibria(game, max_profiles).value
    if not found.social_s.size:
        return float("nan"), float("nan"), found.optimum_s
    return float(found.social_s.max()), float(found.social_s.min()), found.optimum_s


def paradox_search(
    workers: int,
    blocks: int,
    rates: Sequence[float],
    distance_s,
    capacities: Sequence[float],
    access_s: float = 0.0,
    recompute_s: float = 4.0,
    best: bool = False,
) -> Iterator[tuple[PlacementGame, Rise]]:
    """All games of this size with one tier and these rates in which one more place raises the worst equilibrium.

    Exhaustive up to renaming blocks: rates run over `rates`, capacities over `capacities` for each worker. With `best`
    the best equilibrium must rise.
    """
    columns = list(itertools.product(rates, repeat=workers))
    for demand in itertools.combinations_with_replacement(columns, blocks):
        for capacity in itertools.product(capacities, repeat=workers):
            game = PlacementGame(
                np.array(demand).T, [access_s], np.array(capacity, float)[:, None], distance_s, recompute_s
            )
            for rise in rises(game):
                before, after = rise.best_s if best else rise.worst_s
                if after > _unchanged(before):
                    yield game, rise


class Risk(NamedTuple):
    """What more memory does to this cluster, tier by tier and worker by worker.

    before_s     cost of the worst equilibrium known now
    after_s      (K,): cost of the worst equilibrium found after the addition; inf where play settles nowhere
    worker, tier (K,): where the memory is added; worker -1: everywhere
    ceiling_s    (K,): no equilibrium afterwards costs more
    exact        all equilibria were looked at, before and after
    """

    before_s: float
    after_s: np.ndarray
    worker: np.ndarray
    tier: np.ndarray
    ceiling_s: np.ndarray
    exact: bool

    @property
    def at_risk(self) -> bool:
        """Some addition can make reads dearer, or leaves no rest."""
        return bool((self.after_s > _unchanged(self.before_s)).any())

    @property
    def safe(self) -> bool:
        """Proved: none of the additions makes any equilibrium dearer than the worst one known now."""
        proved = (self.ceiling_s <= _unchanged(self.before_s)).all()  # what is no number proves nothing
        return bool(proved or (self.exact and not self.at_risk))

    def __str__(self) -> str:
        k = int(self.after_s.argmax())
        where = f"tier {self.tier[k]} of " + ("all workers" if self.worker[k] < 0 else f"worker {self.worker[k]}")
        if np.isinf(self.after_s[k]):
            return f"at risk: with more memory in {where} selfish placement never settles"
        if self.at_risk:
            return f"at risk: more memory in {where} can raise the cost of reads by {self._rise(self.after_s[k])}"
        if self.safe:
            return "safe: no equilibrium with more memory is dearer than what selfish placement may cost now"
        most = self._rise(self.ceiling_s.max())
        return f"no addition that was tried raises the cost; a rise above {most} is impossible"

    def _rise(self, cost_s: float) -> str:
        """By how much a cost is above that of now, in two digits."""
        rise = 100 * (cost_s / self.before_s - 1) if self.before_s > 0 else np.inf
        return f"{float(f'{rise:.2g}'):,g} %"


def at_risk(
    game: PlacementGame,
    extra_bytes: float | None = None,
    workers: Sequence[int] | None = None,
    start=None,
    together: bool = False,
    plays: int = 3,
    max_profiles: float = 2e4,
    rng: np.random.Generator | None = None,
) -> Risk:
    """Can more memory make *this* cluster slower under selfish placement?

    Adds `extra_bytes` (one block by default) to each tier of each of `workers` in turn, or of all of them `together`.
    Games of at most `max_profiles` profiles: all equilibria before and after. Larger ones: play from `start` (empty
    tiers) to an equilibrium, and on from there with the memory added, `plays` times in different orders of turns; a
    risk that is found is real, and `safe` is a proof (all alone would pay less than now).

    >>> from dmodels.games.placement import line
    >>> game = PlacementGame([[0, 2], [1, 1], [1, 0]], [0.0], [[0], [1], [1]], line(3, 1.0), 4.0)
    >>> print(at_risk(game))
    at risk: more memory in tier 0 of worker 2 can raise the cost of reads by 67 %
    """
    rng = np.random.default_rng(0) if rng is None else rng
    chosen = list(range(game.workers_count) if workers is None else workers)
    kinds = list(itertools.product([-1] if together else chosen, range(game.tiers_count)))
    bigger = []
    for worker, tier in kinds:
        grown = game
        for j in chosen if worker < 0 else [worker]:
            grown = more_memory(grown, j, tier, extra_bytes)
        bigger.append(grown)
    exact = max(map(profiles_count, [game, *bigger])) <= max_profiles
    if exact:
        before, *after = (_extremes(g, max_profiles)[0] for g in [game, *bigger])
    else:
        now = best_response_dynamics(game, start)
        before = np.nan if now.flags else now.value.social_s
        after = [_worst_play(g, now.value.tier, plays, rng) for g in bigger]
    if np.isnan(before):
        raise InputError("selfish placement does not settle in the present game; there is nothing to compare with")
    worker, tier = np.array(kinds).T
    after = np.where(np.isnan(after), np.inf, after)
    return Risk(before, after, worker, tier, np.array([isolated_s(g).sum() for g in bigger]), exact)


def _worst_play(game: PlacementGame, tier: np.ndarray, plays: int, rng: np.random.Generator) -> float:
    """The costliest equilibrium that play from `tier` comes to, NaN if one play comes to none."""
    orders = [None, *(rng.permutation(game.workers_count) for _ in range(plays - 1))]
    ends = [best_response_dynamics(game, tier, order) for order in orders]
    return np.nan if any(s.flags for s in ends) else max(s.value.social_s for s in ends)
