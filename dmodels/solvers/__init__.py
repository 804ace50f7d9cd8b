"""Solvers that know nothing of LLMs. Each returns a `Solution`: an answer with the evidence to check it.

Names are resolved on first use (PEP 562), so that importing the package stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Public name -> module of this package that defines it (which must be called otherwise than the name).
_HOME = {
    "affine_equilibria": "affine",
    "variational_equilibria": "variational",
    "variational_equilibrium": "variational",
    "Solution": "solution",
    "assign": "assignment",
    "congestion_transport": "transportation",
    "transport": "transportation",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
