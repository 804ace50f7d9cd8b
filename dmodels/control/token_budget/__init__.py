"""Token-budget routing: short and long pools, with a running estimate of bytes per token.

The fleet simulator uses `policy`; `router` is for a live gateway; `bounds` is used by the ledger.
"""

from __future__ import annotations

from .policy import (
    ContextPools,
    PoolDecision,
    Ratios,
    RatioSettings,
    conservative_ratio,
    deviation,
    dispatch,
    init,
    pools,
    route,
    settings,
    total_tokens,
    update,
)
from .router import Category, Sent, TokenBudgetRouter
from .threshold import ThresholdSettings, adapt, adapt_one, failure_bound, threshold_settings

__all__ = [
    "Category",
    "ContextPools",
    "PoolDecision",
    "RatioSettings",
    "Ratios",
    "Sent",
    "ThresholdSettings",
    "TokenBudgetRouter",
    "adapt",
    "adapt_one",
    "conservative_ratio",
    "deviation",
    "dispatch",
    "failure_bound",
    "init",
    "pools",
    "route",
    "settings",
    "threshold_settings",
    "total_tokens",
    "update",
]
