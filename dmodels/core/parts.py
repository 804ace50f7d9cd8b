"""Kernels as parts of the kernels that call them: typed and translated once, optimised with each caller alone.

numba optimises a function together with all that it calls and makes machine code of it; then does so for its caller,
which holds the same code again, and so on upwards. Of loops that are small kernels in small kernels that takes several
times as long as the outermost one by itself. Here what is called by another kernel ends as intermediate code: it is
linked into whoever is called from Python, and becomes machine code there.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.environment import lookup_environment


class _Linked(JITCodeLibrary):
    """Code that goes into other libraries, and nowhere else."""

    def _optimize_final_module(self) -> None:
        """As a part of who calls it."""

    def _finalize_final_module(self) -> None:
        self._finalized = True  # without machine code


class Part(Compiler):
    """Compiles a function that kernels call, up to its intermediate code."""

    def __init__(self, typing: Any, target: Any, _: Any, *asked: Any) -> None:
        library = _Linked(target.codegen(), "part")  # type: ignore[no-untyped-call]
        super().__init__(typing, target, library, *asked)  # type: ignore[no-untyped-call]
        self.state.flags.no_compile = True

    def compile_extra(self, func: Any) -> Any:
        """What numba knows of it, under a name for callers."""
        made = super().compile_extra(func)  # type: ignore[no-untyped-call]
        name = _dynfunc.make_function(made.fndesc.lookup_module(), func.__name__, "", 0, made.environment, ())
        self.state.targetctx.insert_user_function(name, made.fndesc, [made.library])
        return made._replace(entry_point=name)


class Entry(Compiler):
    """Compiles a function that Python calls, with its parts."""

    def compile_extra(self, func: Any) -> Any:
        """Machine code; what each part knows of its module and constants is put where its code looks for it."""
        made = super().compile_extra(func)  # type: ignore[no-untyped-call]
        for variable in made.library._final_module.global_variables:
            if variable.name.startswith("_ZN08NumbaEnv"):
                known = lookup_environment(variable.name)  # type: ignore[no-untyped-call]
                if known is not None:
                    made.library.codegen.set_env(variable.name, known)
        return made
