r"""Wardrop's equilibrium on a network: users of each origin and destination take the path that is fastest for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.records import Real, float64

from .functions import as_array, check_shape
from .solution import Solution

_HALVINGS = 60


@float64
def network_wardrop(
    latency: Callable[[Real], Real],
    paths: Sequence[Any],
    demand: Real,
    *,
    tolerance: float = 1e-10,
    most_steps: int = 20_000,
) -> Solution:
    r"""Path flows h with $\sum_p h_p = r_k$ for each pair k of places, of which used paths are the fastest.

    `latency` maps the loads of the edges (m,) to their latencies (m,), each nondecreasing in its own load. `paths[k]`
    (paths of k, m) says with 0 and 1 which edges each path takes, `demand` (k,) how much travels. Flow moves from the
    slowest used path of a pair to its fastest, as far as lowers Beckmann's potential $\sum_e \int_0^{y_e} f_e$, until
    the two differ by no more than `tolerance` of the level. Float64, whatever `jax.config` says.

    value         `flows` (all paths, pair by pair), `loads` (m,) of the edges, `levels` (k,) the latency of each pair
    certificate   `spread` (k,): slowest used path less the fastest of all, relative to the level
    flags         NOT_CONVERGED, NONFINITE
    steps         moves

    For the social optimum hand over `wardrop.marginal(latency)`; the difference of the two latencies at its loads is
    the toll per edge that makes it the equilibrium (see `marginal_cost_tolls`).

    Braess: a free shortcut between two routes, f = x then 1 and 1 then x, slows everybody from 3/2 to 2.

    >>> f = lambda y: jnp.array([1.0, 0.0, 0.0, 0.0, 1.0]) * y + jnp.array([0.0, 1.0, 0.0, 1.0, 0.0])
    >>> without, shortcut = [[1, 1, 0, 0, 0], [0, 0, 0, 1, 1]], [1, 0, 1, 0, 1]
    >>> [network_wardrop(f, [p], [1.0]).value["levels"].round(9).tolist() for p in (without, [*without, shortcut])]
    [[1.5], [2.0]]
    """
    tables = [np.asarray(table, float) for table in paths]
    try:
        amounts = jnp.asarray(demand, float)
    except (TypeError, ValueError):
        raise InputError(f"demand = {demand}; accepted are numbers from 0") from None
    if not tables or any(t.ndim != 2 or not t.size or t.shape[1] != tables[0].shape[1] for t in tables):
        raise InputError("paths: accepted is a list of matrices (paths, edges) of 0 and 1, one per pair of places")
    if not all(np.isin(t, (0.0, 1.0)).all() for t in tables):
        raise InputError("paths: accepted are 0 and 1")
    if amounts.shape != (len(tables),):
        raise InputError(f"demand has shape {amounts.shape}; accepted is one number per pair, ({len(tables)},)")
    if not isinstance(amounts, jax.core.Tracer) and not bool(jnp.all((amounts >= 0) & jnp.isfinite(amounts))):
        raise InputError(f"demand = {demand}; accepted are numbers from 0")
    edges_count = tables[0].shape[1]
    wanted = "a function of the loads of all edges to their latencies, as many"
    check_shape("latency", latency, wanted, (edges_count,), jnp.zeros(edges_count))
    latency = as_array(latency)
    every = jnp.asarray(np.concatenate(tables))
    pair = np.repeat(np.arange(len(tables)), [len(t) for t in tables])
    mine = jnp.asarray(pair[None, :] == np.arange(len(tables))[:, None])  # (pairs, paths)

    def ends(h: Real) -> tuple[Real, Real, Real, Real]:
        """(slowest used path, fastest path, spread, level) of each pair."""
        slow = every @ latency(h @ every)
        used = mine & (h > 1e-14 * amounts[pair])[None]
        worst = jnp.argmax(jnp.where(used, slow[None], -jnp.inf), axis=1)
        best = jnp.argmin(jnp.where(mine, slow[None], jnp.inf), axis=1)
        gap = jnp.where(jnp.any(used, axis=1), slow[worst] - slow[best], 0.0)
        level = slow[best]
        return worst, best, gap / jnp.maximum(jnp.abs(level), 1e-300), level

    def move(state: Any) -> Any:
        h, steps, _ = state
        worst, best, spread, _ = ends(h)
        k = jnp.argmax(spread)
        turn = jnp.zeros_like(h).at[best[k]].add(1.0).at[worst[k]].add(-1.0)
        edges = turn @ every

        def halve(_: Any, range_: tuple[Real, Real]) -> tuple[Real, Real]:
            low, high = range_
            middle = 0.5 * (low + high)
            falls = jnp.sum(edges * latency(h @ every + middle * edges)) < 0
            return jnp.where(falls, middle, low), jnp.where(falls, high, middle)

        low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros(()), h[worst[k]]))
        whole = jnp.sum(edges * latency(h @ every + h[worst[k]] * edges)) <= 0
        h = jnp.maximum(h + jnp.where(whole, h[worst[k]], 0.5 * (low + high)) * turn, 0.0)
        return h, steps + 1, jnp.max(ends(h)[2])

    start = amounts[pair] * jnp.asarray([1.0 / len(tables[k]) for k in pair])
    begin = (start, jnp.int32(0), jnp.max(ends(start)[2]))
    h, steps, _ = jax.lax.while_loop(lambda s: (s[2] > tolerance) & (s[1] < most_steps), move, begin)
    _, _, spread, level = ends(h)
    flags = flag_where(~(jnp.max(spread) <= tolerance), Flag.NOT_CONVERGED) | flag_nonfinite(jnp.sum(level))
    loads = h @ every
    return Solution({"flows": h, "loads": loads, "levels": level}, {"spread": spread}, flags, steps)
