r"""How wrong telemetry may be before the network-aware choice turns wrong, and what a wrong choice costs.

The cost of candidate k is $C_k = A_k/(1-c_k) + D_k$: $A_k = s_k (n_k+1)/B_k$ is its transfer time on an idle fabric,
$c_k$ the congestion of its tier, $D_k$ everything that congestion does not touch (queue, first step, latency).
Telemetry reads $\hat c_k$ with $|\hat c_k - c_k| \le \delta$.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real


def tier_staleness_tolerance(
    ratio: Real, fast_congestion: Real, slow_congestion: Real, fast_in_flight: Real = 0.0, slow_in_flight: Real = 0.0
) -> Real:
    r"""Largest error of both congestions that cannot invert the order of two tiers' *bandwidths*.

    $\delta^* = |R' u - v| / (R' + 1)$ with $u = 1 - c_{fast}$, $v = 1 - c_{slow}$ and
    $R' = R (n_{slow}+1)/(n_{fast}+1)$, R the ratio of the tiers' bandwidths. The worst error deflates one tier and
    inflates the other, so the bound is attained.

    NetKV, Proposition 2, Eq. (9), for R' u > v. Where the right side of (9) is negative the paper says that no
    tolerance exists; the *other* order is then the true one and keeps exactly this margin. The same formula on stale
    readings certifies the order that they show. It speaks of bandwidths only: for the choice of a candidate see
    `cost_staleness_tolerance`.

    >>> round(float(tier_staleness_tolerance(4.0, 0.3, 0.3)), 6)
    0.42
    """
    share = ratio * (slow_in_flight + 1.0) / (fast_in_flight + 1.0)
    return jnp.abs(share * (1.0 - fast_congestion) - (1.0 - slow_congestion)) / (share + 1.0)


def cost_staleness_tolerance(
    idle_s_i: Real, idle_s_j: Real, congestion_i: Real, congestion_j: Real, fixed_s_i: Real = 0.0, fixed_s_j: Real = 0.0
) -> Real:
    r"""Largest error of both congestions that cannot invert the order of two candidates' *costs* on different tiers.

    With i the truly cheaper one, $D = D_j - D_i$ and $N = A_j u - A_i v + D u v > 0$, the worst reading meets
    $A_i/(u-\delta) = A_j/(v+\delta) + D$, i.e. $D\delta^2 + b\delta - N = 0$, $b = A_i + A_j - D(u-v)$, whose first
    positive root is

    $\delta^* = 2N / (b + \sqrt{(D(u+v) + A_j - A_i)^2 + 4 A_i A_j}).$

    D = 0 and equal payloads give Proposition 2. `inf` where no reading inverts the order. NetKV states after
    Proposition 2 that the composite cost is "at least as well ranked" as the bandwidths; it is not (first example:
    0.0017 against 0.1667). With more than two candidates on distinct tiers the choice is safe up to the smallest
    tolerance against the best one.

    >>> tol = cost_staleness_tolerance(1.0, 0.5, 0.5, 0.5, 0.0, 1.01)   # A = s/B = 2/2 and 0.5/1
    >>> round(float(tol), 6)
    0.001665
    >>> round(float(cost_staleness_tolerance(0.25, 1.0, 0.3, 0.3)), 6)   # R = 4, equal payloads
    0.42
    """
    u, v = 1.0 - congestion_i, 1.0 - congestion_j
    delay = fixed_s_j - fixed_s_i
    margin = idle_s_j * u - idle_s_i * v + delay * u * v
    forward = _first_crossing(idle_s_i, idle_s_j, u, v, delay, margin)
    backward = _first_crossing(idle_s_j, idle_s_i, v, u, -delay, -margin)
    return jnp.where(margin >= 0, forward, backward)


def same_tier_tolerance(
    idle_s_i: Real, idle_s_j: Real, congestion: Real, fixed_s_i: Real = 0.0, fixed_s_j: Real = 0.0
) -> Real:
    r"""Error of the one congestion that two candidates on the *same* tier share at which their order inverts.

    The costs cross where $1 - \hat c = (A_i - A_j)/D$, $D = D_j - D_i$, so the tolerance is $|u + (A_j - A_i)/D|$;
    `inf` where no $\hat c < 1$ is a crossing. Proposition 2 sees no risk here at all (the bandwidths are equal).

    >>> round(float(same_tier_tolerance(1.0, 0.4, 0.2, 0.0, 1.0)), 9)   # 1.25 against 1.5 s; tie at c = 0.4
    0.2
    """
    crossing = safe_divide(
        jnp.abs(idle_s_i - idle_s_j), jnp.abs(fixed_s_j - fixed_s_i), jnp.inf
    )  # at which 1 - c the costs tie, if the signs allow it
    opposed = (idle_s_i - idle_s_j) * (fixed_s_j - fixed_s_i) > 0
    return jnp.where(opposed, jnp.abs(1.0 - congestion - crossing), jnp.inf)


def stale_regret_bound_s(
    idle_s_best: Real, idle_s_chosen: Real, congestion_best: Real, congestion_chosen: Real, error: Real
) -> Real:
    r"""Most seconds that a choice made on readings within `error` can cost more than the best choice.

    $C_k - C_b \le \delta\,[A_k/(v(v+\delta)) + A_b/(u(u-\delta))]$: the reading of k flatters it by the first term at
    most, that of b slanders it by the second. `inf` where the error can make the best tier look full.

    >>> round(float(stale_regret_bound_s(1.0, 1.0, 0.5, 0.5, 0.1)), 4)
    0.8333
    """
    u, v = 1.0 - congestion_best, 1.0 - congestion_chosen
    flattery = safe_divide(idle_s_chosen, v * (v + error))
    slander = jnp.where(idle_s_best > 0, safe_divide(idle_s_best, u * jnp.maximum(u - error, 0.0)), 0.0)
    return jnp.where(error > 0, error * (flattery + slander), 0.0)


def worst_stale_regret_s(idle_s: Real, congestion: Real, fixed_s: Real, error: Real) -> Real:
    r"""Exact worst regret over all readings within `error`, for candidates (..., K) on K distinct tiers.

    Candidate k can be chosen iff its most flattering cost $A_k/(v_k+\delta) + D_k$ is at most every rival's most
    slandered one $A_m/(v_m-\delta) + D_m$; the answer is the dearest such k minus the best.
    """
    free = 1.0 - congestion
    true = safe_divide(idle_s, free) + fixed_s
    flattered = safe_divide(idle_s, free + error) + fixed_s
    slandered = jnp.where(idle_s > 0, safe_divide(idle_s, jnp.maximum(free - error, 0.0)), 0.0) + fixed_s
    rival = jnp.where(
        jnp.eye(idle_s.shape[-1], dtype=bool).reshape((1,) * (idle_s.ndim - 1) + (idle_s.shape[-1],) * 2),
        jnp.inf,
        jnp.expand_dims(slandered, -2),
    ).min(-1)
    can_win = flattered <= rival
    return jnp.where(can_win, true, -jnp.inf).max(-1) - true.min(-1)


def refresh_interval_s(tolerance: Real, std: Real, correlation_time_s: Real, deviations: Real = 2.576) -> Real:
    r"""Longest refresh interval at which a reading's error stays below `tolerance`.

    A stationary signal with autocorrelation $e^{-\Delta/\tau}$ drifts by $\sqrt{2(1-e^{-\Delta/\tau})}\,\sigma$
    (root mean square) in $\Delta$; asking `deviations` of these (2.576: 99 % of Gaussian drifts; any signal: at least
    $1 - 1/k^2$, Chebyshev) to fit gives $\Delta = -\tau \ln(1 - \delta^2/(2 k^2\sigma^2))$; `inf` where even unrelated
    readings are close enough.

    >>> round(float(refresh_interval_s(0.1, 0.05, 60.0)), 1)
    21.5
    """
    spread = safe_divide(jnp.square(tolerance), 2.0 * jnp.square(deviations * std))
    return jnp.where(spread < 1.0, -correlation_time_s * jnp.log1p(-jnp.minimum(spread, 1.0 - 1e-16)), jnp.inf)


def correlation_time_s(readings: Real, step_s: Real) -> Real:
    r"""Correlation time of telemetry (..., T) sampled every `step_s`: $\tau = -\Delta/\ln\hat\phi_1$.

    $\hat\phi_1$ is the lag-one autocorrelation. 0 where it is not positive (nothing to extrapolate), `inf` for a
    constant signal.
    """
    centred = readings - readings.mean(-1, keepdims=True)
    power = jnp.square(centred).sum(-1)
    lag_one = safe_divide((centred[..., 1:] * centred[..., :-1]).sum(-1), power, 1.0)
    inside = (lag_one > 0) & (lag_one < 1)
    tau = -step_s / jnp.log(jnp.where(inside, lag_one, 0.5))
    return jnp.where(inside, tau, jnp.where(lag_one >= 1, jnp.inf, 0.0))


def _first_crossing(a_i: Real, a_j: Real, u: Real, v: Real, delay: Real, margin: Real) -> Real:
    """First error at which i, truly cheaper, reads as dear as j. Payloads of zero leave the quadratic degenerate."""
    b = a_i + a_j - delay * (u - v)
    root = jnp.sqrt(jnp.square(delay * (u + v) + a_j - a_i) + 4.0 * a_i * a_j)
    sends_nothing = jnp.where(delay < 0, safe_divide(a_j, -delay) - v, jnp.inf)  # u - delta cancels from the equation
    return jnp.where(a_i > 0, safe_divide(2.0 * margin, b + root, 0.0), sends_nothing)
