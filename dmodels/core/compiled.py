"""Machine code: the one decorator for compiled loops, with a cache that notices a change in any file behind them.

Sequential coupling is what arrays cannot express, so it is left to numba. numba keeps compiled functions on disk under
the date of their own file alone: a caller would go on running an old copy of a function that it calls from another
file. Here the stamp of what is kept covers the contents of every file of the package that a kernel can reach through
its imports, and nothing else: an edit elsewhere recompiles nothing.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, overload

from numba import config, njit, types
from numba.core.caching import IndexDataCacheFile

from .files import PACKAGE
from .parts import Entry, Part

#: Options of kernels that make no arrays: without counting who holds those that they are given, which in a loop of
#: small kernels takes as long as the loop itself.
UNCOUNTED = {"_nrt": False}
#: Among the numbers of rows, which count from 0: no row.
NONE = -1


@overload
def kernel(function: Callable[..., Any], /, **options: Any) -> Any: ...
@overload
def kernel(function: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], Any]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    signature: tuple[Any, ...] | None = None,
    tiered: bool = False,
    **options: Any,
) -> Any:
    """`function` compiled, outside the interpreter lock, and kept on disk where a cache folder can be written.

    It is compiled for the types of each first call; with a `signature`, at once and for these types only, which makes
    calls cheaper. `options` are numba's (`fastmath`, `forceinline`). `tiered`: small first calls are interpreted
    (`core.tiered`), for a first answer at once where compiling takes seconds; for kernels that write nothing but their
    array arguments, and whose loops over more than these call other kernels. Kernels that call it have it as a part of
    theirs (`core.parts`).

    numba refuses to compile at all when neither the folder of the source nor the user's cache folder is writable
    (a read-only container); then each process compiles anew, which costs seconds and no answer.
    """
    if function is None:
        return lambda function: kernel(function, signature=signature, tiered=tiered, **options)
    options.setdefault("no_cfunc_wrapper", True)  # a second way in, from C, which nothing here takes
    try:
        compiled = njit(cache=True, nogil=True, pipeline_class=Entry, **options)(function)
    except RuntimeError:  # "cannot cache function ...: no locator available"
        compiled = njit(nogil=True, pipeline_class=Entry, **options)(function)
    else:
        kept = compiled._cache._cache_file
        kept.__class__, kept.source = _KeptFile, Path(inspect.getfile(function))
        kept.name_level()
    options["no_cpython_wrapper"] = True
    compiled.part = part = cache(lambda: njit(nogil=True, pipeline_class=Part, **options)(function))
    compiled.get_call_template = lambda args, kws: part().get_call_template(*_without_literals(args, kws))
    compiled.get_overload = lambda signature: part().get_overload(signature)
    if tiered:
        from .tiered import start_interpreted

        return start_interpreted(compiled, signature)
    if signature is not None:
        compiled.compile(signature)
        compiled.disable_compile()
    return compiled


def _without_literals(args: Any, kws: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The types of a call from another kernel, whose constants count as numbers of their type.

    numba would compile a callee for `-1` or `0`, and again for the variable that the constant starts.
    """
    plain: Callable[[Any], Any] = types.unliteral
    return tuple(map(plain, args)), {name: plain(kind) for name, kind in kws.items()}


class _KeptFile(IndexDataCacheFile):
    """numba's file of kept code, under the stamp of all that is behind a kernel, which is taken when first needed."""

    source: Path

    def name_level(self) -> None:
        """Each level of optimisation (`NUMBA_OPT`) has files of its own: numba takes one's code for another's."""
        level = vars(config)["OPT"]  # which numba sets from the environment
        base = f"{self._index_name.removesuffix('.nbi')}.O{level:d}"
        self._index_path = os.path.join(self._cache_path, f"{base}.nbi")
        self._data_name_pattern = f"{base}.{{number:d}}.nbc"

    @property
    def _source_stamp(self) -> str:
        return stamp(self.source)

    def _load_index(self) -> dict[Any, Any]:
        """What is kept on disk; nothing where it names a record that has since been renamed or moved.

        numba reads the types of kept signatures before it looks at the stamp.
        """
        try:
            found: dict[Any, Any] = super()._load_index()  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):
            return {}
        return found


#: For small helpers that kernels call: compiled into their callers.
inline = njit(inline="always")


#: An import statement at the beginning of a line, over several lines where it has parentheses.
_IMPORT = re.compile(r"^[ \t]*((?:from|import)[ \t][^(\n]*(?:\([^)]*\))?)", re.MULTILINE)


@cache
def stamp(file: Path) -> str:
    """Digest of `file` and of every file of this package that it imports from, directly or through others."""
    reached, open_ends = {file}, [file]
    while open_ends:
        found = _imported(open_ends.pop()) - reached
        reached |= found
        open_ends += found
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(reached):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def _imported(file: Path) -> frozenset[Path]:
    """The files of this package that `file` imports from: the modules named, not the packages on the way to them."""
    if not file.is_relative_to(PACKAGE):
        return frozenset()
    text = file.read_text()
    try:  # a whole file takes ten times as long, in every process that calls a kernel
        nodes: list[ast.AST] = [node for found in _IMPORT.finditer(text) for node in ast.parse(found[1]).body]
    except SyntaxError:  # a line of prose that begins like an import
        nodes = [*ast.walk(ast.parse(text))]
    return frozenset(path for node in nodes for path in _named(node, file) if path in _files())


@cache
def _files() -> frozenset[Path]:
    """Of this package, listed at once: to ask for each takes a tenth of a second."""
    return frozenset(Path(folder, name) for folder, _, names in os.walk(PACKAGE) for name in names)


def _named(node: ast.AST, file: Path) -> Iterator[Path]:
    """Where the modules that an import statement may name would lie."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _places(PACKAGE.parent.joinpath(*alias.name.split(".")))
    elif isinstance(node, ast.ImportFrom):
        base = file.parents[node.level - 1] if node.level else PACKAGE.parent
        module = base.joinpath(*(node.module or "").split("."))
        for alias in node.names:
            submodule = [path for path in _places(module / alias.name) if path in _files()]
            yield from submodule or _places(module)


def _places(module: Path) -> tuple[Path, Path]:
    return module.with_suffix(".py"), module / "__init__.py"


@kernel
def copy_row(target: Any, source: Any) -> None:
    """target[:] = source of one axis. (numba compiles the words of a slice's error message too: seconds.)"""
    for i in range(source.shape[0]):
        target[i] = source[i]


@kernel
def copy_table(target: Any, source: Any) -> None:
    """target[:] = source of two axes; see `copy_row`."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@kernel
def of_batch(array: Any, b: Any) -> Any:
    """Problem b of a batch, or the only one where all problems share it."""
    return array[b] if array.shape[0] > 1 else array[0]
