r"""The cache paradox: more memory, or one more worker that caches, and everybody together pays more.

The least cost never rises with memory. What selfish workers settle on may: a worker with one place more takes in a
block that a neighbour held for both, the neighbour then turns to something else, and a third pays for it. As in
Braess's road network the *worst* equilibrium rises in small games; for the best equilibrium no case is known here.

`at_risk` tries this cluster: it plays from the present equilibrium with the memory added, and bounds any equilibrium
from above by what everybody would pay alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError

from .placement import PlacementGame, isolated_s
from .placement_equilibria import equilibria
from .placement_response import best_response_dynamics


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
        return self.worst_s[1] > self.worst_s[0] * (1 + 1e-9)

    @property
    def best_paradox(self) -> bool:
        """Even the best equilibrium rises."""
        return self.best_s[1] > self.best_s[0] * (1 + 1e-9)


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
    workers: int, blocks: int, rates: Sequence[float], distance_s, capacities: Sequence[float], access_s: float = 0.0,
    recompute_s: float = 4.0, best: bool = False, least_factor: float = 1.0,
) -> Iterator[tuple[PlacementGame, Rise]]:  # fmt: skip
    """All games of this size with one tier and these rates in which one more place raises the worst equilibrium.

    Exhaustive up to renaming blocks: rates run over `rates`, capacities over `capacities` for each worker. With `best`
    the best equilibrium must rise. Only rises above `least_factor`.
    """
    columns = list(itertools.product(rates, repeat=workers))
    for demand in itertools.combinations_with_replacement(columns, blocks):
        for capacity in itertools.product(capacities, repeat=workers):
            game = PlacementGame(
                np.array(demand).T, [access_s], np.array(capacity, float)[:, None], distance_s, recompute_s
            )
            for rise in rises(game):
                before, after = rise.best_s if best else rise.worst_s
                if after > before * least_factor * (1 + 1e-9):
                    yield game, rise


class Risk(NamedTuple):
    """What more memory does to this cluster, tier by tier and worker by worker.

    before_s     cost of the present equilibrium
    after_s      (K,): cost where selfish play settles after the addition; NaN where it settles nowhere
    worker, tier (K,): where the memory is added
    ceiling_s    (K,): no equilibrium afterwards costs more
    """

    before_s: float
    after_s: np.ndarray
    worker: np.ndarray
    tier: np.ndarray
    ceiling_s: np.ndarray

    @property
    def at_risk(self) -> bool:
        """Some addition makes it dearer, or leaves no rest."""
        return bool((~(self.after_s <= self.before_s * (1 + 1e-9))).any())

    @property
    def safe(self) -> bool:
        """Proved: after none of the additions can any equilibrium be dearer than the present one."""
        return bool((self.ceiling_s <= self.before_s * (1 + 1e-9)).all())

    def __str__(self) -> str:
        rise = self.after_s / self.before_s - 1 if self.before_s > 0 else np.zeros_like(self.after_s)
        if np.isnan(rise).any():
            k = int(np.isnan(rise).argmax())
            return f"at risk: with more memory in tier {self.tier[k]} selfish placement never settles"
        k = int(rise.argmax())
        if self.at_risk:
            where = f"tier {self.tier[k]} of " + ("all workers" if self.worker[k] < 0 else f"worker {self.worker[k]}")
            return f"at risk: more memory in {where} raises the cost of reads by {100 * rise[k]:.2g} %"
        if self.safe:
            return "safe: no equilibrium with more memory can be dearer than the present one"
        most = 100 * (self.ceiling_s.max() / self.before_s - 1)
        return f"no addition that was tried raises the cost; a rise of more than {most:.2g} % is impossible"


def at_risk(
    game: PlacementGame, extra_bytes: float | None = None, workers: Sequence[int] | None = None, start=None,
    all_together: bool = False,
) -> Risk:  # fmt: skip
    """Does more memory make *this* cluster slower under selfish placement?

    Plays from `start` (by default: from empty tiers) to an equilibrium, then adds `extra_bytes` (one block by default)
    to each tier of each of `workers` in turn, or of all of them at once, and plays on from there. What it finds is a
    risk that is real; `safe` is a proof; between the two lies what neither shows.
    """
    now = best_response_dynamics(game, start)
    if now.flags:
        raise InputError("selfish play does not settle in the present game; there is no equilibrium to compare with")
    chosen = range(game.workers_count) if workers is None else workers
    tiers = range(game.tiers_count)
    kinds = [(-1, t) for t in tiers] if all_together else list(itertools.product(chosen, tiers))
    after, ceiling = np.empty(len(kinds)), np.empty(len(kinds))
    for k, (worker, tier) in enumerate(kinds):
        bigger = game
        for j in chosen if worker < 0 else [worker]:
            bigger = more_memory(bigger, j, tier, extra_bytes)
        s = best_response_dynamics(bigger, now.value.tier)
        after[k] = np.nan if s.flags else s.value.social_s
        ceiling[k] = isolated_s(bigger).sum()
    worker, tier = np.array(kinds).T
    return Risk(now.value.social_s, after, worker, tier, ceiling)
