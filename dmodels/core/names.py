"""A package's public names, resolved on first use (PEP 562), so that importing the package stays light."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

#: Python 3.12 freezes a few hundred objects as it starts; whoever freezes before forking has thousands.
_OWN_FROZEN = 1000


@contextmanager
def unsearched() -> Iterator[None]:
    """Without Python's search for garbage: imports make hundreds of thousands of objects that stay, and to look through
    all of them, again and again, takes a seventh of the time that JAX and numba take to import. Afterwards they count
    as old, as after two searches: young ones would be looked through at once."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_freeze_count() < _OWN_FROZEN:  # none of the caller's, who may be about to fork
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()


def resolved(package: str, home: Mapping[str, str], name: str) -> Any:
    """What `package.name` is: defined in the module `home[name]` of the package, which is imported now."""
    if name not in home:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    with unsearched():
        found = getattr(import_module(f"{package}.{home[name]}"), name)
    setattr(sys.modules[package], name, found)
    return found
