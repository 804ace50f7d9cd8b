r"""Constants of one cell of measured kernels: robust least squares of the logarithm of the time.

Maximises the posterior of $u$ given $\ln t_i = \ln \hat t(u, x_i) + \epsilon_i$ with Student-like noise (Cauchy loss
beyond `ROBUST` sigmas: clocks, autotuning and interruptions leave outliers) and the prior of the cell's relatives, by
Levenberg-Marquardt with JAX's derivatives; one compilation per law, since all cells have the same number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.hardware import GPU
from dmodels.core.records import Floats
from dmodels.models.operators import law, number_format
from dmodels.models.operators.constants import values
from dmodels.models.operators.formats import Format

#: Spread of ln t that a good law leaves, and where residuals begin to count less.
SIGMA, ROBUST = 0.06, 2.5
#: Longest step of one constant, in u.
LONGEST = 1.0
MOST_STEPS = 25


class Fitted(NamedTuple):
    """Constants in u, their variance by the rows alone, and steps taken."""

    u: Floats
    variance: Floats
    steps: int = 0


@cache
def _compiled(kind: str, bits: tuple) -> tuple[Callable, Callable]:
    """ln t (rows,) and its derivatives (rows, constants) of one kind and number format."""
    of = law(kind)

    def log_time(u, shape, gpu, form):
        rows = jnp.broadcast_to(u, (next(iter(shape.values())).shape[0], len(of.constants)))
        return jnp.log(of.seconds(shape, values(of.constants, rows), gpu, form, 1.0))

    def with_bits(u, shape, gpu, numbers):
        return log_time(u, shape, gpu, Format(numbers[0], numbers[1], bits[0], numbers[2]))

    return jax.jit(with_bits), jax.jit(jax.jacfwd(with_bits))


class Prior(NamedTuple):
    """What relatives say of the constants, in u: mean, deviation, and where to start."""

    mean: Floats
    deviation: Floats
    start: Floats


def fit_cell(
    kind: str, dtype: str, gpu: GPU, shape: dict[str, Floats], seconds: Floats, *, prior: Prior, rows: int
) -> Fitted:
    """The constants of one cell. The rows are repeated up to `rows` (with weight 0), so that nothing recompiles."""
    form = number_format(dtype)
    value_of, slope_of = _compiled(kind, (form.bits,))
    numbers = np.array([form.weight_bytes, form.activation_bytes, form.quantises])
    index = np.arange(rows) % len(seconds)
    weight = (np.arange(rows) < len(seconds)) / SIGMA**2
    held = {k: np.asarray(v)[index] for k, v in shape.items()}
    y = np.log(seconds)[index]
    precision, mean = prior.deviation**-2.0, prior.mean

    def loss(u, value):
        r = (y - value) / SIGMA
        return float((weight * SIGMA**2 * ROBUST**2 * np.log1p((r / ROBUST) ** 2)).sum() + precision @ (u - mean) ** 2)

    def weighed(slope, value):
        """What each row counts, and how well rows and prior know the constants."""
        pull = weight / (1.0 + ((y - value) / SIGMA / ROBUST) ** 2)
        return pull, (slope * pull[:, None]).T @ slope + np.diag(precision)

    u, damping, steps = np.array(prior.start, float), 1e-2, 0
    value = np.asarray(value_of(u, held, gpu, numbers))
    best = loss(u, value)
    while steps < MOST_STEPS:
        slope = np.asarray(slope_of(u, held, gpu, numbers))
        pull, information = weighed(slope, value)
        gradient = slope.T @ (pull * (y - value)) - precision * (u - mean)
        lower = False
        while not lower and damping < 1e6:
            step = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
            trial = u + np.clip(step, -LONGEST, LONGEST)
            trial_value = np.asarray(value_of(trial, held, gpu, numbers))
            trial_loss = loss(trial, trial_value)
            lower = trial_loss < best
            damping = max(damping / 5.0, 1e-7) if lower else damping * 6.0
        if not lower:
            break
        gained, u, value, best, steps = best - trial_loss, trial, trial_value, trial_loss, steps + 1
        if gained < 5e-4 * best:
            break
    slope = np.asarray(slope_of(u, held, gpu, numbers))
    _, information = weighed(slope, value)
    # variance from the rows alone, so that a constant which they do not show leaves its level to others
    data = np.diag(np.linalg.inv(information))
    return Fitted(u, 1.0 / np.maximum(1.0 / data - precision, 1e-6), steps)
