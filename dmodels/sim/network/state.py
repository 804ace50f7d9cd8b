"""What the event loop of a disaggregated cluster reads, writes down and keeps of its decode instances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.control.netkv import Scoring
from dmodels.core.compiled import NONE, kernel

from .cache import caches_of

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

    scoring: Scoring  # its reserve is that of the request at hand, see `reserve_tokens`
    seed: int
    shards: int
    kv_bytes_per_token: float
    capacity_tokens: float  # KV memory of a decode instance
    reserve_tokens: float  # held back when deciding
    block_tokens: float
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


class Progress(NamedTuple):
    """Per request, from decision to end."""

    behind: np.ndarray  # next in the queue of its instance
    sending: np.ndarray  # flows that have not ended
    pinned: np.ndarray  # blocks of the cache that it uses
    held_tokens: np.ndarray  # outside the cache


@kernel
def empty_caches(jobs, rules, pool):
    """Caches of the decode instances, in use where the requests say nothing about hits."""
    on = jobs.hit_frac.shape[1] != pool
    kinds = jobs.blocks.max() + 1 if on and jobs.blocks.shape[0] > 0 else 1
    return caches_of(on, pool, kinds, rules.capacity_tokens, rules.block_tokens)


@kernel
def tiers_between(fabric, prefill, decode):
    """(P, D) locality tier of every pair."""
    tier = np.zeros((prefill.shape[0], decode.shape[0]), np.int64)
    for p in range(prefill.shape[0]):
        for j in range(decode.shape[0]):
            a, b = prefill[p], decode[j]
            tier[p, j] = int(fabric.server[a] != fabric.server[b])
            tier[p, j] += int(fabric.rack[a] != fabric.rack[b]) + int(fabric.pod[a] != fabric.pod[b])
    return tier


@kernel
def no_progress(count):
    """Requests that are not on their way."""
    return Progress(
        np.full(count, NONE, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count)
    )


@kernel
def no_outcome(count):
    """The outcome of requests to which nothing has happened yet."""
    return Outcome(
        np.full(count, NONE, np.int64),
        np.full(count, NONE, np.int64),
        np.zeros(count),
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.full(count, np.nan),
    )


@kernel
def idle_decoders(pool, max_batch):
    """Decode instances that run nothing."""
    slots = int(max_batch)
    return Decoders(
        np.zeros(pool),
        np.zeros(pool, np.int64),
        np.zeros(pool, np.int64),
        np.zeros((pool, slots), np.int64),
        np.zeros((pool, slots), np.int64),
        np.full(pool, np.inf),
        np.zeros(pool, np.int64),
        np.full(pool, NONE, np.int64),
        np.full(pool, NONE, np.int64),
        np.zeros(pool, np.int64),
        np.zeros(pool),
    )
