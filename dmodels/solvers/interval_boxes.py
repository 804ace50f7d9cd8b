"""Bounds on functions of several variables over boxes: interval arithmetic on the operations of arrays.

What moves entries (slices, stacks, reshapes) is done by moving their positions; sums and products of arrays are written
out; everything else is done entry by entry, by the rules of `interval`. The last axis of every array holds boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .interval import RULES, Ends, Unsupported

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr

#: Operations whose results are entries of their operands.
_MOVES = {"slice", "squeeze", "reshape", "broadcast_in_dim", "transpose", "rev", "concatenate", "expand_dims", "stack"}
_INDEXED = {"dynamic_slice", "gather"}  # the operands after the first say where
_EPS = 2.0**-52

#: (low (d, boxes), high (d, boxes)) -> bounds on every result, (..., boxes) each.
BoxBounds = Callable[[np.ndarray, np.ndarray], Ends]


def box_enclosure(function: Callable[..., Any], dimensions: int) -> BoxBounds:
    """Bounds on `function(t)`, t of so many dimensions, over many boxes at once. Raises `Unsupported`, here or there.

    >>> low, high = box_enclosure(lambda t: t[0] * t[1], 2)(np.array([[1.0], [2.0]]), np.array([[2.0], [3.0]]))
    >>> round(float(low[0]), 12), round(float(high[0]), 12)
    (2.0, 6.0)
    """
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(function)(jnp.zeros(dimensions, jnp.float64))

    def bounds(low: np.ndarray, high: np.ndarray) -> Ends:
        with np.errstate(all="ignore"), jax.enable_x64(True):
            (found,) = _run(closed.jaxpr, closed.consts, [(low, high)])
        lo, hi = np.broadcast_arrays(found[0], found[1], np.zeros(low.shape[-1]))[:2]
        broken = ~(lo <= hi)  # NaN anywhere: nothing is known
        return np.where(broken, -np.inf, lo), np.where(broken, np.inf, hi)

    return bounds


def _exact(value: Any) -> Ends:
    array = np.asarray(value)[..., None]
    return array, array


def _run(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Ends]) -> list[Ends]:
    env: dict[Any, Ends] = dict(zip(jaxpr.constvars, map(_exact, consts), strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Ends:
        return _exact(v.val) if hasattr(v, "val") else env[v]

    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        inner = next((eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params), None)
        if inner is None:
            env[eqn.outvars[0]] = _operate(eqn, inputs)
            continue
        body, held = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
        if len(body.invars) != len(inputs):
            raise Unsupported(f"interval arithmetic: {eqn.primitive.name} is not supported")
        env.update(zip(eqn.outvars, _run(body, held, inputs), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _operate(eqn: Any, inputs: list[Ends]) -> Ends:
    name, kind = eqn.primitive.name, eqn.outvars[0].aval
    whole = not jnp.issubdtype(kind.dtype, jnp.floating)
    if whole and all(lo is hi for lo, hi in inputs):  # positions: known numbers
        return _exact(eqn.primitive.bind(*(jnp.asarray(lo[..., 0]) for lo, _ in inputs), **eqn.params))
    if name in _MOVES or name in _INDEXED:
        return _moved(eqn, inputs)
    if name == "reduce_sum":
        return _sum(inputs[0], eqn.params["axes"])
    if name in ("reduce_max", "reduce_min"):
        pick = np.max if name == "reduce_max" else np.min
        return pick(inputs[0][0], axis=eqn.params["axes"]), pick(inputs[0][1], axis=eqn.params["axes"])
    if name == "dot_general":
        return _dot(eqn, inputs)
    rule = RULES.get(name)
    if rule is None:
        raise Unsupported(f"interval arithmetic: {name} is not supported")
    rank = kind.ndim
    fitted = [tuple(side.reshape((1,) * (rank + 1 - side.ndim) + side.shape) for side in ends) for ends in inputs]
    low, high = rule(eqn.params, *fitted)
    return np.asarray(low), np.asarray(high)


def _moved(eqn: Any, inputs: list[Ends]) -> Ends:
    """Let the operation move positions, and take the entries from there."""
    count = 1 if eqn.primitive.name in _INDEXED else len(inputs)
    where, start = [], 0
    for lo, _ in inputs[:count]:
        size = int(np.prod(lo.shape[:-1], dtype=int))
        where.append(jnp.arange(start, start + size).reshape(lo.shape[:-1]))
        start += size
    for lo, hi in inputs[count:]:
        if lo is not hi:
            raise Unsupported(f"interval arithmetic: {eqn.primitive.name} at positions that vary is not supported")
        where.append(jnp.asarray(lo[..., 0]))
    at = np.asarray(eqn.primitive.bind(*where, **eqn.params))
    boxes = max(lo.shape[-1] for lo, _ in inputs[:count])

    def taken(side: int) -> Any:
        flat = [np.broadcast_to(e[side], (*e[side].shape[:-1], boxes)).reshape(-1, boxes) for e in inputs[:count]]
        return np.concatenate(flat)[at]

    low = taken(0)
    return (low, low) if all(lo is hi for lo, hi in inputs[:count]) else (low, taken(1))


def _sum(x: Ends, axes: Sequence[int]) -> Ends:
    axes, terms = tuple(axes), int(np.prod([x[0].shape[a] for a in axes], dtype=int))
    slip = [terms * _EPS * np.abs(side).sum(axes) for side in x]
    return x[0].sum(axes) - slip[0], x[1].sum(axes) + slip[1]


def _dot(eqn: Any, inputs: list[Ends]) -> Ends:
    (left, right), batch = eqn.params["dimension_numbers"]
    if batch != ((), ()):
        raise Unsupported("interval arithmetic: dot_general over batches is not supported")
    x, y = inputs
    free_x = [a for a in range(x[0].ndim - 1) if a not in left]
    free_y = [a for a in range(y[0].ndim - 1) if a not in right]

    def laid(side: np.ndarray, free: list[int], summed: Sequence[int], first: bool) -> np.ndarray:
        turned = side.transpose([*free, *summed, side.ndim - 1])
        gap = (1,) * (len(free_y) if first else len(free_x))
        shape = turned.shape
        kept, rest = shape[: len(free)], shape[len(free) :]
        return turned.reshape((*kept, *gap, *rest) if first else (*gap, *kept, *rest))

    products = RULES["mul"](
        {},
        tuple(laid(side, free_x, left, True) for side in x),
        tuple(laid(side, free_y, right, False) for side in y),
    )
    rank = len(free_x) + len(free_y)
    return _sum(products, range(rank, rank + len(left)))
