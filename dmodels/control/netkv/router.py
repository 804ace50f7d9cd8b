"""NetKV for one request at a time, in plain Python: what a router's scoring plug-in calls.

No arrays and nothing to compile; names are the router's own. `score` is the `Score(ctx, pods)` of llm-d's scorer chain
and the scoring function of Dynamo's KV router; `InFlight` follows the transfers that the router itself has started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve


@dataclass(frozen=True, slots=True)
class Tier:
    """One locality tier as the operator describes it."""

    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    congestion: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decode instance as the router sees it for one request."""

    name: Hashable
    tier: int  # between the request's prefill instance and this one
    hit_tokens: float = 0.0  # block-aligned prefix that it holds
    free_bytes: float = inf
    queued: float = 0.0
    batch: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen instance, its tier and predicted post-prefill latency, all scores; None and a reason if rejected."""

    name: Hashable | None
    tier: int | None
    cost_s: float
    scores_s: Mapping[Hashable, float]
    reason: str = ""


@dataclass
class InFlight:
    """Transfers of each prefill instance by tier. `start` on dispatch, `finish` in the transfer-done callback."""

    cap: float = MAX_IN_FLIGHT
    counts: Counter[tuple[Hashable, int]] = field(default_factory=Counter)

    def start(self, source: Hashable, tier: int) -> None:
        self.counts[source, tier] += 1

    def finish(self, source: Hashable, tier: int) -> None:
        if self.counts[source, tier] <= 0:
            raise ValueError(f"transfer from {source!r} on tier {tier} finished twice")
        self.counts[source, tier] -= 1

    def of(self, source: Hashable, tier: int) -> float:
        return min(self.counts[source, tier], self.cap)


def score(
    kv_bytes: float,
    input_tokens: float,
    source: Hashable,
    candidates: Iterable[Candidate],
    tiers: Sequence[Tier],
    in_flight: InFlight,
    curve: BatchingCurve = NETKV_CURVE,
) -> dict[Hashable, float]:
    """Predicted post-prefill latency in seconds of each candidate, Eq. (5); lower is better, inf: unreachable."""
    base, slope, most = float(curve.base_s), float(curve.slope_s), float(curve.max_batch)
    rates = [
        t.bandwidth_bytes_per_s * max(1.0 - t.congestion, 0.0) / (in_flight.of(source, i) + 1.0)
        for i, t in enumerate(tiers)
    ]
    scores = {}
    for c in candidates:
        payload = kv_bytes * (1.0 - min(c.hit_tokens, input_tokens) / input_tokens) if input_tokens > 0 else kv_bytes
        rate = rates[c.tier]
        send = 0.0 if payload == 0.0 else payload / rate if rate > 0.0 else inf
        wait = max(c.queued - max(most - c.batch, 0.0), 0.0) * (base + slope * c.batch)
        scores[c.name] = send + tiers[c.tier].latency_s + wait + base + slope * min(c.batch + 1.0, most)
    return scores


def select(
    kv_bytes: float,
    input_tokens: float,
    source: Hashable,
    candidates: Sequence[Candidate],
    tiers: Sequence[Tier],
    in_flight: InFlight,
    reserve_bytes: float = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
) -> Decision:
    """Algorithm 1: filter by memory, score, take the least, count the transfer.

    >>> near, far = Candidate("near", 2, hit_tokens=16384), Candidate("far", 3, hit_tokens=29491.2)
    >>> tiers = [Tier(450e9), Tier(6.25e9), Tier(3.125e9, congestion=0.2), Tier(1.5625e9, congestion=0.2)]
    >>> flying = InFlight(); flying.start("prefill-0", 2)
    >>> select(2.5e9, 32768, "prefill-0", [near, far], tiers, flying).name       # the paper's worked example
    'far'
    """
    room = [
        c
        for c in candidates
        if kv_bytes * (1.0 - (min(c.hit_tokens, input_tokens) / input_tokens if input_tokens > 0 else 0.0))
        + reserve_bytes
        <= c.free_bytes
    ]
    if not room:
        most = max((c.free_bytes for c in candidates), default=0.0)
        why = f"the request needs up to {kv_bytes + reserve_bytes:.4g} B; no instance has more than {most:.4g} B free"
        return Decision(None, None, inf, {}, why if candidates else "the decode pool is empty")
    scores = score(kv_bytes, input_tokens, source, room, tiers, in_flight, curve)
    best = min(room, key=lambda c: scores[c.name])
    if scores[best.name] == inf:
        return Decision(None, None, inf, scores, "no tier that leads to an instance with room has any bandwidth")
    in_flight.start(source, best.tier)
    return Decision(best.name, best.tier, scores[best.name], scores)
