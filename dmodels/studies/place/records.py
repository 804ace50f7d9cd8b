"""What a study of KV tiers answers, part by part."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dmodels.core.answers import Answer

from .buy import Purchase
from .game import Pooled
from .sharing import Sharing


@dataclass(frozen=True)
class Use(Answer):
    """How a trace uses its blocks: what no cache can change."""

    requests_count: int
    accesses_count: int
    blocks_count: int
    once_frac: float  # of the accesses, those to blocks that are used once
    once_blocks_frac: float  # of the blocks, those used once
    ceiling_frac: float  # hits of an unlimited cache: all but the requests that use a block first
    warm_frac: float  # the same if blocks that are reused were there from the start: 1 - once_frac


@dataclass(frozen=True)
class Curves(Answer):
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


@dataclass(frozen=True)
class Vary(Answer):
    """One tier's size varied, the others as they are."""

    tier: str
    bytes_: np.ndarray
    hit_frac: np.ndarray  # of the tiers of limited size together
    access_s: np.ndarray  # mean latency of one block access
    first_token_s: np.ndarray  # mean over requests: loading plus the rest of the prefill


@dataclass(frozen=True)
class Promotion(Answer):
    """HBM as leader: the mean access latency of each threshold, with the best answer of the tiers below."""

    threshold: np.ndarray
    hbm_frac: np.ndarray
    access_s: np.ndarray
    best: float
    gain_frac: float  # of the latency with everything stored, what the best threshold saves
    kvbm_gain_frac: float  # the same for KVBM's threshold, 2
    bound_gain_frac: float  # no leader saves more


@dataclass(frozen=True)
class TierUse(Answer):
    """One tier as it stands."""

    tier: str
    size_gib: float
    blocks_count: float
    block_mib: float
    read_s: float  # of one block
    served_frac: float  # of the block accesses
    usd_per_gib: float


@dataclass(frozen=True)
class Place(Answer):
    """The whole answer."""

    derived = ("feasible",)
    picture = "dmodels.report.place_figures:figure"
    use: Use
    tiers: list[TierUse]  # as they are
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
