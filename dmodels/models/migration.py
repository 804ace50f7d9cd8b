r"""Live migration of a sequence's KV cache by pre-copy: rounds, time and downtime (Phasor, Appendix D).

While V bytes go over at r bytes/s the sequence decodes on and dirties g bytes/s, so round k sends
$V_k = V q^k$, $q = g/r$. Rounds go on until at most `stop_bytes` are left; then decoding stops for the last copy. A
cache only grows, so no page is sent twice: the same series.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_where
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real


class Migration(NamedTuple):
    """One sequence moved."""

    rounds_count: Real  # copies while it decodes
    total_s: Real  # from start to hand-over
    downtime_s: Real
    sent_bytes: Real
    flags: Real  # OVERLOAD: q >= 1, the rounds never shrink


def precopy(
    kv_bytes: Real, link_bytes_per_s: Real, dirty_per_s: Real, stop_bytes: Real, handover_s: Real = 0.0
) -> Migration:
    r"""Pre-copy with a threshold: $n = \lceil\ln(\epsilon/V)/\ln q\rceil$ rounds,
    $T = \frac{V}{r}\frac{1-q^{n+1}}{1-q}$, downtime $\frac{V q^n}{r} \le \epsilon/r$.

    1 GB over 10 GB/s, dirtied at 1 GB/s, down to 1 MB: three rounds, 0.1111 s, 0.1 ms of downtime.

    >>> m = precopy(1e9, 1e10, 1e9, 1e6)
    >>> float(m.rounds_count), round(float(m.total_s), 4), round(float(m.downtime_s), 7)
    (3.0, 0.1111, 0.0001)
    """
    q = dirty_per_s / link_bytes_per_s
    converges = jnp.asarray((q < 1.0) & (link_bytes_per_s > 0))
    small = jnp.clip(jnp.where(converges, q, 0.5), 1e-300, 1.0 - 1e-12)
    shrink = jnp.log(jnp.maximum(kv_bytes, 1e-300) / stop_bytes)
    rounds = jnp.maximum(jnp.ceil(shrink / -jnp.log(small) - 1e-9), 0.0)
    left = kv_bytes * small**rounds
    sent = kv_bytes * (1.0 - small ** (rounds + 1.0)) / (1.0 - small)
    never: Callable[[Real], Real] = lambda x: jnp.where(converges, x, jnp.inf)
    return Migration(
        never(rounds),
        never(sent / link_bytes_per_s + handover_s),
        never(left / link_bytes_per_s + handover_s),
        never(sent),
        flag_where(~converges, Flag.OVERLOAD),
    )


def precopy_rounds(kv_bytes: Real, link_bytes_per_s: Real, dirty_per_s: Real, rounds: Real) -> Migration:
    r"""Pre-copy with a *fixed* number of rounds: downtime $V q^n / r$ grows with the cache, unlike with a threshold.

    It ends whatever q is; where q >= 1 each round is longer than the one before (OVERLOAD).
    """
    q = dirty_per_s / link_bytes_per_s
    near = jnp.abs(q - 1.0) < 1e-9
    series = jnp.where(near, rounds + 1.0, (1.0 - q ** (rounds + 1.0)) / jnp.where(near, 1.0, 1.0 - q))
    sent = kv_bytes * series
    return Migration(
        rounds + 0.0 * sent,
        sent / link_bytes_per_s,
        kv_bytes * q**rounds / link_bytes_per_s,
        sent,
        flag_where(q >= 1.0, Flag.OVERLOAD),
    )


def break_even_tokens(
    kv_bytes_per_token: Real,
    link_bytes_per_s: Real,
    seconds_per_token: Real,
    seconds_per_token2: Real,
    base_s: Real = 0.0,
    fixed_s: Real = 0.0,
) -> Real:
    r"""The length from which moving a KV cache is quicker than computing it again.

    Moving takes $f + \kappa l/r$, recomputing $b_0 + \beta l + \alpha l^2$; they meet at the positive root of
    $\alpha l^2 + (\beta - \kappa/r) l + b_0 - f = 0$. 0 where moving always wins, inf where recomputing does.
    """
    slope = seconds_per_token - kv_bytes_per_token / link_bytes_per_s
    gap = base_s - fixed_s
    flat = seconds_per_token2 <= 0
    a = jnp.where(flat, 1.0, seconds_per_token2)
    disc = slope**2 - 4.0 * a * gap
    root = (-slope + jnp.sqrt(jnp.maximum(disc, 0.0))) / (2.0 * a)
    curved = jnp.where(disc < 0, 0.0, jnp.maximum(root, 0.0))
    level = jnp.where((slope == 0) & (gap > 0), 0.0, jnp.inf)
    line = jnp.where(slope > 0, jnp.maximum(safe_divide(-gap, slope), 0.0), level)
    return jnp.where(flat, line, curved)
