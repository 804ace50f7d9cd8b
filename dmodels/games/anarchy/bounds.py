r"""Prices of anarchy that are known in closed form, with the class of games for which each holds.

Atomic: every request counts, as in `routing`. Nonatomic: load is a fluid of total rate r (Wardrop).
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real

#: Atomic congestion games with affine latencies (Christodoulou and Koutsoupias, STOC 2005). In the routing game it
#: holds for every omega and all overlaps in the miss form, because a miss is a private resource with constant latency.
AFFINE_ATOMIC = 2.5
#: Nonatomic affine routing (Roughgarden and Tardos 2002); atomic too where every request may use every worker at omega
#: 0.
AFFINE_NONATOMIC = 4.0 / 3.0
#: Affine latencies and requests of unequal size (Awerbuch, Azar, Epstein 2005): (3 + sqrt 5) / 2.
AFFINE_WEIGHTED = (3.0 + math.sqrt(5.0)) / 2.0


def polynomial_atomic(degree: int) -> float:
    r"""Exact price of anarchy of atomic congestion games with polynomial latencies of degree d, coefficients >= 0.

    $\frac{(k+1)^{2d+1} - k^{d+1}(k+2)^d}{(k+1)^{d+1} - (k+2)^d + (k+1)^d - k^{d+1}}$, $k = \lfloor\Phi_d\rfloor$,
    $\Phi_d^{d+1} = (\Phi_d + 1)^d$ (Aland et al., STACS 2006). 2.5, 9.583, 41.54, 267.6 for d = 1..4, which is far
    below the d^d that the price-of-anarchy paper quotes.

    >>> [round(polynomial_atomic(d), 3) for d in (1, 2, 3, 4)]
    [2.5, 9.583, 41.536, 267.643]
    """
    if degree < 1 or degree != int(degree):
        raise InputError(f"degree = {degree}; accepted are whole numbers from 1")
    d, k = int(degree), 1
    while (k + 1) ** (d + 1) <= (k + 2) ** d:  # exact integers: k = floor(Phi_d)
        k += 1
    top = (k + 1) ** (2 * d + 1) - k ** (d + 1) * (k + 2) ** d
    out: float = top / ((k + 1) ** (d + 1) - (k + 2) ** d + (k + 1) ** d - k ** (d + 1))
    return out


def polynomial_weighted(degree: int) -> float:
    r"""The same for requests of unequal size: $\Phi_d^{d+1}$ (Aland et al. 2006); (3 + sqrt 5)/2 for d = 1."""
    if degree < 1:
        raise InputError(f"degree = {degree}; accepted are numbers from 1")
    from scipy.optimize import brentq

    root: float = brentq(lambda x: (degree + 1) * math.log(x) - degree * math.log(x + 1), 1.0, 2.0 + 2.0 * degree)
    return root ** (degree + 1)


def polynomial_nonatomic(degree: Real) -> Real:
    r"""$\left(1 - d\,(d+1)^{-(d+1)/d}\right)^{-1}$ (Roughgarden 2003).

    4/3, 1.626, 1.896, 2.151 for d = 1..4.
    """
    return 1.0 / (1.0 - degree * (degree + 1.0) ** (-(degree + 1.0) / degree))


def singleton_price(f: Real) -> np.ndarray:
    r"""Bound on the price of anarchy without cache terms for nondecreasing tables f (..., m, K): $1/(1 - \beta)$.

    $\beta = \max_{j,\,o<n} \frac{o\,(f_j(n) - f_j(o))}{n f_j(n)}$: match each surplus request of an equilibrium to a
    free place of the optimum. Attained; 4/3 at most for affine f. inf where an f decreases or is infinite.
    """
    f = np.asarray(f, np.float64)
    n = np.arange(1.0, f.shape[-1] + 1.0)
    safe = np.where(np.isfinite(f), f, 0.0)
    ok = np.isfinite(f).all((-2, -1)) & (np.diff(safe, axis=-1) >= 0).all((-2, -1))
    beta = np.zeros(f.shape[:-2])
    for o in range(1, f.shape[-1]):
        later, at = safe[..., o:], safe[..., o - 1 : o]
        share = np.where(later > 0, o * (later - at) / np.where(later > 0, n[o:] * later, 1.0), 0.0)
        beta = np.maximum(beta, share.max((-2, -1)))
    return np.where(ok, 1.0 / (1.0 - beta), np.inf)  # beta is at most 1 - 1/K


def identical_workers_price(latency_s: Real, omega: Real) -> Real:
    r"""$1 + \omega/f(N/m)$: identical workers with k f(k) convex and m | N, any overlaps in [0, 1], miss form.

    Tight for omega <= f(N/m + 1) - f(N/m). It *falls* to 1 as latency grows, where the paper expects it to grow.

    >>> identical_workers_price(0.18, 0.015)  # the paper's constants at 32 requests a worker (C = 64, m = 2)
    1.0833333333333333
    """
    return 1.0 + omega / latency_s


def pole_price(workers: Real, beta: Real) -> Real:
    r"""$m^\beta$: m parallel workers with latencies $d/(c_j - x)^\beta$, all loads, nonatomic (Haviv-Roughgarden: beta
    1).

    The bound is approached and is no divergence: it does not depend on how near to saturation the load is.
    """
    return workers**beta


def pole_limit(n_sat: Real, d: Real, beta: Real) -> Real:
    r"""Nonatomic price of anarchy as the load approaches total capacity, for $f_j = a_j x + b_j + d_j/(c_j - x)^\beta$.

    $\frac{(\sum_j c_j)\,(\sum_j d_j^{1/\beta})^\beta}{(\sum_j (c_j d_j)^{1/(\beta+1)})^{\beta+1}}$ over the last axis:
    a_j and b_j do not matter. At least 1 by Hoelder, and 1 exactly if $c_j \propto d_j^{1/\beta}$, so for identical
    workers. The paper says that it diverges. c = (1, 4), d = (1, 1), beta = 1: 10/9.

    >>> round(float(pole_limit(np.array([1.0, 4.0]), np.array([1.0, 1.0]), 1.0)), 12)
    1.111111111111
    """
    equilibrium = jnp.sum(d ** (1.0 / beta), axis=-1) ** beta
    optimal = jnp.sum((n_sat * d) ** (1.0 / (beta + 1.0)), axis=-1) ** (beta + 1.0)
    return jnp.sum(n_sat + 0.0 * d, axis=-1) * equilibrium / optimal


def softmax_regret(tau: Real, workers: Real) -> np.ndarray:
    r"""The most by which softmax routing of Eq. (2) exceeds the cheapest worker's cost: $\tau\,W_0((m - 1)/e)$. Tight.

    m = 2, 3, 5: 0.278 tau, 0.463 tau, 0.718 tau. Lambert's W; costs and tau in the same unit.

    >>> round(float(softmax_regret(1.0, 5)), 3)
    0.718
    """
    from scipy.special import lambertw

    out: np.ndarray = np.asarray(tau) * lambertw((np.asarray(workers, np.float64) - 1.0) / math.e).real
    return out
