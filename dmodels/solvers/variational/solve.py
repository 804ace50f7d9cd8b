r"""Variational equilibria of games with shared constraints.

$N$ players; player $i$ minimises $\theta_i(x_i, x_{-i})$ over its own box and over the constraints $g(x) \le 0$,
$h(x) = 0$ that all share. A *variational* equilibrium solves the variational inequality of the pseudogradient
$F = (\nabla_{x_i} \theta_i)_i$ over the common set, that is, the KKT system with one multiplier per constraint for all
players: $F(x) + J_g(x)^T \lambda + J_h(x)^T \nu - z_l + z_u = 0$, $0 \le \lambda \perp -g(x) \ge 0$, $h(x) = 0$.

[1] J. B. Rosen, Econometrica 33 (1965). [2] F. Facchinei, C. Kanzow, Annals of Operations Research 175 (2010).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.devices import accelerators
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.programs import program
from dmodels.core.records import Real, Record, filled, float64, on_host, quantity, traced
from dmodels.solvers.blocks import in_blocks
from dmodels.solvers.functions import parameters
from dmodels.solvers.roofline import DeviceWork
from dmodels.solvers.solution import Solution
from dmodels.solvers.variational.scaling import frame, scale_at, scaled

from . import certificate as evidence
from .certificate import explain
from .deviations import judged
from .fallback import extragradient, least_violation
from .interior import interior, interior_restart, interior_start
from .newton import (
    Active,
    System,
    active_jacobian,
    active_system,
    evaluate,
    finish,
    norm,
    on_bounds,
    semismooth_active,
)
from .pivoting import in_one_layout, pivoted
from .problem import Problem, by_operations, read, with_matrices
from .small_linear import solve as linear_solve

__all__ = ["Equilibrium", "explain", "variational_equilibria", "variational_equilibrium"]

#: Interior point to a rough gap, to a tight one, from a second start, and extragradient (no gap).
GAPS = (1e-4, 1e-12, 1e-9, 1.0)

T = TypeVar("T")


def equilibrium_work(n: int, rows: int) -> DeviceWork:
    """Of one game of n variables and `rows` constraints in a batch: some 20 steps of the interior point and of Newton's
    method, each an elimination of n + rows unknowns, the derivatives, and a hundred launches."""
    k = float(n + rows)
    return DeviceWork(20 * 8 * 4 * (k * k + 10 * k), flop64=20 * (2 / 3 * k**3 + 40 * k * k), launches=20 * 100)


class Equilibrium(Record):
    """A point and its multipliers. One multiplier per shared or private inequality, in the order given."""

    x: Real = quantity()
    multipliers: Real = quantity()
    equality_multipliers: Real = quantity()
    lower_multipliers: Real = quantity()
    upper_multipliers: Real = quantity()


@float64
def variational_equilibrium(
    costs: Callable[..., Real] | Sequence[Any],
    constraints: Any = None,
    bounds: Any = None,
    x0: Any = None,
    *,
    blocks: Sequence[Any] | None = None,
    equalities: Any = None,
    private: Mapping[int, Any] | None = None,
    weights: Any = None,
    params: Any = None,
    tolerance: float = 1e-10,
    samples: int = 32,
    max_steps: int = 200,
    unroll: bool = False,
    certify: str = "first-order",
) -> Solution:
    """The variational equilibrium of a game, with evidence.

    costs        one function of the full vector x per player (each minimises its own); or one function x -> F(x), the
                 pseudogradient; or a pair (M, q) for the affine map F(x) = M x + q. Written with jax.numpy.
    constraints  shared by all: a function x -> g(x) <= 0 (number or vector, convex), a pair (A, b) for A x <= b, or a
                 list of these
    bounds       (lower, upper), each a number or a vector, inf allowed; or one (low, high) pair per variable
    x0           where to start; default: inside the bounds
    blocks       each player's variables: sizes [3, 2, 2] or index lists; default: an equal split
    equalities   h(x) = 0 in the forms of `constraints` ((A, b) for A x = b), affine
    private      {player: constraints that this player alone faces}; they may involve rivals' variables (then the
                 problem is a quasi-variational inequality, and the KKT system is solved as it stands)
    weights      Rosen's weights of the players' costs; default 1. They choose among the generalised equilibria
    params       if given, every function is called as f(x, params); the result is differentiable in params
    samples      points at which monotonicity and deviations are tested; 0 to save their time
    tolerance    of the KKT residual, each row relative to the terms that it is made of (`scaling`), so that
                 costs, variables and constraints may be in any unit
    unroll       write linear systems of up to 6 unknowns out: for large batches (slower to compile, faster to run)
    certify      "first-order", or "global": prove or refute by interval arithmetic over boxes that no player gains more
                 than 1e-6 of its cost (or of how much that varies) by moving alone, whatever the costs' shape. For few
                 variables per player, finite bounds, costs per player, and not inside `jit`

    Returns a `Solution`: `value.x`, `value.multipliers`; `certificate.kkt_residual` and the rest of
    `variational_certificate.certify`; flags INFEASIBLE, NOT_CONVERGED, NONFINITE (a cost too), NOT_UNIQUE (strict
    monotonicity not shown), OUT_OF_DOMAIN (a KKT point from which a player gains by moving), FIRST_ORDER_ONLY (a
    warning: costs are not quadratic, so not known to be convex in their owners' variables; first-order conditions and
    samples hold, a narrow dip between the samples is not excluded). With `certify="global"` the certificate has
    `deviation_bound` (players,), what no deviation can gain more than (inf where nothing is known); FIRST_ORDER_ONLY
    then says that a player was left undecided, OUT_OF_DOMAIN that a gain was found. `explain(solution)` says them in
    words. It composes with `jit`, `vmap` and `grad`; `variational_equilibria` maps it over a batch of params in blocks.

    Harker's game [2]: costs x^2 + 8/3 x y - 34 x and y^2 + 5/4 x y - 24.25 y, x + y <= 15, both in [0, 10]:

    >>> game = [lambda v: v[0] ** 2 + 8 / 3 * v[0] * v[1] - 34 * v[0],
    ...         lambda v: v[1] ** 2 + 5 / 4 * v[0] * v[1] - 24.25 * v[1]]
    >>> variational_equilibrium(game, ([[1, 1]], [15]), (0, 10)).value.x.round(6).tolist()
    [5.0, 9.0]
    """
    problem, args, everywhere = _question(**locals())
    if traced(problem, args):
        return _solve(problem, *args)
    # from plain Python: most games need no fallback, so its code is compiled only for those that do
    known = by_operations(problem)
    found = _compiled(known, *args, fallback=False)
    if not traced(found) and int(found.flags) & _UNANSWERED:
        found = _compiled(known, *args)
    return judged(problem, on_host(found)) if everywhere else on_host(found)


def _question(
    costs: Any,
    constraints: Any,
    bounds: Any,
    x0: Any,
    *,
    tolerance: Any,
    samples: int,
    max_steps: int,
    certify: str,
    **game: Any,
) -> tuple[Problem, tuple[Real | None, Any, int, int], bool]:
    """(problem, the other arguments of `_solve`, whether deviations are to be judged over the whole boxes) of the
    arguments of `variational_equilibrium`."""
    for name, number, least in (("samples", samples, 0), ("max_steps", max_steps, 1)):
        if not number >= least:
            raise InputError(f"{name} = {number}; accepted are whole numbers from {least}")
    if not isinstance(tolerance, jax.core.Tracer) and not tolerance > 0:
        raise InputError(f"tolerance = {tolerance}; accepted are positive numbers")
    problem = read(costs, constraints, bounds, x0, **game)
    start = None if x0 is None else jnp.ravel(jnp.asarray(x0, jnp.float64))
    if certify not in ("first-order", "global"):
        raise InputError(f"certify = {certify!r}; accepted are 'first-order' and 'global'")
    if certify == "global" and (problem.costs is None or traced(problem, start)):
        raise InputError("certify = 'global'; accepted only with one cost function per player, outside jit and vmap")
    return problem, (start, tolerance, samples, max_steps), certify == "global"


@float64
def variational_equilibria(*args: Any, params: Any, batch_size: int = 128, **kwargs: Any) -> Solution:
    """`variational_equilibrium` for every entry along the leading axis of `params`, in blocks that fit the cache.

    Blocks of 64 (50 players) to 512 games (3) run several times faster on a CPU than one large `vmap`; 128 are within
    a tenth of the best. Compiled once per call site: keep the functions in variables and call again with new params
    for speed. On a CPU, games whose functions are affine (or gradients of quadratic costs) by their operations are
    solved by pivoting, as `affine_equilibria` does; what it leaves, or cannot show to be unique, by the interior point.
    """
    call = _Call(args, tuple(sorted(kwargs.items())), fallback=False)
    params = jax.tree.map(np.asarray, parameters(params))
    counts = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(params)}
    if len(counts) != 1 or None in counts:
        raise InputError("params: accepted are arrays with one leading axis of games, of equal length")
    if not batch_size >= 1:
        raise InputError(f"batch_size = {batch_size}; accepted are whole numbers from 1")
    found = None if accelerators() else _pivoted(call, params, batch_size)
    if found is None:
        found = on_host(_mapped(call, params, None, batch_size))
    else:
        found = _again(call, params, batch_size, found, _UNANSWERED | int(Flag.NOT_UNIQUE))
    return _again(replace(call, fallback=True), params, batch_size, found, _UNANSWERED)


def _again(call: _Call, params: Any, batch_size: int, found: Solution, left: int) -> Solution:
    """`found`, with the games that have a flag in `left` solved by `call`."""
    # by themselves: in one program every game would wait for the few that need it
    rows = np.flatnonzero(found.flags & left)
    if not len(rows):
        return found
    few = filled(rows)
    again = _mapped(call, jax.tree.map(lambda leaf: leaf[few], params), None, batch_size)
    merged: Solution = jax.tree.map(partial(_with_rows, rows), found, on_host(again))
    return merged


def _pivoted(call: _Call, params: Any, batch_size: int) -> Solution | None:
    """Answers found by pivoting, judged as all others; None where some function is not affine."""
    games = on_host(_affine_games(call, params, batch_size))
    if not games:
        return None
    count, n, rows = len(games[1]), games[1].shape[-1], games[3].shape[-1]
    x, lam, rounds = pivoted(in_one_layout(games), count, 3 * (n + rows) + 20)
    found: Solution = on_host(_mapped(call, params, (x, lam, rounds), batch_size))
    return found


@program
def _affine_games(call: _Call, params: Any, batch_size: int) -> tuple[Real, ...]:
    """M, q, A, b, lower and upper of each game; nothing where pivoting cannot take them."""

    def one(params: Any) -> tuple[Real, ...]:
        problem = with_matrices(call.question(params)[0])
        flat = problem.matrix is not None and all(piece.function is None for piece in problem.inequalities)
        if not flat or problem.equalities or not problem.shared:
            return ()
        empty = jnp.zeros((0, problem.n)), jnp.zeros(0)
        rows, right = (jnp.concatenate([none, *parts]) for none, parts in zip(empty, _sides(problem), strict=True))
        weighted = problem.weights[:, None] * problem.matrix, problem.weights * problem.offset
        return *weighted, rows, right, jnp.asarray(problem.lower), jnp.asarray(problem.upper)

    games: tuple[Real, ...] = in_blocks(one, params, batch_size)
    return games


def _sides(problem: Problem) -> tuple[list[Real], list[Real]]:
    """Matrices and right sides of affine inequalities."""
    return [piece.matrix for piece in problem.inequalities], [piece.right for piece in problem.inequalities]


def _with_rows(rows: np.ndarray, whole: np.ndarray, part: np.ndarray) -> np.ndarray:
    """`whole` with the first of `part` in its `rows`."""
    whole = np.array(whole)
    whole[rows] = part[: len(rows)]
    return whole


class _Call(eqx.Module):
    """The arguments of `variational_equilibrium` other than params; functions are compared by identity. Without
    `fallback`, one attempt at each game."""

    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    fallback: bool

    def question(self, params: Any) -> tuple[Problem, tuple[Real | None, Any, int, int], bool]:
        """As of `_question`."""
        given = _ARGUMENTS.bind(*self.args, params=params, unroll=True, **dict(self.kwargs))
        given.apply_defaults()
        return _question(**given.arguments)

    def __call__(self, params: Any, known: tuple[Real, Real, Real] | None) -> Solution:
        problem, args, _ = self.question(params)
        return _solve(problem, *args, fallback=self.fallback, fixed=True, known=known)


_ARGUMENTS = signature(variational_equilibrium)
#: Flags of a first attempt that the fallback may mend.
_UNANSWERED = int(Flag.NOT_CONVERGED | Flag.NONFINITE)


@program
def _mapped(call: _Call, params: Any, known: Any, batch_size: int) -> Solution:
    batch: Solution = in_blocks(lambda given: call(*given), (params, known), batch_size)
    return batch


@program
def _compiled(
    problem: Problem, x0: Real | None, tolerance: float, samples: int, max_steps: int, fallback: bool = True
) -> Solution:
    return _solve(problem, x0, tolerance, samples, max_steps, fallback)


def _solve(
    problem: Problem,
    x0: Real | None,
    tolerance: float,
    samples: int,
    max_steps: int,
    fallback: bool = True,
    fixed: bool = False,
    known: tuple[Real, Real, Real] | None = None,
) -> Solution:
    """`fixed`: all numbers are data, and nothing is differentiated. `known`: x, multipliers and steps of an answer that
    is only to be judged."""
    problem = with_matrices(problem)
    raw = jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, problem)
    units = jax.lax.stop_gradient(frame(raw, None if x0 is None else jax.lax.stop_gradient(x0)))
    held, live = scaled(raw, units), scaled(problem, units)
    if known is None:
        start = _default_start(held) if units.start is None else units.start
        method = _stages if fallback else _first_stage
        (y, lam, nu), steps = jax.lax.stop_gradient(method(held, start, tolerance, max_steps))
    else:
        y, lam, nu, steps = known[0] / units.unit, known[1] * units.rows, jnp.zeros(0), known[2]
    y, lam = _snapped(held, y, lam, nu, tolerance)
    s = evaluate(held, y, lam, nu)
    certificate, gains = evidence.certify(held, units, s, (y, lam, nu), samples)
    nearest, violation = y, evidence.violation(held, y)
    if fallback:  # a lane that converged starts at no violation to speak of and takes no step
        close = certificate.relative_residual <= tolerance
        close &= certificate.distance_bound[0] >= 0.0  # as ever: LAPACK's next call waits (`core.schedule`)
        violation, nearest = least_violation(held, y, jnp.where(close, 0, 200))
    certificate["least_violation"] = evidence.violation(raw, units.unit * nearest)
    flags = evidence.flags(held, certificate, s, gains, (y, lam, nu), violation=violation, tolerance=tolerance)
    certificate, flags = jax.lax.stop_gradient((certificate, flags))
    if fixed:
        active = semismooth_active(held, s, y, lam, scale_at(s, y, lam, nu))
    else:
        y, lam, nu, active = _with_derivatives(live, held, s, y, lam, nu)
    rest = live.stationarity(y, lam, nu) / units.unit
    value = Equilibrium(
        x=units.unit * y,
        multipliers=lam / units.rows,
        equality_multipliers=nu / units.equal_rows,
        # by complementarity: what pushes against a bound is its multiplier
        lower_multipliers=jnp.where(active.low, jnp.maximum(rest, 0.0), 0.0),
        upper_multipliers=jnp.where(active.high, jnp.maximum(-rest, 0.0), 0.0),
    )
    return Solution(value, certificate, flags, steps)


def _snapped(problem: Problem, y: Real, lam: Real, nu: Real, tolerance: float) -> tuple[Real, Real]:
    """(y, lam) with what complementarity holds at a bound or at zero exactly there (it may miss by 1e-23)."""
    s = evaluate(problem, y, lam, nu)
    scale = scale_at(s, y, lam, nu)
    active = semismooth_active(problem, s, y, lam, scale)
    moved = on_bounds(problem, y, active)
    idle = ~active.tight & (lam <= tolerance * scale.price)
    return jnp.where(jnp.abs(moved - y) <= tolerance, moved, y), jnp.where(idle, 0.0, lam)


def _first_stage(problem: Problem, x0: Real, tolerance: float, max_steps: int) -> tuple[tuple[Real, Real, Real], Real]:
    """Interior point and finish, once."""
    inner, steps = interior(problem, interior_start(problem, x0)[0], GAPS[0], max_steps)
    best, _, polish = finish(problem, inner, tolerance, 10)
    return best, steps + polish


def _stages(problem: Problem, x0: Real, tolerance: float, max_steps: int) -> tuple[tuple[Real, Real, Real], Real]:
    """Rough interior point and finish; where that fails, tighter, from elsewhere, and by extragradient."""
    start, scale = interior_start(problem, x0)
    elsewhere = interior_restart(problem, evidence.around(problem, x0, 1)[0], scale)
    gaps = jnp.asarray(GAPS)

    def stage(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        k, point, best, best_error, steps = carry
        begin = jax.tree.map(lambda a, b: jnp.where(k == 2, a, b), elsewhere, point)
        inner, taken = interior(problem, begin, gaps[k], jnp.where(k < 3, max_steps, 0))
        inner, more = extragradient(problem, inner, 1e-6, jnp.where(k == 3, 20 * max_steps, 0))
        z, error, polish = finish(problem, inner, tolerance, 10)
        better = error < best_error
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), z, best)
        return k + 1, inner, best, jnp.minimum(error, best_error), steps + taken + more + polish

    def failing(carry: tuple[Any, ...]) -> Real:
        k, _, _, best_error, _ = carry
        return (k < len(GAPS)) & ~(best_error <= tolerance)

    first = (jnp.clip(start.x, problem.lower, problem.upper), start.lam, start.nu)
    state = (jnp.int32(0), start, first, jnp.asarray(jnp.inf), jnp.int32(0))
    _, _, best, _, steps = jax.lax.while_loop(failing, stage, state)
    return best, steps


def _with_derivatives(
    problem: Problem, held: Problem, s: System, x: Real, lam: Real, nu: Real
) -> tuple[Real, Real, Real, Active]:
    """(x, lam, nu, active set) again, now with the implicit derivative in everything that `problem` depends on.

    On the active set the solution solves K(z, p) = 0, so dz = -K_z^{-1} K_p dp. One Newton step from z, in which only
    K(z, p) is live and whose value is zero, has exactly that derivative, forwards and backwards. (Differentiating the
    iteration instead would give 0 for a bisection and noise for an interior point.)
    """
    scale = scale_at(s, x, lam, nu)
    active = semismooth_active(held, s, x, lam, scale)
    jacobian, scale = jax.lax.stop_gradient((active_jacobian(s, active, scale), scale))
    live = active_system(problem, evaluate(problem, x, lam, nu, derivatives=False), x, lam, active, scale)
    change = linear_solve(jacobian, live - jax.lax.stop_gradient(live), problem.unroll)
    change = jnp.where(jnp.isfinite(change), change, 0.0)
    n, m = x.shape[0], lam.shape[0]
    lam, nu = lam - change[n : n + m] * scale.price, nu - change[n + m :] * scale.equal_price
    return x - change[:n], lam, nu, active


def _default_start(problem: Problem) -> Real:
    """The middle of the box; from a lone bound a unit, or less, where that keeps the constraints and the forces are
    not far above those nearer to it (what rises exponentially is left at an even pace); 0 where there is no bound."""
    low, high = jnp.isfinite(problem.lower), jnp.isfinite(problem.upper)
    middle = jnp.where(low & high, 0.5 * (problem.lower + problem.upper), 0.0)
    corner = jnp.where(low ^ high, jnp.where(low, problem.lower, problem.upper), middle)
    away = jnp.where(low ^ high, jnp.where(low, 1.0, -1.0), 0.0)
    tries = corner[None] + 2.0 ** -np.arange(_SHARES)[:, None] * away[None]
    force = jax.vmap(lambda y: norm(problem.pseudogradient(y)))(tries)
    met = jax.vmap(lambda y: jnp.all(problem.constraints(y, problem.inequalities)[0] <= 0.0))(tries)
    met |= ~jnp.any(met)
    near = met & (force <= _FORCES * jnp.min(jnp.where(met, force, jnp.inf)))
    return tries[jnp.argmax(near)]


#: Halves of a unit at which the start is tried, and how many times the least force its own may be.
_SHARES, _FORCES = 16, 100.0
