"""Roots of one function of one variable: bracketed and vectorised, with derivatives, and all of them by a sign scan."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dmodels.core.records import Real


def chandrupatla(
    function: Callable[[Real], Real], low: Real, high: Real, at_low: Real, at_high: Real, steps: int = 80
) -> Real:
    """x in [low, high] with function(x) = 0 to round-off; at_low and at_high, its values there, differ in sign.

    Chandrupatla, Advances in Engineering Software 28 (1997): inverse quadratic interpolation where it can be trusted,
    else bisection; no derivative, about 8 evaluations, and never more than a bisection's. All arguments may be arrays
    of one shape. Not differentiable: see `polished`.
    """

    def step(carry: tuple[Real, ...]) -> tuple[Real, ...]:
        a, b, c, fa, fb, fc, t, k = carry  # a: newest; b: other end; c: previous
        x = a + t * (b - a)
        fx = function(x)
        same = jnp.sign(fx) == jnp.sign(fa)
        c, fc = jnp.where(same, a, b), jnp.where(same, fa, fb)
        b, fb = jnp.where(same, b, a), jnp.where(same, fb, fa)
        a, fa = x, fx
        width = jnp.abs(b - a)
        xi, phi = _quotient(a - b, c - b), _quotient(fa - fb, fc - fb)
        fits = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
        iqi = _quotient(fa, fb - fa) * _quotient(fc, fb - fc) + _quotient(c - a, b - a) * _quotient(
            fa, fc - fa
        ) * _quotient(fb, fc - fb)
        tiny = 2.0**-52 * (jnp.abs(a) + jnp.abs(b)) / jnp.maximum(width, 1e-300)
        t = jnp.where(fits, iqi, 0.5)
        return a, b, c, fa, fb, fc, jnp.clip(t, jnp.minimum(tiny, 0.5), 1.0 - jnp.minimum(tiny, 0.5)), k + 1

    def open_(carry: tuple[Real, ...]) -> Real:
        a, b, _, fa, fb, _, _, _ = carry
        return (jnp.abs(b - a) > 2.0**-51 * (jnp.abs(a) + jnp.abs(b))) & (fa != 0.0) & (fb != 0.0)

    def running(carry: tuple[Real, ...]) -> Real:
        return jnp.any(open_(carry)) & (carry[-1] < steps)

    half = jnp.full_like(low, 0.5)
    a, b, _, fa, fb, _, _, _ = jax.lax.while_loop(
        running, step, (low, high, low, at_low, at_high, at_low, half, jnp.int32(0))
    )
    return jnp.where(jnp.abs(fa) <= jnp.abs(fb), a, b)


def _quotient(top: Real, bottom: Real) -> Real:
    return top / jnp.where(bottom == 0.0, 1.0, bottom)


def polished(function: Callable[[Real], Real], root: Real, slope: Real) -> Real:
    """`root` with the derivative of the implicit function: dx = -df/slope, where slope is df/dx at the root.

    `function` is evaluated at the fixed root, live in everything else it depends on. (A bisection's own derivative
    is 0.)
    """
    root = jax.lax.stop_gradient(root)
    value = function(root)
    value = value - jax.lax.stop_gradient(value)
    usable = slope != 0.0
    return root - jnp.where(usable, value / jnp.where(usable, slope, 1.0), 0.0)


def sign_changes(values: Real, most: int) -> tuple[Real, Real]:
    """The first `most` cells of a grid in which `values` change sign: (left index of each, whether there is one).

    A zero counts with the cell to its left, so that a root on a grid point is reported once.
    """
    signs = jnp.where(values > 0.0, 1, -1)
    change = signs[1:] != signs[:-1]
    cells = values.shape[0] - 1
    order = jnp.sort(jnp.where(change, jnp.arange(cells), cells))
    order = jnp.concatenate([order, jnp.full(max(0, most - cells), cells)])[:most]
    return jnp.minimum(order, cells - 1), order < cells
