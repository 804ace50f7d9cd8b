r"""The prefill/decode game: who gets how many of G GPUs.

Two players share the budget $G_P + G_D \le G$. Prefill minimises its TTFT violation rate $V_T(G_P)$, decode its ITL
violation rate $V_I(G_D, G_P)$, which also depends on how well prefill feeds it. Each wants every GPU, so every split
of the full budget is a generalised equilibrium; the *variational* one gives both the same multiplier, that is equal
weighted marginals

$$ w_P V_T'(G_P) = w_D\, \partial V_I / \partial G_D \quad\text{at } G_D = G - G_P, \tag{5} $$

or lies in a corner, where (5) has no solution. With $g(x) = w_P V_T'(x) - w_D V_{I,D}(G-x, x)$: g = 0 inside, x = 0 and
g(0) >= 0, or x = G and g(G) <= 0. It is unique if $w_P V_T'' + w_D(V_{DD} - V_{DP}) > 0$ along the budget; the paper's
Proposition 1 leaves out V_DP and is false without this. The weights are Rosen's: the equilibrium depends on them,
that is, on what one violation of each kind costs.

[1] The Price of Anarchy in Disaggregated Inference, sections 4.1 and 5.2, Definition 1, Proposition 1, Remark 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import Flag, flag_where
from dmodels.core.kept import kept
from dmodels.core.programs import program
from dmodels.core.records import float64, on_host, traced
from dmodels.solvers.blocks import WIDER, in_blocks
from dmodels.solvers.interval import Roots, Unsupported, all_roots, enclosure, least_values
from dmodels.solvers.roofline import DeviceWork
from dmodels.solvers.solution import Solution

from .game import Game, mistakes_named
from .roots import ALIKE, MOST, optimum, optimum_near, scanned, unique

__all__ = ["Game", "equilibria", "equilibrium", "explain", "social_optimum"]

BLOCK = 1024  # games solved together


def equilibrium_work(games: int) -> DeviceWork:
    """Of one of `games` P/D games whose families prove uniqueness: a bracketed root in some 30 steps of 40 operations,
    on a dozen numbers that are read and written at each; 10 launches a step, for one block after another."""
    blocks = -(-games // (BLOCK * WIDER))
    return DeviceWork(30 * 2 * 12 * 8.0, flop64=30 * 40.0, launches=30 * 10 * blocks, registers=80)


@float64
def equilibrium(game: Game) -> Solution:
    """The variational equilibrium of each game, its corners included; Proposition 1 and Eq. (5) of [1], repaired.

    Where the families prove uniqueness (convex, no cross term) one bracketed root is the answer. Otherwise g is scanned
    on a grid, all equilibria found are in certificate["equilibria_gpus"] (padded with NaN) and the stable one with the
    least social cost is the value; the flag NOT_UNIQUE is raised unless the uniqueness condition held at every grid
    point and one was found. For a single game the list is proved by interval arithmetic where the formulas allow it
    (certificate["proved"]). Flags INFEASIBLE: the budget does not hold one worker of each kind; OUT_OF_DOMAIN: negative
    or flat marginals (both rates constant: any split is an equilibrium); NOT_CONVERGED: none was found, and the value
    is the middle of the budget.

    Closed form (exponential families with rates a, b): x = clip((bG + ln(a/b))/(a + b), 0, G).

    >>> from dmodels.games.resource import Alone, Exponential
    >>> round(float(equilibrium(Game(Exponential(0.3), Alone(Exponential(0.5)), 8)).value.prefill_gpus), 6)
    4.361468
    """
    proved = game.convex
    with mistakes_named(game):
        found = _batched(unique if proved else scanned, game)
    if game_shape(game) or traced(found):
        return found
    return found if proved else _with_proof(game, found)


@float64
def social_optimum(game: Game) -> Solution:
    r"""The split with the least weighted sum of violation rates: $S(x) = w_P V_T(x) + w_D V_I(G-x, x)$.

    Inside, $w_P V_T' + w_D \partial V_I/\partial G_P = w_D \partial V_I/\partial G_D$ (Remark 1 of [1]): prefill also
    counts what it does for decode. Every optimum has at least as many prefill GPUs as the smallest equilibrium.
    Stationary points that a scan of S' brackets, and both ends, are compared; where the families do not prove that S is
    convex, branch and bound by interval arithmetic finds what the scan missed and proves the rest.
    certificate: "slope" S'(x) (with the sign that a corner needs), "gap" to the best grid point (never positive),
    "largest_cost" in magnitude, of the grid, "bound" (cost - bound is what a better split could save at most: 1e-9 of
    the largest cost where that was proved; -inf where nothing was). Flag FIRST_ORDER_ONLY: not proved, because the
    rates use operations that have no interval form, the search was cut short, or the call is traced.
    """
    with mistakes_named(game):
        found = _batched(optimum, game)
    if game.convex_cost:
        bound = found.value.cost
    elif traced(found):
        bound = found.value.cost - jnp.inf
    else:
        found, bound = _searched(game, found)
    unproved = ~(found.value.cost - bound <= 2e-9 * found.certificate["largest_cost"])
    flags = found.flags | flag_where(unproved, Flag.FIRST_ORDER_ONLY)
    flags = on_host(flags)
    return Solution(found.value, dict(found.certificate, bound=bound), flags, found.steps)


def _searched(game: Game, found: Solution) -> tuple[Solution, np.ndarray]:
    """(`found`, improved where branch and bound finds a lower cost, proved lower bounds)."""
    shape, (leaves, *form) = game_shape(game), _parted(game)
    given = [np.broadcast_to(np.asarray(leaf, float), shape).ravel() for leaf in leaves]
    total = np.broadcast_to(np.maximum(np.asarray(game.budget_gpus, float), 0.0), shape).ravel()
    known = np.ravel(found.value.cost)
    sound = np.isfinite(known) & np.isfinite(total)
    bound = np.full(known.shape, -np.inf)

    def cost(x: Any, *values: Any) -> Any:
        return _joined(values, *form).cost(x)

    try:
        _check_form(len(leaves), *form)
        bound[sound], best, where = least_values(cost, total[sound], known[sound], [g[sound] for g in given])
    except Unsupported:  # in the cost, or in its slope
        return found, bound.reshape(shape)
    place = np.full(known.shape, np.nan)
    place[sound] = where
    missed = np.zeros(known.shape, bool)
    missed[sound] = best < known[sound] - 1e-12 * np.abs(known[sound])
    if missed.any():
        few = _joined([g[missed] for g in given], *form)
        again = _batched(optimum_near, (few, place[missed]))

        def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
            out = np.broadcast_to(old, (*shape, *new.shape[1:])).reshape(-1, *new.shape[1:]).copy()
            out[missed] = new
            return out.reshape(*shape, *new.shape[1:])

        found = jax.tree.map(put, found, again)
    return found, bound.reshape(shape)


def _parted(game: Game) -> tuple[list[Any], Any, Any, tuple[Any, ...]]:
    """(numbers, their structure, the structure of all else, all else); see `_joined`."""
    arrays, rest = eqx.partition(game, eqx.is_array_like)
    others, around = jax.tree.flatten(rest)
    return *jax.tree.flatten(arrays), around, tuple(others)


def _joined(numbers: Sequence[Any], tree: Any, around: Any, others: tuple[Any, ...]) -> Game:
    game: Game = eqx.combine(jax.tree.unflatten(tree, numbers), jax.tree.unflatten(around, others))
    return game


def _check_form(numbers: int, *form: Any) -> None:
    """Raises `Unsupported` where the cost of such games has no interval form; asked once for all that differ in their
    numbers alone."""
    if objection := _known_objection(numbers, form):
        raise Unsupported(objection)


@lru_cache(maxsize=256)
def _known_objection(numbers: int, form: tuple[Any, ...]) -> str:
    return kept(_objection, (numbers, form), lambda: _objection(numbers, form))


def _objection(numbers: int, form: Sequence[Any]) -> str:
    """What in the cost has no interval form; empty where all has one."""
    try:
        nothing = np.zeros(1)
        enclosure(lambda x, *values: _joined(values, *form).cost(x), numbers)(nothing, nothing, *[nothing] * numbers)
    except Unsupported as objection:
        return str(objection)
    return ""


def game_shape(game: Game) -> tuple[int, ...]:
    """Common shape of the leaves: () for one game."""
    return np.broadcast_shapes(*(np.shape(leaf) for leaf in jax.tree.leaves(eqx.filter(game, eqx.is_array_like))))


@program
def _solve_batch(solve: Callable[[Any, bool], Solution], game: Any, live: bool) -> Solution:
    arrays, rest = eqx.partition(game, eqx.is_array_like)
    shape = np.broadcast_shapes(*(jnp.shape(leaf) for leaf in jax.tree.leaves(arrays)))
    if not shape:
        return solve(game, live)
    count = int(np.prod(shape))
    flat = jax.tree.map(lambda leaf: jnp.reshape(jnp.broadcast_to(jnp.asarray(leaf, float), shape), (count,)), arrays)
    out = in_blocks(lambda one: solve(eqx.combine(one, rest), live), flat, BLOCK)
    batch: Solution = jax.tree.map(lambda leaf: jnp.reshape(leaf, (*shape, *leaf.shape[1:])), out)
    return batch


def _batched(solve: Callable[[Any, bool], Solution], game: Any) -> Solution:
    return on_host(_solve_batch(solve, game, traced(game)))


@float64
def equilibria(game: Game) -> Roots:
    """Every interior equilibrium of one game, proved complete by interval arithmetic; raises `Unsupported` where the
    violation rates use operations that have no interval form."""
    total = np.reshape(np.asarray(game.budget_gpus, float), 1)
    numbers, *form = _parted(game)
    _check_form(len(numbers), *form)
    return all_roots(game.difference, 0.0, float(total[0]))


def _with_proof(game: Game, found: Solution) -> Solution:
    """The scan's answer with interval evidence: NOT_UNIQUE is withdrawn where one equilibrium is proved to be all."""
    try:
        roots = equilibria(game)
    except Unsupported:
        return found
    total = float(game.budget_gpus)
    ends = [float(game.difference(jnp.asarray(e, jnp.float64))) for e in (0.0, total)]
    corners = [e for e, held in ((0.0, ends[0] >= 0), (total, ends[1] <= 0)) if held]
    corners = [e for e in corners if not np.any(np.abs(roots.roots - e) <= 1e-9 * total)]
    points = np.sort(np.concatenate([roots.roots, corners]))
    complete = roots.complete and len(points) <= MOST + 2
    if not complete:
        return found
    listed = np.concatenate([points, np.full(MOST + 2 - len(points), np.nan)])
    seen = found.certificate["equilibria_gpus"]
    seen = np.sort(seen[np.isfinite(seen)])
    agree = 0 < len(points) == len(seen) and np.allclose(seen, points, atol=1e-6 * total)
    certificate = dict(found.certificate, equilibria_gpus=listed, proved=np.asarray(float(agree)))
    certificate["equilibria_count"] = np.asarray(float(len(points)))
    flags = found.flags
    if agree and len(points) == 1:
        flags = np.asarray(int(flags) & ~int(Flag.NOT_UNIQUE), np.int32)
    elif not agree:
        flags = np.asarray(int(flags) | int(Flag.NOT_UNIQUE), np.int32)
    return Solution(found.value, certificate, flags, found.steps)


def explain(game: Game, found: Solution) -> list[str]:
    """One sentence for each thing that the flags of one game's equilibrium say; empty where all is well."""
    mask, c, said = int(found.flags), found.certificate, []
    if mask & Flag.INFEASIBLE:
        said.append(
            f"The budget of {float(game.budget_gpus):g} GPUs does not hold one prefill worker of "
            f"{float(game.prefill_worker_gpus):g} and one decode worker of {float(game.decode_worker_gpus):g}."
        )
    if mask & Flag.OUT_OF_DOMAIN:
        said.append(
            "A violation rate rises with its owner's GPUs, or neither depends on them, or a budget or weight is "
            "negative: the game's assumptions do not hold."
        )
    if mask & Flag.NONFINITE:
        said.append("A violation rate is not a finite number somewhere on the budget line.")
    if mask & Flag.NOT_CONVERGED:
        said.append("No equilibrium was bracketed on the budget line.")
    if mask & Flag.NOT_UNIQUE:
        count = int(c["equilibria_count"])
        listed = ", ".join(f"{x:.4g}" for x in np.asarray(c["equilibria_gpus"]) if np.isfinite(x))
        if count > 1:
            said.append(
                f"The violation curves are not convex along the budget, and {count} equilibria were found, at "
                f"{listed} prefill GPUs; the stable one with the least cost is reported."
            )
        elif count == 1:
            said.append(
                "The violation curves are not convex along the budget: the equilibrium need not be unique, "
                "though only one was found."
            )
    if "alike_low_gpus" in c and float(found.value.multiplier) < ALIKE and not mask & Flag.INFEASIBLE:
        said.append(
            "One more GPU would not change either rate measurably: every split from "
            f"{float(c['alike_low_gpus']):.4g} to {float(c['alike_high_gpus']):.4g} prefill GPUs costs the same "
            f"to within {ALIKE:g}."
        )
    return said
