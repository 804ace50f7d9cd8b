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
from .errors import TooLong
from .recipes import Recipe, Step, Stranger, on_host, recipe

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


def carry_out(program: ClosedJaxpr | Recipe, values: Sequence[Any], limit_s: float = math.inf) -> list[np.ndarray]:
    """The results of `program` for `values`; raises `TooLong` after `limit_s` of the thread's own time.

    >>> import jax
    >>> float(carry_out(jax.make_jaxpr(lambda x: x * x + 1.0)(3.0), [3.0])[0])
    10.0
    """
    steps = program if isinstance(program, Recipe) else recipe(program)
    given = [np.asarray(v, kind) for v, kind in zip(values, steps.input_types, strict=True)]
    with np.errstate(all="ignore"):
        results = _run(steps, given, thread_time() + limit_s)
    return [np.array(v, kind) for v, kind in zip(results, steps.output_types, strict=True)]  # none is a constant's own


class _Ready(NamedTuple):
    """A step with its rule."""

    rule: Rule
    is_control: bool  # is told until when
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_single: bool


_ready: WeakKeyDictionary[Recipe, list[_Ready]] = WeakKeyDictionary()


def _with_rule(step: Step) -> _Ready:
    name, params, inputs, outputs = step
    if name in ELEMENTWISE:
        return _Ready(ELEMENTWISE[name], False, inputs, outputs, True)
    if name in RULES:
        return _Ready(partial(RULES[name], params), False, inputs, outputs, True)
    if name in SEVERAL:
        return _Ready(partial(SEVERAL[name], params), False, inputs, outputs, False)
    if name in CONTROL:
        return _Ready(partial(CONTROL[name], params), True, inputs, outputs, False)
    return _Ready(partial(_by_jax, params["stranger"]), False, inputs, outputs, False)


def _by_jax(stranger: Stranger, *operands: Any) -> list[Any]:
    found = stranger.primitive.bind(*operands, **stranger.params)
    return [*map(on_host, found if stranger.primitive.multiple_results else [found])]


def _run(steps: Recipe, values: Sequence[Any], until_s: float) -> list[Any]:
    if thread_time() > until_s:
        raise TooLong
    ready = _ready.get(steps)
    if ready is None:
        ready = _ready[steps] = [*map(_with_rule, steps.steps)]
    known = steps.known.copy()
    for place, value in zip(steps.inputs, values, strict=True):
        known[place] = value
    at = known.__getitem__
    for rule, is_control, inputs, outputs, is_single in ready:
        found = rule(until_s, *map(at, inputs)) if is_control else rule(*map(at, inputs))
        if is_single:
            known[outputs[0]] = found
        else:
            for place, value in zip(outputs, found, strict=True):
                known[place] = value
    return [known[place] for place in steps.outputs]


def _while(params: Any, until_s: float, *operands: Any) -> list[Any]:
    first, second = params["for_test"], params["for_test"] + params["for_body"]
    for_test, for_body, state = list(operands[:first]), list(operands[first:second]), list(operands[second:])
    test, body = params["test"], params["body"]
    while np.any(running := _run(test, for_test + state, until_s)[0]):
        moved = _run(body, for_body + state, until_s)
        if running.ndim:  # of a batch: those that have come to their end stay where they are
            moved = [np.where(_as_tall(running, new), new, old) for new, old in zip(moved, state, strict=True)]
        state = moved
    return state


def _as_tall(leading: Any, array: Any) -> Any:
    """`leading` with axes of length 1 behind its own, as many as `array` has more."""
    return leading.reshape(leading.shape + (1,) * (array.ndim - leading.ndim))


def _scan(params: Any, until_s: float, *operands: Any) -> list[Any]:
    body, length, first = params["body"], params["length"], params["held"] + params["carried"]
    consts, state, along = operands[: params["held"]], [*operands[params["held"] : first]], operands[first:]
    carried, rows = len(state), []
    order = reversed(range(length)) if params["reverse"] else range(length)
    for k in order:
        out = _run(body, [*consts, *state, *(each[k] for each in along)], until_s)
        state = out[:carried]
        rows.append(out[carried:])
    if params["reverse"]:
        rows.reverse()
    if not rows:
        shapes = params["rows"]
        return [*state, *(np.zeros((0, *shape), kind) for shape, kind in shapes)]
    return [*state, *(np.stack(column) for column in zip(*rows, strict=True))]


def _cond(params: Any, until_s: float, which: Any, *operands: Any) -> list[Any]:
    branches = params["branches"]
    return _run(branches[min(max(int(which), 0), len(branches) - 1)], operands, until_s)


def _linear_solve(params: Any, until_s: float, *operands: Any) -> list[Any]:
    first, last, all_of_them = params["consts"]
    return _run(params["solve"], [*operands[first:last], *operands[all_of_them:]], until_s)


CONTROL: dict[str, Rule] = {
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
}
