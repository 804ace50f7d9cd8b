"""What the event loop of a disaggregated cluster reads, writes down and keeps of its decode instances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel

#: In `Outcome.choice`: some instance had room, but no tier that leads to one has any bandwidth.
UNREACHABLE = -2


class Jobs(NamedTuple):
    """N requests in order of the end of their prefill."""

    ready_s: np.ndarray  # (N,) prefill done
    source: np.ndarray  # (N,) number of the prefill instance, 0..P-1
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    hit_frac: np.ndarray  # (N, D) share of the prompt that each instance holds; (1, 1): from the caches instead
    blocks: np.ndarray  # prefix blocks of all requests, one after another
    block_starts: np.ndarray  # (N + 1,)


class Rules(NamedTuple):
    """Numbers that the loop needs, all plain."""

    policy: int
    seed: int
    shards: int
    kv_bytes_per_token: float
    capacity_tokens: float  # KV memory of a decode instance
    reserve_tokens: float  # held back when deciding
    block_tokens: float
    base_s: float
    slope_s: float
    max_batch: int
    cache_weight: float
    max_in_flight: float
    to_rate: float  # destination term; inf: off
    refresh_s: float
    background_step_s: float
    sees_inbound: bool  # whether a decision counts requests on their way as part of a batch
    until_s: float


class Outcome(NamedTuple):
    """Per request; -1 and nan where it never happened."""

    choice: np.ndarray  # decode instance, 0..D-1
    tier: np.ndarray
    hit_tokens: np.ndarray
    landed_s: np.ndarray
    joined_s: np.ndarray
    first_token_s: np.ndarray
    finished_s: np.ndarray
    step_s: np.ndarray  # iteration time when it joined its batch


class Decoders(NamedTuple):
    """State of D decode instances."""

    boundary_s: np.ndarray  # last iteration boundary at which the batch changed
    running: np.ndarray
    iteration: np.ndarray  # counted at that boundary
    ends_at: np.ndarray  # (D, slots) iteration in which each request ends
    request: np.ndarray  # (D, slots)
    next_s: np.ndarray  # next boundary at which the batch changes
    skip: np.ndarray  # iterations until then
    queue_head: np.ndarray
    queue_tail: np.ndarray
    queued: np.ndarray
    inbound: np.ndarray


@kernel
def no_outcome(count):
    """The outcome of requests to which nothing has happened yet."""
    return Outcome(
        np.full(count, -1, np.int64),
        np.full(count, -1, np.int64),
        np.zeros(count),
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.full(count, np.nan),
    )


@kernel
def idle_decoders(pool, slots):
    """Decode instances that run nothing."""
    return Decoders(
        np.zeros(pool),
        np.zeros(pool, np.int64),
        np.zeros(pool, np.int64),
        np.zeros((pool, slots), np.int64),
        np.zeros((pool, slots), np.int64),
        np.full(pool, np.inf),
        np.zeros(pool, np.int64),
        np.full(pool, -1, np.int64),
        np.full(pool, -1, np.int64),
        np.zeros(pool, np.int64),
        np.zeros(pool),
    )
