"""Prefix caches: hit rates by stack distance and by characteristic time, eviction rules, and what one client's blocks
cost the others.

`dmodels place` uses all but `che`, `externality` and `hbm_leader`, which are used by the ledger.
"""

from __future__ import annotations

from .che import characteristic_time, eviction_externality, lru_hit_frac, popularity, shuffled_hit_frac, ttl_hit_frac
from .eviction import Eviction, Replay, decay_steps, replay, usable_hits
from .externality import lost_hits, residence_accesses
from .hbm_leader import THRESHOLDS, Leader, best_threshold, leader
from .prefix_cache import access_s, block_bytes, prefill_flop, remaining_prefill_s, tier_fracs
from .stack_distance import belady_distances, hit_frac, previous, stack_distances, usable

__all__ = [
    "THRESHOLDS",
    "Eviction",
    "Leader",
    "Replay",
    "access_s",
    "belady_distances",
    "best_threshold",
    "block_bytes",
    "characteristic_time",
    "decay_steps",
    "eviction_externality",
    "hit_frac",
    "leader",
    "lost_hits",
    "lru_hit_frac",
    "popularity",
    "prefill_flop",
    "previous",
    "remaining_prefill_s",
    "replay",
    "residence_accesses",
    "shuffled_hit_frac",
    "stack_distances",
    "tier_fracs",
    "ttl_hit_frac",
    "usable",
    "usable_hits",
]
