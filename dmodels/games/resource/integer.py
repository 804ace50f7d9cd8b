"""Whole workers: the best split into workers of so many GPUs, the selfish one, and what rounding costs."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import Flag, flag_nonfinite
from dmodels.core.programs import program
from dmodels.core.records import Real, Record, float64, quantity
from dmodels.solvers.solution import Solution

from .game import Game, mistakes_named
from .roots import ALIKE
from .solve import social_optimum


class WholeSplit(Record):
    """A split into whole workers. The rest of the budget stays idle."""

    prefill_instances: Real = quantity()
    decode_instances: Real = quantity()
    prefill_gpus: Real = quantity()
    decode_gpus: Real = quantity()
    ttft_violation_frac: Real = quantity()
    itl_violation_frac: Real = quantity()
    cost: Real = quantity()


@float64
def integer_split(game: Game, optimum: Solution | None = None) -> Solution:
    """The split into whole workers with the least social cost, by enumeration: at least one worker of each kind.

    For each number of prefill workers the remaining GPUs hold as many decode workers as fit. Of splits whose costs
    differ by less than 1e-6, which nobody can measure, the middle one is taken. certificate:
    "integrality_gap" cost over the continuous optimum's (not negative), "cost_by_prefill" (k,) the cost of 1..k prefill
    workers (inf where decode gets none), "swap_stable" 1 where no single worker's move to the other pool lowers the
    cost: the rest points of a planner that accepts a swap only if the total falls. INFEASIBLE: the budget holds no
    worker of each kind; all but the cost, inf, is then NaN. `optimum`: the game's `social_optimum`, where it is known.
    """
    arrays, rest = eqx.partition(game, eqx.is_array_like)
    shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in jax.tree.leaves(arrays)))
    budget, worker = np.asarray(game.budget_gpus), np.asarray(game.prefill_worker_gpus)
    most = int(np.max(np.floor(budget / worker), initial=1.0))
    count = int(np.prod(shape))
    flat = jax.tree.map(lambda leaf: np.reshape(np.broadcast_to(np.asarray(leaf, float), shape), (count,)), arrays)
    with mistakes_named(game):
        out = _enumerate(eqx.combine(flat, rest), most)
    best = optimum or social_optimum(game)
    out = jax.tree.map(lambda leaf: np.reshape(np.asarray(leaf), (*shape, *leaf.shape[1:])), out)
    feasible = np.isfinite(out.value.cost)
    with np.errstate(invalid="ignore"):  # where no split has an answer neither has a cost
        gap = np.where(feasible, out.value.cost - best.value.cost, np.nan)
    return Solution(out.value, dict(out.certificate, integrality_gap=gap), out.flags, out.steps)


@program
def _enumerate(games: Game, most: int) -> Solution:
    arrays, rest = eqx.partition(games, eqx.is_array_like)
    out: Solution = jax.lax.map(lambda one: _best_whole(eqx.combine(one, rest), most), arrays)
    return out


def _best_whole(game: Game, most: int) -> Solution:
    n = jnp.arange(1.0, most + 1.0)
    left = game.budget_gpus - n * game.prefill_worker_gpus
    d = jnp.floor((left + 1e-9) / game.decode_worker_gpus)
    fits = d >= 1.0
    x, y = n * game.prefill_worker_gpus, jnp.where(fits, d, 1.0) * game.decode_worker_gpus
    ttft, itl = jax.vmap(game.prefill)(x), jax.vmap(game.decode)(y, x)
    costs = jnp.where(fits, game.prefill_weight * ttft + game.decode_weight * itl, jnp.inf)
    # of splits that nobody can tell apart, the middle one: it is furthest from both cliffs
    alike = fits & (costs <= jnp.min(costs) + ALIKE)
    best = jnp.argmax(alike & (jnp.cumsum(alike) >= (jnp.sum(alike) + 1) // 2))
    padded = jnp.concatenate([jnp.full(1, jnp.inf), costs, jnp.full(1, jnp.inf)])
    stable = fits & (costs <= padded[:-2]) & (costs <= padded[2:])
    known: Callable[[Real], Real] = lambda row: jnp.where(fits[best], row[best], jnp.nan)
    value = WholeSplit(known(n), known(d), known(x), known(y), known(ttft), known(itl), costs[best])
    flags = jnp.where(jnp.any(fits), flag_nonfinite(costs[best]), jnp.int32(Flag.INFEASIBLE))
    certificate = {"cost_by_prefill": costs, "swap_stable": jnp.where(stable, 1.0, 0.0)}
    return Solution(value, certificate, flags, jnp.int32(most))
