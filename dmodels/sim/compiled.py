"""Compiled loops: sequential coupling is what arrays cannot express, so it is left to numba."""

from __future__ import annotations

from collections.abc import Callable

from numba import njit


def kernel(function: Callable) -> Callable:
    """`function` compiled on first use, and kept on disk where a cache folder can be written.

    numba refuses to compile at all when neither the folder of the source nor the user's cache folder is writable
    (a read-only container); then each process compiles anew, which costs seconds and no answer.
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # "cannot cache function ...: no locator available"
        return njit(nogil=True)(function)


#: For small helpers that kernels call: compiled into their callers.
inline = njit(inline="always")
