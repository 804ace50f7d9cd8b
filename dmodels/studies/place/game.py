"""The memory of several workers as the placement game: alone, pooled and selfish, pooled and run centrally.

`sharing` replays LRU caches, which forget and learn as requests come. Here every worker chooses once what it
keeps, knowing how often the trace will ask for it: what sharing can be worth at best, what is lost if each worker looks
after itself, and a bound that no placement beats. Reads that a cache could serve are counted: all but first uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmodels.core.answers import Answer
from dmodels.games.placement import PlacementGame, at_risk, complete, value_of_sharing
from dmodels.models.traffic import Trace

from .cost import State


@dataclass(frozen=True)
class Pooled(Answer):
    """One way of sending requests to workers: mean seconds per read that a cache could serve."""

    name: str
    isolated_s: float  # every worker reads from its own tiers only
    selfish_s: float  # a pool in which each worker keeps what is best for itself
    coordinated_s: float  # a pool in which each keeps what is best for all
    bound_s: float  # no placement in the pool is faster
    pooling_frac: float  # of isolated_s, what the selfish pool saves
    coordination_frac: float  # of selfish_s, what central placement saves for sure
    coordination_most_frac: float  # and at most
    settled: bool  # selfish play comes to rest; if not, selfish_s is that of the nearest placement it passed
    risk: str  # what a tenth more of each tier at all workers does to the selfish pool


def pooled(trace: Trace, state: State, workers: int, peer_s: float, routes: dict[str, np.ndarray]) -> list[Pooled]:
    """The game for each of `routes`: the worker of each request (requests,).

    Each worker has an equal share of every tier and reads from peers' tiers for `peer_s` more; a prefill of a block
    takes what one hit spares in the mean.
    """
    share = np.where(np.isinf(state.blocks), np.inf, np.floor(state.blocks / workers))
    rows = []
    for name, route in routes.items():
        reads = rereads(trace, route, workers)
        reads = reads[:, reads.any(axis=0)]
        if not reads.size:
            continue  # nothing is used twice: nothing to share
        game = PlacementGame(reads, state.read_s, share, complete(workers, peer_s), state.miss_s)
        s, total = value_of_sharing(game, iterations=40), reads.sum()
        surely, most = s.coordination_frac
        rows.append(
            Pooled(
                name,
                s.isolated_s / total,
                s.selfish.social_s / total,
                s.coordinated.social_s / total,
                s.bound_s / total,
                round(s.pooling_frac, 12) + 0.0,
                surely,
                most,
                not s.flags,
                _risk(game, s.selfish.tier) if not s.flags else "",
            )
        )
    return rows


def rereads(trace: Trace, route: np.ndarray, workers: int) -> np.ndarray:
    """Uses of each block by each worker (workers, blocks), without the first use of each block."""
    names, first, block = np.unique(trace.block_ids, return_index=True, return_inverse=True)
    at = np.repeat(route, np.diff(trace.block_starts))
    again = np.ones(len(at), bool)
    again[first] = False
    count = np.bincount(at[again] * len(names) + block[again], minlength=workers * len(names))
    return count.reshape(workers, len(names)).astype(np.float64)


def _risk(game: PlacementGame, tier: np.ndarray) -> str:
    """Whether a tenth more of every tier at all workers can make selfish reads dearer (the cache paradox)."""
    limited = game.capacity_bytes[np.isfinite(game.capacity_bytes)]
    extra = max(np.ceil(limited.max(initial=0.0) / 10), 1.0)
    return str(at_risk(game, extra, start=tier, together=True, plays=2))
