"""How often an SLO is missed with so many GPUs: analytic families, for theory and as fits to measured curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp

from dmodels.core.errors import InputError
from dmodels.core.records import HOST, Real, Record, quantity


def _refuse(record: Record, **least: bool) -> None:
    """`InputError` where a field of `record` is negative, or 0 where `least` says False. Traced ones pass."""
    for name, zero in least.items():
        value = getattr(record, name)
        if isinstance(value, HOST) and ((value < 0) | (not zero and (value == 0))).any():
            kind = type(record).__name__
            accepted = "numbers from 0" if zero else "numbers above 0"
            raise InputError(f"{kind}: {name} = {value.min():g}; accepted are {accepted}, so that more GPUs miss less")


class Exponential(Record):
    """V(G) = scale exp(-rate G). V'(0) = -scale * rate."""

    rate_per_gpu: Real = quantity()
    scale_frac: Real = quantity(1.0)
    convex: ClassVar[bool] = True  # strictly decreasing and convex for every positive parameter

    def __check_init__(self) -> None:
        _refuse(self, rate_per_gpu=True, scale_frac=True)

    def __call__(self, gpus: Real) -> Real:
        return self.scale_frac * jnp.exp(-self.rate_per_gpu * gpus)


class Power(Record):
    """V(G) = scale (1 + G / knee)^-order: heavy tails that more GPUs thin out only slowly."""

    knee_gpus: Real = quantity()
    order: Real = quantity(1.0)
    scale_frac: Real = quantity(1.0)
    convex: ClassVar[bool] = True

    def __check_init__(self) -> None:
        _refuse(self, knee_gpus=False, order=True, scale_frac=True)

    def __call__(self, gpus: Real) -> Real:
        return self.scale_frac * jnp.exp(-self.order * jnp.log1p(gpus / self.knee_gpus))


class Logistic(Record):
    """V(G) = scale / (1 + exp((G - middle) / width)): near scale when overloaded, then falling. Not convex."""

    middle_gpus: Real = quantity()
    width_gpus: Real = quantity()
    scale_frac: Real = quantity(1.0)
    convex: ClassVar[bool] = False

    def __check_init__(self) -> None:
        _refuse(self, width_gpus=False, scale_frac=True)

    def __call__(self, gpus: Real) -> Real:
        return self.scale_frac * _sigmoid((self.middle_gpus - gpus) / self.width_gpus)


@jax.custom_jvp
def _sigmoid(x: Real) -> Real:
    """1 / (1 + exp(-x)), with derivatives of full relative accuracy where it is nearly 1: JAX's own, s (1 - s), are 0
    there, and a side that is far too short would look as if nothing could help it."""
    return jax.nn.sigmoid(x)


@_sigmoid.defjvp
def _(at: tuple[Real], along: tuple[Real]) -> tuple[Real, Real]:
    return _sigmoid(at[0]), _sigmoid(at[0]) * _sigmoid(-at[0]) * along[0]


class Alone(Record):
    """Decode's violations when prefill does not matter: V(G_D, G_P) = own(G_D)."""

    own: Callable

    @property
    def convex(self) -> bool:
        return getattr(self.own, "convex", False)

    @property
    def convex_in_both(self) -> bool:
        return self.convex

    def __call__(self, decode_gpus: Real, prefill_gpus: Real) -> Real:
        return self.own(decode_gpus) + 0.0 * prefill_gpus


class Starved(Alone):
    """Decode idles when prefill is short: V(G_D, G_P) = own(G_D) + starvation(G_P).

    The externality does not change decode's own marginal, so it moves the optimum and not the equilibrium.
    """

    starvation: Callable

    @property
    def convex_in_both(self) -> bool:
        return self.convex and getattr(self.starvation, "convex", False)

    def __call__(self, decode_gpus: Real, prefill_gpus: Real) -> Real:
        return self.own(decode_gpus) + self.starvation(prefill_gpus)


class Multiplied(Record):
    """Both must work: V(G_D, G_P) = own(G_D) * starvation(G_P). Here the equilibrium need not be unique.

    Its cross derivative own' starvation' is positive, the side on which the uniqueness condition
    V_T'' + V_DD - V_DP > 0 can fail.
    """

    own: Callable
    starvation: Callable
    convex: ClassVar[bool] = False  # not in the sense that gives uniqueness

    def __call__(self, decode_gpus: Real, prefill_gpus: Real) -> Real:
        return self.own(decode_gpus) * self.starvation(prefill_gpus)
