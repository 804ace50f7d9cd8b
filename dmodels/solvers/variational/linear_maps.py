"""Which functions are affine, as their operations show: a game is then solved with matrices in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from dmodels.core.records import Real

#: Operations linear in all their operands together, in each operand while the others are fixed, and in the operands
#: at these places while the others are fixed.
_TOGETHER = frozenset(
    "add add_any broadcast_in_dim concatenate copy copy_p cumsum expand_dims neg pad real reduce_sum reshape rev "
    "slice split squeeze stack sub tile transpose unstack".split()
)
_EACH = frozenset(("mul", "dot_general"))
_AT = {
    "div": (0,),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "gather": (0,),
    "scatter-add": (0, 2),
    "scatter_add": (0, 2),
    "select_n": tuple(range(1, 64)),
}
_CALLS = frozenset(("pjit", "jit"))


def affine_parts(function: Callable[[Real], Real], n: int) -> tuple[Real, Real] | None:
    """(J, f(0)) with f(x) = J x + f(0) for a function of n variables that is affine, else None.

    An answer of None proves nothing: an operation that is not in the lists above counts as bent.
    """
    zero = jnp.zeros(n)
    jaxpr = jax.make_jaxpr(function)(zero).jaxpr
    if not _affine(jaxpr, [True]):
        return None
    # a loop, as XLA would work the result of anything else out anew wherever it is read, ten times slower in batches
    values, columns = jax.lax.map(lambda along: jax.jvp(function, (zero,), (along,)), jnp.eye(n))
    return columns.T, values[0]


def _affine(jaxpr: Any, varies: list[bool]) -> list[bool] | None:
    """Which outputs depend on the inputs that vary; None where some output is not shown to be affine in these."""
    used: list[bool]
    jaxpr, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    varies = [mark for mark, is_used in zip(varies, used, strict=True) if is_used]
    marked = {v for v, mark in zip(jaxpr.invars, varies, strict=True) if mark}
    is_marked: Callable[[Any], bool] = lambda v: not hasattr(v, "val") and v in marked
    for eqn in jaxpr.eqns:
        inputs = [is_marked(v) for v in eqn.invars]
        if not any(inputs):
            continue
        name, places = eqn.primitive.name, [i for i, mark in enumerate(inputs) if mark]
        if name in _CALLS:
            outputs = _affine(eqn.params["jaxpr"].jaxpr, inputs)
            if outputs is None:
                return None
        else:
            floating = all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in (*eqn.outvars, eqn.invars[places[0]]))
            linear = name in _TOGETHER or (name in _EACH and len(places) == 1)
            linear |= name == "convert_element_type" or set(places) <= set(_AT.get(name, ()))
            linear |= name == "integer_pow" and eqn.params["y"] == 1
            if not (linear and floating):
                return None
            outputs = [True] * len(eqn.outvars)
        marked |= {v for v, mark in zip(eqn.outvars, outputs, strict=True) if mark}
    return [is_marked(v) for v in jaxpr.outvars]
