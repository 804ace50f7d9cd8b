"""Reading a game: costs or a map, constraints in several forms, and bounds, turned into one form for the solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real

from .functions import check_size, result_size


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

    matrix: Real | None  # affine map: F = matrix @ x + offset
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

    def cost_values(self, x: Real) -> Real:
        """Every player's cost at x, shape (players,)."""
        return jnp.stack([jnp.reshape(jnp.asarray(self.call(c, x), x.dtype), ()) for c in self.costs])

    def pseudogradient(self, x: Real) -> Real:
        """F(x), shape (n,)."""
        if self.matrix is not None:
            raw = self.matrix @ x + self.offset
        elif self.function is not None:
            raw = jnp.reshape(jnp.asarray(self.call(self.function, x), x.dtype), x.shape)
            raw = raw if self.unit is None else self.unit * raw
        else:

            def total(y):  # one sweep for all players: each cost sees y in its own variables and a frozen x elsewhere
                terms = [self.call(c, jnp.where(self.own(i), y, x)) for i, c in enumerate(self.costs)]
                return sum(jnp.reshape(jnp.asarray(t, x.dtype), ()) for t in terms)

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

    @property
    def quadratic(self) -> bool:
        """F is affine in x, as its operations show: what holds of its jacobian at one point holds at all."""
        if self.matrix is not None:
            return True
        closed = jax.make_jaxpr(jax.jacfwd(self.pseudogradient))(jnp.zeros(self.n))
        return not any(_depends(closed.jaxpr, [True]))

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
    params = jax.tree.map(_array, params)  # arrays, so that new numbers do not compile anew
    matrix = offset = function = None
    players: tuple[Callable, ...] | None = None
    if callable(costs):
        function = costs
    elif isinstance(costs, Sequence) and len(costs) and all(callable(c) for c in costs):
        players = tuple(costs)
    elif isinstance(costs, Sequence) and len(costs) == 2 and np.ndim(costs[0]) == 2:
        matrix, offset = _array(costs[0]), jnp.ravel(_array(costs[1]))
    else:
        raise InputError(
            "costs: expected one function per player, one function x -> F(x), or a pair (M, q) for F = M x + q"
        )
    if matrix is not None and (matrix.shape[0] != matrix.shape[1] or matrix.shape[:1] != offset.shape):
        raise InputError(f"costs: M {matrix.shape} and q {offset.shape} do not fit; accepted are (n, n) and (n,)")
    if not (bounds is None or hasattr(bounds, "lb") or hasattr(bounds, "__len__")):
        raise InputError(f"bounds: {bounds!r}; accepted is (lower, upper), or one (low, high) pair per variable")
    n = _size(players, matrix, constraints, equalities, bounds, x0, blocks)
    groups = _blocks(blocks, n, len(players) if players else None)
    lower, upper = _bounds(bounds, n)
    probe = jnp.zeros(n) if x0 is None else jnp.ravel(_array(x0))
    if probe.shape[0] != n:
        raise InputError(f"x0: {probe.shape[0]} numbers for {n} variables")
    for i, cost in enumerate(players or ()):
        name = f"costs[{i}]"
        check_size(name, result_size(name, cost, probe, params, with_params), 1, "the player's cost, one number")
    if function is not None:
        found = result_size("costs", function, probe, params, with_params)
        check_size("costs", found, n, f"one function per player, or F(x), {n} numbers")

    def pieces(spec, name, owner=None):
        return [_piece(item, n, probe, params, with_params, name, owner) for item in _items(spec)]

    owned = []
    for player, spec in (private or {}).items():
        if not 0 <= player < len(groups):
            raise InputError(f"private: player {player} is not one of 0..{len(groups) - 1}")
        owned += pieces(spec, f"private[{player}]", (player,))
    weight = np.ones(len(groups)) if weights is None else weights
    weight = jnp.ravel(_array(weight))
    if weight.shape[0] != len(groups):
        raise InputError(f"weights: {weight.shape[0]} numbers for {len(groups)} players")
    if not isinstance(weight, jax.core.Tracer) and not bool(jnp.all((weight > 0) & jnp.isfinite(weight))):
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


def _depends(jaxpr, on: list[bool]) -> list[bool]:
    """Which outputs of `jaxpr` are computed from the inputs marked in `on`."""
    marked = {v for v, mark in zip(jaxpr.invars, on, strict=True) if mark}
    is_marked = lambda v: not hasattr(v, "val") and v in marked
    for eqn in jaxpr.eqns:
        inputs = [is_marked(v) for v in eqn.invars]
        inner = eqn.params.get("jaxpr") if eqn.primitive.name in ("pjit", "jit") else None
        outputs = _depends(inner.jaxpr, inputs) if inner is not None else [any(inputs)] * len(eqn.outvars)
        marked |= {v for v, mark in zip(eqn.outvars, outputs, strict=True) if mark}
    return [is_marked(v) for v in jaxpr.outvars]


def _array(value):
    return jnp.asarray(value, jnp.float64)


def _items(spec) -> list:
    """A constraint argument as a list of single constraints."""
    if spec is None:
        return []
    if callable(spec) or _linear(spec):
        return [spec]
    if isinstance(spec, Mapping) or not isinstance(spec, Sequence):
        raise InputError("constraints: expected a function g(x) <= 0, a pair (A, b) for A x <= b, or a list of these")
    return [item for entry in spec for item in _items(entry)]


def _linear(spec) -> bool:
    return (
        isinstance(spec, Sequence)
        and len(spec) == 2
        and not any(callable(part) for part in spec)
        and (np.ndim(spec[0]) in (1, 2) and np.ndim(spec[1]) in (0, 1))
    )


def _piece(item, n, probe, params, with_params, name, players) -> Piece:
    if callable(item):
        return Piece(None, None, item, players, result_size(name, item, probe, params, with_params))
    matrix, right = jnp.atleast_2d(_array(item[0])), jnp.atleast_1d(_array(item[1]))
    if matrix.shape[1] != n or matrix.shape[0] != right.shape[0]:
        raise InputError(f"{name}: A {matrix.shape} and b {right.shape} do not fit {n} variables")
    return Piece(matrix, right, None, players, matrix.shape[0])


def _size(players, matrix, constraints, equalities, bounds, x0, blocks) -> int:
    """The number of variables, from whatever tells it."""
    if matrix is not None:
        return matrix.shape[0]
    if players and blocks is None and x0 is not None and np.size(x0) % len(players):
        raise InputError(f"x0: {np.size(x0)} numbers for {len(players)} players; give `blocks`, the sizes of each")
    if x0 is not None:
        return int(np.size(x0))
    if blocks is not None:
        return sum(b if isinstance(b, int | np.integer) else len(b) for b in blocks)
    for item in _items(constraints) + _items(equalities):
        if not callable(item):
            return np.shape(item[0])[-1]
    if hasattr(bounds, "lb"):
        sizes = [np.size(bounds.lb), np.size(bounds.ub)]
    elif bounds is not None and len(bounds) != 2:
        return len(bounds)
    else:
        sizes = [np.size(b) for b in (bounds or ()) if b is not None]
    if sizes and max(sizes) > 1:
        return max(sizes)
    if players:
        return len(players)
    raise InputError("x0: give a starting point (or bounds of full length), so that the number of variables is known")


def _blocks(blocks, n: int, players: int | None) -> tuple[tuple[int, ...], ...]:
    """Indices of each player's variables, from sizes, from index lists, or by an equal split."""
    if blocks is None:
        count = players if players is not None else n
        if n % count:
            raise InputError(f"blocks: {n} variables do not split evenly over {count} players; give their sizes")
        size = n // count
        return tuple(tuple(range(i * size, (i + 1) * size)) for i in range(count))
    if all(isinstance(b, int | np.integer) for b in blocks):
        edges = np.cumsum([0, *blocks])
        groups = [range(a, b) for a, b in pairwise(edges)]
    else:
        groups = [np.arange(n)[b] if isinstance(b, slice) else b for b in blocks]
    result = tuple(tuple(int(i) for i in g) for g in groups)
    if sorted(i for g in result for i in g) != list(range(n)):
        raise InputError(f"blocks: {list(blocks)} do not cover the {n} variables exactly once")
    if players is not None and len(result) != players:
        raise InputError(f"blocks: {len(result)} blocks for {players} cost functions")
    return result


def _bounds(bounds, n: int):
    """(lower, upper) of shape (n,). `(lower, upper)`, or one (low, high) pair per variable as in SciPy; None: no bound.

    With two variables the two forms look alike; a list of pairs is read as SciPy does, anything else as
    (lower, upper), unless that reading leaves no room at all and the other one does.
    """
    if bounds is None:
        return jnp.full(n, -jnp.inf), jnp.full(n, jnp.inf)
    if hasattr(bounds, "lb"):
        bounds = (bounds.lb, bounds.ub)

    def side(value, missing):
        values = [missing if v is None else v for v in value] if isinstance(value, list | tuple) else value
        array = _array(missing if values is None else values)
        if array.ndim > 1 or array.size not in (1, n):
            raise InputError(f"bounds: a side of shape {array.shape} does not fit {n} variables")
        if not isinstance(array, jax.core.Tracer) and bool(jnp.any(jnp.isnan(array))):
            raise InputError("bounds: a bound is NaN; accepted are numbers, -inf and inf")
        return jnp.broadcast_to(jnp.ravel(array), (n,)) if array.size == 1 else array

    def as_sides():
        return side(bounds[0], -np.inf), side(bounds[1], np.inf)

    def as_pairs():
        return side([p[0] for p in bounds], -np.inf), side([p[1] for p in bounds], np.inf)

    pairs = len(bounds) == n and all(np.ndim(p) == 1 and len(p) == 2 for p in bounds if not callable(p))
    if len(bounds) != 2:
        if not pairs:
            raise InputError(f"bounds: expected (lower, upper) or {n} (low, high) pairs")
        return as_pairs()
    if not pairs or n != 2:
        return as_sides()
    scipy_style = isinstance(bounds, list) and all(isinstance(p, tuple) for p in bounds)
    readings = [as_pairs, as_sides] if scipy_style else [as_sides, as_pairs]
    first = readings[0]()
    if (
        isinstance(first[0], jax.core.Tracer)
        or isinstance(first[1], jax.core.Tracer)
        or bool(jnp.all(first[0] <= first[1]) & jnp.any(first[0] < first[1]))
    ):
        return first
    second = readings[1]()
    return second if bool(jnp.all(second[0] <= second[1]) & jnp.any(second[0] < second[1])) else first
