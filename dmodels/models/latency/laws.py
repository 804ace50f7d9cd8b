r"""The papers' laws of the iteration time as functions of the requests in flight, and the roofline's own linear law."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Real, Record, quantity

from .steps import Efficiency, decode_step_s


class StepLaw(NamedTuple):
    """t(n) = W + H n: seconds of an iteration with n requests in flight. arXiv:2604.09613, Eq. (9).

    >>> round(float(StepLaw(8e-3, 0.65e-3).iteration_s(16)), 6)  # its 70B model on A100s
    0.0184
    """

    base_s: Real  # W
    per_sequence_s: Real  # H

    def iteration_s(self, n: Real) -> Real:
        """Seconds of an iteration with n requests in flight."""
        return self.base_s + self.per_sequence_s * n

    def most_count(self, iteration_s: Real) -> Real:
        """Requests in flight at which an iteration takes `iteration_s`."""
        return (iteration_s - self.base_s) / self.per_sequence_s


class LatencyCurve(Record):
    """f(n) = a n + b + d / (n_sat - n)**beta, with a pole at n_sat: the singular curve of the anarchy paper."""

    a_s: Real = quantity()
    b_s: Real = quantity()
    d_s: Real = quantity()
    n_sat: Real = quantity()
    beta: Real = quantity(1.0)


def singular_latency_s(n: Real, curve: LatencyCurve) -> Real:
    """f(n) of a `LatencyCurve`; infinite from the pole on, where the bare formula is finite and wrong for even beta.

    >>> float(singular_latency_s(32.0, LatencyCurve(0.01, 0.5, 32.0, 64.0)))
    1.82
    >>> float(singular_latency_s(70.0, LatencyCurve(0.01, 0.5, 32.0, 64.0)))
    inf
    """
    room = curve.n_sat - n
    safe = jnp.where(room > 0, room, 1.0)
    return jnp.where(room > 0, curve.a_s * n + curve.b_s + curve.d_s / safe**curve.beta, jnp.inf)


def linear_law(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    context_tokens: Real,
    n_max: Real = 64.0,
    efficiency: Efficiency | None = None,
) -> StepLaw:
    """(W, H) of the chord of the roofline's decode step between 1 and n_max requests at one context.

    Queueing formulas need t(n) = W + H n. The step grows with n and bends at the ridge of the roofline, so a chord over
    the range in use is exact at both ends.
    """
    first = decode_step_s(model, gpu, parallel, 1.0, context_tokens, efficiency)
    last = decode_step_s(model, gpu, parallel, n_max, context_tokens, efficiency)
    per_sequence_s = (last - first) / jnp.maximum(n_max - 1.0, 1.0)
    return StepLaw(first - per_sequence_s, per_sequence_s)
