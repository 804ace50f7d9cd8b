"""Token-budget routing: short and long pools, with a running estimate of bytes per token.

The fleet simulator uses `policy`; `router` is for a live gateway; `bounds` and `threshold` are used by the ledger.
"""

from __future__ import annotations

from .policy import (
    Decision,
    Pools,
    Settings,
    State,
    conservative_ratio,
    deviation,
    dispatch,
    init,
    on_response,
    pools,
    route,
    settings,
    total_tokens,
    update,
)
from .router import Category, Sent, TokenBudgetRouter

__all__ = [
    "Category",
    "Decision",
    "Pools",
    "Sent",
    "Settings",
    "State",
    "TokenBudgetRouter",
    "conservative_ratio",
    "deviation",
    "dispatch",
    "init",
    "on_response",
    "pools",
    "route",
    "settings",
    "total_tokens",
    "update",
]
