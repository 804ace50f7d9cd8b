"""The solvers that `assign` and `transport` are measured against, each as a function of a batch of problems.

A peer that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment

from dmodels.core.tiered import PATIENCE_S

Batch = Callable[[np.ndarray], np.ndarray]


def _totals(batch: np.ndarray, columns) -> np.ndarray:
    return np.take_along_axis(batch, np.asarray(columns)[..., None], axis=2)[..., 0].sum(1)


def assignment_peers(threads: int = 2) -> dict[str, Batch]:
    """Peers of `assign` on the CPU: batch (B, n, n) -> optimal totals (B,)."""

    def scipy_loop(batch):
        return _totals(batch, [linear_sum_assignment(c)[1] for c in batch])

    peers = {"SciPy loop": scipy_loop}
    if importlib.util.find_spec("lap"):
        import lap as lapx

        if hasattr(lapx, "lapjvx_batch"):
            peers["lapx loop"] = lambda batch: np.array([lapx.lapjv(c)[0] for c in batch])
            peers["lapx batch"] = lambda batch: np.asarray(lapx.lapjvx_batch(batch, n_threads=threads)[0])
    if importlib.util.find_spec("optax"):
        import jax
        import jax.numpy as jnp
        from optax.assignment import hungarian_algorithm

        solve = jax.jit(jax.vmap(lambda c: c[hungarian_algorithm(c)].sum()))

        def optax_vmapped(batch):
            with jax.enable_x64(True):
                return np.asarray(solve(jnp.asarray(batch)))

        peers["optax vmapped"] = optax_vmapped
    return peers


def warm(*calls: Callable[[], object]) -> None:
    """Each call until its loops are compiled: the first small ones of a process are interpreted."""
    for call in calls:
        begin = time.process_time()
        while time.process_time() - begin < PATIENCE_S + 1.0:
            call()


def single_peers() -> dict[str, Callable[[np.ndarray], object]]:
    """Peers of `assign` on one matrix (n, n): bare calls, which prove nothing, and SciPy's with its costs summed."""

    def summed(cost):
        rows, columns = linear_sum_assignment(cost)
        total = cost[rows, columns].sum()
        if not np.isfinite(total):
            raise ValueError("the sum is above the largest number")
        return columns, total

    peers: dict[str, Callable] = {"SciPy": linear_sum_assignment, "SciPy, summed": summed}
    if importlib.util.find_spec("lap"):
        import lap as lapx

        peers["lapx"] = lapx.lapjv
    return peers


def shipment_peers() -> dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray | None], float]]:
    """Peers of `transport` with supplies: cost (n, m), capacity (m,), supply (n,) or None for units -> least total."""
    if not importlib.util.find_spec("ot"):
        return {}
    import ot

    def emd(cost, capacity, supply):
        """Network simplex; an extra row without cost takes up spare capacity."""
        supply = np.ones(len(cost)) if supply is None else supply
        spare = capacity.sum() - supply.sum()
        if spare > 1e-6 * supply.sum():
            supply, cost = np.append(supply, spare), np.vstack([cost, np.zeros(len(capacity))])
        else:
            supply = supply * (capacity.sum() / supply.sum())
        return ot.lp.emd2(supply, capacity, cost, numItermax=10**7)

    return {"POT emd": emd}


def transport_peers() -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
    """Peers of `transport` on one problem: cost (n, m), capacity (m,) -> least total."""

    def hungarian(cost, capacity):
        square = np.repeat(cost, capacity, axis=1)
        rows, columns = linear_sum_assignment(square)
        return square[rows, columns].sum()

    peers = {"SciPy Hungarian, replicated": hungarian}
    if importlib.util.find_spec("lap"):
        import lap as lapx

        peers["lapx, replicated"] = lambda cost, capacity: lapx.lapjv(
            np.repeat(cost, capacity, axis=1), extend_cost=True
        )[0]
    if importlib.util.find_spec("ot"):
        import ot

        def emd(cost, capacity):
            """Network simplex; a column without cost takes up spare capacity as an extra row."""
            spare = capacity.sum() - len(cost)
            supply, square = np.ones(len(cost)), cost
            if spare:
                supply, square = np.append(supply, spare), np.vstack([cost, np.zeros(len(capacity))])
            return ot.lp.emd2(supply, capacity.astype(float), square, numItermax=10**7)

        peers["POT emd"] = emd
    if importlib.util.find_spec("ortools"):
        from ortools.graph.python import min_cost_flow

        def ortools(cost, capacity):
            """Cost-scaling push-relabel on costs rounded to 2**-30 of the largest (it takes integers only)."""
            n, m = cost.shape
            unit = np.abs(cost).max() / 2**30
            whole = np.round(cost / unit).astype(np.int64)
            flow = min_cost_flow.SimpleMinCostFlow()
            rows = np.repeat(np.arange(n), m)
            columns = np.tile(np.arange(n, n + m), n)
            flow.add_arcs_with_capacity_and_unit_cost(rows, columns, np.ones(n * m, np.int64), whole.ravel())
            sink = np.full(m, n + m)
            flow.add_arcs_with_capacity_and_unit_cost(np.arange(n, n + m), sink, capacity, np.zeros(m, np.int64))
            flow.set_nodes_supplies(np.arange(n + m + 1), np.r_[np.ones(n), np.zeros(m), -n].astype(np.int64))
            assert flow.solve() == flow.OPTIMAL
            return flow.optimal_cost() * unit

        peers["OR-Tools min-cost flow"] = ortools
    return peers
