r"""Assignment on a device: matched in float32, proved in float64, and what is not proved solved again on the host.

The proof starts from the column duals that the search leaves, which are off by its rounding. They are lowered along
violated constraints (Bellman and Ford's relaxation, all columns at once) until none is left, which takes as many rounds
as the longest chain of such constraints and no more than `ROUNDS`; whatever they are then, u_i = min_j c_ij - v_j makes
them feasible, so that the gap proves the matching.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dmodels.core.records import Real
from dmodels.solvers.device import PROVED_RTOL, in_chunks
from dmodels.solvers.roofline import DeviceWork

from .host import is_floating, solve_host
from .limits import exact_below
from .pallas import LARGEST, match_batch
from .xla import match

#: Rounds of lowering after which the proof is given up, and the host solves the problem.
ROUNDS = 64


def matching_work(n: int) -> DeviceWork:
    """Of `proved_matching`, n x n, uniform costs, by the kernel.

    A row is scanned 2 + log2(n) / 2 times on average; a scan takes the problem's warps some 10 operations for each
    element of a lane and 15 shuffles in 3 reductions, about 400 cycles in which nothing else of the problem can go on.
    Memory holds 8 passes over the matrix and the rounds of lowering: the copy in float32 is written and read once (its
    rows then come from L2), and the proof reads float64 for the shift, the whole numbers, u, the sums and each round.
    A batch waits for its longest chain: 8, 20, 30 and 38 rounds of float32's duals of thousands of problems of 8, 32,
    64 and 128 rows, 2 to 14 in the mean.
    """
    scans, warps = n * (2 + math.log2(n) / 2), max(1, n // 256)
    cells, rounds = float(n * n), min(ROUNDS, 4 * math.sqrt(n))
    return DeviceWork(
        8.0 * (7 + rounds) * cells + 2 * 4 * cells,
        flop64=(9 + 3 * rounds) * cells,
        flop32=10 * scans * n,
        launches=20 + 3 * rounds,
        registers=128 if n > 128 else 72,
        warps=warps,
        chain_cycles=scans * (400 + 10 * n / (32 * warps)),
    )


def search(c: Array) -> tuple[Array, Array, Array]:
    """columns (B, n), column duals (B, m) and steps (B,) of problems (B, n, m), n <= m, in their precision: by the
    kernel on a CUDA device, in plain XLA elsewhere and for problems that do not fit its registers."""
    if c.shape[2] > LARGEST:
        return _plain(c)
    found: tuple[Array, Array, Array] = jax.lax.platform_dependent(c, cuda=_kernel, default=_plain)
    return found


def _plain(c: Array) -> tuple[Array, Array, Array]:
    columns, _, v, _, steps = jax.vmap(match)(c)
    return columns, v, steps


def _kernel(c: Array) -> tuple[Array, Array, Array]:
    columns, _, v, _, steps = match_batch(c)
    return columns, v, steps


def prove(c: Array, columns: Array, v: Array) -> tuple[Array, ...]:
    """(cost, row duals, column duals, gap, least reduced cost, proved) of matchings; everything is (B, ...)."""
    _, n, m = c.shape
    at = jnp.maximum(columns, 0)
    chosen = jnp.take_along_axis(c, at[..., None], axis=2)[..., 0]
    taken = jnp.any(at[..., None] == jnp.arange(m, dtype=at.dtype)[None, None, :], axis=1)
    size = jnp.max(jnp.abs(v), axis=1, keepdims=True, initial=0) + jnp.max(jnp.abs(chosen), axis=1, keepdims=True)
    slight = 2.0**-50 * size

    def lower(state: Any) -> Any:
        v, round_, _ = state
        through = jnp.take_along_axis(v, at, axis=1) - chosen
        least = jnp.min(c + through[..., None], axis=1)
        if n < m:  # free columns stand level, and above all others
            level = jnp.min(jnp.where(taken, jnp.inf, v), axis=1, keepdims=True)
            least = jnp.minimum(least, level)
        lowers = least < v - slight
        return jnp.where(lowers, least, v), round_ + 1, jnp.any(lowers)

    start = (v, jnp.int32(0), jnp.bool_(True))
    v, _, _ = jax.lax.while_loop(lambda s: s[2] & (s[1] < ROUNDS), lower, start)
    if n < m:
        v = jnp.minimum(v - jnp.min(jnp.where(taken, jnp.inf, v), axis=1, keepdims=True), 0)
    u = jnp.min(c - v[:, None, :], axis=2)
    slack = chosen - jnp.take_along_axis(v, at, axis=1) - u
    gap = jnp.sum(slack, axis=1) - jnp.sum(jnp.where(taken, 0, v), axis=1)
    cost = jnp.sum(chosen, axis=1)
    balance = jnp.sum(jnp.abs(chosen), axis=1) + jnp.sum(jnp.abs(u), axis=1) + jnp.sum(jnp.abs(v), axis=1)
    one_each = jnp.sum(taken, axis=1, dtype=jnp.int32) == n
    numbers = jnp.sum(jnp.where(c == jnp.inf, 0, c), axis=(1, 2))  # a minimum may lose a NaN, a sum does not
    sound = jnp.isfinite(numbers) & jnp.isfinite(balance) & jnp.all(columns >= 0, axis=1) & one_each
    return cost, u, v, gap, jnp.zeros_like(gap), sound & (jnp.abs(gap) <= PROVED_RTOL * balance)


def proved_matching(c: Array) -> tuple[Array, ...]:
    """columns, cost, u, v, gap, reduced, steps, proved of problems (B, n, m) in float64, n <= m.

    The search sees float32 differences from each row's cheapest column, so that a common offset costs no digits. Whole
    costs get whole duals, and are not proved here where their sums may have been rounded.
    """
    _, n, m = c.shape
    least = jnp.min(c, axis=2, keepdims=True)
    shift = jnp.where(jnp.isfinite(least), least, 0)
    damaged = jnp.any(~(c > -jnp.inf), axis=(1, 2), keepdims=True)
    columns, v, steps = search(jnp.where(damaged, 0, c - shift).astype(jnp.float32))  # which NaN would never end
    allowed = jnp.abs(c) < jnp.inf
    whole = jnp.all(jnp.where(allowed, c == jnp.floor(c), True), axis=(1, 2))
    exact = jnp.max(jnp.where(allowed, jnp.abs(c), 0), axis=(1, 2)) < exact_below(n + m)
    v = v.astype(c.dtype)
    *found, proved = prove(c, columns, jnp.where(whole[:, None], jnp.rint(v), v))
    return columns, *found, steps, proved & (exact | ~whole)


def assign_on_device(cost: Real, maximize: bool = False) -> tuple[np.ndarray, ...]:
    """What `host.solve_host` returns, of a batch on the host."""
    batch, (n, m) = cost.shape[:-2], cost.shape[-2:]
    count = math.prod(batch)
    whole = not is_floating(cost.dtype)
    if 0 in (count, n, m) or (whole and max(int(cost.max()), -int(cost.min())) >= exact_below(n + m)):
        return solve_host(cost, maximize)
    given = np.asarray(cost).reshape((count, n, m))
    c = np.asarray(-given.astype(np.float64) if maximize else given, np.float64)
    if n > m:
        c = c.swapaxes(1, 2)
    few, many = c.shape[1:]
    *found, proved = in_chunks(proved_matching, [c], 8.0 * few * (4 * many + 16))
    columns, total, u, v, gap, reduced, steps = (np.array(a) for a in found)
    columns, steps, flags = columns.astype(np.int64), steps.astype(np.int64), np.zeros(count, np.int32)
    if n > m:
        rows = np.full((count, n), -1, np.int64)
        np.put_along_axis(rows, np.maximum(columns, 0), np.arange(m)[None, :], axis=1)
        columns, u, v = rows, v, u
    if maximize:
        total, u, v = -total, -u, -v
    if whole:
        total, u, v, gap, reduced = (np.nan_to_num(a).astype(np.int64) for a in (total, u, v, gap, reduced))
    ours = (columns, total, u, v, gap, reduced, flags, steps)
    rest = np.flatnonzero(~proved)
    if rest.size:
        for mine, other in zip(ours, solve_host(given[rest], maximize), strict=True):
            mine[rest] = other
    return tuple(a.reshape((*batch, *a.shape[1:]))[()] for a in ours)
