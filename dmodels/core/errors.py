"""Mistakes of the person at the keyboard: one line that names the field, its value, and what is accepted."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Real
from typing import Any


class InputError(ValueError):
    """Bad input. The message is one line for the person who typed it; the command line shows it and exits with 2."""


class InputWarning(UserWarning):
    """Input that is read, though perhaps not as it was meant. One line; the command line shows it and goes on."""


class ConfigError(InputError):
    """A model's config.json that cannot be read as a model."""


class TraceError(InputError):
    """A traffic trace or request log that cannot be read."""


class TooLong(Exception):
    """An interpreted kernel or program has not come to its end in the time that it was given: compile it."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that is not in a list, with the nearest names that are.

    >>> str(unknown("GPU", "h1000", ["h100_sxm", "h200_sxm"]))
    "GPU 'h1000' is unknown; the nearest are h100_sxm, h200_sxm"
    """
    known = list(known)
    text = str(name).lower()
    holding = [one for one in known if len(text) > 2 and text in one.lower()]
    near = holding[:4] or difflib.get_close_matches(text, known, n=4, cutoff=0.4)
    told = f"the nearest are {', '.join(near)}" if near else f"known are {', '.join(sorted(known)[:12])}"
    return InputError(f"{kind} {name!r:.80} is unknown; {told}{', ...' if not near and len(known) > 12 else ''}")


def check_number(name: str, value: Any, least: float, most: float, accepted: str, whole: bool = False) -> None:
    """Refuse by name what is no number from `least` to `most`.

    >>> check_number("spare", "2", 0, 1000, "whole numbers from 0 to 1000", whole=True)
    Traceback (most recent call last):
    dmodels.core.errors.InputError: spare = '2': accepted are whole numbers from 0 to 1000
    """
    real = isinstance(value, Real)
    if not (real and least <= value <= most and (not whole or float(value).is_integer())):
        raise InputError(f"{name} = {f'{float(value):g}' if real else f'{value!r:.80}'}: accepted are {accepted}")


#: Longest computation that is begun, seconds by a rough estimate. What is shorter can be watched and interrupted.
MOST_S = 600.0


def check_work(asked: str, work_s: float, fits: str) -> None:
    """Refuse, before it begins, what would run for much longer than anybody waits; `fits` is what would not.

    >>> check_work("workers = 1,000,000", 7200.0, "workers = 80,000")
    Traceback (most recent call last):
    dmodels.core.errors.InputError: workers = 1,000,000: would take about 120 min; accepted is up to 10 min, like \
workers = 80,000
    """
    if not work_s <= MOST_S:
        takes = f"{work_s / 60:,.0f} min" if work_s < 36_000 else f"{work_s / 3600:,.0f} h" if work_s < 1e9 else "years"
        raise InputError(f"{asked}: would take about {takes}; accepted is up to {MOST_S / 60:.0f} min, like {fits}")
