"""Pure equilibria and optimum of batches of small routing games, by looking at every profile on a device."""

from __future__ import annotations

from functools import cache
from math import comb, prod
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from dmodels.core.errors import InputError
from dmodels.games.routing import NashRange, RoutingArrays
from dmodels.games.routing.batches import game_bytes, spread_out
from dmodels.games.routing.programs import BLOCK, every_profile
from dmodels.solvers.device import Program, in_chunks, takes_device

#: Profiles up to which a device may be asked, and up to which "auto" asks it. Above the second, branch and prune on the
#: host looks at so much less that it is reckoned to win; measured it is not.
MOST_PROFILES, WORTH_PROFILES = 2**24, 2**16


class Enumerated(NamedTuple):
    """Range of the equilibria, optimal flows (B, G, m), what these cost (...,), and profiles looked at (...,)."""

    nash: NashRange
    optimum_flows: np.ndarray
    optimum_s: np.ndarray
    profiles: np.ndarray


def profiles_count(counts: np.ndarray, workers: int) -> int:
    """Profiles of the largest game: the product over groups of the ways to split each over the workers."""
    return max(prod(comb(int(size) + workers - 1, workers - 1) for size in sizes) for sizes in counts)


def enumerates(a: RoutingArrays, backend: str) -> bool:
    """Whether `backend` sends this batch through `enumerated`; InputError where it asks for what is too much."""
    if not takes_device(backend, a.batch):
        return False
    count = profiles_count(np.unique(a.counts, axis=0), a.f.shape[1])
    if backend == "device" and count > MOST_PROFILES:
        raise InputError(f"{count} profiles in a game; accepted with backend='device' are at most {MOST_PROFILES}")
    return backend == "device" or count <= WORTH_PROFILES


@cache
def splits(size: int, workers: int) -> np.ndarray:
    """All ways to split `size` requests over workers, (ways, workers)."""
    if workers == 1:
        return np.full((1, 1), size, np.int64)
    parts = []
    for first in range(size + 1):
        rest = splits(size - first, workers - 1)
        parts.append(np.concatenate([np.full((len(rest), 1), first, np.int64), rest], axis=1))
    return np.concatenate(parts)


@cache
def every_profile_of(groups: int) -> Program:
    """`every_profile` over games that share the sizes of their groups, (B, ...)."""

    def run(f: Array, c: Array, *ways: Array) -> tuple[Array, ...]:
        return jax.vmap(every_profile, (0, 0, *(None,) * groups))(f, c, *ways)

    return run


def enumerated(a: RoutingArrays) -> Enumerated:
    """Every game of the batch, those with the same sizes of groups in one call."""
    size, (groups, workers) = a.size, a.cost.shape[1:]
    f, c, counts = spread_out(a)
    costs, flows = np.empty((size, 3)), np.empty((size, 3, groups, workers), np.int64)
    profiles = np.empty(size, np.int64)
    kinds, kind = np.unique(counts, axis=0, return_inverse=True)
    for k, q in enumerate(kinds):
        at = np.flatnonzero(kind.reshape(-1) == k)
        ways = [splits(int(n), workers) for n in q]
        bytes_ = game_bytes(a) + 8.0 * BLOCK * (groups + 3) * workers
        *found, best, worst, least = in_chunks(every_profile_of(groups), [f[at], c[at]], bytes_, ways)
        costs[at] = np.stack(found, axis=1)
        profiles[at] = profiles_count(q[None], workers)
        for which, number in enumerate((best, worst, least)):
            rest = np.array(number)
            for g, way in enumerate(ways):
                flows[at, which, g] = way[rest % len(way)]
                rest //= len(way)
    best_s, worst_s, least_s = (costs[:, i].reshape(a.batch) for i in range(3))
    best_flow, worst_flow = (flows[:, i].reshape(*a.batch, groups, workers) for i in range(2))
    nash = NashRange(best_s, worst_s, best_s, worst_s, best_flow, worst_flow)
    return Enumerated(nash, flows[:, 2], least_s, profiles.reshape(a.batch))
