"""The placement game by its definition, in NumPy, for the tests: all profiles at once. Shares no code with dmodels."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np


class Truth(NamedTuple):
    """Every profile (P, n, m), what each worker pays (P, n), the largest gain of each worker (P, n)."""

    tiers: np.ndarray
    cost: np.ndarray
    gain: np.ndarray

    @property
    def stable(self) -> np.ndarray:
        return self.gain.max(1) <= 1e-9

    @property
    def social(self) -> np.ndarray:
        return self.cost.sum(1)


def rows(blocks, capacity, size):
    """All tiers (count, m) that fit."""
    every = np.array(list(itertools.product(range(-1, len(capacity)), repeat=blocks)))
    used = np.stack([((every == t) * size).sum(1) for t in range(len(capacity))], 1)
    return every[(used <= np.asarray(capacity) + 1e-9).all(1)]


def truth(demand, access, capacity, distance, recompute, size) -> Truth:
    """All profiles of a game in full arrays: demand (n, m), access and capacity (n, T), recompute and size (m,)."""
    n, m = demand.shape
    lists = [rows(m, capacity[i], size) for i in range(n)]
    shape = [len(r) for r in lists]
    picks = np.stack([axis.ravel() for axis in np.meshgrid(*map(np.arange, shape), indexing="ij")], 1)
    tiers = np.stack([lists[i][picks[:, i]] for i in range(n)], 1)
    at = np.stack([np.where(tiers[:, j] < 0, np.inf, access[j][tiers[:, j]]) for j in range(n)], 1)  # (P, n, m)
    hop = distance.copy()
    np.fill_diagonal(hop, 0.0)
    read = (hop[None, :, :, None] + at[:, None]).min(2)  # (P, n, m)
    cost = (demand * np.minimum(read, recompute)).sum(2)
    grid = cost.reshape(*shape, n)
    gain = np.stack([(grid[..., i] - grid[..., i].min(i, keepdims=True)).ravel() for i in range(n)], 1)
    return Truth(tiers, cost, gain)


def draw(rng, most_workers=3, most_blocks=3, sizes=False):
    """Arrays of a random small game with ties, zeros, missing paths, one-way links and empty tiers."""
    n, m, tiers = int(rng.integers(1, most_workers + 1)), int(rng.integers(1, most_blocks + 1)), int(rng.integers(1, 3))
    distance = rng.integers(0, 6, (n, n)).astype(float)
    distance[rng.uniform(size=(n, n)) < 0.1] = np.inf
    if rng.integers(2):
        distance = np.minimum(distance, distance.T)
    access = np.sort(rng.integers(0, 5, (n, tiers)), 1).astype(float)
    size = rng.integers(1, 4, m).astype(float) if sizes else np.ones(m)
    capacity = rng.integers(0, 3 + 2 * sizes, (n, tiers)).astype(float)
    return (
        rng.integers(0, 6, (n, m)).astype(float),
        access,
        capacity,
        distance,
        rng.integers(0, 10, m).astype(float),
        size,
    )
