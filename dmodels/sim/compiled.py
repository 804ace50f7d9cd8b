"""Compiled loops: sequential coupling is what arrays cannot express, so it is left to numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from numba import njit


def kernel(function: Callable) -> Callable:
    """`function` compiled on first use, and kept on disk where a cache folder can be written.

    numba refuses to compile at all when neither the folder of the source nor the user's cache folder is writable
    (a read-only container); then each process compiles anew, which costs seconds and no answer.
    """
    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # "cannot cache function ...: no locator available"
        return njit(nogil=True)(function)
    # What is kept must be dropped when any of these files changes: numba looks at the function's own file only, and
    # would go on running an old copy of a function that this one calls from another file.
    compiled._cache._cache_file._source_stamp = _stamp()
    return compiled


@cache
def _stamp() -> tuple[tuple[str, int, int], ...]:
    """Names, times and sizes of this package's files."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files)


#: For small helpers that kernels call: compiled into their callers.
inline = njit(inline="always")
