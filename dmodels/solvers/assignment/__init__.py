"""The assignment problem, exact and in batches, on the host (compiled loops) or traced in JAX."""

from __future__ import annotations

from .host import is_floating
from .mixed import assign_many
from .solve import BACKENDS, Matching, assign

__all__ = [
    "BACKENDS",
    "Matching",
    "assign",
    "assign_many",
    "is_floating",
]
