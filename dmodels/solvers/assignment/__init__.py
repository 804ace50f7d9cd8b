"""The assignment problem, exact and in batches, on the host (compiled loops) or traced in JAX."""

from __future__ import annotations

from .host import is_floating
from .solve import BACKENDS, Matching, assign

__all__ = [
    "BACKENDS",
    "Matching",
    "assign",
    "is_floating",
]
