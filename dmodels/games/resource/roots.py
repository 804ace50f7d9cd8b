"""The splits of one game: roots of g (see `resource`) along the budget line, and its corners.

Everything here is traced, for one game with leaves of shape (). Roots are found with the game's parameters held; where
`live`, one Newton step then carries the derivative in these parameters (without it, half as much is compiled).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real
from dmodels.solvers.bracket import chandrupatla, polished, sign_changes
from dmodels.solvers.solution import Solution

from .game import Game, Split, balance_of

GRID = 64  # cells of the sign scan
MOST = 8  # equilibria that one game reports
ALIKE = 1e-6  # violation rates closer than this are the same to anyone who measures them


def _held(game: Game) -> Game:
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, game)


def _split(game: Game, x: Real) -> Split:
    """The record at x: `x` and the budget may be live in what is differentiated."""
    prefill, decode = game.marginals(x)
    y = game.budget_gpus - x
    at_top = x >= game.budget_gpus
    saved = jnp.where(at_top, prefill, jnp.where(x <= 0.0, decode, jnp.maximum(prefill, decode)))
    ttft, itl = game.prefill(x), game.decode(y, x)
    return Split(x, y, ttft, itl, game.prefill_weight * ttft + game.decode_weight * itl, saved)


def _trouble(game: Game) -> Real:
    """Flags of the game itself."""
    total = game.budget_gpus
    small = total < game.prefill_worker_gpus + game.decode_worker_gpus
    weights = (game.prefill_weight >= 0) & (game.decode_weight >= 0)
    return flag_where(~(total >= 0) | ~weights, Flag.OUT_OF_DOMAIN) | flag_where(small, Flag.INFEASIBLE)


def unique(game: Game, live: bool) -> Solution:
    """One root or a corner; for games whose families prove that g increases."""
    held = _held(game)
    total = jnp.maximum(held.budget_gpus, 0.0)
    zero = jnp.zeros_like(total)
    low, high = held.balance(zero), held.balance(total)
    inside = (low < 0.0) & (high > 0.0)
    corner = jnp.where(low >= 0.0, zero, total)
    root = chandrupatla(
        held.balance,
        jnp.where(inside, zero, corner),
        jnp.where(inside, total, corner),
        low,
        high,
    )
    value, slope = jax.value_and_grad(held.balance)(root)
    # one Newton step cleans the last digits and carries the derivative in the game's parameters
    root = jnp.clip(root - safe_divide(value, slope, 0.0), 0.0, total)
    moved = polished(game.balance, root, slope) if live else root
    x = jnp.where(inside, moved, jnp.where(low >= 0.0, 0.0, game.budget_gpus))
    x = jnp.where(total > 0, x, 0.0)
    at = jnp.where(inside, root, corner)
    prefill, decode = held.marginals(at)
    certificate = {
        "marginal_prefill": prefill,
        "marginal_decode": decode,
        "kkt_residual": _residual(at, decode - prefill, total),
        "equilibria_count": jnp.ones_like(total),
    }
    split = _split(game, x)
    # convex and falling: each saves most where it has nothing
    flat = (held.marginals(zero)[0] == 0.0) & (held.marginals(total)[1] == 0.0)
    flags = _trouble(held) | flag_nonfinite(x, prefill, decode, split.cost) | flag_where(flat, Flag.OUT_OF_DOMAIN)
    certificate, flags = jax.lax.stop_gradient((certificate, flags))
    return Solution(split, certificate, flags, jnp.ones_like(flags))


def _residual(x, difference, total):
    """Natural residual of the equilibrium: |g| inside, and at a corner only the part with the wrong sign."""
    push = jnp.where(x <= 0.0, jnp.minimum(difference, 0.0), difference)
    return jnp.abs(jnp.where(x >= total, jnp.maximum(push, 0.0), push))


def _roots(function, grid, values):
    """(up to `MOST` roots of `function` between grid points, NaN where there are fewer; whether it rises there)."""
    left, there = sign_changes(values, MOST)
    low, high = grid[left], jnp.where(there, grid[left + 1], grid[left])
    root = chandrupatla(jax.vmap(function), low, high, values[left], values[left + 1])
    return jnp.where(there, root, jnp.nan), ~(values[left] > 0.0)


def scanned(game: Game, live: bool) -> Solution:
    """All equilibria that a sign scan brackets; the stable one with the least social cost."""
    held = _held(game)
    total = jnp.maximum(held.budget_gpus, 0.0)
    grid = jnp.linspace(0.0, 1.0, GRID + 1) * total
    prefill_saved, decode_saved = jax.vmap(held.marginals)(grid)
    values, grid_costs = balance_of(prefill_saved, decode_saved), jax.vmap(held.cost)(grid)
    roots, rises = _roots(held.balance, grid, values)
    empty = total == 0.0  # both ends are one
    corners = jnp.stack(
        [jnp.where(empty | (values[0] >= 0.0), 0.0, jnp.nan), jnp.where(~empty & (values[-1] <= 0.0), total, jnp.nan)]
    )
    near = jnp.any(jnp.abs(corners[:, None] - roots[None]) <= 1e-9 * total, axis=1)  # a root on the corner itself
    points = jnp.concatenate([roots, jnp.where(near, jnp.nan, corners)])
    order = jnp.argsort(points)
    points, rises = points[order], jnp.concatenate([rises, jnp.ones(2, bool)])[order]
    real = jnp.isfinite(points)
    safe = jnp.where(real, points, 0.5 * total)
    inner = (safe > 0.0) & (safe < total)
    stable = real & (~inner | rises)
    best = jnp.argmin(jnp.where(jnp.where(jnp.any(stable), stable, real), jax.vmap(held.cost)(safe), jnp.inf))
    root, at_low = safe[best], safe[best] <= 0.0
    inside = inner[best]
    moved = root
    if live:
        moved = polished(game.balance, root, jnp.where(inside, jax.grad(held.balance)(root), 0.0))
    split = _split(game, jnp.where(inside, moved, jnp.where(at_low, 0.0, game.budget_gpus)))
    prefill, decode = held.marginals(root)
    bend = jnp.diff(decode_saved - prefill_saved)  # of g over each cell: positive where the uniqueness condition holds
    alike = grid_costs <= jax.lax.stop_gradient(split.cost) + ALIKE
    count = jnp.sum(jnp.where(real, 1.0, 0.0))
    certificate = {
        "marginal_prefill": prefill,
        "marginal_decode": decode,
        "kkt_residual": _residual(root, decode - prefill, total),
        "equilibria_gpus": points,
        "stable": stable,
        "equilibria_count": count,
        "least_slope": jnp.min(bend) / jnp.where(total > 0, total / GRID, 1.0),
        "alike_low_gpus": jnp.min(jnp.where(alike, grid, root)),  # splits that cost the same to within ALIKE
        "alike_high_gpus": jnp.max(jnp.where(alike, grid, root)),
        "proved": jnp.zeros(()),
    }
    rising = jnp.any(prefill_saved < 0.0) | jnp.any(decode_saved < 0.0)
    flat = jnp.all(prefill_saved == 0.0) & jnp.all(decode_saved == 0.0)
    flags = (
        _trouble(held)
        | flag_where(~jnp.any(real), Flag.NOT_CONVERGED)
        | flag_where((count > 1) | ~(jnp.min(bend) > 0.0), Flag.NOT_UNIQUE)
        | flag_where(flat | rising, Flag.OUT_OF_DOMAIN)
        | flag_nonfinite(jnp.sum(values), prefill, decode, split.cost)
    )
    certificate, flags = jax.lax.stop_gradient((certificate, flags))
    return Solution(split, certificate, flags, jnp.full_like(flags, GRID))


def optimum_near(game_and_place: tuple[Game, Real], live: bool) -> Solution:
    """`optimum`, with a place that is known to be good among the candidates."""
    game, place = game_and_place
    return optimum(game, live, place)


def optimum(game: Game, live: bool, place: Real | None = None) -> Solution:
    """Least cost over stationary points, ends and grid, and around `place`."""
    held = _held(game)
    total = jnp.maximum(held.budget_gpus, 0.0)
    grid = jnp.linspace(0.0, 1.0, GRID + 1) * total
    slope_of = jax.grad(held.cost)
    points = jnp.concatenate([_roots(slope_of, grid, jax.vmap(slope_of)(grid))[0], grid])
    if place is not None:
        # the stationary point nearest to it: a scan at distances from 1e-9 to 1e-2 of the budget
        steps = jnp.concatenate([-jnp.logspace(-2, -9, 29), jnp.zeros(1), jnp.logspace(-9, -2, 29)])
        fine = jnp.clip(place + steps * total, 0.0, total)
        points = jnp.concatenate([_roots(slope_of, fine, jax.vmap(slope_of)(fine))[0], fine, points])
    real = jnp.isfinite(points)
    points = jnp.where(real, points, 0.0)
    costs = jnp.where(real, jax.vmap(held.cost)(points), jnp.inf)
    best = jnp.argmin(costs)
    root = points[best]
    inside = (root > 0.0) & (root < total)
    slope, moved = slope_of(root), root
    if live:
        bend = jax.grad(slope_of)(root)
        moved = polished(lambda x: jax.grad(game.cost)(x), root, jnp.where(bend > 0, bend, 0.0))
    split = _split(game, jnp.where(inside, moved, jnp.where(root <= 0.0, 0.0, game.budget_gpus)))
    certificate = {
        "slope": _residual(root, slope, total),
        "gap": costs[best] - jnp.min(costs[-GRID - 1 :]),
        "largest_cost": jnp.max(jnp.abs(costs[-GRID - 1 :])),
    }
    flags = _trouble(held) | flag_nonfinite(costs[best], slope)
    certificate, flags = jax.lax.stop_gradient((certificate, flags))
    return Solution(split, certificate, flags, jnp.full_like(flags, GRID))
