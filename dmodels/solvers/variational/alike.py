"""Players whose costs are one formula with other numbers: it is differentiated and compiled once for all of them.

Costs given as one function per player are mostly one function with another place in x and other constants. Each is
traced; where the operations are the same, what differs (constants, and where slices begin) becomes data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.records import Real

#: Variables of one player up to which its gradient is worked out direction by direction: a place in x that is data is
#: then read, while the other way round its entry would be added up, ten times slower.
FEW_DIRECTIONS = 3

#: call(cost, x): the value of a cost at x
Call = Callable[[Callable[..., Real], Real], Real]


class _Operation(NamedTuple):
    """An operation of a formula: its inputs are places in the list of what is known, numbers below 0."""

    eqn: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    start: int | None  # of a slice: the place of where it begins

    def __call__(self, known: dict[int, Any]) -> None:
        operands = [known[place] for place in self.inputs]
        if self.start is not None:
            found = _slice(operands[0], known[self.start], self.eqn.outvars[0].aval.shape)
        else:
            found = self.eqn.primitive.bind(*operands, **self.eqn.primitive.get_bind_params(self.eqn.params))
        known.update(zip(self.outputs, found if isinstance(found, list | tuple) else [found], strict=True))


def _slice(array: Real, start: Real, size: tuple[int, ...]) -> Real:
    if isinstance(start, np.ndarray):  # the same for all
        return jax.lax.slice(array, start.tolist(), (start + np.array(size)).tolist())
    return jax.lax.dynamic_slice(array, start, size)


class _Cost(NamedTuple):
    """A traced cost: what compares equal where two differ in their `numbers` alone."""

    what: Any
    numbers: list[Any]
    operations: tuple[_Operation, ...]
    result: int


class Alike(eqx.Module):
    """A formula, and the numbers of each player whose cost it is."""

    numbers: tuple[Real, ...]  # (players, ...); without that axis where all have the same
    differs: tuple[bool, ...] = eqx.field(static=True)
    operations: tuple[_Operation, ...] = eqx.field(static=True)
    result: int = eqx.field(static=True)
    players: tuple[int, ...] = eqx.field(static=True)

    def mapped(self, function: Callable[..., Real], *rows: Real) -> Real:
        """`function(cost, *row)` of each player's cost; each of `rows` is (players, ...)."""

        def one(numbers: tuple[Real, ...], *row: Real) -> Real:
            def cost(*given: Any) -> Real:
                known = {-1 - k: value for k, value in enumerate(numbers)} | dict(enumerate(jax.tree.leaves(given)))
                for operation in self.operations:
                    operation(known)
                return jnp.reshape(known[self.result], ())

            return function(cost, *row)

        axes = tuple(0 if differs else None for differs in self.differs)
        return jax.vmap(one, in_axes=(axes, *(0 for _ in rows)))(self.numbers, *rows)


def alike(costs: Sequence[Callable[..., Real]], blocks: Sequence[Sequence[int]], *given: Any) -> tuple[Alike, ...]:
    """The players by formula and by how many variables they have; none where these are more than half as many as the
    players, or where an operation cannot be compared. `given`: what each cost is called with."""
    found: dict[Any, list[tuple[int, _Cost]]] = {}
    for player, (function, block) in enumerate(zip(costs, blocks, strict=True)):
        cost = _read(function, given)
        try:
            found.setdefault((cost.what, len(block)), []).append((player, cost))
        except TypeError:  # a parameter without a hash
            return ()
    return tuple(map(_together, found.values())) if 2 * len(found) <= len(costs) else ()


def _together(members: Sequence[tuple[int, _Cost]]) -> Alike:
    players, costs = zip(*members, strict=True)
    columns = [*zip(*(cost.numbers for cost in costs), strict=True)]
    differs = tuple(not all(_same(column[0], other) for other in column) for column in columns)
    numbers = tuple(_stack(column) if apart else column[0] for column, apart in zip(columns, differs, strict=True))
    return Alike(numbers, differs, costs[0].operations, costs[0].result, players)


def _same(a: Any, b: Any) -> bool:
    on_host = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    return a is b or (on_host and a.tobytes() == b.tobytes())  # 0 and -0 differ


def _stack(column: Sequence[Any]) -> Real:
    return (np if all(isinstance(value, np.ndarray) for value in column) else jnp).stack(column)


def _read(function: Callable[..., Real], given: Sequence[Any]) -> _Cost:
    closed = jax.make_jaxpr(lambda *given: jnp.asarray(function(*given)))(*given)
    numbers: list[Any] = []

    def number(value: Any) -> int:
        numbers.append(value if isinstance(value, jax.Array) else np.asarray(value))
        return -len(numbers)

    places: dict[Any, int] = {v: k for k, v in enumerate(closed.jaxpr.invars)}
    places |= {v: number(value) for v, value in zip(closed.jaxpr.constvars, closed.consts, strict=True)}
    at: Callable[[Any], int] = lambda v: number(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else places[v]
    operations, parts = [], []
    for eqn in closed.jaxpr.eqns:
        inputs, params, start = tuple(map(at, eqn.invars)), dict(eqn.params), None
        if eqn.primitive.name == "slice" and params["strides"] is None:
            start = number(np.asarray(params.pop("start_indices"), np.int32))
            del params["limit_indices"]
        outputs = tuple(range(len(places), len(places) + len(eqn.outvars)))
        places |= zip(eqn.outvars, outputs, strict=True)
        operations.append(_Operation(eqn, inputs, outputs, start))
        kinds = tuple(str(v.aval) for v in (*eqn.invars, *eqn.outvars))
        parts.append((eqn.primitive, tuple(params.items()), inputs, start, kinds))
    result = at(closed.jaxpr.outvars[0])
    what = tuple(parts), result, tuple((np.shape(value), str(value.dtype)) for value in numbers)
    return _Cost(what, numbers, tuple(operations), result)


def own_gradients(groups: Sequence[Alike], blocks: Sequence[Sequence[int]], call: Call, x: Real) -> Real:
    """Each player's gradient in its own variables, (n,)."""
    parts, order = [], []
    for group in groups:
        own = np.array([blocks[player] for player in group.players])

        def slopes(cost: Callable[..., Real], directions: Real) -> Real:
            at = lambda y: call(cost, y)
            return jax.vmap(lambda along: jax.jvp(at, (x,), (along,))[1])(directions)

        if own.shape[1] <= FEW_DIRECTIONS:
            part = group.mapped(slopes, np.eye(x.shape[0])[own])
        else:
            whole = group.mapped(lambda cost: jax.grad(lambda y: call(cost, y))(x))
            part = jnp.take_along_axis(whole, own, axis=1)
        parts.append(jnp.reshape(part, -1))
        order += own.reshape(-1).tolist()
    joined = jnp.concatenate(parts)
    return joined if order == sorted(order) else joined[np.argsort(order)]


def own_costs(groups: Sequence[Alike], call: Call, x: Real) -> Real:
    """Each player's cost, (players,), at x (n,) or at its own row of x (players, n)."""
    parts = []
    for group in groups:
        rows = () if x.ndim == 1 else (x[np.array(group.players)],)
        parts.append(group.mapped(lambda cost, y=x: call(cost, y), *rows))
    return jnp.concatenate(parts)[np.argsort([player for group in groups for player in group.players])]
