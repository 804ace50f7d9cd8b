r"""One placement problem in XLA: rows of one unit, columns whose next unit never gets cheaper. For any device.

`step` (m, K) holds what each column's 1st, 2nd, ... unit costs (inf: there is none). Rows enter one after another along
a shortest path between columns: for every ordered pair (j, k), D_jk is the least extra cost of a row of j on k, so that
a path is found on m nodes and not on n. Prices lam keep all reduced costs at or above 0; rounding is cut off there, and
a path therefore never meets itself.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def _row_of(c: Array, at: Array, j: Array) -> Array:
    """D_j: least c_ik - c_ij over the rows i on column j, for every k; inf where there is none, or j itself."""
    here = jax.lax.dynamic_index_in_dim(c, j, axis=1)
    row = jnp.min(jnp.where((at == j)[:, None], c - here, jnp.inf), axis=0, initial=jnp.inf)
    return jnp.where(jnp.arange(c.shape[1], dtype=jnp.int32) == j, jnp.inf, row)


def _first_choices(c: Array, step: Array) -> Array:
    """Rows on their cheapest column at the price of its first unit, as many as find a unit at that price; else -1."""
    price = step[:, 0]
    reduced = c + price[None, :]
    choice = jnp.argmin(reduced, axis=1).astype(jnp.int32)
    units = jnp.sum(step <= price[:, None], axis=1, dtype=jnp.int32)
    chosen = jax.nn.one_hot(choice, c.shape[1], dtype=jnp.int32)
    rank = jnp.sum(chosen * jnp.cumsum(chosen, axis=0, dtype=jnp.int32), axis=1, dtype=jnp.int32)
    fits = (jnp.min(reduced, axis=1) < jnp.inf) & (rank <= units[choice])
    return jnp.where(fits, choice, jnp.int32(-1))


def place(c: Array, step: Array) -> tuple[Array, Array]:
    """(column of each row (n,), -1 where it found none; rows that took a path) of costs c (n, m), in their precision.

    Least cost up to rounding: `prove` says whether it is. Columns may hold at most as many rows as there are.
    """
    m = c.shape[1]
    step = jnp.concatenate([step, jnp.full((m, 1), jnp.inf, step.dtype)], axis=1)
    columns = jnp.arange(m, dtype=jnp.int32)
    at = _first_choices(c, step)
    order = jnp.argsort(at >= 0, stable=True).astype(jnp.int32)
    left = jnp.sum(at < 0, dtype=jnp.int32)
    count = jnp.sum(at[:, None] == columns[None, :], axis=0, dtype=jnp.int32)
    price = jnp.where(step[:, 0] < jnp.inf, step[:, 0], jnp.zeros((), step.dtype))
    extra = jax.vmap(lambda j: _row_of(c, at, j))(columns)

    def enter(state: Any) -> Any:
        t, at, count, price, extra = state
        row = order[t]
        dist = c[row] + price
        dist = dist - jnp.min(dist)
        dist = jnp.where(dist < jnp.inf, dist, jnp.inf)  # NaN where the row may go nowhere
        arc = jnp.maximum(extra + price[None, :] - price[:, None], 0)

        def relax(path: Any) -> Any:
            dist, before, _ = path
            through = dist[:, None] + arc
            least = jnp.min(through, axis=0)
            closer = least < dist
            return jnp.where(closer, least, dist), jnp.where(closer, _first(through, least), before), jnp.any(closer)

        path = (dist, jnp.full((m,), -1, jnp.int32), jnp.bool_(True))
        dist, before, _ = jax.lax.while_loop(lambda path: path[2], relax, path)
        end = dist + jnp.maximum(step[columns, count] - price, 0)
        last = jnp.argmin(end).astype(jnp.int32)
        found = end[last] < jnp.inf
        price = jnp.where(found, price + jnp.maximum(end[last] - dist, 0), price)

        def walk(state: Any) -> Any:
            k, at, extra = state
            j = before[k]
            onto = jax.lax.dynamic_index_in_dim(c, k, axis=1, keepdims=False)
            off = jax.lax.dynamic_index_in_dim(c, jnp.maximum(j, 0), axis=1, keepdims=False)
            mover = jnp.where(j >= 0, jnp.argmin(jnp.where(at == j, onto - off, jnp.inf)).astype(jnp.int32), row)
            at = at.at[mover].set(k)
            arrives = jnp.where(columns == k, jnp.inf, c[mover] - c[mover, k])
            extra = extra.at[k].set(jnp.minimum(extra[k], arrives))
            extra = jnp.where((columns == j)[:, None], _row_of(c, at, j)[None, :], extra)
            return j, at, extra

        start = (jnp.where(found, last, jnp.int32(-1)), at, extra)
        _, at, extra = jax.lax.while_loop(lambda state: state[0] >= 0, walk, start)
        count = count + jnp.where(found & (columns == last), 1, 0).astype(jnp.int32)
        return t + 1, at, count, price, extra

    _, at, *_ = jax.lax.while_loop(lambda s: s[0] < left, enter, (jnp.int32(0), at, count, price, extra))
    return at, left


def _first(candidates: Array, least: Array) -> Array:
    """The first row of each column that holds its least entry (cheaper than a variadic reduction on most devices)."""
    m = candidates.shape[0]
    index = jnp.arange(m, dtype=jnp.int32)[:, None]
    return jnp.min(jnp.where(candidates == least[None, :], index, m), axis=0).astype(jnp.int32)


def ray(c: Array, at: Array) -> tuple[Array, Array]:
    """(u (n,), v (m,)) of a search that found no column for some row: it may use the columns v = -1 only, and these
    are full of rows, u = 1, that may use no others."""
    n, m = c.shape
    columns = jnp.arange(m, dtype=jnp.int32)
    stuck = jnp.argmax(at < 0)
    onward = jax.lax.map(lambda j: _row_of(c, at, j), columns) < jnp.inf

    def spread(_: Array, reached: Array) -> Array:
        return reached | jnp.any(reached[:, None] & onward, axis=0)

    reached = jax.lax.fori_loop(0, m, spread, c[stuck] < jnp.inf)
    inside = (jnp.arange(n) == stuck) | ((at >= 0) & reached[at])
    return inside.astype(c.dtype), -reached.astype(c.dtype)


def prove(c: Array, step: Array, at: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """(cost, row duals u (n,), column duals v (m,), gap, magnitudes in that balance, loads (m,)) of a placement.

    v are shortest distances in the graph of single moves between columns, from the market of units: feasible and tight
    where the placement is optimal. Whatever they are, u = min over k of c_ik - v_k makes them feasible, so the gap
    proves the placement. NaN or inf where a row has no column.
    """
    n, m = c.shape
    columns = jnp.arange(m, dtype=jnp.int32)
    on = at[:, None] == columns[None, :]
    count = jnp.sum(on, axis=0, dtype=jnp.int32)
    ends = jnp.concatenate([jnp.full((m, 1), -jnp.inf, c.dtype), step, jnp.full((m, 1), jnp.inf, c.dtype)], axis=1)
    last, following = ends[columns, count], ends[columns, count + 1]
    extra = jax.lax.map(lambda j: _row_of(c, at, j), columns)

    def relax(_: Array, v: Array) -> Array:
        return jnp.minimum(v, jnp.min(v[:, None] + extra, axis=0))

    v = jax.lax.fori_loop(0, m, relax, -last)
    v = jnp.clip(v, -following, -last)
    idle = jnp.where(following < jnp.inf, -following, jnp.minimum(v, 0))  # nothing leans on an empty column's price
    v = jnp.where(count > 0, v, idle)
    u = jnp.min(c - v[None, :], axis=1)
    chosen = jnp.sum(jnp.where(on, c, 0), axis=1)
    used = jnp.arange(step.shape[1], dtype=jnp.int32)[None, :] < count[:, None]
    rent = jnp.minimum(step + v[:, None], 0)
    paid = jnp.where(used, step, 0)
    slack = jnp.sum(jnp.where(used, paid + v[:, None] - rent, -rent))
    gap = jnp.sum(chosen - jnp.sum(jnp.where(on, v[None, :], 0), axis=1) - u) + slack
    cost = jnp.sum(chosen) + jnp.sum(paid)
    load = count.astype(c.dtype)
    balance = jnp.abs(cost) + jnp.sum(jnp.abs(u)) + jnp.sum(jnp.where(count > 0, load * jnp.abs(v), 0))
    whole = jnp.sum(count) == n
    return cost, u, v, jnp.where(whole, gap, jnp.inf), balance, load
