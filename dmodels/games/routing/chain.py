"""Closed-loop re-routing: a client's request ends, its next one is routed by Dynamo's rule at the loads of then."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.threads import share

from .policies import _draw


@kernel(tiered=True)
def _run(overlap, prefix, omega, tau, blocks, spread, pick, uniform, burn, first, last, loads, hits):
    """Cells first..last: after each step past `burn`, add to the histogram of loads that requests see, and to hits."""
    clients, m = len(prefix), overlap.shape[1]
    cost = np.empty(m)
    for cell in range(first, last):
        at = np.empty(clients, np.int64)
        n = np.zeros(m, np.int64)
        for i in range(clients):
            at[i] = i % m
            n[i % m] += 1
        for step in range(len(pick)):
            i = pick[step]
            n[at[i]] -= 1
            for j in range(m):  # Eq. (1): omega x blocks to prefill + active blocks
                cost[j] = blocks * (omega[cell] * (1.0 - overlap[prefix[i], j]) + n[j])
            j = _draw(cost, tau[cell], uniform[step], spread)
            at[i] = j
            n[j] += 1
            if step >= burn:
                hits[cell] += overlap[prefix[i], j]
                for k in range(m):
                    loads[cell, k, n[k]] += 1.0


def closed_loop(
    overlap,
    clients: int,
    omega,
    tau,
    rng: np.random.Generator,
    blocks: float = 8.0,
    normalized: bool = True,
    steps: int = 40_000,
) -> tuple[np.ndarray, np.ndarray]:
    """(P(n_j = k) (cells, m, clients + 1), mean overlap of the chosen worker (cells,)) for each (omega, tau).

    `overlap` (P, m); client i always asks with prefix i mod P. `blocks` of a request, so a whole miss counts omega x
    blocks and each active request `blocks`. All cells see the same random numbers, so that their differences are not
    noise.
    """
    overlap = np.ascontiguousarray(overlap, np.float64)
    shape = np.broadcast_shapes(np.shape(omega), np.shape(tau))
    omega, tau = (np.broadcast_to(np.asarray(a, np.float64), shape).reshape(-1).copy() for a in (omega, tau))
    cells = omega.size
    prefix = np.arange(clients) % len(overlap)
    pick, uniform = rng.integers(0, clients, steps), rng.uniform(size=steps)
    burn = min(steps // 4, 40 * clients)
    loads, hits = np.zeros((cells, overlap.shape[1], clients + 1)), np.zeros(cells)

    def loop(first: int, last: int) -> None:
        _run(overlap, prefix, omega, tau, float(blocks), normalized, pick, uniform, burn, first, last, loads, hits)

    share(loop, cells, cells * steps * 5e-8)
    seen = steps - burn
    return (loads / seen).reshape(*shape, *loads.shape[1:]), (hits / seen).reshape(shape)
