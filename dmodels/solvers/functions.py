"""What callers hand over: arrays, and functions, which are asked once what they return before anything is solved."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real


def floats(value: Any) -> Real:
    """float64: NumPy's of what lies on the host, on which JAX would compile every operation; else JAX's."""
    on_device = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value))
    return (jnp if on_device else np).asarray(value, float)


def parameters(params: Any) -> Any:
    """`params` with arrays of float64 for its numbers, so that new numbers do not compile anew."""
    try:
        return jax.tree.map(floats, params)
    except (TypeError, ValueError) as error:
        raise InputError("params: accepted are numbers and arrays of them, alone or in lists and mappings") from error


def result_shape(name: str, function: Callable[..., Any], wanted: str, *given: Any) -> tuple[int, ...]:
    """Shape of `function(*given)`. `InputError` where it is no function, cannot be traced or returns no numbers."""
    if not callable(function):
        raise InputError(f"{name}: it is a {type(function).__name__}; accepted is {wanted}")
    try:
        shape = jax.eval_shape(lambda *a: jnp.asarray(function(*a)), *given)
    except jax.errors.JAXTypeError as error:
        raise InputError(
            f"{name}: it asks for the value of a traced array; accepted is {wanted} written with jax.numpy, without "
            "NumPy functions or `if` on numbers"
        ) from error
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise InputError(f"{name}: accepted is {wanted} that returns numbers; it fails with {first}") from error
    if not (jnp.issubdtype(shape.dtype, jnp.floating) or jnp.issubdtype(shape.dtype, jnp.integer)):
        raise InputError(f"{name}: it returns {shape.dtype}; accepted are real numbers")
    return tuple(shape.shape)


def result_size(name: str, function: Callable[..., Any], x: Real, params: Any, with_params: bool) -> int:
    """How many numbers `function` returns for the vector x."""
    given = (x, params) if with_params else (x,)
    wanted = f"a function of a vector of {x.shape[0]} variables" + (" and params" if with_params else "")
    return math.prod(result_shape(name, function, wanted, *given))


def as_array(function: Callable[..., Any]) -> Callable[..., Real]:
    """`function`, with an array for a list or a number that it returns."""
    return lambda *given: jnp.asarray(function(*given))


def check_size(name: str, found: int, wanted: int, what: str) -> None:
    """`InputError` unless `found` numbers are the `wanted` ones."""
    if found != wanted:
        raise InputError(f"{name}: it returns {found} numbers; accepted is {what}")


def check_shape(name: str, function: Callable[..., Any], wanted: str, shape: tuple[int, ...], *given: Any) -> None:
    """`InputError` unless `function(*given)` has this shape."""
    found = result_shape(name, function, wanted, *given)
    if found != shape:
        raise InputError(f"{name}: it returns numbers of shape {found}; accepted is {wanted}, {shape} here")
