"""Units live in names. This table joins a name's suffix to its unit, and `parse` joins text to a number.

Everything inside dmodels is in base units: seconds, bytes, bytes per second, requests per second, FLOP/s,
watts, US dollars. Text from a person ("200 Gbit/s", "80 ms") is converted once, by `parse`.
"""

from __future__ import annotations

import difflib
import math
import re

from .errors import InputError, unknown

#: Suffix of a name -> unit. Longest suffix wins. Makes axis labels, table heads and JSON keys.
SUFFIXES: dict[str, str] = {
    "_bytes_per_s_per_gpu_oneway": "B/s",
    "_bytes_per_s_oneway": "B/s",
    "_bytes_per_token": "B/token",
    "_bytes_per_s": "B/s",
    "_flop_per_token": "FLOP/token",
    "_flop_per_s": "FLOP/s",
    "_tokens_per_s": "token/s",
    "_tokens_per_s_per_gpu": "token/s/GPU",
    "_usd_per_hour": "USD/h",
    "_usd_per_year": "USD/year",
    "_usd_per_mtoken": "USD/Mtoken",
    "_j_per_token": "J/token",
    "_per_s": "1/s",
    "_rps": "req/s",
    "_ms": "ms",
    "_us": "us",
    "_s": "s",
    "_bytes": "B",
    "_tokens": "token",
    "_flop": "FLOP",
    "_frac": "1",
    "_count": "1",
    "_gpus": "GPU",
    "_instances": "instance",
    "_usd": "USD",
    "_w": "W",
    "_j": "J",
    "_hz": "Hz",
}

_BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
          "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "PiB": 2.0**50}  # fmt: skip
_BITS = {"bit": 1 / 8, "kbit": 1e3 / 8, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8, "Tbit": 1e12 / 8}

#: Base unit -> {accepted unit: factor to the base unit}.
UNITS: dict[str, dict[str, float]] = {
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    "B": _BYTES,
    "B/s": {f"{u}/s": f for u, f in (_BYTES | _BITS).items()}
    | {"kbps": 1e3 / 8, "Mbps": 1e6 / 8, "Gbps": 1e9 / 8, "Tbps": 1e12 / 8},
    "req/s": {"req/s": 1.0, "rps": 1.0, "qps": 1.0, "req/min": 1 / 60, "req/h": 1 / 3600, "req/day": 1 / 86400},
    "token": {"token": 1.0, "tokens": 1.0, "tok": 1.0, "Ktoken": 1e3, "Ktokens": 1e3, "Mtoken": 1e6, "Mtokens": 1e6},
    "token/s": {"token/s": 1.0, "tokens/s": 1.0, "tok/s": 1.0},
    "FLOP/s": {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "TFLOPS": 1e12, "PFLOPS": 1e15},
    "USD/h": {"USD/h": 1.0, "$/h": 1.0, "$/hr": 1.0, "USD/hour": 1.0, "$/hour": 1.0, "USD/year": 1 / 8760},
    "W": {"W": 1.0, "kW": 1e3, "MW": 1e6},
    "1": {"": 1.0, "%": 1e-2},
}

TFLOPS = 1e12
GIB = 2.0**30
SECONDS_PER_HOUR = 3600.0
HOURS_PER_YEAR = 8760.0

_QUANTITY = re.compile(r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*$")


class UnitError(InputError):
    """Text that is not a quantity of the unit asked for. The message is one line meant for the person who typed it."""


def parse(text: str, unit: str) -> float:
    """The number that `text` means in base unit `unit`: the one place where text becomes a quantity.

    A bare number is refused (except for the unit "1"), because it is a guess.

    >>> parse("200 Gbit/s", "B/s")
    25000000000.0
    >>> parse("80 ms", "s")
    0.08
    """
    if unit not in UNITS:
        raise unknown("unit", unit, UNITS)
    known = UNITS[unit]
    match = _QUANTITY.match(str(text))
    if not match:
        raise UnitError(f"{text!r}: not a number with a unit, like {_example(unit)!r}")
    number, suffix = float(match[1]), match[2]
    if suffix not in known:
        if not suffix:
            raise UnitError(f"{text!r}: a unit is missing, one of {_accepted(unit)}")
        raise UnitError(f"{text!r}: unit {suffix!r} is not one of {_accepted(unit, suffix)}")
    value = number * known[suffix]
    if not math.isfinite(value):
        raise UnitError(f"{text!r}: too large to be a number")
    return value


def gbit_per_s(rate: float) -> float:
    """Bytes per second of a link of `rate` Gbit/s. gbit_per_s(200) is 25e9."""
    return rate * 1e9 / 8


def counted(count: int, noun: str) -> str:
    """So many of something.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def unit_of(name: str) -> str:
    """The unit that a name's suffix states, or "" where the name has none (symbols of a paper stay bare)."""
    fits = [s for s in SUFFIXES if name.endswith(s) or name == s[1:]]
    return SUFFIXES[max(fits, key=len)] if fits else ""


def _accepted(unit: str, typed: str = "") -> str:
    """The accepted units, those that look like what was typed first, at most six."""
    known = list(UNITS[unit])
    near = difflib.get_close_matches(typed, known, n=6, cutoff=0.4) if typed else []
    if typed and not near:
        near = [u for u in known if u[:1].lower() == typed[:1].lower()]
    return ", ".join((near or known)[:6])


def _example(unit: str) -> str:
    return {"s": "80 ms", "B": "80 GiB", "B/s": "200 Gbit/s", "req/s": "200 req/s", "1": "0.9"}.get(unit, f"1 {unit}")
