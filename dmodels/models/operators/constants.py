r"""Constants of a law: names, units, plausible bounds, and the map between a constant and the number that is fitted.

A constant lives between its bounds by construction: with $u$ any real number,
$c = l\,(h/l)^{\sigma(u)}$ with bounds $l < h$ and the logistic function $\sigma$. So no fit, no relative and no GPU
that was never measured can leave the plausible range, and effects that add up in $u$ multiply in $c$.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.records import Floats, Real


class Constant(NamedTuple):
    """One constant of a law. The unit is in the name; `typical` is what is assumed where nothing was measured."""

    name: str
    low: float
    high: float
    typical: float
    meaning: str

    @property
    def origin(self) -> float:
        """The u at which the constant has its typical value.

        >>> Constant("launch_us", 1.0, 100.0, 10.0, "").origin
        0.0
        """
        share = np.log(self.typical / self.low) / np.log(self.high / self.low)
        return float(np.log(share / (1.0 - share)))


def values(constants: Sequence[Constant], u: Real) -> dict[str, Real]:
    """Name -> value, of u (..., len(constants)).

    >>> float(values([Constant("launch_us", 1.0, 100.0, 10.0, "")], np.array([0.0]))["launch_us"].round(9))
    10.0
    """
    low = np.log([c.low for c in constants])
    high = np.log([c.high for c in constants])
    return {c.name: jnp.exp(low[i] + (high[i] - low[i]) * jax.nn.sigmoid(u[..., i])) for i, c in enumerate(constants)}


def origins(constants: Sequence[Constant]) -> Floats:
    """The u of the typical values."""
    return np.array([c.origin for c in constants])


def both(a: Real, b: Real, sharpness: Real) -> Real:
    r"""Two resources used at once: $(a^p + b^p)^{1/p}$. p = 1: one after the other; large p: the slower one hides the
    other. Never less than either.

    >>> float(both(3.0, 4.0, 2.0))
    5.0
    """
    top = jnp.maximum(a, b)
    return top * ((a / top) ** sharpness + (b / top) ** sharpness) ** (1.0 / sharpness)


def least(t: Real, sharpness: Real) -> Real:
    r"""Smooth minimum over the last axis, $(\sum_j t_j^{-b})^{-1/b}$: about the fastest of several kernels."""
    return jnp.exp(-jax.scipy.special.logsumexp(-sharpness[..., None] * jnp.log(t), axis=-1) / sharpness)


def steps(x: Real, strength: Real) -> Real:
    """x, with a share `strength` (0 to 1) of the way up to the next whole number: partly filled tiles and waves."""
    return x + strength * (jnp.ceil(x - 1e-9) - x)


def merged(known: Mapping[str, Real]) -> dict[str, Real]:
    """Named arrays in their common flat shape, as the laws want them."""
    broadcast = jnp.broadcast_arrays(*(jnp.asarray(v, jnp.float64) for v in known.values()))
    return {name: jnp.ravel(v) for name, v in zip(known, broadcast, strict=True)}
