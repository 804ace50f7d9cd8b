"""The axes of a sweep as a person types them: tp=1,2,4,8 or rate=10:10000:log:64."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmodels.core.errors import InputError, unknown
from dmodels.core.precision import Precision
from dmodels.core.units import UNITS, parse, unit_of

#: Arguments whose values are names, and those that are whole numbers.
_NAMES = ("model", "gpu", "weights", "kv", "workload")
_WHOLE = ("tp", "pp", "dp", "ep", "instances")
_OTHERS = ("input_tokens", "output_tokens", "percentile", "slowdown")
#: Of one axis.
MOST_VALUES = 1_000_000
#: What a person types -> the argument that it means.
AXES = {name: name for name in (*_NAMES, *_WHOLE, *_OTHERS)} | {
    "isl": "input_tokens",
    "osl": "output_tokens",
    "rate": "rate_rps",
    "ttft": "ttft_slo_s",
    "tpot": "tpot_slo_s",
    "e2e": "e2e_slo_s",
    "price": "price_usd_per_hour",
}


def read_axes(given: list[str]) -> dict[str, list[Any]]:
    """Argument -> its values."""
    axes: dict[str, list[Any]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"--axis {text!r}: accepted is NAME=VALUES, like tp=1,2,4,8")
        if name not in AXES and name not in AXES.values():
            raise unknown("axis", name, AXES)
        argument = AXES.get(name, name)
        if argument in axes:
            raise InputError(f"--axis {name}: given twice; accepted is one axis with all its values")
        axes[argument] = _values(name, argument, values)
    return axes


def _values(name: str, argument: str, text: str) -> list[Any]:
    """The values that a person means by `1,2,4`, `10:10000:log:64` or `0.5 s:4 s:lin:8`."""
    if not text.strip():
        raise InputError(f"--axis {name}: is empty; accepted are values like 1,2,4 or 10:10000:log:64")
    if argument in _NAMES:
        return [
            part.strip().replace("as-published", Precision.AS_PUBLISHED) for part in text.split(",") if part.strip()
        ]
    if ":" in text:
        values = _range(name, argument, text)
    else:
        values = [_number(name, argument, part) for part in text.split(",") if part.strip()]
    if len(set(values)) < len(values):
        raise InputError(f"--axis {name}={text}: a value stands twice; accepted are distinct values")
    return values


def _range(name: str, argument: str, text: str) -> list[float]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 4 or parts[2] not in ("log", "lin") or not parts[3].isdigit():
        raise InputError(f"--axis {name}={text}: accepted is LOW:HIGH:log:COUNT or LOW:HIGH:lin:COUNT")
    low, high, count = _number(name, argument, parts[0]), _number(name, argument, parts[1]), int(parts[3])
    if count > MOST_VALUES:
        raise InputError(f"--axis {name}={text}: {count:,} values; accepted are up to {MOST_VALUES:,}")
    if not low < high or count < 2:
        raise InputError(f"--axis {name}={text}: accepted are LOW below HIGH and COUNT from 2")
    space = np.geomspace if parts[2] == "log" else np.linspace
    values = [float(v) for v in space(low, high, count)]
    return sorted({float(round(v)) for v in values}) if argument in _WHOLE else values


def _number(name: str, argument: str, text: str) -> float:
    unit = unit_of(argument)
    try:
        value = float(text)
    except ValueError:
        if unit not in UNITS:
            raise InputError(f"--axis {name}: {text.strip()!r} is not a number; accepted are numbers") from None
        try:
            value = parse(text, unit)
        except InputError as error:
            raise InputError(f"--axis {name}: {error}") from None
    whole = argument in _WHOLE
    if not 0 < value < float("inf") or (whole and value != int(value)) or (argument == "percentile" and value >= 1):
        kind = "whole numbers from 1" if whole else "shares below 1" if argument == "percentile" else "positive numbers"
        raise InputError(f"--axis {name}: {text.strip()} is out of range; accepted are {kind}")
    return value
