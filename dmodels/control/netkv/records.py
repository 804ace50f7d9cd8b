"""What NetKV's selection reads and answers: the operator's oracle, the decode pool, and the choice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve


def stray(index: np.ndarray, count: int) -> int:
    """The first of `index` that is not one of 0..count-1."""
    return int(index[(index < 0) | (index >= count)][0])


class Oracle(NamedTuple):
    """What the operator tells the scheduler every refresh: three static maps and a dynamic one.

    tier_map[p, d] is the tier of prefill instance p and decode instance d; the others are indexed by tier, 0 (same
    node) to 3 (cross pod). Bandwidths are of one whole transfer on an idle tier.
    """

    tier_map: np.ndarray
    tier_bandwidth_bytes_per_s: np.ndarray
    tier_latency_s: np.ndarray
    congestion: np.ndarray


class DecodePool(NamedTuple):
    """State of D decode instances: shape (D,), or (N, D) where each of N decisions has a state of its own."""

    free_bytes: np.ndarray
    queued: np.ndarray
    batch: np.ndarray
    inbound: np.ndarray | float = 0.0  # transfers on their way to the instance


class Requests(NamedTuple):
    """N requests after prefill; hits of one row are shared by all."""

    source: np.ndarray  # (N,) prefill instance
    kv_bytes: np.ndarray  # (N,)
    hit_frac: np.ndarray  # (N, D) or (1, D)


class Scoring(NamedTuple):
    """What all candidates of a decision share; plain numbers."""

    policy: int  # `RoutingPolicy.number`
    curve: BatchingCurve = NETKV_CURVE
    reserve_bytes: float = 0.0
    cache_weight: float = 0.5
    max_in_flight: float = MAX_IN_FLIGHT
    destination_bytes_per_s: float = np.inf  # inf: the destination's link is not looked at


class TransferIntent(NamedTuple):
    """What the scheduler may tell the operator about a transfer that is about to start."""

    source: int
    destination: int
    payload_bytes: float
    priority: int = 0


class Choice(NamedTuple):
    """Index of the chosen instance per request (-1: rejected), what the policy minimised, and why not."""

    index: np.ndarray  # type: ignore[assignment]  # hides `tuple.index`, which means nothing here
    cost: np.ndarray
    flags: np.ndarray
    intents: list[TransferIntent] | None = None
