r"""Phasor's meso level: which sequences' KV to move where, so that free blocks add up to room for a large request.

PagedAttention leaves no holes inside a worker; what is stranded are free blocks scattered *over* workers. With f_w
blocks free on worker w, requests of k blocks fit $\sum_w \lfloor f_w/k \rfloor$ times. Moving sequences is online bin
packing: `greedy` is a chain of pure steps for a live loop, `optimum` the exact answer for small fleets.

Sequences are rows (w, s) of blocks, 0 where there is none; a move is (from, slot, to).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import Flag
from dmodels.core.records import Real
from dmodels.models.freeness import decode_freeness, requests_that_fit, stranded_blocks
from dmodels.solvers.solution import Solution


class DefragSettings(NamedTuple):
    """When to act. theta_frag is compared with Phi_S in blocks of the KV pool."""

    theta_frag: Real = 0.168
    stranded_frac: Real = 0.0  # of the pool: "H_frag is high" from here on


class Move(NamedTuple):
    """One sequence to move; `worker` is -1 where there is nothing to gain."""

    worker: Real
    slot: Real
    to: Real
    blocks: Real
    gain_count: Real  # more requests of the size asked for that fit


def free_blocks(blocks: Real, capacity_blocks: Real) -> Real:
    """Free blocks of each worker, (w,)."""
    return capacity_blocks - jnp.sum(blocks, axis=-1)


def triggered(blocks: Real, capacity_blocks: Real, request_blocks: Real, params: DefragSettings) -> Real:
    """Algorithm 1 line 8: workers below theta_frag on which something is stranded."""
    stranded = stranded_blocks(free_blocks(blocks, capacity_blocks), request_blocks)
    phi = decode_freeness(jnp.sum(blocks, axis=-1), stranded, capacity_blocks)
    return (phi < params.theta_frag) & (stranded > params.stranded_frac * capacity_blocks)


def best_move(blocks: Real, capacity_blocks: Real, request_blocks: Real, sources: Real | None = None) -> Move:
    """The single move that makes most more requests fit, the smallest sequence among those; `sources` (w,) limits it.

    A move that gains nothing itself is made only if it brings some worker nearer to a whole request: then gain is 0 and
    the largest remainder f mod k grows. Without such a move: worker -1.
    """
    k = request_blocks
    free = free_blocks(blocks, capacity_blocks)
    count = free.shape[0]
    size = blocks[:, :, None]  # (w, s, 1) against targets (1, 1, w)
    here, there = free[:, None, None], free[None, None, :]
    fits = requests_that_fit
    gain = fits(here + size, k) + fits(there - size, k) - fits(here, k) - fits(there, k)
    allowed = (size > 0) & (there >= size) & ~jnp.eye(count, dtype=bool)[:, None, :]
    if sources is not None:
        allowed = allowed & (sources > 0)[:, None, None]
    before = jnp.maximum(stranded_blocks(here, k), stranded_blocks(there, k))
    after = jnp.maximum(stranded_blocks(here + size, k), stranded_blocks(there - size, k))
    useful = allowed & ((gain > 0) | ((gain == 0) & (after > before)))
    found = jnp.any(useful)
    # more requests first, then a larger remainder for moves without gain, then fewer blocks: one after the other, since
    # in a weighted sum the rounding of a large fleet's numbers would hide the last
    for merit in (gain, jnp.where(gain == 0, after - before, 0.0), -size):
        useful = useful & (merit == jnp.max(jnp.where(useful, merit, -jnp.inf)))
    index = jnp.argmax(useful)
    worker, slot, to = jnp.unravel_index(index, useful.shape)
    whole: Callable[[Real], Real] = lambda x: jnp.where(found, x, -1).astype(jnp.int32)
    moved = jnp.where(found, blocks[worker, slot], 0.0)
    return Move(whole(worker), whole(slot), whole(to), moved, jnp.where(found, gain.ravel()[index], 0.0))


def apply(blocks: Real, move: Move) -> Real:
    """The sequences after a move, in the first empty slot of the target; unchanged if there is no slot or no move."""
    place = jnp.argmax(blocks[move.to] == 0)
    possible = (move.worker >= 0) & (blocks[move.to, place] == 0)
    taken = blocks.at[move.worker, move.slot].set(0.0)
    return jnp.where(possible, taken.at[move.to, place].set(move.blocks), blocks)


def greedy(
    blocks: Real,
    capacity_blocks: Real,
    request_blocks: Real,
    moves: int = 8,
    wanted_count: Real = jnp.inf,
) -> tuple[Real, Move]:
    """Up to `moves` best moves in a row, until `wanted_count` requests fit or nothing helps: (blocks, moves (m,)).

    The best state on the way is kept: a last move that gained nothing is not made.
    """

    def step(now: Real, _: None) -> tuple[Real, tuple[Move, Real, Real]]:
        free = free_blocks(now, capacity_blocks)
        enough = jnp.sum(requests_that_fit(free, request_blocks)) >= wanted_count
        found = best_move(now, capacity_blocks, request_blocks)
        move = jax.tree.map(lambda x, none: jnp.where(enough, none, x), found, _NONE)
        new = apply(now, move)
        return new, (move, new, jnp.sum(requests_that_fit(free_blocks(new, capacity_blocks), request_blocks)))

    start = jnp.sum(requests_that_fit(free_blocks(blocks, capacity_blocks), request_blocks))
    _, (made, states, fit) = jax.lax.scan(step, blocks, None, length=moves)
    best = jnp.argmax(fit)  # the first of the best
    keep = (fit[best] > start) & (jnp.arange(moves) <= best)
    made = jax.tree.map(lambda x, none: jnp.where(keep, x, none), made, _NONE)
    return jnp.where(fit[best] > start, states[best], blocks), made


_NONE = Move(np.int32(-1), np.int32(-1), np.int32(-1), np.float64(0.0), np.float64(0.0))


def optimum(blocks: Real, capacity_blocks: Real, request_blocks: float, wanted_count: float | None = None) -> Solution:
    """The most requests of k blocks that can be made to fit, moving as few blocks as possible: an integer programme.

    value: `place` (w, s), the worker of each sequence; `fit_count`; `moved_blocks`. certificate: `upper_count`,
    floor(sum of free blocks / k), which no packing exceeds, and the solver's `bound` on the objective. With
    `wanted_count` no more requests than that are paid for with moves.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    sizes = np.asarray(blocks, np.float64)
    w, _ = sizes.shape
    capacity = np.broadcast_to(np.asarray(capacity_blocks, np.float64), (w,))
    home, slot = np.nonzero(sizes)
    size = sizes[home, slot]
    n = size.size
    upper = float(np.floor((capacity.sum() - size.sum()) / request_blocks))
    goal = max(0.0, upper if wanted_count is None else min(upper, float(wanted_count)))
    # variables: x[i, w] sequence i on worker w, y[w] requests that fit there; a request outweighs all moves
    away = np.where(np.arange(w)[None, :] == home[:, None], 0.0, size[:, None])
    cost = np.concatenate([away.ravel(), np.full(w, -(size.sum() + 1.0))])
    once = np.hstack([np.kron(np.eye(n), np.ones((1, w))), np.zeros((n, w))])
    room = np.hstack([np.kron(size[None, :], np.eye(w)), request_blocks * np.eye(w)])
    limit = np.concatenate([np.zeros(n * w), np.ones(w)])[None, :]
    rules = [LinearConstraint(room, -np.inf, capacity), LinearConstraint(limit, -np.inf, goal)]
    if n:
        rules.append(LinearConstraint(once, 1.0, 1.0))
    bounds = Bounds(0.0, np.concatenate([np.ones(n * w), np.full(w, goal)]))
    asked = {"constraints": rules, "integrality": np.ones(cost.size), "bounds": bounds}
    found = milp(cost, **asked)
    # HiGHS's presolve (of SciPy 1.14 to 1.16) takes some fleets that fit as they are for infeasible
    if found.x is None:
        found = milp(cost, **asked, options={"presolve": False})
    place = np.full(sizes.shape, -1)
    if found.x is None:
        return Solution(
            {"place": place, "fit_count": np.nan, "moved_blocks": np.nan},
            {"upper_count": upper, "bound": np.nan},
            np.int32(Flag.INFEASIBLE),
            0,
        )
    chosen = found.x[: n * w].reshape(n, w).argmax(1) if n else np.zeros(0, int)
    place[home, slot] = chosen
    fit = float(np.round(found.x[n * w :]).sum())
    moved = float(size[chosen != home].sum())
    flags = np.int32(0 if found.status == 0 else Flag.NOT_CONVERGED)
    certificate = {"upper_count": upper, "bound": float(found.mip_dual_bound)}
    value = {"place": place, "fit_count": fit, "moved_blocks": moved}
    return Solution(value, certificate, flags, int(found.mip_node_count))
