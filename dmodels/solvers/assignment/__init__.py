"""The assignment problem, exact and in batches, on the host (compiled loops) or traced in JAX."""

from __future__ import annotations

from .again import reassign
from .mixed import assign_many
from .ranked import bottleneck_assignment, ranked_assignments
from .records import Matching
from .solve import BACKENDS, assign

__all__ = [
    "BACKENDS",
    "Matching",
    "assign",
    "assign_many",
    "bottleneck_assignment",
    "ranked_assignments",
    "reassign",
]
