"""`jax.jit` for entry points whose first small calls are to be answered at once; see `program`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from time import thread_time
from typing import Any, NamedTuple, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np

from .errors import TooLong
from .interpreted import carry_out
from .kept import kept
from .recipes import Recipe, recipe
from .records import traced

#: Numbers in a call's arrays up to which it may be carried out by NumPy, and the seconds that a program may be in a
#: process.
SMALL, PATIENCE_S = 20_000, 3.0

T = TypeVar("T")
P = ParamSpec("P")


class _Traced(NamedTuple):
    """A program as NumPy carries it out: its steps, and a tree of numbers that is shaped like what it returns."""

    steps: Recipe
    results: Any


def program(function: Callable[P, T]) -> Callable[P, T]:
    """`function` compiled by JAX, once NumPy has spent `PATIENCE_S` on its small calls.

    Arrays among the arguments (leaves of pytrees) are data, all other leaves part of the program, as with
    `equinox.filter_jit`; what is returned are arrays. Compiling takes seconds, as much as thousands of small calls
    carried out by NumPy, and so does reading what was compiled in an earlier process. The steps that NumPy carries out
    are kept between processes (`core.kept`): tracing takes a second too. Inside `jit`, `vmap` and `grad` it is like any
    jitted function.
    """

    @partial(jax.jit, static_argnums=0)
    def flat(static: tuple[Any, ...], data: list[Any]) -> Any:
        tree, rest = static
        args, kwargs = jax.tree.unflatten(tree, _filled(rest, data))
        return function(*args, **kwargs)

    left_s: dict[Any, float] = {}
    known: dict[Any, _Traced] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        data = [leaf for leaf in leaves if eqx.is_array(leaf)]
        static = tree, tuple(DATA if eqx.is_array(leaf) else leaf for leaf in leaves)
        if traced(data) or sum(leaf.size for leaf in data) > SMALL:
            return flat(static, data)
        types = tuple((leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)) for leaf in data)
        key = static, types, bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]  # added at run time
        if left_s.setdefault(key, PATIENCE_S) <= 0.0:
            return flat(static, data)
        if key not in known:
            arguments = jax.tree.unflatten(*static), *key[1:]
            try:
                known[key] = kept(function, arguments, lambda: _steps_of(flat.trace(static, data), len(data)))
            except _ClosesOverTraced:
                return flat(static, data)
        begin = thread_time()
        try:
            results = carry_out(known[key].steps, data, left_s[key])
        except TooLong:
            return flat(static, data)
        finally:
            left_s[key] -= thread_time() - begin
        return jax.tree.unflatten(jax.tree.structure(known[key].results), results)

    return call


def at_once(function: Callable[P, T]) -> Callable[P, T]:
    """The `program` of a function whose `float`s are data too: of a formula, that is asked about many numbers."""
    asked = program(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        args, kwargs = jax.tree.map(lambda leaf: np.float64(leaf) if isinstance(leaf, float) else leaf, (args, kwargs))
        return asked(*args, **kwargs)

    return call


def _filled(rest: tuple[Any, ...], data: list[Any]) -> list[Any]:
    """The leaves of a call, with its arrays in their places."""
    of_data = iter(data)
    return [next(of_data) if leaf is DATA else leaf for leaf in rest]


class _ClosesOverTraced(Exception):
    """A function among the arguments has a traced value that is not among the data."""


def _steps_of(stage: Any, given: int) -> _Traced:
    if len(stage.jaxpr.in_avals) != given or traced(stage.jaxpr.consts):
        raise _ClosesOverTraced
    leaves, tree = jax.tree.flatten(stage.out_info)
    return _Traced(recipe(stage.jaxpr), jax.tree.unflatten(tree, range(len(leaves))))


class _Data:
    """Stands for an array where a program's other arguments are listed."""

    def __reduce__(self) -> str:
        return "DATA"


DATA = _Data()
