"""What was worked out from this package's own code, kept on disk for later processes; see `kept`."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from .files import PACKAGE, replacing

#: Packages whose names mean the same in the next process: their versions are part of what is looked up.
_STABLE = {"builtins", "copyreg", "dmodels", "equinox", "functools", "jax", "jaxlib", "numpy"}

T = TypeVar("T")


def kept(function: Callable[..., Any], arguments: Any, work_out: Callable[[], T]) -> T:
    """`work_out()`, or what it returned in an earlier process for the same `function` of this package and `arguments`.

    It lies where JAX keeps compiled programs (`keep_compiled`), under the contents of this package and the versions of
    those it is traced with; nothing is kept where the process has no such folder, or where a caller's own function or
    class takes part, which another process may know by the same name and another meaning.
    """
    folder = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # JAX adds its options at run time
    name = _name(function, arguments) if folder else None
    if name is None:
        return work_out()
    path = Path(folder) / "dmodels" / name
    try:
        found: T = pickle.loads(path.read_bytes())
        return found
    except Exception:  # not there, or cut short, of which pickle raises anything: it is made anew
        found = work_out()
    try:
        content = pickle.dumps(found)
        with replacing(path) as draft:
            draft.write_bytes(content)
    except (OSError, pickle.PicklingError, TypeError, AttributeError):  # the next process works it out again
        pass
    return found


def _name(function: Callable[..., Any], arguments: Any) -> str | None:
    """Digest of all that decides the result; None where part of it is a caller's."""
    if not function.__module__.startswith("dmodels.") or "<locals>" in function.__qualname__:
        return None
    told = content((function.__module__, function.__qualname__, arguments))
    return None if told is None else hashlib.blake2b(told + _surroundings(), digest_size=20).hexdigest()


def content(value: Any) -> bytes | None:
    """`value` as bytes that are the same for all that are equal, in every process; None where part of it is a caller's
    function or class, or has no content that can be told."""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.fast = True  # equal values look alike, whether or not they share objects
    try:
        pickler.dump(value)
    except Exception:  # whatever a caller's object raises when asked for its content
        return None
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    """Refuses what is not of `_STABLE`, and functions within functions."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) or callable(value):
            module = getattr(value, "__module__", None) or type(value).__module__
            if str(module).partition(".")[0] not in _STABLE:
                raise pickle.PicklingError(f"{value!r} is not of this package")
        return NotImplemented


@cache
def _surroundings() -> bytes:
    """Of this package's contents and of the libraries' versions."""
    digest = hashlib.blake2b(repr((sys.version, jax.__version__, np.__version__)).encode())
    for folder, _, names in sorted(os.walk(PACKAGE)):
        for name in sorted(names) if not folder.endswith("__pycache__") else ():
            path = Path(folder, name)
            about = path.stat()  # of tables, which are large
            content = path.read_bytes() if name.endswith(".py") else repr((about.st_size, about.st_mtime_ns)).encode()
            digest.update(name.encode() + b"\0" + content)
    return digest.digest()
