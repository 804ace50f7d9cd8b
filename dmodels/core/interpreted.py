"""JAX programs carried out by NumPy, operation by operation: nothing is compiled.

What `jax.jit` would compile is a list of operations (a jaxpr). Compiling a solver's list takes 2 to 20 s; carrying it
out once on a few numbers takes milliseconds. An operation without a rule here is left to JAX, which compiles it alone.
The results are those of the compiled program to within rounding (NumPy's sums and functions are not XLA's).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from .array_rules import ELEMENTWISE, RULES, SEVERAL, Rule

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr


class TooLong(Exception):
    """The program has not come to its end in the time that it was given."""


def carry_out(program: ClosedJaxpr, values: Sequence[Any], limit_s: float = math.inf) -> list[np.ndarray]:
    """The results of `program` for `values`; raises `TooLong` after `limit_s` of the thread's own time.

    >>> import jax
    >>> float(carry_out(jax.make_jaxpr(lambda x: x * x + 1.0)(3.0), [3.0])[0])
    10.0
    """
    given = [np.asarray(v, aval.dtype) for v, aval in zip(values, program.in_avals, strict=True)]
    with np.errstate(all="ignore"):
        results = _run(program.jaxpr, program.consts, given, thread_time() + limit_s)
    return [np.asarray(v, aval.dtype) for v, aval in zip(results, program.out_avals, strict=True)]


class _Step(NamedTuple):
    """One operation: its inputs and outputs are places in the list of what is known."""

    rule: Rule
    is_control: bool  # is told until when
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_single: bool


class _Plan(NamedTuple):
    """A jaxpr as steps over one list of values."""

    known: list[Any]  # literals in their places
    consts: list[int]
    inputs: list[int]
    steps: list[_Step]
    outputs: list[int]


_plans: WeakKeyDictionary[Jaxpr, _Plan] = WeakKeyDictionary()


def _plan(jaxpr: Jaxpr) -> _Plan:
    known: list[Any] = []
    places: dict[Any, int] = {}

    def place(v: Any) -> int:
        if hasattr(v, "val"):
            known.append(np.asarray(v.val, v.aval.dtype))
            return len(known) - 1
        if v not in places:
            places[v] = len(known)
            known.append(None)
        return places[v]

    consts, inputs = [place(v) for v in jaxpr.constvars], [place(v) for v in jaxpr.invars]
    steps = []
    for eqn in jaxpr.eqns:
        name, params = eqn.primitive.name, eqn.params
        inward, outward = tuple(map(place, eqn.invars)), tuple(map(place, eqn.outvars))
        if name in ELEMENTWISE:
            rule = ELEMENTWISE[name]
        elif name in RULES:
            rule = partial(RULES[name], params)
        elif name in SEVERAL or name in CONTROL:
            rule = partial((SEVERAL | CONTROL)[name], params)
        else:
            rule = partial(_by_jax, eqn.primitive, params)
        single = name in ELEMENTWISE or name in RULES
        steps.append(_Step(rule, name in CONTROL, inward, outward, single))
    return _Plan(known, consts, inputs, steps, [place(v) for v in jaxpr.outvars])


def _by_jax(primitive: Any, params: Any, *operands: Any) -> list[Any]:
    found = primitive.bind(*operands, **params)
    return [*map(_on_host, found if primitive.multiple_results else [found])]


def _run(jaxpr: Jaxpr, consts: Sequence[Any], values: Sequence[Any], until_s: float) -> list[Any]:
    if thread_time() > until_s:
        raise TooLong
    plan = _plans.get(jaxpr)
    if plan is None:
        plan = _plans[jaxpr] = _plan(jaxpr)
    known = plan.known.copy()
    for place, value in zip(plan.consts, consts, strict=True):
        known[place] = _on_host(value)
    for place, value in zip(plan.inputs, values, strict=True):
        known[place] = value
    for rule, is_control, inputs, outputs, is_single in plan.steps:
        operands = [known[place] for place in inputs]
        found = rule(until_s, *operands) if is_control else rule(*operands)
        if is_single:
            known[outputs[0]] = found
        else:
            for place, value in zip(outputs, found, strict=True):
                known[place] = value
    return [known[place] for place in plan.outputs]


def _on_host(value: Any) -> Any:
    """An array of NumPy; keys of random numbers stay JAX's."""
    return value if str(value.dtype).startswith("key<") else np.asarray(value)


def _call(params: Any, until_s: float, *operands: Any) -> list[Any]:
    inner = next(params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in params)
    body, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
    return _run(body, consts, operands, until_s)


def _while(params: Any, until_s: float, *operands: Any) -> list[Any]:
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    for_test, for_body, state = list(operands[:first]), list(operands[first:second]), list(operands[second:])
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    while np.any(running := _run(test.jaxpr, test.consts, for_test + state, until_s)[0]):
        moved = _run(body.jaxpr, body.consts, for_body + state, until_s)
        if running.ndim:  # of a batch: those that have come to their end stay where they are
            moved = [np.where(_as_tall(running, new), new, old) for new, old in zip(moved, state, strict=True)]
        state = moved
    return state


def _as_tall(leading: Any, array: Any) -> Any:
    """`leading` with axes of length 1 behind its own, as many as `array` has more."""
    return leading.reshape(leading.shape + (1,) * (array.ndim - leading.ndim))


def _scan(params: Any, until_s: float, *operands: Any) -> list[Any]:
    body, length = params["jaxpr"], params["length"]
    if "ft_in" in params:  # since JAX 0.12
        consts, state, along = map(list, params["ft_in"].update(operands).unpack())
    else:
        held, first = params["num_consts"], params["num_consts"] + params["num_carry"]
        consts, state, along = list(operands[:held]), list(operands[held:first]), list(operands[first:])
    carried, rows = len(state), []
    order = reversed(range(length)) if params["reverse"] else range(length)
    for k in order:
        out = _run(body.jaxpr, body.consts, [*consts, *state, *(each[k] for each in along)], until_s)
        state = out[:carried]
        rows.append(out[carried:])
    if params["reverse"]:
        rows.reverse()
    if not rows:
        return state + [np.zeros((0, *aval.shape), aval.dtype) for aval in body.out_avals[carried:]]
    return state + [np.stack(column) for column in zip(*rows, strict=True)]


def _cond(params: Any, until_s: float, which: Any, *operands: Any) -> list[Any]:
    branches = params["branches"]
    branch = branches[min(max(int(which), 0), len(branches) - 1)]
    return _run(branch.jaxpr, branch.consts, operands, until_s)


def _linear_solve(params: Any, until_s: float, *operands: Any) -> list[Any]:
    """The solver that came with the system; its transpose is for derivatives, which are operations of their own."""
    counts, solve = params["const_lengths"], params["jaxprs"].solve
    consts = operands[counts.matvec + counts.vecmat :][: counts.solve]
    return _run(solve.jaxpr, solve.consts, [*consts, *operands[sum(counts) :]], until_s)


CONTROL: dict[str, Rule] = {
    "jit": _call,
    "custom_jvp_call": _call,
    "custom_vjp_call": _call,
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
}
