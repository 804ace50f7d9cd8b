"""Where KV blocks should live: hit rate, latency and recomputation against the size of each tier, and what to buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import float64
from dmodels.models.cache import (
    THRESHOLDS,
    Policy,
    belady_distances,
    best_threshold,
    block_bytes,
    decay_steps,
    hit_frac,
    leader,
    lost_hits,
    popularity,
    replay,
    shuffled_hit_frac,
    stack_distances,
    usable,
    usable_hits,
)
from dmodels.models.traffic import BLOCK_TOKENS, Trace

from .buy import Purchase, cheapest, purchases
from .cost import PrefillBill, Tier, at_sizes, bill
from .game import Pooled, pooled
from .notes import beyond_ceiling, notes
from .sharing import Sharing, routes, sharing

SIZES = 64  # sizes of the curves
REPLAYED = 16  # of them, those at which policies without stack distances are replayed


class Use(NamedTuple):
    """How a trace uses its blocks: what no cache can change."""

    requests_count: int
    accesses_count: int
    blocks_count: int
    once_frac: float  # of the accesses, those to blocks that are used once
    once_blocks_frac: float  # of the blocks, those used once
    ceiling_frac: float  # hits of an unlimited cache: all but the requests that use a block first
    warm_frac: float  # the same if blocks that are reused were there from the start: 1 - once_frac


class Curves(NamedTuple):
    """Shares of block accesses that hit, by cache size (sizes,). Policies stand at `replayed` sizes."""

    blocks: np.ndarray
    lru_frac: np.ndarray
    usable_frac: np.ndarray  # LRU, counting a block only if all before it in its request hit
    belady_frac: np.ndarray
    shuffled_frac: np.ndarray  # what popularities alone explain: Che's approximation of the trace in random order
    replayed_blocks: np.ndarray
    lfu_frac: np.ndarray
    lfu_usable_frac: np.ndarray
    kvbm_frac: np.ndarray
    kvbm_usable_frac: np.ndarray
    lost_hits: np.ndarray  # hits others lose per block stored and never used again
    lost_gpu_s: np.ndarray  # GPU-seconds of prefill in them
    recomputed_flop: np.ndarray  # prefill FLOPs per request on blocks that had been computed before
    prefill_s: np.ndarray  # mean, per request


class Vary(NamedTuple):
    """One tier's size varied, the others as they are."""

    tier: str
    bytes_: np.ndarray
    hit_frac: np.ndarray  # of the tiers of limited size together
    access_s: np.ndarray  # mean latency of one block access
    first_token_s: np.ndarray  # mean over requests: loading plus the rest of the prefill


class Promotion(NamedTuple):
    """HBM as leader: the mean access latency of each threshold, with the best answer of the tiers below."""

    threshold: np.ndarray
    hbm_frac: np.ndarray
    access_s: np.ndarray
    best: float
    gain_frac: float  # of the latency with everything stored, what the best threshold saves
    kvbm_gain_frac: float  # the same for KVBM's threshold, 2
    bound_gain_frac: float  # no leader saves more


@dataclass(frozen=True)
class Place:
    """The whole answer."""

    use: Use
    tiers: list[dict[str, Any]]  # one row per tier as it is
    access_s: float
    first_token_s: float
    recomputed_flop: float  # per request
    curves: Curves
    vary: list[Vary]
    promotion: Promotion
    purchases: list[Purchase]
    mix: Purchase | None
    sharing: Sharing | None
    pooled: list[Pooled]  # the same workers as a game; empty for one worker
    problem: str  # why the target cannot be met; "" where it can
    notes: list[str] = field(default_factory=list)

    @property
    def feasible(self) -> bool:
        """Whether the target can be met."""
        return not self.problem


@float64
def place(
    trace: Trace,
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    tiers: Sequence[Tier],
    target_hit_frac: float | None = None,
    target_first_token_s: float = float("inf"),
    workers: int = 1,
    link_bytes_per_s: float | None = None,
    decay_s: float = 60.0,
) -> Place:
    """Hit rates, latency, externality, thresholds, purchases and the value of sharing for a trace with prefix blocks.

    tiers                 fastest first; sizes are totals over the `workers`; the last may be unlimited (networked)
    target_hit_frac       share of block accesses that the tiers of limited size should serve
    target_first_token_s  bound on the mean over requests of loading plus remaining prefill, alone on an instance
    workers               instances that share the tiers, or split them (see `sharing` and `game`)
    link_bytes_per_s      rate of a pool's reads from a peer's HBM; the GPU's scale-up link where None
    """
    if trace.block_ids is None:
        raise InputError(f"{trace.name}: has no prefix blocks; accepted: a Mooncake trace with hash_ids")
    if not len(trace.block_ids):
        raise InputError(f"{trace.name}: its requests have no prefix block; accepted: at least one")
    _check(tiers, target_hit_frac, target_first_token_s, workers)
    ids, starts = trace.block_ids, trace.block_starts
    distances = stack_distances(ids, starts)
    weights = np.array(
        [float(block_bytes(model, BLOCK_TOKENS, parallel.tp if i == 0 else 1.0)) for i in range(len(tiers))]
    )
    costs = PrefillBill(trace, usable(distances, starts), model, gpu, parallel)
    state = bill(tiers, weights, distances, costs)
    use = use_of(trace, distances)
    curves = _curves(trace, distances, costs, decay_s)
    promotion = _promotion(trace, state, decay_s)
    bought, mix, problem = [], None, ""
    saved = float(gpu.price_usd_per_hour) * float(parallel.gpus) * _rate(trace)
    if target_hit_frac is not None:
        problem = beyond_ceiling(use, state, weights, tiers, target_hit_frac)
        if not problem:
            bought = purchases(state, tiers, weights, target_hit_frac, saved)
            mix, problem = cheapest(state, tiers, weights, target_hit_frac, target_first_token_s, saved)
    shared, game = None, []
    if workers > 1:
        link = float(gpu.nvlink_bytes_per_s_oneway) if link_bytes_per_s is None else link_bytes_per_s
        peer_s = weights[0] / link if link > 0 else np.inf
        shared = sharing(trace, state.blocks[0], workers, peer_s, costs, saved)
        game = pooled(trace, state, workers, peer_s, routes(trace, workers))
    found = Place(
        use,
        _rows(tiers, weights, state),
        state.access_s,
        state.first_token_s,
        state.recomputed_flop,
        curves,
        _vary(tiers, weights, state),
        promotion,
        bought,
        mix,
        shared,
        game,
        problem,
    )
    found.notes.extend(notes(found, tiers, state))
    return found


def _check(tiers, target, latency, workers) -> None:
    if not tiers:
        raise InputError("tiers: none given; accepted: at least one")
    for tier in tiers:
        for name, low in (("size_bytes", 0.0), ("latency_s", 0.0), ("usd_per_gib", 0.0)):
            if not getattr(tier, name) >= low:
                raise InputError(f"tiers.{tier.name}.{name} = {getattr(tier, name)}: accepted are numbers from 0")
        if not tier.read_bytes_per_s > 0:
            raise InputError(f"tiers.{tier.name}.read_bytes_per_s = {tier.read_bytes_per_s}: accepted is above 0")
    if any(np.isinf(tier.size_bytes) for tier in tiers[:-1]) or not any(np.isfinite(t.size_bytes) for t in tiers):
        raise InputError("tiers: accepted is at most one unlimited tier, the last, behind limited ones")
    if target is not None and not 0 <= target <= 1:
        raise InputError(f"target_hit_frac = {target}: accepted are numbers from 0 to 1")
    if not latency > 0:
        raise InputError(f"target_first_token_s = {latency}: accepted are seconds above 0")
    if not (workers >= 1 and workers == int(workers)):
        raise InputError(f"workers = {workers}: accepted are whole numbers from 1")


def use_of(trace: Trace, distances: np.ndarray) -> Use:
    """How a trace with these LRU stack distances (accesses,) uses its blocks."""
    uses, count = popularity(trace.block_ids)
    accesses, blocks = float(uses @ count), float(count.sum())
    once = float(count[uses == 1].sum())
    return Use(
        len(trace),
        int(accesses),
        int(blocks),
        once / accesses,
        once / blocks,
        float(np.isfinite(distances).mean()),
        1 - once / accesses,
    )


def _sizes(most: float) -> np.ndarray:
    """Sizes of a curve, in blocks, up to what holds everything."""
    return np.unique(np.round(np.geomspace(max(most / 5_000, 1), max(most, 2), SIZES)))


def _rate(trace: Trace) -> float:
    return trace.rate_rps if np.isfinite(trace.rate_rps) else 0.0


def _curves(trace: Trace, distances: np.ndarray, costs: PrefillBill, decay_s: float) -> Curves:
    ids, starts = trace.block_ids, trace.block_starts
    total = len(np.unique(ids))
    sizes = _sizes(total)
    uses, count = popularity(ids)
    shuffled = np.asarray(shuffled_hit_frac(sizes, uses, count))
    some = np.unique(np.r_[sizes[:: max(len(sizes) // REPLAYED, 1)], sizes[-1]])
    steps = decay_steps(trace.time_s, decay_s)
    runs = [[replay(ids, starts, c, p, steps).hit for c in some] for p in (Policy.LFU, Policy.KVBM)]
    (lfu, lfu_used), (kvbm, kvbm_used) = (
        (np.array([h.mean() for h in run]), np.array([usable_hits(h, starts).mean() for h in run])) for run in runs
    )
    lost = lost_hits(ids, starts, sizes)
    prefill, flop = costs.at(sizes)
    found = [hit_frac(d, sizes) for d in (distances, usable(distances, starts), belady_distances(ids, starts))]
    return Curves(
        sizes,
        *found,
        shuffled,
        some,
        lfu,
        lfu_used,
        kvbm,
        kvbm_used,
        lost,
        lost * costs.block_gpu_s,
        flop - costs.least_flop,
        prefill,
    )


def _promotion(trace: Trace, state, decay_s: float) -> Promotion:
    found = leader(
        trace.block_ids,
        trace.block_starts,
        state.blocks[0],
        state.blocks[1:],
        THRESHOLDS,
        decay_steps(trace.time_s, decay_s),
    )
    best, cost, least = best_threshold(found, state.read_s, state.miss_s)
    gain = lambda value: float(1 - value / cost[0]) if cost[0] > 0 else 0.0
    return Promotion(
        found.threshold,
        found.tier_frac[:, 0],
        cost,
        float(found.threshold[best]),
        gain(cost[best]),
        gain(cost[1]),
        gain(least),
    )


def _vary(tiers, weights, state) -> list[Vary]:
    """Each tier of limited size from nothing to what holds every block."""
    rows = []
    for i, tier in enumerate(tiers):
        if np.isinf(tier.size_bytes):
            continue
        sizes = np.concatenate([[0.0], _sizes(state.distinct)])
        blocks = np.repeat(state.blocks[None, :], len(sizes), axis=0)
        blocks[:, i] = sizes
        at = at_sizes(state, blocks)
        rows.append(Vary(tier.name, sizes * weights[i], at.hit_frac, at.access_s, at.first_token_s))
    return rows


def _rows(tiers, weights, state) -> list[dict[str, Any]]:
    return [
        {
            "tier": tier.name,
            "size_gib": tier.size_bytes / 2**30,
            "blocks_count": state.blocks[i],
            "block_mib": weights[i] / 2**20,
            "read_s": state.read_s[i],
            "served_frac": state.tier_frac[i],
            "usd_per_gib": tier.usd_per_gib,
        }
        for i, tier in enumerate(tiers)
    ]
