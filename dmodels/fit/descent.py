r"""Levenberg-Marquardt for many rows that each feel few of many effects.

A row's latencies depend on its own efficiencies only, and those on the dozen levels that the row belongs to. So JAX
gives the derivative of every row by its efficiencies (one forward derivative per efficiency for all rows), and the
normal equations are assembled from that, level by level. The robust loss is reweighted at every step
(iteratively reweighted least squares), and a step is taken only if it lowers the loss.

optimistix finds the same optimum by the dense Jacobian of all effects, 16 times slower on 40 rows
(benchmarks/speed/fit.py).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from dmodels.core.records import Real
from dmodels.models.latency import serve, serve_disaggregated
from dmodels.solvers.roofline import DeviceWork

from . import hierarchy
from .points import Points

#: Spread of log TTFT and log TPOT that a good model leaves; sets their weights against each other and the priors.
SIGMA = np.array([0.25, 0.10])
#: Residuals beyond c sigmas count less and less, as if they had Student's distribution of c^2 - 1 degrees of freedom;
#: errors of rows held out have 1.4 to 1.8.
ROBUST = 1.6
#: A step that lowers the loss by less than this share ends the search.
ENOUGH = 1e-6
#: Longest step of one whitened effect, in its standard deviations.
LONGEST = 1.0


class Weighing(NamedTuple):
    """How much points count: against the prior, and by the spread that a good model leaves of their logarithms."""

    weight: float = 1.0
    sigma: tuple[float, float] = (float(SIGMA[0]), float(SIGMA[1]))  # TTFT, TPOT


class Halves(NamedTuple):
    """Rows by the formula that serves them: one kind of instance, or separate prefill and decode instances."""

    one: Points
    two: Points


class Problem(NamedTuple):
    """Measured rows, and what they depend on."""

    halves: Halves
    paths: np.ndarray  # (n, levels of a row): which effects add up
    scale: np.ndarray  # (levels, efficiencies): standard deviation of each effect; 0: there is none
    measured: np.ndarray  # (n, 2): log TTFT, log TPOT
    weight: np.ndarray  # (n,)
    origin: np.ndarray  # (n, efficiencies): u where all z are 0
    sigma: np.ndarray = SIGMA  # (2,): of log TTFT and log TPOT


class Found(NamedTuple):
    """Whitened effects (levels, efficiencies), the matrix of the normal equations at them, and the steps taken."""

    z: np.ndarray
    information: np.ndarray
    steps: int

    def covariance(self) -> np.ndarray:
        """Of the effects that exist, whitened: the Laplace approximation."""
        return np.linalg.inv(self.information)


def log_latencies(halves: Halves, u: jax.Array) -> jax.Array:
    """(n, 2): logarithms of TTFT and TPOT in seconds at efficiencies u (n, names), rows of `halves.one` first.

    A formula without rows is left out: it would be half of what is compiled.
    """
    cut = halves.one.isl.shape[0]
    parts = [(of_instances, halves.one, u[:cut]), (of_separate_instances, halves.two, u[cut:])]
    return jnp.log(jnp.concatenate([latencies(p, own) for latencies, p, own in parts if len(own)]))


def of_instances(p: Points, u: jax.Array) -> jax.Array:
    """(n, 2): TTFT and TPOT of rows that one kind of instance serves."""
    served = serve(
        p.model,
        p.gpu,
        p.decode,
        isl=p.isl,
        osl=p.osl,
        concurrency=p.concurrency,
        efficiency=hierarchy.efficiency(u),
        draft_tokens=p.draft_tokens,
        decode_batch=p.decode_batch,
        poll_steps=p.poll_steps,
        utilization=p.utilization,
        engine=p.memory,
    )
    return _as_streamed(served.ttft_s, served.tpot_s, p.stream_interval)


def of_separate_instances(p: Points, u: jax.Array) -> jax.Array:
    """(n, 2): TTFT and TPOT of rows with separate prefill and decode instances."""
    served = serve_disaggregated(
        p.model,
        p.gpu,
        prefill=p.prefill,
        prefill_instances=p.prefill_instances,
        decode=p.decode,
        decode_instances=p.decode_instances,
        isl=p.isl,
        osl=p.osl,
        concurrency=p.concurrency,
        efficiency=hierarchy.efficiency(u),
        draft_tokens=p.draft_tokens,
        decode_batch=p.decode_batch,
        utilization=p.utilization,
        engine=p.memory,
    )
    return _as_streamed(served.ttft_s, served.tpot_s, p.stream_interval)


def _as_streamed(ttft_s: jax.Array, tpot_s: jax.Array, stream_interval: Real) -> jax.Array:
    """(n, 2): the first message carries as many tokens as the others."""
    return jnp.stack([ttft_s + (stream_interval - 1.0) * tpot_s, tpot_s], axis=-1)


def slopes_work(names: int) -> DeviceWork:
    """Of `slopes` of one row: its latencies and as many forward derivatives as efficiencies, each some 5,000 operations
    and 450 transcendental ones of 20; XLA counts 17,000 and 450 for value and one derivative together. A derivative is
    some 150 fused kernels, each of which reads three numbers and writes one. The normal equations are the host's."""
    return DeviceWork((names + 1) * 150 * 32.0, flop64=(names + 1) * (5_000 + 20 * 450.0), launches=150.0 * (names + 1))


@jax.jit
def slopes(halves: Halves, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`log_latencies` (n, 2) and their derivatives (n, 2, names) by each row's own u."""
    value, push = jax.linearize(lambda v: log_latencies(halves, v), u)
    by_name = jax.lax.map(lambda e: push(jnp.broadcast_to(e, u.shape)), jnp.eye(u.shape[-1]))
    return value, jnp.transpose(by_name, (1, 2, 0))


def minimise(problem: Problem, z: np.ndarray, max_steps: int) -> Found:
    """The whitened effects of least robust loss plus |z|^2, from z (levels, efficiencies). Call it with 64-bit JAX."""
    shape, active = problem.scale.shape, problem.scale.ravel() > 0
    design = _Design(problem, active)
    z = z.ravel()[active]
    value, slope = design.evaluate(z)
    loss, damping, steps = design.loss(z, value), 1e-3, 0
    while True:
        information, gradient = design.normal(z, value, slope)
        if steps >= max_steps:
            break
        lower = False
        while not lower and damping < 1e6:
            damped = information + damping * np.diag(np.diag(information))
            step = scipy.linalg.cho_solve(scipy.linalg.cho_factor(damped, overwrite_a=True), gradient)
            trial = z + np.clip(step, -LONGEST, LONGEST)
            trial_value, trial_slope = design.evaluate(trial)
            trial_loss = design.loss(trial, trial_value)
            lower = bool(trial_loss < loss)
            damping = damping / 4.0 if lower else max(damping, 1e-3) * 8.0
        if not lower:
            break
        gained, steps = loss - trial_loss, steps + 1
        z, value, slope, loss = trial, trial_value, trial_slope, trial_loss
        if gained < ENOUGH * loss:
            information, _ = design.normal(z, value, slope)
            break
    full = np.zeros(active.size)
    full[active] = z
    return Found(full.reshape(shape), information, steps)


class _Design:
    """The rows by the levels that they belong to: those of one path feel the same effects, so their derivatives by
    efficiency are summed before they are spread over the effects."""

    def __init__(self, problem: Problem, active: np.ndarray):
        self.problem, self.active = problem, active
        names = problem.scale.shape[1]
        paths, self.path_of = np.unique(problem.paths, axis=0, return_inverse=True)
        self.order = np.argsort(self.path_of, kind="stable")
        self.starts = np.searchsorted(self.path_of[self.order], np.arange(len(paths)))
        self.column = np.cumsum(active) - 1
        self.effects = [(path[:, None] * names + np.arange(names)).ravel() for path in paths]
        self.paths = paths

    def evaluate(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = self.problem
        effects = np.zeros(self.active.size)
        effects[self.active] = z
        effects = effects.reshape(p.scale.shape) * p.scale
        value, slope = slopes(p.halves, jnp.asarray(p.origin + effects[p.paths].sum(axis=1)))
        return np.asarray(value), np.asarray(slope)

    def loss(self, z: np.ndarray, value: np.ndarray) -> float:
        r = (self.problem.measured - value) / self.problem.sigma
        return float((self.problem.weight[:, None] * ROBUST**2 * np.log1p((r / ROBUST) ** 2)).sum() + z @ z)

    def normal(self, z: np.ndarray, value: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """J' W J + I and J' W r - z, with the weights of the robust loss at the present residuals."""
        r = (self.problem.measured - value) / self.problem.sigma
        weight = self.problem.weight[:, None] / (1.0 + (r / ROBUST) ** 2) / self.problem.sigma
        pull = ((weight * r)[..., None] * slope).sum(axis=1)[self.order]  # (n, names)
        weighted, ordered = (np.sqrt(weight / self.problem.sigma)[..., None] * slope)[self.order], slope.shape[-1]
        information, gradient = np.eye(int(self.active.sum())), -z
        ends = [*self.starts[1:], len(pull)]
        scale = self.problem.scale.ravel()
        for effects, start, end in zip(self.effects, self.starts, ends, strict=True):
            there = self.active[effects]
            mine, copies = effects[there], len(effects) // ordered
            rows = weighted[start:end].reshape(-1, ordered)
            which = np.tile(np.arange(ordered), copies)[there]
            factor = scale[mine]
            block = (rows.T @ rows)[np.ix_(which, which)] * factor[:, None] * factor
            columns = self.column[mine]
            information[np.ix_(columns, columns)] += block
            gradient[columns] += factor * pull[start:end].sum(axis=0)[which]
        return information, gradient
