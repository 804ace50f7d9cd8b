r"""Waiting lines in O(1): Erlang B and C for any number of servers, the M/G/c waiting tail, closed loops.

All formulas are smooth and broadcast. Where they are exact and where approximate is said at each; outside the
stable region waiting is infinite, with a finite gradient on the stable side.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.numerics import clip, exp, log, log1p, maximum, minimum, safe_divide, summed
from dmodels.core.records import Real, jit

#: Gauss-Legendre rule of Jagerman's integral below; 40 nodes leave a relative error under 1e-7 everywhere
#: and under 1e-10 at loads above 1 % (see the tests).
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


@jit  # one program, where thirty small ones would be compiled for each new shape
def inverse_erlang_b(servers: Real, load: Real) -> Real:
    r"""1/B(c, a), the reciprocal of the Erlang loss probability, for real $c \ge 0$ and $a > 0$.

    $1/B = \int_0^\infty e^{-t}(1 + t/a)^c\,dt$ (Jagerman 1974), here with $1 + t/a = e^v$, where the integrand
    $a\,e^{(c+1)v - a(e^v - 1)}$ is log-concave: a fixed Gauss-Legendre rule over the window that carries it
    costs the same for 1 server and for 10^5. Saturates at 1e300 where the loss is negligible.

    >>> round(float(inverse_erlang_b(2.0, 1.0)), 9)
    5.0
    """
    servers, load = jnp.asarray(servers, float), jnp.asarray(load, float)
    c, a = jnp.broadcast_arrays(servers, maximum(load, 1e-300))
    power = c + 1.0
    # log of the integrand's maximum over v >= 0, at v = max(0, log((c + 1) / a))
    peak = maximum(log(power / a), 0.0)
    rate = maximum(a, power)  # a e^peak
    top = power * peak - (rate - a)
    # The window ends where the integrand has fallen by e^-34. To the right the exponent falls by
    # slope x + rate (e^x - 1 - x) with slope = rate - power >= 0, to the left by power (e^-x - 1 + x).
    drop = 34.0
    slope, y = maximum(rate - power, 0.0), drop / rate
    right_linear = 2.0 * drop / (slope + jnp.sqrt(slope**2 + 2.0 * rate * drop))
    right = peak + minimum(right_linear, log1p(y + jnp.sqrt(2.0 * y)))
    left = maximum(peak - jnp.sqrt(2.0 * drop / power) - drop / power, 0.0)
    half = (right - left) / 2.0

    def weighed(node: Real, weight: Real) -> tuple[Real, tuple[()]]:
        v = left + half * node
        # not expm1: it costs four times as much, and a (e^v - 1) loses 2e-16 a at most, 1e-10 at 10^5 servers
        return weight * exp(power * v - a * (exp(v) - 1.0) - top), ()

    integral = half * summed(weighed, (1.0 + _NODES).astype(c.dtype), _WEIGHTS.astype(c.dtype), unroll=4)[0]
    return jnp.exp(minimum(log(a * integral) + top, 690.0))


def erlang_b(servers: Real, load: Real) -> Real:
    """Probability that all of `servers` are busy in M/G/c/c at offered load a = arrival rate x mean service.

    Exact (and insensitive to the service distribution). B(2, 1) = 1/5.
    """
    return 1.0 / inverse_erlang_b(servers, load)


@jit
def erlang_c(servers: Real, load: Real) -> Real:
    r"""Probability of waiting in M/M/c: $C = \frac{c}{a + (c - a)/B}$; 1 at and above saturation.

    Written with 1/B so that neither $\rho \to 1$ nor 10^5 servers lose digits. C(2, 1) = 1/3.

    >>> round(float(erlang_c(2.0, 1.0)), 9)
    0.333333333
    """
    busy = load > 1e-12 * servers
    waits = busy & (load < servers)
    safe_load = jnp.where(waits, load, 0.5 * servers)
    c = servers / (safe_load + (servers - safe_load) * inverse_erlang_b(servers, safe_load))
    return jnp.where(waits, c, jnp.where(busy, 1.0, 0.0))


def wait_mean_s(
    arrival_rps: Real, service_s: Real, servers: Real = 1.0, service_scv: Real = 1.0, arrival_scv: Real = 1.0
) -> Real:
    r"""Mean wait of G/G/c: $E[W] = \frac{C(c, a)\,E[S]}{c - a}\,\frac{c_a^2 + c_s^2}{2}$ (Allen-Cunneen).

    Exact for M/M/c and M/G/1 (Pollaczek-Khinchine); for M/G/c within a few percent at high load and an
    over-estimate of small waits at low load. inf where unstable. M/D/1 at rho = 1/2, E[S] = 1: 0.5 s.

    >>> round(float(wait_mean_s(0.5, 1.0, service_scv=0.0)), 12)
    0.5
    """
    load = arrival_rps * service_s
    wait = safe_divide(service_s * erlang_c(servers, load), servers - load)
    return wait * (arrival_scv + service_scv) / 2.0


def service_factor(servers: Real, load: Real, service_scv: Real) -> Real:
    r"""E[W] of M/G/c over that of M/M/c (Kimura 1986), $(1 + c_s^2) / (2 c_s^2 + (1 - c_s^2)/d)$.

    d is M/D/c's, $\frac12 + \frac12 (1 - \rho)(c - 1) (\sqrt{4 + 5c} - 2) / (16 \rho c)$, at most 1 (Cosmetatos
    1975). One server, and saturation, give $(1 + c_s^2)/2$; many servers that are seldom all busy 1.

    >>> [round(float(service_factor(c, 0.8 * c, 0.0)), 3) for c in (1.0, 10.0)]
    [0.5, 0.538]
    """
    rho = maximum(safe_divide(load, servers), 1e-3)
    several = (servers - 1.0) * (jnp.sqrt(4.0 + 5.0 * servers) - 2.0) / (16.0 * servers)
    d = clip(0.5 + 0.5 * several * (1.0 - rho) / rho, 0.5, 1.0)
    return (1.0 + service_scv) / (2.0 * service_scv + (1.0 - service_scv) / d)


def wait_tail(t_s: Real, wait_probability: Real, mean_s: Real) -> Real:
    r"""P(W > t) with an exponential tail: $P_w\,e^{-t P_w / E[W]}$.

    Exact for M/M/c; otherwise it keeps the probability and the mean of waiting.
    """
    scale = safe_divide(mean_s, wait_probability, 0.0)
    return wait_probability * jnp.exp(-safe_divide(t_s, scale, jnp.where(t_s > 0, jnp.inf, 0.0)))


@jit  # or its loops would be compiled anew at each call
def sum_quantile_s(q: Real, wait_probability: Real, mean_s: Real, edges_s: Real, levels: Real) -> Real:
    r"""Quantile q of W + P: a wait and an independent part of the response, never a sum of two quantiles.

    W is 0 with probability $1 - P_w$, else exponential with mean $\theta = E[W]/P_w$. P is given by its quantile
    table: `edges_s` (..., k), increasing, at `levels` (k,) from 0 to 1, uniform between two edges. With $S_j$ the
    probability that P lies below edge j and the sum above it, $S_{j+1} = S_j e^{-\Delta_j/\theta} +
    \text{the share of interval j}$, so one exponential an edge brackets the answer; beyond the last edge it is
    $p_k + \theta\ln(S_k/(1-q))$, inside interval j Newton solves $a - b u + c\,e^{-u/\theta} = 1 - q$ from the side
    on which it converges monotonically. Exact for this W and P; inf where the wait is infinite.
    """
    target = 1.0 - q
    finite = jnp.isfinite(mean_s)
    theta = safe_divide(jnp.where(finite, mean_s, 0.0), wait_probability, 0.0)
    theta = maximum(theta, 1e-9 * edges_s[..., -1] + 1e-12)
    target, theta, p_wait = jnp.broadcast_arrays(target, theta, jnp.asarray(wait_probability, float))
    rate = 1.0 / theta
    nothing, edges, levels = jnp.zeros_like(theta), jnp.moveaxis(edges_s, -1, 0), jnp.asarray(levels)

    def density(mass: Real, width: Real) -> tuple[Real, Real, Real]:
        """(whether P is spread over the interval, its density, what S_{j+1} would have of it if no wait were over)."""
        wide = width > 1e-9 * theta
        per_s = mass / jnp.where(wide, width, theta)
        return wide, per_s, per_s * theta * p_wait

    # A scan: unrolled, it compiles far longer. It keeps the last interval that begins with the sum above too often.
    def climb(state: tuple[Any, ...], end: tuple[Real, Real]) -> tuple[tuple[Any, ...], None]:
        edge, level, below, kept = state  # where the interval begins, and S_j
        width, mass = end[0] - edge, end[1] - level
        inside = (1.0 - level) + below > target
        here = (edge, width, level + nothing, mass + nothing, below)
        wide, _, over = density(mass, width)
        decay = exp(-width * rate)
        below = below * decay + over * jnp.where(wide, 1.0 - decay, 1.0)
        return (*end, below, [jnp.where(inside, *each) for each in zip(here, kept, strict=True)]), None

    begins = (edges[0], levels[0], nothing, [nothing] * 5)
    (last, _, below, (start, gap, level, mass, at)), _ = jax.lax.scan(climb, begins, (edges, levels))
    wide, slope, over = density(mass, gap)
    start, gap, slope = jnp.where(wide, start, start + gap), jnp.where(wide, gap, 0.0), jnp.where(wide, slope, 0.0)
    curve = at - over
    head = 1.0 - level + over

    def newton(_: Real, u: Real) -> Real:
        bend = curve * exp(-u * rate)
        return clip(u + (head - slope * u + bend - target) / (slope + bend * rate + 1e-300), 0.0, gap)

    u = jax.lax.fori_loop(0, 8, newton, jnp.where(curve >= 0, 0.0, gap))
    beyond = below > target
    tail = theta * log(jnp.where(beyond, below, 1.0) / jnp.where(beyond, target, 1.0))
    answer = jnp.where(beyond, last + tail, start + u)
    return jnp.where(finite, answer, jnp.inf)


def fluid_occupancy(arrival_rps: Real, iterations: Real, base_s: Real, per_sequence_s: Real) -> Real:
    r"""Requests in flight where an iteration takes W + H n: $n^* = \frac{W x}{1 - H x}$, x = arrival rate x iterations.

    Exact for the fluid limit (token-budget paper's Eq. (9) with n = x t(n)); inf where x H >= 1. It is 6 to 9 %
    low on TPOT where occupancy fluctuates. W = 8 ms, H = 0.65 ms, x = 800/s: 13.3 in flight.
    """
    x = arrival_rps * iterations
    return safe_divide(base_s * x, 1.0 - per_sequence_s * x)


def closed_loop_rps(clients: Real, think_s: Real, service_s: Real) -> Real:
    r"""Throughput of N clients that think Z on average and share one exponential server: $(1 - B(N, Z/S))/S$.

    Exact (the finite-source queue; insensitive to the think-time distribution). Bounded by N/(Z + S) and 1/S,
    which meet at the knee N* = 1 + Z/S. N = 2, Z = S = 1: 0.8/s.

    >>> round(float(closed_loop_rps(2.0, 1.0, 1.0)), 9)
    0.8
    """
    return (1.0 - erlang_b(clients, think_s / service_s)) / service_s
