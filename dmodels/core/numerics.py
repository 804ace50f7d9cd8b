"""Numerical habits in one place: quotients that do not poison gradients, and finiteness that cannot be missed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .records import Real


def safe_divide(numerator: Real, denominator: Real, otherwise: Real = jnp.inf) -> Real:
    """numerator / denominator where denominator > 0, else `otherwise`, with finite gradients on both sides.

    A single `where` around the quotient gives NaN gradients at denominator = 0, because the untaken branch is
    differentiated too; here the untaken branch divides by 1.
    """
    positive = denominator > 0
    return jnp.where(positive, numerator / jnp.where(positive, denominator, 1.0), otherwise)


def ceil_div(a: Real, b: Real) -> Real:
    """Blocks of size b that hold a: ceil(a / b), exact for whole numbers below 2**53."""
    return jnp.ceil(a / b)


def power_of_two(count: int) -> int:
    """The least power of two from `count` on, at least 1: shapes of so few kinds that programs are compiled once.

    >>> [power_of_two(n) for n in (0, 1, 5, 8)]
    [1, 1, 8, 8]
    """
    return 1 << max(0, int(count) - 1).bit_length()


def power(base: Real, exponent: Real) -> Real:
    """base ** exponent for base >= 0, as XLA computes many at a time: its own takes them one by one, at four times the
    cost. 0 ** 0 is 1."""
    return jnp.exp(exponent * log(jnp.maximum(base, 1e-300)))


#: ln(1 + f)/f for f from sqrt(1/2) - 1 to sqrt(2) - 1, to 2e-15: coefficients from the highest power on.
_LOG_SERIES = np.polynomial.Chebyshev.interpolate(lambda f: np.log1p(f) / f, 21, [-0.2929, 0.4143])
_LOG_COEFFICIENTS = _LOG_SERIES.convert(kind=np.polynomial.Polynomial).coef[::-1].tolist()


@jax.custom_jvp
def log(x: Real) -> Real:
    """ln x of x > 0, to 3e-15: of many at a time on a CPU, where XLA takes them one by one at three times the cost.

    A polynomial, without a quotient, at which XLA would part what else it computes in one go.
    """
    x = jnp.asarray(x)
    return jax.lax.platform_dependent(x, cpu=_log, default=jnp.log) if x.dtype == np.float64 else jnp.log(x)


log.defjvp(lambda given, tangents: (log(*given), tangents[0] / given[0]))


def _log(x: Real) -> Real:
    """By the bits of a number 2^k (1 + f)."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int64)
    k = (bits - np.float64(0.5**0.5).view(np.int64)) >> 52
    f = jax.lax.bitcast_convert_type(bits - (k << 52), jnp.float64) - 1.0
    series: Any = 0.0
    for coefficient in _LOG_COEFFICIENTS:
        series = series * f + coefficient
    return jnp.where(x < jnp.inf, k.astype(jnp.float64) * math.log(2.0) + f * series, x)  # infinite, or not a number


#: Wichura's polynomials (AS 241, 1988), highest powers first, each coefficient near the median and in the tails.
_NUMERATOR = (
    (2509.08092873012267, 7.74545014278341408e-4),
    (33430.5755835881281, 0.0227238449892691846),
    (67265.7709270087009, 0.241780725177450612),
    (45921.9539315498715, 1.27045825245236838),
    (13731.6937655094611, 3.64784832476320460),
    (1971.59095030655144, 5.76949722146069141),
    (133.141667891784377, 4.63033784615654530),
    (3.38713287279636661, 1.42343711074968358),
)
_DENOMINATOR = (
    (5226.49527885285456, 1.05075007164441684e-9),
    (28729.0857357219427, 5.47593808499534495e-4),
    (39307.8958000927106, 0.0151986665636164572),
    (21213.7943015865959, 0.148103976427480075),
    (5394.19602142475111, 0.689767334985100005),
    (687.187007492057908, 1.67638483018380385),
    (42.3133307016009113, 2.05319162663775882),
    (1.0, 1.0),
)


def normal_quantile(level: Real) -> Real:
    """A normal deviation by its level from 1e-10 to 1 - 1e-10, to 4e-15: half the work of SciPy's, which goes on to
    1e-308."""
    off = level - 0.5
    near = jnp.abs(off) <= 0.425
    z = jnp.where(near, 0.180625 - off**2, jnp.sqrt(-log(jnp.minimum(level, 1.0 - level))) - 1.6)
    above: Any = 0.0
    below: Any = 0.0
    for over, under in zip(_NUMERATOR, _DENOMINATOR, strict=True):
        above, below = above * z + jnp.where(near, *over), below * z + jnp.where(near, *under)
    return jnp.where(near, off, jnp.sign(off)) * above / below


def one_by_one(function: Callable[..., Any], *leading: Real) -> Any:
    """`function` of each entry along the last axes of the arguments: its results on new last axes.

    On a CPU one after the other, because XLA's fusions there compute again for each entry what is the same for all of
    them; elsewhere at once, because the state of a loop goes through the device's memory at each turn.
    """
    one = lambda *entry: ((), function(*entry))
    return summed(one, *leading)[1]


def summed(function: Callable[..., tuple[Any, Any]], *leading: Real, unroll: int = 1) -> tuple[Any, Any]:
    """(sums of the first results of `function`, its second ones on new last axes), computed as in `one_by_one`.

    `unroll` entries at a time, where a turn of the loop costs more than an entry does.
    """
    entries = tuple(jnp.moveaxis(jnp.asarray(leaf), -1, 0) for leaf in leading)

    def in_turn(*entries: Real) -> tuple[Any, Any]:
        kinds = jax.eval_shape(function, *(leaf[0] for leaf in entries))[0]
        nothing = jax.tree.map(lambda kind: jnp.zeros(kind.shape, kind.dtype), kinds)

        def add(sums: Any, entry: tuple[Real, ...]) -> tuple[Any, Any]:
            part, found = function(*entry)
            return jax.tree.map(jnp.add, sums, part), found

        return jax.lax.scan(add, nothing, entries, unroll=unroll)

    def at_once(*entries: Real) -> tuple[Any, Any]:
        parts, found = jax.vmap(function)(*entries)
        return jax.tree.map(lambda part: part.sum(0), parts), found

    sums, found = jax.lax.platform_dependent(*entries, cpu=in_turn, default=at_once)
    return sums, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), found)
