"""A JAX program as a list of operations by their names: plain data, which `interpreted` carries out and files can hold.

Calls are written out in place. What depends on no argument is computed here, once; an operation that was done before on
the same values, one that changes nothing and one that nothing needs are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .array_rules import ELEMENTWISE, RULES, SEVERAL

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

#: Operations that are other programs, written out in place; that give what they are given; numbers that are computed
#: beforehand, at most, of one array.
CALLS, SAME, MOST = ("jit", "custom_jvp_call", "custom_vjp_call"), ("stop_gradient", "copy"), 4096

Params = Mapping[str, Any]


class Step(NamedTuple):
    """One operation: its inputs and outputs are places in the list of what is known."""

    name: str
    params: Params
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(eq=False)
class Recipe:
    """Steps over one list of values, in which constants have their places."""

    known: list[Any]
    inputs: list[int]
    steps: list[Step]
    outputs: list[int]
    input_types: list[Any]
    output_types: list[Any]


class Stranger:
    """An operation that has no rule: JAX's own. It cannot be kept in a file."""

    def __init__(self, primitive: Any, params: Params) -> None:
        self.primitive, self.params = primitive, params

    def __reduce__(self) -> Any:
        raise PicklingError(f"{self.primitive.name} has no rule")


def recipe(program: ClosedJaxpr) -> Recipe:
    """The steps of a traced program."""
    writer = _Writer()
    inputs = [writer.place(None) for _ in program.jaxpr.invars]
    outputs = writer.write(program.jaxpr, program.consts, inputs)
    ends: list[Any] = [program.in_avals, program.out_avals]
    types = [[v.dtype for v in avals] for avals in ends]
    return Recipe(writer.known, inputs, _needed(writer.steps, outputs), outputs, *types)


def _needed(steps: list[Step], outputs: Sequence[int]) -> list[Step]:
    """Without the steps that no output depends on; those that return nothing are there for what they do."""
    wanted, kept = set(outputs), []
    for step in reversed(steps):
        if not step.outputs or wanted.intersection(step.outputs):
            wanted.update(step.inputs)
            kept.append(step)
    return kept[::-1]


class _Writer:
    """A recipe while it is written."""

    def __init__(self) -> None:
        self.known: list[Any] = []
        self.steps: list[Step] = []
        self.constants: dict[Any, int] = {}
        self.done: dict[Any, Sequence[int]] = {}

    def place(self, value: Any) -> int:
        self.known.append(value)
        return len(self.known) - 1

    def constant(self, value: Any) -> int:
        value = on_host(value)
        if not isinstance(value, np.ndarray | np.generic) or value.size > MOST:
            return self.place(value)
        key = value.tobytes(), value.dtype, value.shape
        if key not in self.constants:
            self.constants[key] = self.place(value)
        return self.constants[key]

    def write(self, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[int]) -> list[int]:
        """The places of the results of `jaxpr`."""
        places: dict[Any, int] = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        places.update(zip(jaxpr.invars, inputs, strict=True))

        def at(v: Any) -> int:
            return self.constant(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else places[v]

        for eqn in jaxpr.eqns:
            places.update(zip(eqn.outvars, self.operation(eqn, tuple(map(at, eqn.invars))), strict=True))
        return [*map(at, jaxpr.outvars)]

    def operation(self, eqn: JaxprEqn, inputs: tuple[int, ...]) -> Sequence[int]:
        name, params, values = eqn.primitive.name, eqn.params, [self.known[place] for place in inputs]
        if name in CALLS:
            inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
            body, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
            return self.write(body, consts, inputs)
        if name == "platform_index":  # what `platform_dependent` asks; NumPy is on the host
            return [self.constant(np.int32(_of_host(params["platforms"])))]
        if name == "cond" and values[0] is not None:
            taken = params["branches"][min(max(int(values[0]), 0), len(params["branches"]) - 1)]
            return self.write(taken.jaxpr, taken.consts, inputs[1:])
        kinds: list[Any] = [v.aval for v in (*eqn.invars[:1], *eqn.outvars)]
        if name in SAME or (name == "convert_element_type" and kinds[0].dtype == params["new_dtype"]):
            return inputs
        if name in ELEMENTWISE or name in RULES or name in SEVERAL:
            needed = {} if name in ELEMENTWISE else params
            plain: Params = {key: value for key, value in needed.items() if _is_plain(value)}
            if all(value is not None for value in values) and all(kind.size <= MOST for kind in kinds):
                return [*map(self.constant, _result(name, plain, values))]
        else:
            plain = _LOOPS[name](params, values) if name in _LOOPS else {"stranger": Stranger(eqn.primitive, params)}
        return self.step(name, plain, inputs, len(eqn.outvars))

    def step(self, name: str, params: Params, inputs: tuple[int, ...], results: int) -> Sequence[int]:
        key: Any = name, tuple(params.items()), inputs
        try:
            if key in self.done:
                return self.done[key]
        except TypeError:  # parameters that have no hash
            key = object()
        outputs = tuple(self.place(None) for _ in range(results))
        self.steps.append(Step(name, params, inputs, outputs))
        self.done[key] = outputs
        return outputs


def _of_host(platforms: Sequence[Sequence[str] | None]) -> int:
    """The first choice that names the CPU, or any platform."""
    return next(k for k, names in enumerate(platforms) if names is None or "cpu" in names)


def _result(name: str, params: Params, values: Sequence[Any]) -> Sequence[Any]:
    with np.errstate(all="ignore"):
        if name in SEVERAL:
            return [*SEVERAL[name](params, *values)]
        return [ELEMENTWISE[name](*values) if name in ELEMENTWISE else RULES[name](params, *values)]


def _is_plain(value: Any) -> bool:
    """Data alone: no function, no device."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | np.dtype | np.generic | Enum | type)


def _scan(params: Params, values: Sequence[Any]) -> Params:
    if "ft_in" in params:  # since JAX 0.12
        held, carried, _ = (len(list(part)) for part in params["ft_in"].update(values).unpack())
    else:
        held, carried = params["num_consts"], params["num_carry"]
    plain = {"length": params["length"], "reverse": params["reverse"], "held": held, "carried": carried}
    rows = [(v.shape, v.dtype) for v in params["jaxpr"].out_avals[carried:]]
    return plain | {"body": recipe(params["jaxpr"]), "rows": rows}


def _while(params: Params, _: Any) -> Params:
    plain = {"for_test": params["cond_nconsts"], "for_body": params["body_nconsts"]}
    return plain | {"test": recipe(params["cond_jaxpr"]), "body": recipe(params["body_jaxpr"])}


def _linear_solve(params: Params, _: Any) -> Params:
    """The solver that came with the system; its transpose is for derivatives, which are operations of their own."""
    counts = params["const_lengths"]
    before = counts.matvec + counts.vecmat
    return {"consts": (before, before + counts.solve, sum(counts)), "solve": recipe(params["jaxprs"].solve)}


#: Operations that hold other programs -> their parameters as data.
_LOOPS: dict[str, Callable[[Params, Sequence[Any]], Params]] = {
    "while": _while,
    "scan": _scan,
    "cond": lambda params, _: {"branches": [*map(recipe, params["branches"])]},
    "custom_linear_solve": _linear_solve,
}


def on_host(value: Any) -> Any:
    """An array of NumPy; keys of random numbers stay JAX's."""
    return value if str(value.dtype).startswith("key<") else np.asarray(value)
