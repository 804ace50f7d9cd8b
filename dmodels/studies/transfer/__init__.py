"""Is the network the bottleneck, and which routing policy and upgrade pay: the study behind `dmodels transfer`."""

from __future__ import annotations

from .answer import study
from .policies import Site, compare_policies, stale_telemetry, transfer_share, tune_cache_weight, upgrades
from .scenario import TransferScenario

__all__ = [
    "Site",
    "TransferScenario",
    "compare_policies",
    "stale_telemetry",
    "study",
    "transfer_share",
    "tune_cache_weight",
    "upgrades",
]
