"""The simulators' compiled loops as the Python that they are written in."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import dmodels.sim
from dmodels.sim.fleet import state, tokens

for found in pkgutil.walk_packages(dmodels.sim.__path__, "dmodels.sim."):
    importlib.import_module(found.name)

#: What of a fleet depends on its law is chosen by type when it is compiled.
BY_LAW = ("next_end", "move_on", "to_boundary")


class Record(np.record):
    """Fields by name, whatever else has that name (`pool.size`)."""

    def __getattribute__(self, name: str) -> Any:
        if name in np.void.__getattribute__(self, "dtype").fields:
            return self[name]
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def _records(value: Any) -> Any:
    """Arrays of records whose fields are attributes, as in compiled code."""
    if isinstance(value, np.ndarray) and value.dtype.names:
        return value.view(np.dtype((Record, value.dtype)))
    if isinstance(value, tuple):
        parts = map(_records, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


class _AsPython:
    """A compiled loop's own source."""

    running = False

    def __init__(self, kernel: Dispatcher) -> None:
        self.py_func = kernel.py_func

    def __call__(self, *given: Any, **named: Any) -> Any:
        if _AsPython.running:
            return self.py_func(*given, **named)
        _AsPython.running = True
        try:
            with np.errstate(all="ignore"):
                return self.py_func(*map(_records, given), **named)
        finally:
            _AsPython.running = False


@contextmanager
def as_python() -> Iterator[None]:
    """Nothing is compiled, and what has been is not run: in every module, for loops call each other by their module,
    too, which `core.tiered.interpreted` does not follow."""
    with pytest.MonkeyPatch.context() as patch:
        sources: dict[int, _AsPython] = {}
        modules = [module for name, module in sys.modules.items() if name.startswith(("dmodels.", "tests.sim."))]
        for module, name, value in [(m, *item) for m in modules for item in vars(m).items()]:
            if isinstance(value, Dispatcher):
                patch.setattr(module, name, sources.setdefault(id(value), _AsPython(value)))
        for name in BY_LAW:
            one, other = getattr(tokens, name).py_func, getattr(state, f"_{name}")
            patch.setattr(state, name, _by_law(one, other))
        yield


def _by_law(by_tokens: Any, by_count: Any) -> Any:
    return lambda f, *given: (by_tokens if isinstance(f, tokens.TokenFleet) else by_count)(f, *given)
