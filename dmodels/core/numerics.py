"""Numerical habits in one place: quotients that do not poison gradients, and finiteness that cannot be missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .records import Real, jit


@jit
def safe_divide(numerator: Real, denominator: Real, otherwise: Real = jnp.inf) -> Real:
    """numerator / denominator where denominator > 0, else `otherwise`, with finite gradients on both sides.

    A single `where` around the quotient gives NaN gradients at denominator = 0, because the untaken branch is
    differentiated too; here the untaken branch divides by 1.
    """
    positive = denominator > 0
    return jnp.where(positive, numerator / jnp.where(positive, denominator, 1.0), otherwise)


@jit
def maximum(value: Real, bound: Real) -> Real:
    """The larger of two, as one instruction where `jnp.maximum` takes four: of a `bound` that is not a number the value
    is left, where JAX tells it. A value that is not a number stays one."""
    return jnp.where(bound > value, bound, value)


@jit
def minimum(value: Real, bound: Real) -> Real:
    """The smaller of two; see `maximum`."""
    return jnp.where(bound < value, bound, value)


@jit
def clip(value: Real, low: Real, high: Real) -> Real:
    """`value`, at least `low` and at most `high`, which is the stronger; see `maximum`."""
    return minimum(maximum(value, low), high)


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
    return exp(exponent * log(maximum(base, 1e-300)))


@jax.custom_jvp
def exp(x: Real) -> Real:
    """e^x, to 4e-16 of itself, of x from -708 to 709, and beyond these as there: on a CPU in half of XLA's time."""
    return _by_bits(clip(jnp.asarray(x), *_EXPONENTS), _exp, jnp.exp)


@exp.defjvp
def _(given: tuple[Real], tangents: tuple[Real]) -> tuple[Real, Real]:
    found = exp(*given)
    return found, tangents[0] * jnp.where(jnp.abs(given[0]) < 709.0, found, 0.0)


@jax.custom_jvp
def expm1(x: Real) -> Real:
    """e^x - 1, as `exp` computes it: to 1e-15 of itself near 0 as well."""
    return _by_bits(clip(jnp.asarray(x), *_EXPONENTS), _expm1, jnp.expm1)


@expm1.defjvp
def _(given: tuple[Real], tangents: tuple[Real]) -> tuple[Real, Real]:
    return expm1(*given), tangents[0] * exp(*given)


#: ln(1 + f)/f for f from sqrt(1/2) - 1 to sqrt(2) - 1, to 2e-15: coefficients from the constant on.
_LOG_SERIES = np.polynomial.Chebyshev.interpolate(lambda f: np.log1p(f) / f, 21, [-0.2929, 0.4143])
_LOG_COEFFICIENTS = _LOG_SERIES.convert(kind=np.polynomial.Polynomial).coef.tolist()


@jax.custom_jvp
def log(x: Real) -> Real:
    """ln x of x > 0, to 3e-15: of many at a time on a CPU, where XLA takes them one by one at seven times the cost.

    A polynomial, without a quotient, at which XLA would part what else it computes in one go.
    """
    return _by_bits(jnp.asarray(x), _log, jnp.log)


log.defjvp(lambda given, tangents: (log(*given), tangents[0] / given[0]))


@jax.custom_jvp
def log1p(x: Real) -> Real:
    """ln(1 + x) of x > -1, as `log` computes it: to 3e-15 of itself near 0 as well."""
    return _by_bits(jnp.asarray(x), _log1p, jnp.log1p)


log1p.defjvp(lambda given, tangents: (log1p(*given), tangents[0] / (1.0 + given[0])))


@jax.custom_jvp
def cube_root(x: Real) -> Real:
    """x^(1/3) of x = 0 or x > 1e-300, to 1e-15: of many at a time on a CPU, at a fifth of the cost of a power."""
    return _by_bits(jnp.asarray(x), _cube_root, jnp.cbrt)


@cube_root.defjvp
def _(given: tuple[Real], tangents: tuple[Real]) -> tuple[Real, Real]:
    root = cube_root(*given)
    return root, tangents[0] * root / (3.0 * maximum(given[0], 1e-300))


@partial(jax.jit, static_argnums=(1, 2))  # traced once for all its uses
def _by_bits(x: jax.Array, ours: Callable[[Real], Real], otherwise: Callable[[Real], Real]) -> Real:
    """By the bits of float64 numbers on a CPU; what JAX has for others, and elsewhere.

    For what one place uses: XLA computes its own functions once, but sums and products again wherever they are used.
    """
    return jax.lax.platform_dependent(x, cpu=ours, default=otherwise) if x.dtype == np.float64 else otherwise(x)


def _log1p(x: Real) -> Real:
    return _log(1.0 + x, x)


def _log(x: Real, over_one: Real | None = None) -> Real:
    """By the bits of a number 2^k (1 + f); `over_one` is f where k = 0, if it is known with more digits than x has."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int64)
    k = (bits - np.float64(0.5**0.5).view(np.int64)) >> 52
    f = jax.lax.bitcast_convert_type(bits - (k << 52), jnp.float64) - 1.0
    f = f if over_one is None else jnp.where(k == 0, over_one, f)
    found = k.astype(jnp.float64) * math.log(2.0) + f * _polynomial(f, _LOG_COEFFICIENTS)
    return jnp.where(x < jnp.inf, found, x)  # infinite, or not a number


#: Beyond these float64 has no e^x.
_EXPONENTS = -708.0, 709.0
#: ln 2 in two parts, of which whole multiples of the first are exact.
_LN2, _LN2_REST = 0.6931471803691238, 1.9082149292705877e-10
#: Among these numbers float64 has the whole ones only: added to another it rounds that, and its last bits tell to what.
_WHOLE = 1.5 * 2.0**52
_EXP_SERIES = [1.0 / math.factorial(k) for k in range(13)]


def _exp(x: Real) -> Real:
    """2^n e^r."""
    two_to_n, r = _powers_of_two(x)
    return two_to_n * _polynomial(r, _EXP_SERIES)


def _expm1(x: Real) -> Real:
    """2^n (e^r - 1) + 2^n - 1: near 0 n = 0, and nothing is lost."""
    two_to_n, r = _powers_of_two(x)
    return two_to_n * (r * _polynomial(r, _EXP_SERIES[1:])) + (two_to_n - 1.0)


def _powers_of_two(x: Real) -> tuple[Real, Real]:
    """2^n with the whole n nearest to x/ln 2, and the rest r of x = n ln 2 + r."""
    n = jax.lax.bitcast_convert_type(x * (1.0 / math.log(2.0)) + _WHOLE, jnp.int64) - np.float64(_WHOLE).view(np.int64)
    r = x - n.astype(jnp.float64) * _LN2 - n.astype(jnp.float64) * _LN2_REST
    return jax.lax.bitcast_convert_type((n + 1023) << 52, jnp.float64), r


#: The bits of 1, as a number: those of x^(-1/3) are four thirds of them less a third of those of x, to 4 %.
_BITS_OF_ONE = float(np.float64(1.0).view(np.int64))


def _cube_root(x: Real) -> Real:
    """x y^2 with y = x^(-1/3): from its bits, bettered twice by the series of (1 - e)^(-1/3), e = 1 - x y^3."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int64).astype(jnp.float64)
    y = jax.lax.bitcast_convert_type((4.0 / 3.0 * _BITS_OF_ONE - bits * (1.0 / 3.0)).astype(jnp.int64), jnp.float64)
    for _ in range(2):
        e = 1.0 - x * y * y * y
        y *= 1.0 + e * (1.0 / 3.0 + e * (2.0 / 9.0 + e * (14.0 / 81.0 + e * (35.0 / 243.0))))
    return jnp.where(x < jnp.inf, x * y * y, x)


def _polynomial(x: Real, coefficients: Sequence[Any]) -> Real:
    """Of these coefficients from the constant on: neighbours in pairs (Estrin), so that few wait for each other."""
    terms: Sequence[Any] = coefficients
    while len(terms) > 1:
        pairs = [low + high * x for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, *terms[2 * len(pairs) :]]
        x = x * x
    return terms[0]


#: Wichura's polynomials (AS 241, 1988), lowest powers first, each coefficient near the median and in the tails.
_NUMERATOR = (
    (3.38713287279636661, 1.42343711074968358),
    (133.141667891784377, 4.63033784615654530),
    (1971.59095030655144, 5.76949722146069141),
    (13731.6937655094611, 3.64784832476320460),
    (45921.9539315498715, 1.27045825245236838),
    (67265.7709270087009, 0.241780725177450612),
    (33430.5755835881281, 0.0227238449892691846),
    (2509.08092873012267, 7.74545014278341408e-4),
)
_DENOMINATOR = (
    (1.0, 1.0),
    (42.3133307016009113, 2.05319162663775882),
    (687.187007492057908, 1.67638483018380385),
    (5394.19602142475111, 0.689767334985100005),
    (21213.7943015865959, 0.148103976427480075),
    (39307.8958000927106, 0.0151986665636164572),
    (28729.0857357219427, 5.47593808499534495e-4),
    (5226.49527885285456, 1.05075007164441684e-9),
)


def normal_quantile(level: Real) -> Real:
    """A normal deviation by its level from 1e-10 to 1 - 1e-10, to 4e-15: half the work of SciPy's, which goes on to
    1e-308."""
    off = level - 0.5
    near = jnp.abs(off) <= 0.425
    z = jnp.where(near, 0.180625 - off**2, jnp.sqrt(-log(minimum(level, 1.0 - level))) - 1.6)
    above, below = (_polynomial(z, [jnp.where(near, *each) for each in one]) for one in (_NUMERATOR, _DENOMINATOR))
    return jnp.where(near, off, jnp.sign(off)) * above / below


#: (1 - u M) (1 + u^2) with Mills' ratio M of a normal deviation u from 0 to 40, as a polynomial in (u - 4)/(u + 4) that
#: was fitted in 60 digits; lowest powers first.
_LOSS = (
    0.9076379618773186,
    0.27668067797659579,
    -0.284789405655008709,
    0.0394685227212685646,
    0.211537299961721353,
    -0.27471508313445564,
    0.173724474830112385,
    -0.0502782838088742315,
    -0.00755943911717450994,
    0.0103039962310865988,
    -0.000778504609853747755,
    -0.00172814893493475233,
    0.000267064007852510054,
    0.000322453938757592004,
    -0.0000403321158812908363,
    -0.0000627232096931882579,
    -9.1131667832716415e-7,
    8.61276224239411678e-6,
    1.81667922580497123e-6,
)


def normal_loss(u: Real) -> Real:
    """E[max(Z - u, 0)] of a normal deviation Z, to 1e-12 of itself up to u = 40: phi(u) - u (1 - Phi(u)) loses its
    digits from 5 on, and XLA takes Phi one by one on a CPU."""
    far = minimum(jnp.abs(u), 40.0)
    density = jnp.exp(-0.5 * far**2) * (1.0 / math.sqrt(2.0 * math.pi))
    return density * _polynomial((far - 4.0) / (far + 4.0), _LOSS) / (1.0 + far**2) + maximum(-u, 0.0)


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
