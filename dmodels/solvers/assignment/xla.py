"""One assignment problem in plain XLA: works under `vmap` on any device; the fallback where no kernel fits."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class _Tree(NamedTuple):
    """A growing shortest-path tree, rooted at the row that is being matched."""

    key: jax.Array  # (m,) distance of each open column, inf once closed
    pred: jax.Array  # (m,) row before the column
    dist: jax.Array  # (m,) distance at which a column was closed, inf while open
    sink: jax.Array  # the free column that was reached, -1 before
    least: jax.Array  # the least key
    steps: jax.Array


def match(c: jax.Array) -> tuple[jax.Array, ...]:
    """columns (n,), row part of a Farkas ray (n,), column duals (m,), feasible, steps; c is (n, m) with n <= m.

    Rows enter one at a time along a shortest augmenting path (Crouse 2016); all of a step is elementwise over the
    columns. An open column's key is at least the last closed distance, also in the face of rounding.
    """
    n, m = c.shape
    index = jnp.arange(m, dtype=jnp.int32)

    def enter(state, row):
        x, y, v, ray, feasible, steps = state

        def grow(tree: _Tree) -> _Tree:
            at = tree.key == tree.least
            free = at & (y < 0)
            j = jnp.argmax(jnp.where(jnp.any(free), free, at)).astype(jnp.int32)
            owner = y[j]
            shut = index == j
            key = jnp.where(shut, jnp.inf, tree.key)
            dist = jnp.where(shut, tree.least, tree.dist)
            i = jnp.maximum(owner, 0)
            through = jnp.maximum(c[i] - v - (c[i, j] - v[j] - tree.least), tree.least)
            closer = (through < key) & jnp.isinf(dist) & (owner >= 0)
            key = jnp.where(closer, through, key)
            pred = jnp.where(closer, i, tree.pred)
            least = jnp.where(owner < 0, tree.least, jnp.min(key))
            return _Tree(key, pred, dist, jnp.where(owner < 0, j, jnp.int32(-1)), least, tree.steps + 1)

        key = jnp.where(feasible, c[row] - v, jnp.inf)
        none = jnp.full((m,), jnp.inf, c.dtype)
        seed = _Tree(key, jnp.full((m,), row, jnp.int32), none, jnp.int32(-1), jnp.min(key), steps)
        tree = jax.lax.while_loop(lambda t: (t.sink < 0) & (t.least < jnp.inf), grow, seed)
        found = tree.sink >= 0
        closed = ~jnp.isinf(tree.dist)

        def flip(walk):
            j, x, y = walk
            i = tree.pred[j]
            return x[i], x.at[i].set(j), y.at[j].set(i)

        lowered = jnp.where(closed & found, v + (tree.dist - tree.least), v)
        first = jnp.where(found, tree.sink, jnp.int32(-1))
        _, x, y = jax.lax.while_loop(lambda walk: walk[0] >= 0, flip, (first, x, y))
        stuck = feasible & ~found  # the rows of the tree may use the closed columns only
        owners = jnp.zeros((n,), bool).at[jnp.where(closed, y, n)].set(True, mode="drop").at[row].set(True)
        ray = jnp.where(stuck, owners.astype(c.dtype), ray)
        v = jnp.where(stuck, -closed.astype(c.dtype), lowered)
        return (x, y, v, ray, feasible & found, tree.steps), None

    start = (
        jnp.full((n,), -1, jnp.int32),
        jnp.full((m,), -1, jnp.int32),
        jnp.zeros((m,), c.dtype),
        jnp.zeros((n,), c.dtype),
        jnp.bool_(True),
        jnp.int32(0),
    )
    (x, _, v, ray, feasible, steps), _ = jax.lax.scan(enter, start, jnp.arange(n, dtype=jnp.int32))
    return x, ray, v, feasible, steps
