"""KV transfers over a fat tree with max-min fair sharing and stale telemetry, request by request."""

from __future__ import annotations

from .fabric import NETKV_TIERS, Fabric, fabric_problems, fat_tree, fat_tree_of_radix
from .fill import max_min_rates
from .simulation import (
    Arrivals,
    Metrics,
    NetworkCluster,
    NetworkRun,
    advertised_bytes_per_s,
    netkv_cluster,
    simulate,
    simulate_many,
    summary,
)
from .workload import CHATBOT, LONG_CONTEXT, RAG, Profile, poisson, window

__all__ = [
    "CHATBOT",
    "LONG_CONTEXT",
    "NETKV_TIERS",
    "RAG",
    "Arrivals",
    "Fabric",
    "Metrics",
    "NetworkCluster",
    "NetworkRun",
    "Profile",
    "advertised_bytes_per_s",
    "fabric_problems",
    "fat_tree",
    "fat_tree_of_radix",
    "max_min_rates",
    "netkv_cluster",
    "poisson",
    "simulate",
    "simulate_many",
    "summary",
    "window",
]
