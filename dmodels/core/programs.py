"""`jax.jit` for entry points whose first small calls are to be answered at once; see `program`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from time import thread_time
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax

from .interpreted import TooLong, carry_out
from .records import traced

#: Numbers in a call's arrays up to which it may be carried out by NumPy, and the seconds that a program may be in a
#: process.
SMALL, PATIENCE_S = 10_000, 3.0

T = TypeVar("T")
P = ParamSpec("P")


def program(function: Callable[P, T]) -> Callable[P, T]:
    """`function` compiled by JAX, once NumPy has spent `PATIENCE_S` on its small calls.

    Arrays among the arguments (leaves of pytrees) are data, all other leaves part of the program, as with
    `equinox.filter_jit`; what is returned are arrays. Compiling takes seconds, as much as thousands of small calls
    carried out by NumPy, and so does reading what was compiled in an earlier process. Inside `jit`, `vmap` and `grad`
    it is like any jitted function.
    """

    @partial(jax.jit, static_argnums=0)
    def flat(static: tuple[Any, ...], data: list[Any]) -> Any:
        tree, rest = static
        of_data = iter(data)
        args, kwargs = jax.tree.unflatten(tree, [next(of_data) if leaf is _DATA else leaf for leaf in rest])
        return function(*args, **kwargs)

    left_s: dict[Any, float] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        data = [leaf for leaf in leaves if eqx.is_array(leaf)]
        static = tree, tuple(_DATA if eqx.is_array(leaf) else leaf for leaf in leaves)
        if traced(data) or sum(leaf.size for leaf in data) > SMALL:
            return flat(static, data)
        key = static, tuple((leaf.shape, leaf.dtype) for leaf in data)
        if left_s.setdefault(key, PATIENCE_S) <= 0.0:
            return flat(static, data)
        stage = flat.trace(static, data)
        begin = thread_time()
        try:
            results = carry_out(stage.jaxpr, data, left_s[key])
        except TooLong:
            return flat(static, data)
        finally:
            left_s[key] -= thread_time() - begin
        return jax.tree.unflatten(jax.tree.structure(stage.out_info), results)

    return call


class _Data:
    """Stands for an array where a program's other arguments are listed."""


_DATA = _Data()
