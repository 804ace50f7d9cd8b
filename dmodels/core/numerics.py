"""Numerical habits in one place: quotients that do not poison gradients, and finiteness that cannot be missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .records import Real


def safe_divide(numerator: Real, denominator: Real, otherwise: Real = jnp.inf) -> Real:
    """numerator / denominator where denominator > 0, else `otherwise`, with finite gradients on both sides.

    A single `where` around the quotient gives NaN gradients at denominator = 0, because the untaken branch is
    differentiated too; here the untaken branch divides by 1.
    """
    positive = denominator > 0
    return jnp.where(positive, numerator / jnp.where(positive, denominator, 1.0), otherwise)


def ceil_div(a: Real, b: Real) -> Real:
    """Blocks of size b that hold a: ceil(a / b), exact for whole numbers below 2**53."""
    return jnp.ceil(a / b)


def power_of_two(count: int) -> int:
    """The least power of two from `count` on, at least 1: shapes of so few kinds that programs are compiled once.

    >>> [power_of_two(n) for n in (0, 1, 5, 8)]
    [1, 1, 8, 8]
    """
    return 1 << max(0, int(count) - 1).bit_length()


def power(base: Real, exponent: Real) -> Real:
    """base ** exponent for base >= 0, as XLA computes many at a time: its own takes them one by one, at four times the
    cost. 0 ** 0 is 1."""
    return jnp.exp(exponent * jnp.log(jnp.maximum(base, 1e-300)))


def one_by_one(function: Callable[..., Any], *leading: Real) -> Any:
    """`function` of each entry along the last axes of the arguments: its results on new last axes.

    On a CPU one after the other, because XLA's fusions there compute again for each entry what is the same for all of
    them; elsewhere at once, because the state of a loop goes through the device's memory at each turn.
    """
    one = lambda *entry: ((), function(*entry))
    return summed(one, *leading)[1]


def summed(function: Callable[..., tuple[Any, Any]], *leading: Real, unroll: int = 1) -> tuple[Any, Any]:
    """(sums of the first results of `function`, its second ones on new last axes), computed as in `one_by_one`.

    `unroll` entries at a time, where a turn of the loop costs more than an entry does.
    """
    entries = tuple(jnp.moveaxis(jnp.asarray(leaf), -1, 0) for leaf in leading)

    def in_turn(*entries: Real) -> tuple[Any, Any]:
        kinds = jax.eval_shape(function, *(leaf[0] for leaf in entries))[0]
        nothing = jax.tree.map(lambda kind: jnp.zeros(kind.shape, kind.dtype), kinds)

        def add(sums: Any, entry: tuple[Real, ...]) -> tuple[Any, Any]:
            part, found = function(*entry)
            return jax.tree.map(jnp.add, sums, part), found

        return jax.lax.scan(add, nothing, entries, unroll=unroll)

    def at_once(*entries: Real) -> tuple[Any, Any]:
        parts, found = jax.vmap(function)(*entries)
        return jax.tree.map(lambda part: part.sum(0), parts), found

    sums, found = jax.lax.platform_dependent(*entries, cpu=in_turn, default=at_once)
    return sums, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), found)
