r"""Efficiencies from measured serving rows: hierarchical least squares on the logarithm of TTFT and TPOT.

Minimises $\sum_i \rho((\log y_i - \log \hat y_i)/\sigma) + \sum_l \beta_l^2/s_l^2$ by Levenberg-Marquardt, where
$\rho(r) = c^2 \log(1 + r^2/c^2)$ lets outliers go. The effects are whitened, z = beta / s, so that the prior is |z|^2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.records import float64
from dmodels.models.latency_serving import serve, serve_disaggregated

from . import hierarchy
from .points import Points
from .rows import Row

#: Spread of log TTFT and log TPOT that a good model leaves; sets their weights against each other and the priors.
SIGMA = (0.25, 0.10)
#: Residuals beyond c sigmas count less and less.
ROBUST = 2.5


class Halves(NamedTuple):
    """Rows by the formula that serves them: one kind of instance, or separate prefill and decode instances."""

    one: Points
    two: Points


class Effects(NamedTuple):
    """A calibration: the effect of every level on every efficiency."""

    levels: tuple[str, ...]
    beta: np.ndarray  # (levels, efficiencies)
    covariance: np.ndarray | None = None  # of the active effects, whitened (z); Laplace approximation
    steps: int = 0


def log_latencies(halves: Halves, u: jax.Array) -> jax.Array:
    """(n, 2): logarithms of TTFT and TPOT in seconds at efficiencies u (n, names), rows of `halves.one` first."""
    p, q = halves
    cut = p.isl.shape[0]
    e = hierarchy.efficiency(u[:cut])
    one = serve(p.model, p.gpu, p.decode, p.isl, p.osl, p.concurrency, e, p.draft_tokens)
    e = hierarchy.efficiency(u[cut:])
    two = serve_disaggregated(q.model, q.gpu, q.prefill, q.prefill_instances, q.decode, q.decode_instances,
                              q.isl, q.osl, q.concurrency, e, q.draft_tokens, q.decode_batch)  # fmt: skip
    both = ((one, p.stream_interval), (two, q.stream_interval))
    # the first message carries as many tokens as the others
    pairs = [jnp.stack([s.ttft_s + (k - 1.0) * s.tpot_s, s.tpot_s], axis=-1) for s, k in both]
    return jnp.log(jnp.concatenate(pairs))


@float64
def predict_log(points: Points, rows: Sequence[Row], effects: Effects) -> np.ndarray:
    """(n, 2): predicted log TTFT and log TPOT of rows under a calibration."""
    place = {level: i for i, level in enumerate(effects.levels)}
    padded = np.vstack([effects.beta, np.zeros((1, len(hierarchy.NAMES)))])
    halves, order = _split(points)
    paths = np.array([[place.get(level, -1) for level in hierarchy.row_levels(rows[i])] for i in order])
    predicted = np.empty((len(rows), 2))
    predicted[order] = np.asarray(_predict(halves, hierarchy.origin() + padded[paths].sum(axis=1)))
    return predicted


@float64
def fit(points: Points, rows: Sequence[Row], keep: np.ndarray | None = None, start: Effects | None = None,
        prior: Effects | None = None, max_steps: int = 25, covariance: bool = False) -> Effects:  # fmt: skip
    """The calibration of measured rows.

    `keep` masks rows out (their levels stay, at the prior's effect: no new shapes, so no new compilation per fold).
    `start` saves steps; `prior` is what effects are pulled to, zero without it.
    """
    halves, order = _split(points)
    rows = [rows[i] for i in order]
    known = tuple(dict.fromkeys(level for row in rows for level in hierarchy.row_levels(row)))
    place = {level: i for i, level in enumerate(known)}
    paths = np.array([[place[level] for level in hierarchy.row_levels(row)] for row in rows])
    scale = hierarchy.deviations(known)
    measured = np.log([[row.ttft_s, row.tpot_s] for row in rows])
    weight = _weights(rows) * (1.0 if keep is None else np.asarray(keep, float)[order])

    centre = _of(prior, known)
    first = centre if start is None else _of(start, known)
    z = (first - centre) / np.where(scale > 0, scale, 1.0)
    active = np.flatnonzero(scale > 0)
    data = (halves, paths, scale, active, measured, weight, hierarchy.origin() + centre[paths].sum(axis=1))
    found, steps = _minimise(z.ravel()[active], data, max_steps)
    full = np.zeros(scale.size)
    full[active] = np.asarray(found)
    spread = np.asarray(_covariance(found, data)) if covariance else None
    return Effects(known, centre + full.reshape(scale.shape) * scale, spread, int(steps))


def _of(effects: Effects | None, known: Sequence[str]) -> np.ndarray:
    """The effects of the known levels, zero where there are none."""
    nothing = np.zeros(len(hierarchy.NAMES))
    old = {} if effects is None else dict(zip(effects.levels, effects.beta, strict=True))
    return np.stack([old.get(level, nothing) for level in known])


def _split(points: Points) -> tuple[Halves, np.ndarray]:
    """The rows of either kind, and the order in which they stand in both together."""
    separate = np.asarray(points.separate) > 0
    one, two = np.flatnonzero(~separate), np.flatnonzero(separate)
    return Halves(points[one], points[two]), np.concatenate([one, two])


def _weights(rows: Sequence[Row]) -> np.ndarray:
    """Copies of one measurement (exports of the same run) share the weight of one; guessed layouts count less."""
    keys = [(row.system, f"{row.ttft_s:.9g}", f"{row.tpot_s:.9g}") for row in rows]
    copies = Counter(keys)
    return np.array([(1.0 if row.stated else 0.3) / copies[key] for row, key in zip(rows, keys, strict=True)]) ** 0.5


@jax.jit
def _predict(halves, u):
    return log_latencies(halves, u)


@jax.custom_jvp
def _rowwise(u, halves):
    """`log_latencies`, with a derivative that knows that a row depends on its own efficiencies only.

    The solver asks for derivatives along hundreds of effects; 16 forward derivatives per row give them all.
    """
    return log_latencies(halves, u)


@_rowwise.defjvp
def _rowwise_jvp(primals, tangents):
    u, halves = primals
    value, push = jax.linearize(lambda v: log_latencies(halves, v), u)
    basis = jnp.eye(u.shape[-1])
    slopes = jax.vmap(lambda e: push(jnp.broadcast_to(e, u.shape)))(basis)  # (names, n, 2)
    return value, jnp.einsum("pnk,np->nk", slopes, tangents[0])


def _residuals(z, data):
    halves, paths, scale, active, measured, weight, origin = data
    beta = jnp.zeros(scale.size).at[active].set(z).reshape(scale.shape) * scale
    predicted = _rowwise(origin + beta[paths].sum(axis=1), halves)
    r = (measured - predicted) / jnp.asarray([SIGMA])
    t = jnp.maximum((r / ROBUST) ** 2, 1e-12)
    return weight[:, None] * r * jnp.sqrt(jnp.log1p(t) / t), z


@partial(jax.jit, static_argnames="max_steps")
def _minimise(z, data, max_steps):
    import lineax as lx  # here, because every plan reads coefficients and none fits them
    import optimistix as optx

    # the prior bounds the condition number, so the normal equations are safe, and several times faster than QR
    solver = optx.LevenbergMarquardt(rtol=1e-4, atol=1e-4, linear_solver=lx.Normal(lx.Cholesky()))
    found = optx.least_squares(_residuals, solver, z, args=data, max_steps=max_steps, throw=False)
    return found.value, found.stats["num_steps"]


@jax.jit
def _covariance(z, data):
    jacobian = jax.jacfwd(lambda v: _residuals(v, data)[0])(z).reshape(-1, z.size)
    return jnp.linalg.inv(jacobian.T @ jacobian + jnp.eye(z.size))
