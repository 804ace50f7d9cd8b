"""Mistakes of the person at the keyboard: one line that names the field, its value, and what is accepted."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input. The message is one line for the person who typed it; the command line shows it and exits with 2."""


class ConfigError(InputError):
    """A model's config.json that cannot be read as a model."""


class TraceError(InputError):
    """A traffic trace or request log that cannot be read."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that is not in a list, with the nearest names that are.

    >>> str(unknown("GPU", "h1000", ["h100_sxm", "h200_sxm"]))
    "GPU 'h1000' is unknown; the nearest are h100_sxm, h200_sxm"
    """
    known = list(known)
    near = difflib.get_close_matches(name.lower(), known, n=4, cutoff=0.3) or sorted(known)[:4]
    return InputError(f"{kind} {name!r} is unknown; the nearest are {', '.join(near)}")
