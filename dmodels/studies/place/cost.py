"""What a memory hierarchy costs per access and per request, for any sizes of its tiers, from one pass over a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import power_of_two
from dmodels.models.cache import access_s, prefill_flop, remaining_prefill_s, tier_fracs
from dmodels.models.traffic import BLOCK_TOKENS, Trace


class Tier(NamedTuple):
    """One place for KV blocks. Reading a block takes `latency_s` and its bytes at `read_bytes_per_s`."""

    name: str
    size_bytes: float  # inf: networked storage without a limit
    read_bytes_per_s: float
    latency_s: float = 0.0
    usd_per_gib: float = 0.0


class PrefillBill:
    """Mean prefill time and FLOPs per request of a trace, as functions of the number of blocks that are cached.

    A request computes what follows its first missing block, and at least its last token. `distances` (accesses,) are
    those of the prefix accounting.
    """

    def __init__(self, trace: Trace, distances: np.ndarray, model: Model, gpu: GPU, parallel: Parallel):
        self._distances, self._starts = distances, trace.block_starts
        self._input = np.asarray(trace.input_tokens, np.float64)
        self.requests_count = len(trace)
        self._formulas = (model, gpu, parallel)
        (most_s, least_s), (_, least_flop) = self.at(np.array([0.0, np.inf]))
        reused = np.isfinite(distances).sum() / self.requests_count
        #: seconds and GPU-seconds of prefill that one hit spares, in the mean; 0 where nothing is ever reused
        self.block_s = float(most_s - least_s) / reused if reused else 0.0
        self.block_gpu_s = self.block_s * float(parallel.gpus)
        self.least_flop = float(least_flop)

    def cached_tokens(self, size_blocks: float) -> np.ndarray:
        """Tokens of each request (requests,) that an LRU cache of this size spares."""
        return self.spared(np.isfinite(self._distances) & (self._distances <= size_blocks))

    def spared(self, usable: np.ndarray) -> np.ndarray:
        """Tokens of each request (requests,) spared by the accesses (accesses,) that are usable hits."""
        count = np.concatenate([[0], np.cumsum(usable)])
        blocks = count[self._starts[1:]] - count[self._starts[:-1]]
        return np.minimum(blocks * float(BLOCK_TOKENS), np.maximum(self._input - 1, 0))

    def of_tokens(self, cached_tokens: np.ndarray) -> tuple[float, float]:
        """(seconds, FLOPs) per request, means, with `cached_tokens` (requests,) in the cache."""
        room = (0, max(1024, power_of_two(self.requests_count)) - self.requests_count)
        new, cached = np.pad(self._input - cached_tokens, room), np.pad(cached_tokens, room)
        seconds, flop = _prefill(*self._formulas, new, cached, float(self.requests_count))
        return float(seconds), float(flop)

    def at(self, sizes_blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same for LRU caches of these sizes: two arrays (sizes,)."""
        rows = [self.of_tokens(self.cached_tokens(size)) for size in np.asarray(sizes_blocks, np.float64)]
        return tuple(np.array(rows).T)


@jax.jit
def _prefill(model, gpu, parallel, new_tokens, cached_tokens, requests_count):
    """Means over requests; those without new tokens are padding, so that traces of any length share a programme."""
    one = jax.vmap(lambda n, c: (remaining_prefill_s(model, gpu, parallel, n, c), prefill_flop(model, n, c)))
    seconds, flop = one(new_tokens, cached_tokens)
    real = new_tokens > 0
    return jnp.sum(jnp.where(real, seconds, 0.0)) / requests_count, jnp.sum(jnp.where(real, flop, 0.0)) / requests_count


class State(NamedTuple):
    """A hierarchy as it stands, and what is needed to change its sizes."""

    blocks: np.ndarray  # (tiers,) whole blocks
    tier_frac: np.ndarray  # (tiers,) share of accesses served
    read_s: np.ndarray  # (tiers,) seconds to read one block
    miss_s: float  # seconds to compute one block again
    access_s: float
    first_token_s: float
    recomputed_flop: float
    limited: np.ndarray  # (tiers,) bool
    sorted_distances: np.ndarray  # finite ones
    accesses: int
    requests: int
    distinct: float  # the largest size that still matters
    costs: PrefillBill


class AtSizes(NamedTuple):
    """Results by sizes (points,)."""

    hit_frac: np.ndarray
    access_s: np.ndarray
    first_token_s: np.ndarray


def bill(tiers: Sequence[Tier], weights: np.ndarray, distances: np.ndarray, costs: PrefillBill) -> State:
    """The hierarchy as it stands."""
    size = np.array([tier.size_bytes for tier in tiers])
    read = np.array([tier.latency_s + w / tier.read_bytes_per_s for tier, w in zip(tiers, weights, strict=True)])
    found = np.sort(distances[np.isfinite(distances)])
    most = float(found[-1]) if len(found) else 0.0
    state = State(
        np.floor(size / weights),
        np.zeros(len(tiers)),
        read,
        costs.block_s,
        np.nan,
        np.nan,
        np.nan,
        np.isfinite(size),
        found,
        len(distances),
        costs.requests_count,
        most,
        costs,
    )
    at = at_sizes(state, state.blocks[None, :])
    flop = costs.at(np.array([state.blocks.sum()]))[1][0] - costs.least_flop
    return state._replace(
        tier_frac=_tier_frac(state, state.blocks[None, :])[0],
        access_s=float(at.access_s[0]),
        first_token_s=float(at.first_token_s[0]),
        recomputed_flop=float(flop),
    )


def _tier_frac(state: State, blocks: np.ndarray) -> np.ndarray:
    hits = np.searchsorted(state.sorted_distances, np.cumsum(blocks, axis=1), side="right") / state.accesses
    return np.asarray(tier_fracs(jnp.asarray(hits)))


def at_sizes(state: State, blocks: np.ndarray) -> AtSizes:
    """Hit rate, access latency and time to the first token for sizes (points, tiers) in blocks."""
    frac = _tier_frac(state, blocks)
    total, where = np.unique(blocks.sum(axis=1), return_inverse=True)
    prefill = state.costs.at(total)[0][where]
    per_request = state.accesses / state.requests
    load = per_request * (frac * state.read_s[None, :]).sum(axis=1)
    access = np.asarray(access_s(jnp.asarray(frac), jnp.asarray(state.read_s)[None, :], state.miss_s))
    return AtSizes((frac * state.limited[None, :]).sum(axis=1), access, prefill + load)
