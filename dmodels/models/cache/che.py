r"""Che's approximation: the hit rate of an LRU cache from popularities alone, in closed form, for all sizes at once.

In the independent reference model (IRM) block i is asked for at rate $\lambda_i$, whatever came before. An LRU cache
of C blocks then holds a block for about one and the same time T after its last use, the characteristic time, with
$\sum_i (1 - e^{-\lambda_i T}) = C$, and $h_i = 1 - e^{-\lambda_i T}$ (Che, Tung & Wang, IEEE JSAC 20(7), 2002;
why it is so good: Fricker, Robert & Roberts, ITC 24, 2012). A cache that drops a block T after its last use (TTL) has
exactly this hit rate.

It needs the IRM in steady state. It does not hold where uses of a block come in bursts (a conversation: LRU does
better), in loops (a scan longer than the cache: LRU does worse), nor for a trace so short that most misses are first
uses; `shuffled_hit_frac` is the last case in closed form.

Popularities come as `rate` (kinds,) with `count` (kinds,) blocks of each kind: a trace of 180,000 blocks has some
fifty kinds. Sizes come as arrays (sizes,).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.records import Real, jit
from dmodels.solvers.bracket import chandrupatla, polished


@jit  # or the search's loop would be compiled anew at each call
def characteristic_time(capacity_blocks: Real, rate: Real, count: Real) -> Real:
    r"""T (sizes,) with $\sum_k n_k (1 - e^{-\lambda_k T}) = C$; 0 for no capacity, inf where everything fits.

    >>> t = characteristic_time(jnp.array([50.0]), jnp.array([2.0]), jnp.array([100.0]))
    >>> round(float(t[0]), 6)                                                           # ln(2)/2
    0.346574
    """
    kept = lambda t, rate: -jnp.expm1(-rate[None, :] * t[:, None])
    slope = lambda t: rate[None, :] * jnp.exp(-rate[None, :] * t[:, None])
    longest = lambda room: -jnp.log(room) / jnp.min(jnp.where(count > 0, rate, jnp.inf))
    return _time(capacity_blocks, rate, count, kept, slope, longest)


def lru_hit_frac(capacity_blocks: Real, rate: Real, count: Real) -> Real:
    r"""Hit rate (sizes,) of LRU caches of `capacity_blocks` (sizes,) under the IRM.

    >>> float(lru_hit_frac(jnp.array([50.0]), jnp.array([2.0]), jnp.array([100.0]))[0])     # all alike: C of m
    0.5
    """
    return ttl_hit_frac(characteristic_time(capacity_blocks, rate, count), rate, count)


def ttl_hit_frac(ttl_s: Real, rate: Real, count: Real) -> Real:
    r"""Hit rate (sizes,) of a cache that drops a block `ttl_s` after its last use: exact under the IRM.

    $\sum_k n_k \lambda_k (1 - e^{-\lambda_k T}) / \sum_k n_k \lambda_k$
    """
    share = rate * count / jnp.sum(rate * count)
    return jnp.sum(share[None, :] * _used_within(ttl_s, rate), axis=1)


@jit  # or the search's loop would be compiled anew at each call
def shuffled_hit_frac(capacity_blocks: Real, uses: Real, count: Real) -> Real:
    r"""Expected hit rate (sizes,) of LRU on a whole trace in random order, from an empty cache.

    A block used n times has its uses at n random instants of [0, 1]. One of the n - 1 gaps between them exceeds T with
    probability $(1 - T)^n$, and so does the time without use before an instant:
    $\sum_k m_k (n_k - 1)(1 - (1-T)^{n_k})$ hits in $\sum_k m_k n_k$ uses, with $\sum_k m_k (1 - (1-T)^{n_k}) = C$.
    First uses miss, so that it ends at $1 - \text{blocks}/\text{uses}$; Che's, in steady state, ends at 1.

    uses   of each block (kinds,), whole numbers from 1
    count  blocks that are used so often (kinds,)

    >>> float(shuffled_hit_frac(jnp.array([200.0]), jnp.array([4.0]), jnp.array([100.0]))[0])    # 3 of 4 uses
    0.75
    """
    kept = lambda t, uses: -jnp.expm1(uses[None, :] * jnp.log1p(-t[:, None]))
    slope = lambda t: uses[None, :] * (1.0 - t[:, None]) ** (uses[None, :] - 1.0)
    longest = lambda room: 1.0 - room ** (1.0 / jnp.min(jnp.where(count > 0, uses, jnp.inf)))
    time = jnp.minimum(_time(capacity_blocks, uses, count, kept, slope, longest), 1.0)
    share = count * (uses - 1.0) / jnp.sum(uses * count)
    safe = jnp.where(time < 1.0, time, 0.0)
    return jnp.sum(share[None, :] * jnp.where(time[:, None] < 1.0, kept(safe, uses), 1.0), axis=1)


def eviction_externality(time_s: Real, rate: Real, count: Real) -> Real:
    r"""Hits that others lose because one block more is stored and never used again, at characteristic time T (sizes,).

    A stream of such blocks at rate $\delta$ takes $\delta T$ places, so that $dT/d\delta = -T/\sum_k n_k\lambda_k
    e^{-\lambda_k T}$ at $\delta = 0$, and the others' hit rate falls by

    $E = T \frac{\sum_k n_k \lambda_k^2 e^{-\lambda_k T}}{\sum_k n_k \lambda_k e^{-\lambda_k T}}$ hits per block,

    T times the hits per second that one place more would bring: the externality of section 5.3 of "The Price of
    Anarchy in Disaggregated Inference", in closed form. It rises from 0 with the capacity, like $\lambda_{min} T$ where
    nearly everything fits, and is 0 where everything does (proofs/placement/prop_p5_externality.py).

    >>> t = jnp.array([0.5, jnp.inf])
    >>> [round(float(e), 6) for e in eviction_externality(t, jnp.array([2.0]), jnp.array([100.0]))]   # lambda T
    [1.0, 0.0]
    """
    finite = jnp.isfinite(time_s)
    t = jnp.where(finite, time_s, 0.0)
    # relative to the rarest kind, so that neither sum underflows where T is long
    rarest = jnp.min(jnp.where(count > 0, rate, jnp.inf))
    left = count[None, :] * rate[None, :] * jnp.exp(-(rate - rarest)[None, :] * t[:, None])
    return jnp.where(finite, t * jnp.sum(left * rate[None, :], axis=1) / jnp.sum(left, axis=1), 0.0)


def popularity(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uses, count) of a trace's blocks: how often, and how many are used so often; both (kinds,), float64.

    >>> [x.tolist() for x in popularity(np.array([7, 7, 7, 1, 2]))]
    [[1.0, 3.0], [2.0, 1.0]]
    """
    uses, count = np.unique(np.unique(ids, return_counts=True)[1], return_counts=True)
    return uses.astype(np.float64), count.astype(np.float64)


def _used_within(time_s, rate) -> Real:
    """Probability (sizes, kinds) that a block is used within a time; 1, with finite derivatives, where it is inf."""
    finite = jnp.isfinite(time_s)
    safe = jnp.where(finite, time_s, 0.0)
    return jnp.where(finite[:, None], -jnp.expm1(-rate[None, :] * safe[:, None]), 1.0)


def _time(capacity, rate, count, kept, slope, longest) -> Real:
    """T with sum(count * kept(T, rate)) = capacity, where kept(T, rate) <= rate T and longest(1 - C/m) is long enough.

    The root is searched with everything fixed, then given the derivative of the implicit function.
    """
    total = jnp.sum(count)
    inside = (capacity > 0.0) & (capacity < total)
    size = jnp.where(inside, capacity, 0.5 * total)
    over = lambda t, size, rate, count: jnp.sum(count[None, :] * kept(t, rate), axis=1) - size
    fixed = tuple(map(jax.lax.stop_gradient, (size, rate, count)))
    low = jax.lax.stop_gradient(size / jnp.sum(rate * count))
    high = jnp.maximum(jax.lax.stop_gradient(longest(1.0 - size / total)), low)
    root = chandrupatla(lambda t: over(t, *fixed), low, high, over(low, *fixed), over(high, *fixed))
    time = polished(lambda t: over(t, size, rate, count), root, jnp.sum(count[None, :] * slope(root), axis=1))
    return jnp.where(inside, time, jnp.where(capacity > 0.0, jnp.inf, 0.0))
