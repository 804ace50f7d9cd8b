"""Transportation with rows of any size and convex column costs, exact and in batches, on the host or traced in JAX."""

from __future__ import annotations

from .records import Placement, Shipment
from .solve import congestion_transport, transport

__all__ = [
    "Placement",
    "Shipment",
    "congestion_transport",
    "transport",
]
