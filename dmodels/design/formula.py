"""A formula called by name: arguments checked and put into its records, results made flat, named and flagged."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from dmodels.core.errors import InputError, unknown
from dmodels.core.flags import WARNINGS, Flag


def check_names(bare: str, function: Callable, varied: list[str], constant: list[str]) -> None:
    """Misspelt, doubled and missing arguments fail at once, each with the names that are accepted."""
    parameters = inspect.signature(function).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    known = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    names = [*varied, *constant]
    for name in names:
        root = name.partition(".")[0]
        if root not in known and not anything:
            raise InputError(f"{bare} has no argument {[name]}; {unknown('argument', name, known)}")
        if names.count(name) > 1:
            raise InputError(f"argument {name!r} is given twice; accepted is one axis or one value")
    missing = [n for n in known if parameters[n].default is inspect.Parameter.empty and n not in names]
    if missing:
        raise InputError(f"{bare} lacks {missing}; accepted are axes or values for {', '.join(known)}")
    for name in names:
        if "." in name and name.partition(".")[0] not in names:
            raise InputError(f"axis {name!r}: {name.partition('.')[0]!r} is not given; accepted is a record for it")


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """`{"gpu": record, "gpu.tdp_w": 700}` with the dotted values put into the records."""
    whole = {name: value for name, value in values.items() if "." not in name}
    for name, value in values.items():
        if "." in name:
            record, _, field = name.partition(".")
            whole[record] = _replaced(whole[record], field, value)
    return whole


def named(result: Any, bare: str) -> dict[str, Any]:
    """A formula's result as a flat mapping; names of nested fields are joined by `_`, a solution's `value` is dropped.

    >>> named({"value": {"cost": 1.0}, "steps": 3}, "f")
    {'cost': 1.0, 'steps': 3}
    """
    if hasattr(result, "_asdict"):
        result = result._asdict()
    elif dataclasses.is_dataclass(result):
        result = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    if not isinstance(result, Mapping):
        if isinstance(result, tuple | list):
            result = {f"{bare}_{i}".lstrip("_"): part for i, part in enumerate(result)}
        else:
            return {bare: result}
    flat: dict[str, Any] = {}
    for name, value in result.items():
        for inner, leaf in named(value, "").items():
            full = str(name) if not inner else inner if name == "value" else f"{name}_{inner}"
            if full in flat:
                raise InputError(f"the formula returns {full!r} twice; accepted are distinct names")
            flat[full if full != "value" else bare or "value"] = leaf
    return flat


def flagged(outputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs with `flags`: no value that is not finite goes unflagged."""
    outputs = {name: jnp.asarray(value) for name, value in outputs.items() if value is not None}
    flags = outputs.pop("flags", jnp.int32(0)).astype(jnp.int32)
    bad = jnp.zeros((), bool)
    for value in outputs.values():
        if jnp.issubdtype(value.dtype, jnp.floating):
            bad = bad | ~jnp.all(jnp.isfinite(value))
    unsaid = (flags & ~jnp.int32(int(WARNINGS))) == 0
    flags = flags | jnp.where(unsaid & bad, jnp.int32(int(Flag.NONFINITE)), jnp.int32(0))
    return {**outputs, "flags": flags}


def kept(outputs: dict[str, Any], asked: tuple[str, ...] | None) -> dict[str, Any]:
    """Those outputs that are asked for (None: all), and the flags."""
    if asked is None:
        return outputs
    for name in asked:
        if name not in outputs:
            raise unknown("output", name, outputs)
    return {name: outputs[name] for name in dict.fromkeys((*asked, "flags"))}


def _replaced(record, field: str, value):
    head, _, rest = field.partition(".")
    return dataclasses.replace(record, **{head: _replaced(getattr(record, head), rest, value) if rest else value})
