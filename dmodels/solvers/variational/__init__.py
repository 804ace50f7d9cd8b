"""Variational equilibria of games with shared constraints: smooth games one by one or in batches, and affine games."""

from __future__ import annotations

from .affine import affine_equilibria
from .certificate import Certificate, explain
from .every_affine import all_affine_equilibria
from .solve import Equilibrium, variational_equilibria, variational_equilibrium

__all__ = [
    "Certificate",
    "Equilibrium",
    "affine_equilibria",
    "all_affine_equilibria",
    "explain",
    "variational_equilibria",
    "variational_equilibrium",
]
