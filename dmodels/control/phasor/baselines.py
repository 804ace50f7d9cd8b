"""What Phasor is compared with: routing rules that look at one proxy each, and pool rules.

A routing rule is a score over workers; the least wins, ties go to the first. All read the same `Telemetry`, so that a
simulation or a replay can swap them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.records import Real


class Telemetry(NamedTuple):
    """What a router sees of each worker, (w,) each."""

    queued_count: Real  # requests waiting or running
    queued_tokens: Real  # their prompt tokens
    running_tokens: Real  # tokens in memory: of the batch that runs, not of the queue
    kv_tokens: Real  # memory, in tokens
    queued_flop: Real
    budget_flop: Real  # P_peak * T_SLO


def queue_length(seen: Telemetry) -> Real:
    """Join the shortest queue (Splitwise)."""
    return seen.queued_count


def token_backlog(seen: Telemetry) -> Real:
    """Least prompt tokens, the queue's included."""
    return seen.queued_tokens


def memory_only(seen: Telemetry) -> Real:
    """Least memory in use: blind to the queue, whose requests hold no KV blocks yet."""
    return seen.running_tokens / seen.kv_tokens


def virtual_freeness(seen: Telemetry) -> Real:
    """Phasor: least U/C, which is most Phi."""
    return seen.queued_flop / seen.budget_flop


def least(score: Real) -> Real:
    """The worker of least score."""
    return jnp.argmin(score).astype(jnp.int32)


def round_robin(turn: Real, count: int) -> tuple[Real, Real]:
    """(next turn, worker)."""
    return (turn + 1) % count, turn % count


def power_of_two(seen: Telemetry, draws: Real) -> Real:
    """The shorter queue of two workers drawn with `draws` (2,) in [0, 1); they are different if there are two."""
    count = seen.queued_count.shape[0]
    first = jnp.minimum(jnp.floor(draws[0] * count), count - 1.0).astype(jnp.int32)
    step = jnp.minimum(jnp.floor(draws[1] * (count - 1.0)), max(count - 2.0, 0.0)).astype(jnp.int32)
    second = (first + jnp.int32(1) + step) % jnp.int32(count)
    return jnp.where(seen.queued_count[first] <= seen.queued_count[second], first, second)


def static_split(prefill_load: Real, decode_load: Real, workers: int) -> Real:
    """DistServe-like: prefill workers of a split planned once for mean loads, in proportion and at least one each."""
    total = prefill_load + decode_load
    share = jnp.where(total > 0, prefill_load / jnp.where(total > 0, total, 1.0), 0.5)
    return jnp.clip(jnp.round(workers * share), 1.0, workers - 1.0)


def reactive_role(prefill_queue_count: Real, decode_queue_count: Real, limit_count: Real) -> Real:
    """Splitwise-like mixed pool: +1, a mixed worker prefills, while prefill queues exceed the limit; -1, it decodes,
    while only decode queues do; 0 leaves it. No hysteresis."""
    prefill = prefill_queue_count > limit_count
    decode = decode_queue_count > limit_count
    return jnp.where(prefill, 1, jnp.where(decode, -1, 0)).astype(jnp.int32)
