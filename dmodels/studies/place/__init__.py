"""Which KV cache tiers to buy, and what sharing HBM is worth: the study behind `dmodels place`."""

from __future__ import annotations

from .buy import Purchase
from .cost import PrefillBill, State, Tier, at_sizes, bill
from .study import Curves, Place, Promotion, Use, Vary, place, use_of

__all__ = [
    "Curves",
    "Place",
    "PrefillBill",
    "Promotion",
    "Purchase",
    "State",
    "Tier",
    "Use",
    "Vary",
    "at_sizes",
    "bill",
    "place",
    "use_of",
]
