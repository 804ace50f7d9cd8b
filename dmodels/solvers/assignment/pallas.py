"""Assignment on a GPU: one program per problem, its whole state in registers.

n x m problems, n <= m, with m padded to a power of two by forbidden columns. Column duals, owners, distances and
predecessors are vectors of that length held by one warp (more for large m); rows of the cost matrix are loaded when
they are scanned, so the matrix stays in cache. Picking an element is a masked sum, finding one a masked minimum: there
is no indexing of registers. First every row bids (augmenting row reduction: take the cheapest column at the price that
makes the second cheapest as good, which may evict an owner, who bids next); what is left is matched along shortest
augmenting paths. On the CPU the same kernel is interpreted, for tests.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

#: The largest problem for which a program's state fits its registers.
LARGEST = 512


def _kernel(c_ref, y_ref, v_ref, stuck_ref, steps_ref, *, n: int, m: int):
    index = jax.lax.broadcasted_iota(jnp.int32, (m,), 0)
    zero, none, inf = jnp.zeros((m,), v_ref.dtype), jnp.full((m,), -1, jnp.int32), jnp.array(jnp.inf, v_ref.dtype)

    def pick(vector, j):
        return jnp.sum(jnp.where(index == j, vector, jnp.zeros_like(vector)), dtype=vector.dtype)

    def find(candidates, y):
        """The lowest free candidate, or the lowest candidate."""
        code = jnp.min(jnp.where(candidates, index + jnp.where(y < 0, 0, m).astype(jnp.int32), 2 * m))
        return jnp.where(code < m, code, code - m)

    def bid(state):
        row, left, v, y = state
        reduced = c_ref[row, :] - v
        least = jnp.min(reduced)
        j = find(reduced == least, y)
        here = index == j
        second = jnp.min(jnp.where(here, inf, reduced))
        owner = pick(y, j)
        takes = (second < inf) & ((owner < 0) | (second > least))
        v = jnp.where(here & takes, v - (second - least), v)
        y = jnp.where(here & takes, row, y)
        return jnp.where(takes, owner, -1).astype(jnp.int32), left - 1, v, y

    def enter_by_bidding(i, state):
        v, y = state
        _, _, v, y = jax.lax.while_loop(lambda s: (s[0] >= 0) & (s[1] > 0), bid, (i, jnp.int32(8), v, y))
        return v, y

    def grow(v, y, state):
        _, least, key, pred, dist, steps = state
        j = find(key == least, y)
        owner = pick(y, j)
        taken = owner >= 0
        here = (index == j) & taken
        key, dist = jnp.where(here, inf, key), jnp.where(here, least, dist)
        reduced = c_ref[jnp.maximum(owner, 0), :] - v
        through = jnp.maximum(reduced - (pick(reduced, j) - least), least)
        closer = taken & (through < key) & (dist == inf)
        key = jnp.where(closer, through, key)
        pred = jnp.where(closer, owner, pred)
        least = jnp.where(taken, jnp.min(key), least)
        return jnp.where(taken, -1, j).astype(jnp.int32), least, key, pred, dist, steps + 1

    def flip(pred, state):
        j, y = state
        row = pick(pred, j)
        before = jnp.sum(jnp.where(y == row, index + 1, 0), dtype=jnp.int32) - 1  # -1 at the row that has no column yet
        return before.astype(jnp.int32), jnp.where(index == j, row, y)

    def enter_by_path(i, state):
        v, y, stuck, steps = state
        enters = (stuck < 0) & (jnp.max(jnp.where(y == i, 1, 0)) == 0)
        key = jnp.where(enters, c_ref[i, :] - v, inf)
        pred, dist = jnp.full((m,), i, jnp.int32), jnp.full((m,), inf)
        start = (jnp.int32(-1), jnp.min(key), key, pred, dist, steps)
        sink, least, _, pred, dist, steps = jax.lax.while_loop(
            lambda s: (s[0] < 0) & (s[1] < inf), partial(grow, v, y), start
        )
        closed = dist < inf
        fails = enters & (sink < 0)
        lowered = jnp.where(closed & (sink >= 0), v + (dist - least), v)
        v = jnp.where(fails, jnp.where(closed, zero - 1, zero), lowered)
        _, y = jax.lax.while_loop(lambda s: s[0] >= 0, partial(flip, pred), (sink, y))
        return v, y, jnp.where(fails, i, stuck).astype(jnp.int32), steps

    first, last = jnp.int32(0), jnp.int32(n)
    v, y = jax.lax.fori_loop(first, last, enter_by_bidding, (zero, none))
    v, y, stuck, steps = jax.lax.fori_loop(first, last, enter_by_path, (v, y, jnp.int32(-1), first))
    y_ref[:] = y
    v_ref[:] = v
    stuck_ref[0] = stuck
    steps_ref[0] = steps


def match_batch(c: jax.Array) -> tuple[jax.Array, ...]:
    """columns (B, n), row part of a Farkas ray (B, n), column duals (B, m), feasible (B,), steps (B,).

    Which device it runs on is asked where the program is lowered, so that it can be compiled for one that is not here.
    """
    return jax.lax.platform_dependent(
        c, cpu=partial(_match_batch, interpret=True), default=partial(_match_batch, interpret=False)
    )


def _match_batch(c: jax.Array, interpret: bool) -> tuple[jax.Array, ...]:
    count, n, given = c.shape
    m = max(pl.next_power_of_2(given), 16)
    c = jnp.pad(c, ((0, 0), (0, 0), (0, m - given)), constant_values=jnp.inf)
    one = pl.BlockSpec((None, 1), lambda b: (b, 0))
    vector = pl.BlockSpec((None, m), lambda b: (b, 0))
    y, v, stuck, steps = pl.pallas_call(
        partial(_kernel, n=n, m=m),
        grid=(count,),
        in_specs=[pl.BlockSpec((None, n, m), lambda b: (b, 0, 0))],
        out_specs=(vector, vector, one, one),
        out_shape=(
            jax.ShapeDtypeStruct((count, m), jnp.int32),
            jax.ShapeDtypeStruct((count, m), c.dtype),
            jax.ShapeDtypeStruct((count, 1), jnp.int32),
            jax.ShapeDtypeStruct((count, 1), jnp.int32),
        ),
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=max(1, m // 256)),
        name="assignment",
    )(c)
    y, v, stuck, steps = y[:, :given], v[:, :given], stuck[:, 0], steps[:, 0]
    problem = jnp.arange(count, dtype=jnp.int32)[:, None]
    rows = jnp.where(y >= 0, y, n)
    column = jnp.broadcast_to(jnp.arange(given, dtype=jnp.int32)[None, :], y.shape)
    columns = jnp.full((count, n), -1, jnp.int32).at[problem, rows].set(column, mode="drop")
    feasible = stuck < 0
    in_tree = jnp.where(~feasible[:, None] & (v < 0), rows, n)
    ray = jnp.zeros((count, n), c.dtype).at[problem, in_tree].set(1, mode="drop")
    ray = ray.at[problem[:, 0], jnp.where(feasible, n, stuck)].set(1, mode="drop")
    return columns, ray, v, feasible, steps
