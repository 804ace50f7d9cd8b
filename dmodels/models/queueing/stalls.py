r"""TPOT of one request when prompts of others stall its tokens: why short answers see the worst of it.

An answer of G gaps takes $G\,t_0$ for its own steps, and each prompt that is computed meanwhile stalls it by K. Prompts
come at rate x during its own steps, those that came while it waited for its own first token (T seconds) are computed
right after it, and during every stall more come: a stall grows to a busy period, by $1/(1 - \rho)$ in the mean and
$1/(1 - \rho)^3$ in the second moment, $\rho = xK$. So its stalls S have, with $\bar t = t_0/(1 - \rho)$,

$$E[S] = x K (G \bar t + \tfrac{T}{1 - \rho}),\qquad
\mathrm{Var}[S] = \tfrac{E[K^2]}{K (1 - \rho)^2} E[S] + (\tfrac{x K}{1 - \rho})^2 \mathrm{Var}[T],$$

taken as gamma distributed with these moments, and its cube root as normal (Wilson and Hilferty). TPOT = $t_0 + S/G$
over the mixture of answer lengths is then, in the cube root of TPOT - $t_0$, a mixture of normals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from dmodels.core.numerics import clip, cube_root, exp, log, maximum, minimum
from dmodels.core.records import Real, jit


@jit  # or its loops would be compiled anew at each call
def stalled_tpot_s(
    q: Real, alone_s: Real, stall_mean_s: Real, stall_variance: Real, gap_tokens: Real, weights: Real
) -> Real:
    """Quantile q of t_0 + S/G over answers of `gap_tokens` (..., k) gaps, a share `weights` (k,) of each.

    stall_mean_s, stall_variance  (..., k) moments of the stalls S of an answer, in s and s^2

    >>> import numpy as np
    >>> no_stalls = np.array([1e-12]), np.array([1e-24])
    >>> round(float(stalled_tpot_s(0.99, 0.02, *no_stalls, np.array([100.0]), np.array([1.0]))), 4)
    0.02
    """
    z = ndtri(q)
    slack = 0.1 + 0.02 * z**2  # more than `_above` is off

    # TPOT - t_0 = u^3 is exceeded by a normal deviation beyond a u - b
    def line(mean: Real, variance: Real, gaps: Real) -> tuple[Real, ...]:
        each, scv = _relative(maximum(mean, 1e-9 * alone_s), variance)
        root = 3.0 / jnp.sqrt(scv)
        a, b = root * cube_root(gaps * each), root * (1.0 - scv / 9.0)
        of_a = 1.0 / a
        return a, b, (b + z - slack) * of_a, (b + z + slack) * of_a

    # written out: a loop inside of Newton's would turn all of a and b about at every step
    classes = [
        line(*(leaf[..., k] for leaf in (stall_mean_s, stall_variance, gap_tokens))) for k in range(len(weights))
    ]
    low = jax.lax.stop_gradient(maximum(reduce(minimum, [low for _, _, low, _ in classes]), 0.0))
    high = jax.lax.stop_gradient(maximum(reduce(maximum, [high for _, _, _, high in classes]), 1e-12))

    def tail(u: Real) -> tuple[Real, Real]:  # P(TPOT - t_0 > u^3) - (1 - q), and minus its derivative
        beyond, slope = q - 1.0, 0.0
        for (aj, bj, _, _), w in zip(classes, weights, strict=True):
            z = aj * u - bj
            above = _above(z)
            beyond, slope = beyond + w * above, slope + w * above * aj * (1.0 - above) * _steepness(z)
        return beyond, slope

    # Newton on the logarithm of the tail, which is nearly straight; where it leaves the bracket, half of that
    def closer(_: Real, state: tuple[Real, Real, Real]) -> tuple[Real, Real, Real]:
        bottom, top, u = state
        excess, slope = tail(u)
        bottom, top = jnp.where(excess > 0, u, bottom), jnp.where(excess > 0, top, u)
        share = maximum(excess + 1.0 - q, 1e-300)
        newton = u + log(share / (1.0 - q)) * share / maximum(slope, 1e-300)
        return bottom, top, jnp.where((newton >= bottom) & (newton <= top), newton, 0.5 * (bottom + top))

    _, _, u = jax.lax.fori_loop(0, 5, closer, (low, high, 0.5 * (low + high)))
    return alone_s + maximum(u, 0.0) ** 3


def capped_mean_s(mean_s: Real, variance: Real, cap_s: Real) -> Real:
    r"""E[min(S, c)] of stalls S with these moments, gamma distributed: $E[S]\,P(k + 1, c/\theta) + c\,Q(k, c/\theta)$.

    >>> [round(float(capped_mean_s(1.0, 1.0, c)), 1) for c in (0.1, 1.0, 50.0)]  # exponential: 1 - e^-c
    [0.1, 0.6, 1.0]
    """
    mean = maximum(mean_s, 1e-12)
    each, scv = _relative(mean, variance)
    cap, share = cap_s * each, 1.0 / (1.0 + scv)  # k/(k + 1)

    def beyond(scv: Real, at: Real) -> Real:  # the gamma's tail at `at` times its mean, by Wilson and Hilferty
        return _above(3.0 / jnp.sqrt(scv) * (cube_root(at) - 1.0 + scv / 9.0))

    left = mean * (1.0 - beyond(scv * share, cap * share)) + cap_s * beyond(scv, cap)
    return minimum(left, minimum(mean, cap_s))


def gamma_quantiles(mean: Real, variance: Real) -> Callable[[Real], Real]:
    """A gamma distribution's quantile, less its mean, by that of a normal deviation (Wilson and Hilferty).

    A function of the deviation, so that what is the same for all quantiles is worked out once.
    """
    mean = maximum(mean, 1e-12)
    scv = clip(variance / mean**2, 1e-6, 20.0)
    middle, spread = 1.0 - scv / 9.0, jnp.sqrt(scv) / 3.0
    return lambda normal: mean * (maximum(middle + normal * spread, 0.0) ** 3 - 1.0)


def _relative(mean: Real, variance: Real) -> tuple[Real, Real]:
    """(1/mean, variance over its square), of which the second is the reciprocal of a gamma distribution's shape k."""
    each = 1.0 / mean
    return each, clip(variance * each**2, 1e-6, 1e3)


def _above(z: Real) -> Real:
    """1 - Phi(z) by a logistic of a cubic: 2e-4 off at most, 1 % at the 99th percentile; a tenth of the cost."""
    return 1.0 / (1.0 + exp(1.5976 * z + 0.07056 * z**3))


def _steepness(z: Real) -> Real:
    """Derivative of the cubic in `_above`."""
    return 1.5976 + 0.21168 * z**2
