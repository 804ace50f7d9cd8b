"""Reading a game: costs or a map, constraints in several forms, and bounds, turned into one form for the solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real
from dmodels.solvers.formulas import formula
from dmodels.solvers.functions import check_size, floats, parameters, result_size

from .alike import Alike, alike, own_costs, own_gradients
from .arguments import groups_of, listed, sides, variables_count
from .linear_maps import affine_parts

#: Functions of a game up to which each call of the solver traces them to tell whether their formulas are known.
FEW_FUNCTIONS = 8


class Piece(eqx.Module):
    """Constraints of one form: `matrix @ x <= right` (or ==), or `function(x) / height <= 0`. `players` None: shared
    by all."""

    matrix: Real
    right: Real
    function: Callable | None = eqx.field(static=True)
    players: tuple[int, ...] | None = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    height: Real | None = None  # (rows,): units of a function's values (`scaling`)

    def value(self, call: Callable[..., Real], x: Real) -> Real:
        """g(x), shape (rows,)."""
        if self.function is None:
            return self.matrix @ x - self.right
        out = jnp.reshape(jnp.asarray(call(self.function, x), x.dtype), (self.rows,))
        return out if self.height is None else out / self.height

    def jacobian(self, call: Callable[..., Real], x: Real) -> Real:
        """dg/dx, shape (rows, n)."""
        return self.matrix if self.function is None else jax.jacfwd(lambda y: self.value(call, y))(x)


class Problem(eqx.Module):
    """Find x in the box with g(x) <= 0, h(x) = 0 such that F(x) + sum of multipliers x gradients = 0 (KKT).

    F is the pseudogradient: block i of F is the gradient of player i's cost in player i's own variables, times that
    player's weight. A shared constraint has one multiplier for all players (the variational equilibrium); a private
    one enters only its owner's rows.
    """

    matrix: Real | None  # affine map: F = matrix @ x + offset, whatever it was given as; None: F is not known to be
    offset: Real | None
    weights: Real  # (n,): Rosen's weight of the player who owns each variable
    lower: Real
    upper: Real
    params: Any
    inequalities: tuple[Piece, ...]
    equalities: tuple[Piece, ...]
    costs: tuple[Callable, ...] | None = eqx.field(static=True)
    function: Callable | None = eqx.field(static=True)
    blocks: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    with_params: bool = eqx.field(static=True)
    unroll: bool = eqx.field(static=True, default=False)  # write small linear systems out: for large batches
    unit: Real | None = None  # (n,): the functions are called at unit * x (`scaling`)
    alike: tuple[Alike, ...] = ()  # the costs again, where many are one formula

    @property
    def n(self) -> int:
        return self.lower.shape[0]

    @property
    def shared(self) -> bool:
        """No private constraint: the equilibrium is the solution of a variational inequality."""
        return all(piece.players is None for piece in self.inequalities + self.equalities)

    def call(self, function: Callable, x: Real) -> Real:
        x = x if self.unit is None else self.unit * x
        return function(x, self.params) if self.with_params else function(x)

    def own(self, player: int) -> np.ndarray:
        """Mask (n,) of the player's variables."""
        mask = np.zeros(self.n, bool)
        mask[list(self.blocks[player])] = True
        return mask

    def cost_values(self, x: Real, alone: Real | None = None) -> Real:
        """Every player's cost at x, or where it alone moves to its part of `alone`; shape (players,)."""
        if self.alike:
            masks = np.stack([self.own(i) for i in range(len(self.blocks))])
            return own_costs(self.alike, self.call, x if alone is None else jnp.where(masks, alone, x))
        at = lambda i: x if alone is None else jnp.where(self.own(i), alone, x)
        values = [self.call(c, at(i)) for i, c in enumerate(self.costs)]
        return jnp.stack([jnp.reshape(jnp.asarray(value, x.dtype), ()) for value in values])

    def pseudogradient(self, x: Real) -> Real:
        """F(x), shape (n,)."""
        if self.matrix is not None:
            raw = self.matrix @ x + self.offset
        elif self.function is not None:
            raw = jnp.reshape(jnp.asarray(self.call(self.function, x), x.dtype), x.shape)
            raw = raw if self.unit is None else self.unit * raw
        elif self.alike:
            raw = own_gradients(self.alike, self.blocks, self.call, x)
        else:

            def total(y):  # one sweep for all players: each cost sees y in its own variables and a frozen x elsewhere
                return jnp.sum(self.cost_values(x, y))

            raw = jax.grad(total)(x)
        return self.weights * raw

    def constraints(self, x: Real, pieces: tuple[Piece, ...]) -> tuple[Real, Real, Real]:
        """(values (m,), jacobian (m, n), the same jacobian with rows masked to the variables of their owners)."""
        if not pieces:
            empty = jnp.zeros((0, self.n), x.dtype)
            return jnp.zeros((0,), x.dtype), empty, empty
        values = jnp.concatenate([p.value(self.call, x) for p in pieces])
        jacobian = jnp.concatenate([p.jacobian(self.call, x) for p in pieces])
        return values, jacobian, jnp.where(self.owners(pieces), jacobian, 0.0)

    def owners(self, pieces: tuple[Piece, ...]) -> np.ndarray:
        """Mask (m, n): which variables' owners face each constraint."""
        masks = []
        for piece in pieces:
            faces = np.ones(self.n, bool)
            if piece.players is not None:
                faces = np.any([self.own(i) for i in piece.players], axis=0)
            masks.append(np.broadcast_to(faces, (piece.rows, self.n)))
        return np.concatenate(masks) if masks else np.zeros((0, self.n), bool)

    def stationarity(self, x: Real, lam: Real, nu: Real) -> Real:
        """F(x) + J_g(x)' lam + J_h(x)' nu, shape (n,)."""
        out = self.pseudogradient(x)
        for pieces, multipliers in ((self.inequalities, lam), (self.equalities, nu)):
            if pieces:
                out = out + self.constraints(x, pieces)[2].T @ multipliers
        return out


def read(costs, constraints, bounds, x0, *, blocks, equalities, private, weights, params, unroll=False) -> Problem:
    """The `Problem` that the arguments of `variational_equilibrium` describe. Mistakes raise `InputError`."""
    with_params = params is not None
    params = parameters(params)
    matrix = offset = function = None
    players: tuple[Callable, ...] | None = None
    if callable(costs):
        function = costs
    elif isinstance(costs, Sequence) and len(costs) and all(callable(c) for c in costs):
        players = tuple(costs)
    elif isinstance(costs, Sequence) and len(costs) == 2 and np.ndim(costs[0]) == 2:
        matrix, offset = floats(costs[0]), floats(costs[1]).reshape(-1)
    else:
        raise InputError(
            "costs: expected one function per player, one function x -> F(x), or a pair (M, q) for F = M x + q"
        )
    if matrix is not None and (matrix.shape[0] != matrix.shape[1] or matrix.shape[:1] != offset.shape):
        raise InputError(f"costs: M {matrix.shape} and q {offset.shape} do not fit; accepted are (n, n) and (n,)")
    if not (bounds is None or hasattr(bounds, "lb") or hasattr(bounds, "__len__")):
        raise InputError(f"bounds: {bounds!r}; accepted is (lower, upper), or one (low, high) pair per variable")
    n = variables_count(players, matrix, listed(constraints) + listed(equalities), bounds, x0, blocks)
    groups = groups_of(blocks, n, len(players) if players else None)
    lower, upper = sides(bounds, n)
    probe = np.zeros(n) if x0 is None else floats(x0).reshape(-1)
    if probe.shape[0] != n:
        raise InputError(f"x0: {probe.shape[0]} numbers for {n} variables")
    _check_functions(players, function, probe, params, with_params)

    def pieces(spec, name, owner=None):
        return [_piece(item, n, probe, params, with_params, name, owner) for item in listed(spec)]

    owned = []
    for player, spec in (private or {}).items():
        if not 0 <= player < len(groups):
            raise InputError(f"private: player {player} is not one of 0..{len(groups) - 1}")
        owned += pieces(spec, f"private[{player}]", (player,))
    weight = np.ones(len(groups)) if weights is None else weights
    weight = floats(weight).reshape(-1)
    if weight.shape[0] != len(groups):
        raise InputError(f"weights: {weight.shape[0]} numbers for {len(groups)} players")
    if not isinstance(weight, jax.core.Tracer) and not bool(np.all((weight > 0) & np.isfinite(weight))):
        raise InputError(f"weights: {weight.tolist()}; accepted are positive numbers")
    owner = np.zeros(n, int)
    for i, block in enumerate(groups):
        owner[list(block)] = i
    return Problem(
        matrix=matrix,
        offset=offset,
        weights=weight[owner],
        lower=lower,
        upper=upper,
        params=params,
        inequalities=tuple(pieces(constraints, "constraints") + owned),
        equalities=tuple(pieces(equalities, "equalities")),
        costs=players,
        function=function,
        blocks=groups,
        with_params=with_params,
        unroll=unroll,
    )


def by_operations(problem: Problem) -> Problem:
    """The same game, its functions (if they are few: each is traced) told apart by what they do."""
    pieces = problem.inequalities + problem.equalities
    count = len(problem.costs or ()) + (problem.function is not None) + sum(p.function is not None for p in pieces)
    if count > FEW_FUNCTIONS:
        return problem
    given = (np.zeros(problem.n), problem.params) if problem.with_params else (np.zeros(problem.n),)
    told = lambda function: None if function is None else formula(function, *given)
    groups = (problem.inequalities, problem.equalities)
    inequalities, equalities = (tuple(replace(p, function=told(p.function)) for p in group) for group in groups)
    costs = None if problem.costs is None else tuple(map(told, problem.costs))
    return replace(
        problem, costs=costs, function=told(problem.function), inequalities=inequalities, equalities=equalities
    )


def _check_functions(players, function, probe, params, with_params) -> None:
    """Each cost returns one number, a map as many as it is given."""
    for i, cost in enumerate(players or ()):
        name = f"costs[{i}]"
        check_size(name, result_size(name, cost, probe, params, with_params), 1, "the player's cost, one number")
    if function is not None:
        found, n = result_size("costs", function, probe, params, with_params), probe.shape[0]
        check_size("costs", found, n, f"one function per player, or F(x), {n} numbers")


def with_matrices(problem: Problem) -> Problem:
    """The same game, with a matrix for each function that is affine: it is then asked once instead of at every step."""

    def flat(piece: Piece) -> Piece:
        if piece.function is None:
            return piece
        parts = affine_parts(lambda x: piece.value(problem.call, x), problem.n)
        return piece if parts is None else replace(piece, matrix=parts[0], right=-parts[1], function=None)

    if problem.matrix is None:
        unweighted = replace(problem, weights=jnp.ones(problem.n))
        if (parts := affine_parts(unweighted.pseudogradient, problem.n)) is not None:
            problem = replace(problem, matrix=parts[0], offset=parts[1])
        elif problem.costs is not None:
            given = (jnp.zeros(problem.n), problem.params) if problem.with_params else (jnp.zeros(problem.n),)
            problem = replace(problem, alike=alike(problem.costs, problem.blocks, *given))
    inequalities, equalities = (tuple(map(flat, group)) for group in (problem.inequalities, problem.equalities))
    return replace(problem, inequalities=inequalities, equalities=equalities)


def _piece(item, n, probe, params, with_params, name, players) -> Piece:
    if callable(item):
        return Piece(None, None, item, players, result_size(name, item, probe, params, with_params))
    matrix, right = floats(item[0]), floats(item[1]).reshape(-1)
    matrix = matrix.reshape(-1, matrix.shape[-1])
    if matrix.shape[1] != n or matrix.shape[0] != right.shape[0]:
        raise InputError(f"{name}: A {matrix.shape} and b {right.shape} do not fit {n} variables")
    return Piece(matrix, right, None, players, matrix.shape[0])
