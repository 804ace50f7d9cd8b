"""Solvers that know nothing of LLMs. Each returns a `Solution`: an answer with the evidence to check it.

`assign` and `transport` are linear assignment and transportation, in batches, on the host or on a device (`device`);
`variational_equilibria` and `affine_equilibria` solve games; `marginal_cost_tolls` prices resources so that selfish
users split well; `wardrop`, `bracket` and `interval` are what the games and the models are built on.

Names are resolved on first use (PEP 562), so that importing the package stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmodels.core.names import resolved

if TYPE_CHECKING:  # the names of `_HOME` as type checkers and editors read them
    from .assignment import assign as assign
    from .assignment import assign_many as assign_many
    from .assignment import bottleneck_assignment as bottleneck_assignment
    from .assignment import ranked_assignments as ranked_assignments
    from .assignment import reassign as reassign
    from .bimatrix import mixed_equilibria as mixed_equilibria
    from .entropic import entropic_transport as entropic_transport
    from .network import network_wardrop as network_wardrop
    from .solution import Solution as Solution
    from .tolls import elastic_wardrop as elastic_wardrop
    from .tolls import marginal_cost_tolls as marginal_cost_tolls
    from .transportation import congestion_transport as congestion_transport
    from .transportation import transport as transport
    from .variational import affine_equilibria as affine_equilibria
    from .variational import all_affine_equilibria as all_affine_equilibria
    from .variational import variational_equilibria as variational_equilibria
    from .variational import variational_equilibrium as variational_equilibrium

#: Public name -> module of this package that defines it (which must be called otherwise than the name).
_HOME = {
    "affine_equilibria": "variational",
    "all_affine_equilibria": "variational",
    "variational_equilibria": "variational",
    "variational_equilibrium": "variational",
    "Solution": "solution",
    "assign": "assignment",
    "assign_many": "assignment",
    "bottleneck_assignment": "assignment",
    "ranked_assignments": "assignment",
    "reassign": "assignment",
    "congestion_transport": "transportation",
    "elastic_wardrop": "tolls",
    "entropic_transport": "entropic",
    "marginal_cost_tolls": "tolls",
    "mixed_equilibria": "bimatrix",
    "network_wardrop": "network",
    "transport": "transportation",
}

__all__ = [*_HOME]


if not TYPE_CHECKING:  # it would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        return resolved(__name__, _HOME, name)


def __dir__() -> list[str]:
    return sorted(__all__)
