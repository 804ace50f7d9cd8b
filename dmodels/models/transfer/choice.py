"""What it costs to choose by cache alone: NetKV's Proposition 1 as a function of the context length."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real


class ObliviousLoss(NamedTuple):
    """What the cache-aware choice (far, warmer) loses against the near, colder instance."""

    loses: Real  # the near instance has the lower post-prefill latency
    gap_s: Real  # far minus near; negative where the far one is right
    ratio: Real  # far over near
    ratio_limit: Real  # ratio as the context grows without bound
    crossover_bytes: Real  # least KV size above which near wins however large; inf: none, 0: from the first byte


def oblivious_loss(
    kv_bytes: Real,
    near_hit_frac: Real,
    far_hit_frac: Real,
    near_bytes_per_s: Real,
    far_bytes_per_s: Real,
    near_fixed_s: Real = 0.0,
    far_fixed_s: Real = 0.0,
) -> ObliviousLoss:
    r"""When the network-oblivious choice loses, and by how much, for a KV cache of `kv_bytes`.

    Near wins iff $(1-h_i)/R' < (1-h_j) + (B_j/s)[(q_j+d_j) - (q_i+d_i)]$, $R' = B_i/B_j$ the ratio of *effective*
    bandwidths and the fixed terms queue plus first step: Eq. (8). The gap is linear in s, hence unbounded. The
    *ratio* is not: it is monotone in s with limit $R'(1-h_j)/(1-h_i) \le R'$, so "arbitrarily suboptimal as context
    length grows" holds for seconds and fails for factors.

    >>> loss = oblivious_loss(10e9, 0.0, 0.5, 12.5e9, 3.125e9)     # R = 4, half the prefix is far away
    >>> bool(loss.loses), float(loss.ratio)
    (True, 2.0)
    """
    near = kv_bytes * safe_divide(1.0 - near_hit_frac, near_bytes_per_s) + near_fixed_s
    far = kv_bytes * safe_divide(1.0 - far_hit_frac, far_bytes_per_s) + far_fixed_s
    slope = safe_divide(1.0 - far_hit_frac, far_bytes_per_s) - safe_divide(1.0 - near_hit_frac, near_bytes_per_s)
    extra = near_fixed_s - far_fixed_s  # what nearness must first repay
    ahead = (slope >= 0) & (extra < 0)  # at equal slopes the head start lasts, whatever the size
    crossover = jnp.where(ahead, 0.0, safe_divide(jnp.maximum(extra, 0.0), slope))
    limit = safe_divide((1.0 - far_hit_frac) * near_bytes_per_s, (1.0 - near_hit_frac) * far_bytes_per_s)
    return ObliviousLoss(far > near, far - near, safe_divide(far, near), limit, crossover)
