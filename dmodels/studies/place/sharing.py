"""What sharing HBM is worth: one pool over NVLink against a cache per worker, with requests spread or kept together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmodels.core.answers import Answer
from dmodels.models.cache import stack_distances, usable
from dmodels.models.traffic import Trace

from .cost import PrefillBill


@dataclass(frozen=True)
class Layout(Answer):
    """One way to use the same memory."""

    name: str
    hit_frac: float
    first_token_s: float  # mean over requests: reads from peers plus the rest of the prefill
    ceiling_frac: float  # with unlimited memory
    equal_blocks: float  # total size at which it hits as often as the pool; inf: never
    saved_usd_per_hour: float  # GPU time of prefill less than with requests in turn


@dataclass(frozen=True)
class Sharing(Answer):
    """Layouts at the given size, and their hit rates by total size."""

    workers: int
    size_blocks: float
    peer_s: float  # seconds to read a block from a peer
    layouts: list[Layout]
    blocks: np.ndarray  # (sizes,)
    hit_frac: np.ndarray  # (layouts, sizes)
    memory_factor: float  # memory that spread requests on caches of their own need, over the pool's, for its hits


def sharing(trace: Trace, size_blocks: float, workers: int, peer_s: float, costs: PrefillBill, saved: float) -> Sharing:
    """A pool of `size_blocks` against `workers` caches of an equal share each.

    Requests are spread in turn, or kept together: all that share their second block (the first one that differs
    between conversations; the first is the system prompt) go to one worker. A block of the pool lies at a peer with
    probability 1 - 1/workers.

    saved  US dollars per hour that one second of prefill less per request spares
    """
    ids, starts = trace.block_ids, trace.block_starts
    requests = len(trace)
    runs = {"one pool": stack_distances(ids, starts)} | {
        f"own caches, {name}": _apart(trace, route, workers) for name, route in routes(trace, workers).items()
    }
    sizes = np.unique(np.round(np.geomspace(workers, max(len(np.unique(ids)) * workers, workers + 1), 64)))
    curves, layouts = [], []
    for k, (name, distances) in enumerate(runs.items()):
        parts = 1 if k == 0 else workers
        order = np.sort(usable(distances, starts))
        hits = lambda size, order=order, parts=parts: np.searchsorted(order, np.floor(size / parts), side="right")
        curves.append(hits(sizes) / len(ids))
        if k == 0:
            pool_hits = int(hits(size_blocks))
        used = np.isfinite(distances) & (usable(distances, starts) <= np.floor(size_blocks / parts))
        prefill, _ = costs.of_tokens(costs.spared(used))
        peers = used.sum() / requests * (1 - 1 / workers) * peer_s if k == 0 and used.any() else 0.0
        equal = order[pool_hits - 1] * parts if pool_hits else 0.0
        layouts.append(
            Layout(
                name,
                int(hits(size_blocks)) / len(ids),
                float(prefill + peers),
                float(np.isfinite(order).mean()),
                float(equal),
                -float(prefill) * saved,
            )
        )
    turn = layouts[-1].saved_usd_per_hour
    layouts = [replace(one, saved_usd_per_hour=one.saved_usd_per_hour - turn) for one in layouts]
    factor = layouts[-1].equal_blocks / layouts[0].equal_blocks if pool_hits else 1.0
    return Sharing(workers, size_blocks, peer_s, layouts, sizes, np.array(curves), factor)


def _apart(trace: Trace, worker: np.ndarray, workers: int) -> np.ndarray:
    """Stack distances (accesses,) when each request uses the cache of its worker alone."""
    sizes = np.diff(trace.block_starts)
    at = np.repeat(worker, sizes)
    found = np.empty(len(trace.block_ids))
    for w in range(workers):
        mine = at == w
        found[mine] = stack_distances(trace.block_ids[mine], np.concatenate([[0], np.cumsum(sizes[worker == w])]))
    return found


def routes(trace: Trace, workers: int) -> dict[str, np.ndarray]:
    """Worker of each request (requests,) in two ways: as `sharing` says."""
    return {
        "conversations kept together": _by_conversation(trace, workers),
        "requests in turn": np.arange(len(trace)) % workers,
    }


def _by_conversation(trace: Trace, workers: int) -> np.ndarray:
    """Worker of each request (requests,) by a hash of its second block (its only one, where it has one; 0: none)."""
    sizes = np.diff(trace.block_starts)
    place = np.minimum(trace.block_starts[:-1] + np.where(sizes > 1, 1, 0), len(trace.block_ids) - 1)
    names = np.unique(trace.block_ids, return_inverse=True)[1][place].astype(np.uint64)
    mixed = (names * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)  # Fibonacci hashing: neighbours part
    return np.where(sizes > 0, (mixed % np.uint64(workers)).astype(np.int64), 0)
