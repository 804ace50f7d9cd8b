"""Callers' functions by their operations: equal ones share what was worked out for them, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from dmodels.core.kept import content
from dmodels.core.programs import SMALL
from dmodels.core.recipes import recipe
from dmodels.core.records import Real, traced

from .functions import as_array


class Formula:
    """A function of arrays, equal to every other one with the same operations and numbers, in this process and others.

    A program that tells functions apart by identity is made anew for each `lambda`, though it be the same formula.
    """

    def __init__(self, program: ClosedJaxpr, told: bytes) -> None:
        self.function, self.told = jaxpr_as_fun(program), told

    def __call__(self, *given: Any) -> Real:
        return self.function(*jax.tree.leaves(given))[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self.told == other.told

    def __hash__(self) -> int:
        return hash(self.told)

    def __reduce__(self) -> tuple[Any, ...]:
        return Formula, (self.told,)  # to be told from others; it is not read again


def formula(function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    """`function` as a `Formula` of arguments like `given`; as it is where its operations do not tell all of it: where
    it has derivatives of its own, prints or calls Python, closes over traced values or over much data, or where a
    caller's class takes part."""
    program = jax.make_jaxpr(as_array(function))(*given)
    known = program.consts
    if (
        program.effects
        or traced(known)
        or sum(getattr(c, "size", 1) for c in known) > SMALL
        or _has_own_derivatives(program.jaxpr)
    ):
        return function
    told = content((recipe(program), jax.tree.structure(given), [str(aval) for aval in program.in_avals]))
    return function if told is None else Formula(program, told)


def _has_own_derivatives(jaxpr: Any) -> bool:
    """Whether a function in it has derivatives of its own."""
    return any(
        eqn.primitive.name.startswith("custom_")
        or any(_has_own_derivatives(part) for value in eqn.params.values() for part in _programs(value))
        for eqn in jaxpr.eqns
    )


def _programs(value: Any) -> list[Any]:
    parts = value if isinstance(value, list | tuple) else [value]
    return [getattr(part, "jaxpr", part) for part in parts if hasattr(part, "eqns") or hasattr(part, "jaxpr")]
