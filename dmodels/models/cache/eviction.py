"""Eviction policies of a prefix cache, replayed exactly: LRU, LFU, and the frequency policy of Dynamo's KVBM.

A trace is `ids` and `starts` as in `stack_distance`. LRU alone has stack distances and needs no replay per size; it is
here to be compared by the same loop.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError

from . import _eviction_kernels as kernels
from .stack_distance import checked_starts, numbered


class Policy(Enum):
    """Which block leaves first; among equals the one whose last use is longest ago.

    LRU   last use longest ago.
    LFU   fewest uses since it was stored.
    KVBM  lowest frequency: 1 when stored, doubled on a hit (up to 2^32 - 1), less 1 per decay step down to 0, from
          where a hit starts at 1 again ("The Price of Anarchy in Disaggregated Inference", section 2.2).
    """

    LRU = kernels.LRU
    LFU = kernels.LFU
    KVBM = kernels.KVBM


class Replay(NamedTuple):
    """What one pass found, per access: whether it hit, and for a miss the request at whose end the block had been let
    go (-1 where it had never been used)."""

    hit: np.ndarray
    gone: np.ndarray


def replay(
    ids: np.ndarray,
    starts: np.ndarray | None,
    capacity_blocks: float,
    policy: Policy = Policy.LRU,
    decay_steps: np.ndarray | None = None,
    threshold: float = 0.0,
    forget: bool = True,
) -> Replay:
    """Every access of a trace against one cache of `capacity_blocks`.

    decay_steps  decay steps of KVBM up to each request (requests,), from `decay_steps`; None: no decay
    threshold    a full cache stores a missing block only if its frequency, this use counted, is at least this; 0 and 1
                 store everything, 2 (KVBM's promotion) what has been used before
    forget       a block that leaves loses its frequency; False: it keeps it, as where a lower tier keeps the block

    >>> replay(np.array([1, 2, 1, 3, 1]), None, 1, Policy.LFU).hit.tolist()       # what is new is always stored
    [False, False, False, False, False]
    >>> replay(np.array([1, 2, 1, 3, 1]), None, 1, Policy.KVBM, threshold=2).hit.tolist()
    [False, False, True, False, True]
    """
    if not capacity_blocks >= 0:
        raise InputError(f"capacity_blocks = {capacity_blocks}: accepted are numbers from 0")
    blocks, starts, count = numbered(ids, starts)
    requests = len(starts) - 1
    steps = np.zeros(requests, np.int64) if decay_steps is None else np.asarray(decay_steps).astype(np.int64)
    if len(steps) != requests or np.any(np.diff(steps) < 0) or np.any(steps < 0):
        raise InputError(f"decay_steps: accepted are {requests} whole numbers from 0 that do not fall, one per request")
    capacity = int(min(capacity_blocks, count))
    if policy is not Policy.KVBM:
        steps = np.zeros_like(steps)
    hit, gone = kernels.replay(blocks, starts, steps, count, capacity, policy.value, float(threshold), forget)
    return Replay(hit, gone)


def decay_steps(time_s: np.ndarray, every_s: float) -> np.ndarray:
    """Decay steps up to each time, one every `every_s` seconds; inf: none.

    >>> decay_steps(np.array([0.0, 59.9, 60.0, 200.0]), 60.0).tolist()
    [0.0, 0.0, 1.0, 3.0]
    """
    if not every_s > 0:
        raise InputError(f"every_s = {every_s}: accepted are seconds above 0")
    return np.floor(np.asarray(time_s, np.float64) / every_s)


def usable_hits(hit: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Hits under the prefix accounting: those before which every block of the request hits too.

    >>> usable_hits(np.array([True, False, True, True]), np.array([0, 3, 4])).tolist()
    [True, False, False, True]
    """
    starts = checked_starts(starts, len(hit))
    misses = np.cumsum(~np.asarray(hit, bool))
    before = np.concatenate([[0], misses])[starts[:-1]]
    return misses == np.repeat(before, np.diff(starts))
