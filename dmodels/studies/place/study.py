"""Where KV blocks should live: hit rate, latency and recomputation against the size of each tier, and what to buy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmodels.core.errors import MOST_S, InputError, check_work
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import float64
from dmodels.models.cache import (
    THRESHOLDS,
    Eviction,
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
from dmodels.models.memory import check_layout
from dmodels.models.traffic import BLOCK_TOKENS, Trace

from .buy import cheapest, purchases
from .cost import PrefillBill, Tier, at_sizes, bill
from .game import pooled
from .notes import beyond_ceiling, notes
from .records import Curves, Place, Promotion, TierUse, Use, Vary
from .sharing import routes, sharing

SIZES = 64  # sizes of the curves
REPLAYED = 16  # of them, those at which policies without stack distances are replayed


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
    check_layout(model, parallel)
    ids, starts = trace.block_ids, trace.block_starts
    if workers > 1:
        pair_s = _PAIR_S * len(np.unique(ids))
        check_work(f"workers = {workers:,}", workers**2 * pair_s, f"workers = {int((MOST_S / pair_s) ** 0.5):,}")
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
        tiers=_as_they_are(tiers, weights, state),
        access_s=state.access_s,
        first_token_s=state.first_token_s,
        recomputed_flop=state.recomputed_flop,
        curves=curves,
        vary=_vary(tiers, weights, state),
        promotion=promotion,
        purchases=bought,
        mix=mix,
        sharing=shared,
        pooled=game,
        problem=problem,
    )
    found.notes.extend(notes(found, tiers, state))
    return found


#: Seconds that two workers and a block take in the game of pooling, on one core of 2024.
_PAIR_S = 9e-9


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
        requests_count=len(trace),
        accesses_count=int(accesses),
        blocks_count=int(blocks),
        once_frac=once / accesses,
        once_blocks_frac=once / blocks,
        ceiling_frac=float(np.isfinite(distances).mean()),
        warm_frac=1 - once / accesses,
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
    some = np.unique(np.r_[sizes[:: max(len(sizes) // REPLAYED, 1)], sizes[-1]])
    steps = decay_steps(trace.time_s, decay_s)
    hits = {p: [replay(ids, starts, c, p, steps).hit for c in some] for p in (Eviction.LFU, Eviction.KVBM)}
    mean = lambda policy: np.array([hit.mean() for hit in hits[policy]])
    usable_mean = lambda policy: np.array([usable_hits(hit, starts).mean() for hit in hits[policy]])
    lost = lost_hits(ids, starts, sizes)
    prefill, flop = costs.at(sizes)
    return Curves(
        blocks=sizes,
        lru_frac=hit_frac(distances, sizes),
        usable_frac=hit_frac(usable(distances, starts), sizes),
        belady_frac=hit_frac(belady_distances(ids, starts), sizes),
        shuffled_frac=np.asarray(shuffled_hit_frac(sizes, uses, count)),
        replayed_blocks=some,
        lfu_frac=mean(Eviction.LFU),
        lfu_usable_frac=usable_mean(Eviction.LFU),
        kvbm_frac=mean(Eviction.KVBM),
        kvbm_usable_frac=usable_mean(Eviction.KVBM),
        lost_hits=lost,
        lost_gpu_s=lost * costs.block_gpu_s,
        recomputed_flop=flop - costs.least_flop,
        prefill_s=prefill,
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
        threshold=found.threshold,
        hbm_frac=found.tier_frac[:, 0],
        access_s=cost,
        best=float(found.threshold[best]),
        gain_frac=gain(cost[best]),
        kvbm_gain_frac=gain(cost[1]),
        bound_gain_frac=gain(least),
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


def _as_they_are(tiers, weights, state) -> list[TierUse]:
    return [
        TierUse(
            tier.name,
            size_gib=tier.size_bytes / 2**30,
            blocks_count=state.blocks[i],
            block_mib=weights[i] / 2**20,
            read_s=state.read_s[i],
            served_frac=state.tier_frac[i],
            usd_per_gib=tier.usd_per_gib,
        )
        for i, tier in enumerate(tiers)
    ]
