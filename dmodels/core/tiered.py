"""Kernels that start interpreted: a first small call is answered by Python, before seconds of compiling.

Compiling a solver's loops takes 5 to 30 s, more than a first user waits for 3 x 3 numbers, and the first loading of
compiled ones 0.4 s, as numba then reads all that it knows of NumPy. While a tiered kernel has no machine code in memory
and its arguments are small, its own Python source runs: the same arithmetic in the same order. When that has taken
`PATIENCE_S` of the process (`LOADING_S` where machine code is on disk) it is compiled like any other. A call that turns
out to be long is stopped (where it calls another kernel), its arrays are put back, and it runs compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache, wraps
from time import thread_time
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.registry import CPUDispatcher

from .errors import TooLong
from .threads import sharing

#: Numbers in a call's arrays up to which it may be interpreted, and the seconds that a kernel may be in a process:
#: before it is compiled, and before it is read from disk.
SMALL, PATIENCE_S, LOADING_S = 16_384, 3.0, 0.02


class _Running(threading.local):
    until_s = 0.0  # of the thread's own time


_running = _Running()


class Starting(CPUDispatcher):
    """A kernel before it is compiled; it then turns into a plain dispatcher, whose calls cost nothing more."""

    signature: tuple[Any, ...] | None = None
    left_s: float

    def __call__(self, *arguments: Any) -> Any:
        arrays = list(_arrays(arguments))
        # a part of a loop shared by threads cannot be put back: the other parts write to the same arrays
        large = sharing.active or sum(array.size for array in arrays) > SMALL
        left_s = self.left_s - (PATIENCE_S - LOADING_S if _is_kept(self) else 0.0)
        if large or self.overloads or left_s <= 0.0:
            return compiled(self)(*arguments)
        before = [(array, array.copy()) for array in arrays if array.flags.writeable]
        begin = thread_time()
        outer_s, _running.until_s = _running.until_s, begin + left_s
        try:
            with np.errstate(all="ignore"):
                return interpreted(self)(*arguments)
        except TooLong:
            for array, content in before:
                array[...] = content
            return compiled(self)(*arguments)
        finally:
            self.left_s -= thread_time() - begin
            _running.until_s = outer_s


def compiled(kernel: Any) -> Any:
    """The kernel as numba's own dispatcher. (No method: another thread may have turned it into one already.)"""
    signature = kernel.__dict__.get("signature")
    kernel.__class__ = CPUDispatcher
    if signature is not None and not kernel.overloads:
        kernel.compile(signature)
        kernel.disable_compile()
    return kernel


def start_interpreted(kernel: Any, signature: tuple[Any, ...] | None) -> Starting:
    """The dispatcher, in its first stage."""
    kernel.__class__ = Starting
    kernel.signature, kernel.left_s = signature, PATIENCE_S
    return kernel  # type: ignore[no-any-return]


@cache
def interpreted(kernel: Any) -> Callable[..., Any]:
    """The Python function behind a kernel, and behind every kernel that it calls."""
    if isinstance(kernel, _Intrinsic):
        return kernel.interpreted  # type: ignore[attr-defined, no-any-return]
    function = kernel.py_func
    known = function.__globals__
    used = {name: known[name] for name in _names(function.__code__) if name in known}
    scope: dict[str, Any] = {"__builtins__": __builtins__}
    of_its_own = FunctionType(function.__code__, scope, function.__name__)

    @wraps(function)
    def timed(*arguments: Any) -> Any:
        if thread_time() > _running.until_s:
            raise TooLong
        return of_its_own(*arguments)

    scope |= {name: _Callee(value) if _is_kernel(value) else value for name, value in used.items()}
    return timed


class _Callee:
    """A kernel called by an interpreted one, interpreted when it is first called."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __call__(self, *arguments: Any) -> Any:
        return interpreted(self.kernel)(*arguments)


def _is_kernel(value: Any) -> bool:
    return isinstance(value, Dispatcher | _Intrinsic)


def _names(code: CodeType) -> set[str]:
    """The names that a function looks up, those of its inner functions too."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _arrays(values: Any) -> Iterator[np.ndarray]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, tuple):
            yield from _arrays(value)


@cache
def _is_kept(kernel: Any) -> bool:
    """Whether machine code of the kernel, for any types, is on disk: looked up once, not at every small call."""
    file = getattr(kernel._cache, "_cache_file", None)
    return file is not None and bool(file._load_index())
