"""Sentences about a placement: what limits the hit rate, where a formula misleads, which tier does not pay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .cost import State, Tier

if TYPE_CHECKING:
    from .study import Place, Use


def beyond_ceiling(use: Use, state: State, weights: np.ndarray, tiers: Sequence[Tier], target: float) -> str:
    """Why no memory reaches the target, with the smallest change that would do."""
    if target <= use.ceiling_frac:
        return ""
    low = np.argmin([t.usd_per_gib if np.isfinite(t.size_bytes) else np.inf for t in tiers])
    return (
        f"no memory reaches a hit rate of {target:.1%}: {1 - use.ceiling_frac:.1%} of the block accesses are first "
        f"uses, the ceiling is {use.ceiling_frac:.1%}; the smallest change is target.hit_rate = "
        f"{np.floor(use.ceiling_frac * 1000) / 1000:g}, which {state.distinct * weights[low] / 2**30:,.0f} GiB hold"
    )


def notes(found: Place, tiers: Sequence[Tier], state: State) -> list[str]:
    """What a planner should know beside the numbers."""
    use, said = found.use, []
    said.append(
        f"{use.once_frac:.1%} of the block accesses ({use.once_blocks_frac:.1%} of the blocks) are to blocks used "
        f"once; an unlimited cache hits {use.ceiling_frac:.1%}, and {use.warm_frac:.1%} if blocks that are reused "
        "were there from the start."
    )
    curves = found.curves
    gap = curves.lru_frac - curves.shuffled_frac
    worst = int(np.argmax(np.abs(gap)))
    if abs(gap[worst]) > 0.02:
        kind = "comes back sooner" if gap[worst] > 0 else "comes back later"
        said.append(
            f"Che's approximation is off by {100 * abs(gap[worst]):.1f} points at {curves.blocks[worst]:,.0f} blocks: "
            f"what was used {kind} than its popularity says, so size by the trace, not by popularities."
        )
    for i, tier in enumerate(tiers):
        if state.read_s[i] > state.miss_s and state.blocks[i] > 0:
            said.append(
                f"Reading a block from {tier.name} takes {1e3 * state.read_s[i]:.3g} ms, computing it again "
                f"{1e3 * state.miss_s:.3g} ms: recomputing is faster, {tier.name} saves GPU time but no latency."
            )
    s = found.sharing
    if s is not None:
        pool, together, turn = s.layouts
        need = f"{s.memory_factor:.3g} times the HBM" if np.isfinite(s.memory_factor) else "more than any HBM gives"
        said.append(
            f"Sharing: a pool of the {s.workers} workers' HBM hits {pool.hit_frac:.1%}, caches of their own "
            f"{together.hit_frac:.1%} with conversations kept together and {turn.hit_frac:.1%} with requests in turn, "
            f"which need {need} for the pool's hits."
        )
    for game in found.pooled:
        rests = "" if game.settled else " (selfish placement never settles)"
        more = f"; a tenth more memory everywhere: {game.risk}" if game.risk else ""
        said.append(
            f"As a game, {game.name}: pooling HBM and the tiers below saves {game.pooling_frac:.1%} of the time of "
            f"reads{rests}, central placement another {game.coordination_frac:.1%} to "
            f"{game.coordination_most_frac:.1%}{more}."
        )
    p = found.promotion
    best = (
        f"threshold {p.best:g} is best and takes {p.gain_frac:.2%} off the access latency of storing everything"
        if p.gain_frac > 0
        else "storing everything is best"
    )
    said.append(
        f"HBM as leader: {best} (KVBM's threshold, 2, takes off {p.kvbm_gain_frac:.2%}); no leader can take off more "
        f"than {p.bound_gain_frac:.2%}."
    )
    top = int(np.argmax(curves.lost_hits))
    said.append(
        f"Storing a block that is never used again costs others up to {curves.lost_hits[top]:.2g} hits "
        f"({1e3 * curves.lost_gpu_s[top]:.3g} ms of prefill), at {curves.blocks[top]:,.0f} blocks."
    )
    return said
