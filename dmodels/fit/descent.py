r"""Levenberg-Marquardt for many rows that each feel few of many effects.

A row's latencies depend on its own efficiencies only, and those on the dozen levels that the row belongs to. So JAX
gives the derivative of every row by its efficiencies (one forward derivative per efficiency for all rows), and the
normal equations are assembled from that: summed over rows that feel the same effects, then spread over those. The
robust loss is reweighted at every step (iteratively reweighted least squares), and a step is taken only if it lowers
the loss. Where it was refused, the normal equations there hold the next steps besides Levenberg's damping: a row
beyond the knee of its load is many times as steep as before it, and damping of all effects alike would end the search
at the knee. The whole search is one program: rows go to the device once, and what was found comes back once.

optimistix finds the same optimum by the dense Jacobian of all effects, 16 times slower on 40 rows
(benchmarks/speed/fit.py).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
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
ENOUGH = 1e-7
#: Longest step of one whitened effect, in its standard deviations.
LONGEST = 1.0
#: Levenberg's damping of the first step, and the one from which no step is expected to lower the loss.
DAMPING, MOST_DAMPING = 1e-3, 1e6
#: By how much a step that was taken lessens what holds the next.
EASING = 4.0


class Weighing(NamedTuple):
    """How much points count: against the prior, and by the spread that a good model leaves of their logarithms."""

    weight: float = 1.0
    sigma: tuple[float, float] = (float(SIGMA[0]), float(SIGMA[1]))  # TTFT, TPOT


class Halves(NamedTuple):
    """Rows by the formula that serves them: one kind of instance, or separate prefill and decode instances."""

    one: Points
    two: Points
    shift: np.ndarray  # (rows of two, efficiencies): u of prefill instances, whose kernels are other ones, less u


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
    information: jax.Array
    steps: int

    def covariance(self) -> np.ndarray:
        """Of the effects that exist, whitened: the Laplace approximation."""
        return np.linalg.inv(np.asarray(self.information))


def log_latencies(halves: Halves, u: jax.Array) -> jax.Array:
    """(n, 2): logarithms of TTFT and TPOT in seconds at efficiencies u (n, names), rows of `halves.one` first.

    A formula without rows is left out: it would be half of what is compiled.
    """
    cut = halves.one.isl.shape[0]
    parts = []
    if cut:
        parts.append(of_instances(halves.one, u[:cut]))
    if len(u) > cut:
        parts.append(of_separate_instances(halves.two, u[cut:], halves.shift))
    return jnp.log(jnp.concatenate(parts))


def of_instances(p: Points, u: jax.Array) -> jax.Array:
    """(n, 2): TTFT and TPOT of rows that one kind of instance serves."""
    served = serve(
        p.model,
        p.gpu,
        p.decode,
        isl=p.isl,
        osl=p.osl,
        concurrency=p.concurrency,
        efficiency=hierarchy.efficiency(u, p.gathers).replace(beside_rows=p.beside_rows),
        draft_tokens=p.draft_tokens,
        decode_batch=p.decode_batch,
        poll_steps=p.poll_steps,
        equal_lengths=p.equal_lengths,
        prompts_first=p.prompts_first,
        utilization=p.utilization,
        engine=p.memory,
    )
    return _as_streamed(served.ttft_s + p.compile_s, served.tpot_s, p.stream_interval)


def of_separate_instances(p: Points, u: jax.Array, shift: Real) -> jax.Array:
    """(n, 2): TTFT and TPOT of rows with separate prefill and decode instances; `shift` is that of `Halves`."""
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
        efficiency=hierarchy.efficiency(u, p.gathers).replace(beside_rows=p.beside_rows),
        prefill_efficiency=hierarchy.efficiency(u + shift, p.gathers).replace(beside_rows=p.beside_rows),
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
    some 150 fused kernels, each of which reads three numbers and writes one."""
    return DeviceWork((names + 1) * 150 * 32.0, flop64=(names + 1) * (5_000 + 20 * 450.0), launches=150.0 * (names + 1))


def turn_work(rows: int, names: int, effects: int, paths: int, width: int) -> DeviceWork:
    """Of one of the rows in one turn of `descend`: `slopes`, its squares summed by path, its share of what is spread
    over the normal equations, and of their factorisation, whose panels of 128 columns wait for each other."""
    row = slopes_work(names)
    spread_bytes = 8.0 * (3 * paths * width**2 + 6 * effects**2)
    return DeviceWork(
        row.device_bytes + 8.0 * names * (names + 4) + spread_bytes / rows,
        flop64=row.flop64 + 4.0 * names**2 + (3.0 * paths * width**2 + effects**3 / 3) / rows,
        launches=row.launches + 20 + 4 * -(-effects // 128),
        registers=154,
    )


@jax.jit
def slopes(halves: Halves, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`log_latencies` (n, 2) and their derivatives (n, 2, names) by each row's own u."""
    value, push = jax.linearize(lambda v: log_latencies(halves, v), u)
    by_name = jax.lax.map(lambda e: push(jnp.broadcast_to(e, u.shape)), jnp.eye(u.shape[-1]))
    return value, jnp.transpose(by_name, (1, 2, 0))


class Places(NamedTuple):
    """Where effects stand. Rows of one path, which feel the same effects, are summed before they are spread over these:
    K paths, of at most m effects that exist, A of which there are in all."""

    path: np.ndarray  # (n,): of each row
    effect: np.ndarray  # (K, m): which of the A; A where a path has fewer
    name: np.ndarray  # (K, m): which efficiency it moves
    factor: np.ndarray  # (K, m): its standard deviation
    active: np.ndarray  # (A,): place in the flat table (levels x efficiencies)


def places_of(paths: np.ndarray, scale: np.ndarray) -> Places:
    """From `Problem.paths` and `Problem.scale`."""
    active, names = scale.ravel() > 0, scale.shape[1]
    distinct, path = np.unique(paths, axis=0, return_inverse=True)
    flat = (distinct[:, :, None] * names + np.arange(names)).reshape(len(distinct), -1)
    flat = [effects[active[effects]] for effects in flat]
    width = max(map(len, flat))
    padded = np.array([np.pad(effects, (0, width - len(effects)), constant_values=-1) for effects in flat])
    there, column = padded >= 0, np.cumsum(active) - 1
    return Places(
        path,
        np.where(there, column[padded], active.sum()),
        np.where(there, padded % names, 0),
        np.where(there, scale.ravel()[padded], 0.0),
        np.flatnonzero(active),
    )


def minimise(problem: Problem, z: np.ndarray, max_steps: int) -> Found:
    """The whitened effects of least robust loss plus |z|^2, from z (levels, efficiencies). Call it with 64-bit JAX."""
    places = places_of(problem.paths, problem.scale)
    best, information, loss, steps = descend(problem, places, z.ravel()[places.active], max_steps)
    if not np.isfinite(loss):
        raise InputError("rows: the model's latencies of some are no finite numbers at the start; accepted are others")
    full = np.zeros(z.size)
    full[places.active] = best
    return Found(full.reshape(z.shape), information, int(steps))


class _Search(NamedTuple):
    """The best point so far, its loss and normal equations, and how the search stands."""

    z: jax.Array  # (A,)
    loss: jax.Array
    information: jax.Array  # (A, A)
    gradient: jax.Array  # (A,)
    beyond: jax.Array  # (A, A): normal equations where steps were refused, less with every step since
    damping: jax.Array
    steps: jax.Array  # taken; -1 before the start itself was looked at
    ended: jax.Array


@jax.jit
def descend(
    problem: Problem, places: Places, z: jax.Array, max_steps: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """(whitened effects (A,), normal equations' matrix there, loss, steps taken) from z (A,)."""

    def turn(at: _Search) -> _Search:
        first = at.steps < 0
        diagonal = jnp.diagonal(at.information)
        damped = at.information + at.beyond + jnp.diag(at.damping * diagonal)
        factor = jax.lax.linalg.cholesky(damped, symmetrize_input=False)
        step = jax.scipy.linalg.cho_solve((factor, True), at.gradient)
        trial = at.z + jnp.clip(step, -LONGEST, LONGEST)
        value, slope = slopes(problem.halves, _efficiencies(problem, places, trial))
        loss = _loss(problem, trial, value)
        lower = first | (loss < at.loss)
        there, pull = _normal(problem, places, trial, value, slope)
        information, gradient = jnp.where(lower, there, at.information), jnp.where(lower, pull, at.gradient)
        beyond = jnp.where(lower, at.beyond / EASING, at.beyond + jnp.where(jnp.isfinite(there).all(), there, 0.0))
        steps = at.steps + lower.astype(at.steps.dtype)
        little = lower & (at.loss - loss < ENOUGH * loss)
        ended = little | (steps >= max_steps) | (~lower & (at.damping * 8.0 >= MOST_DAMPING))
        eased = jnp.where(first, at.damping, at.damping / EASING)
        damping = jnp.where(lower, eased, jnp.maximum(at.damping, DAMPING) * 8.0)
        z, least = jnp.where(lower, trial, at.z), jnp.where(lower, loss, at.loss)
        return _Search(z, least, information, gradient, beyond, damping, steps, ended)

    # the first step from here is none: the first turn looks at z itself
    nowhere = jnp.asarray(jnp.inf), jnp.eye(z.shape[0]), jnp.zeros(z.shape[0]), jnp.zeros((len(z), len(z)))
    start = _Search(z, *nowhere, jnp.asarray(DAMPING), jnp.int32(-1), jnp.asarray(False))
    end = jax.lax.while_loop(lambda at: ~at.ended, turn, start)
    return end.z, end.information, end.loss, end.steps


def _efficiencies(problem: Problem, places: Places, z: jax.Array) -> jax.Array:
    """u (n, efficiencies) of each row."""
    effects = jnp.zeros(problem.scale.size).at[places.active].set(z).reshape(problem.scale.shape) * problem.scale
    return jnp.asarray(problem.origin) + effects[problem.paths].sum(axis=1)


def _loss(problem: Problem, z: jax.Array, value: jax.Array) -> jax.Array:
    r = (problem.measured - value) / problem.sigma[None]
    robust = problem.weight[:, None] * ROBUST**2 * jnp.log1p((r / ROBUST) ** 2)
    return jnp.sum(robust) + z @ z


def robust_weight(problem: Problem, r: Real) -> Real:
    """(n, 2): how much rows count at residuals r (in sigmas): slope of the robust loss over that of least squares."""
    return problem.weight[:, None] / (1.0 + (r / ROBUST) ** 2)


def _normal(
    problem: Problem, places: Places, z: jax.Array, value: jax.Array, slope: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """J' W J + I and J' W r - z, with the weights of the robust loss at the present residuals."""
    r = (problem.measured - value) / problem.sigma[None]
    weight = robust_weight(problem, r) / problem.sigma[None]
    rooted = jnp.sqrt(weight / problem.sigma[None])[..., None] * slope
    paths = len(places.effect)
    pull = jax.ops.segment_sum(((weight * r)[..., None] * slope).sum(axis=1), places.path, paths)  # (K, names)
    square = jax.ops.segment_sum(jnp.einsum("nki,nkj->nij", rooted, rooted), places.path, paths)  # (K, names, names)
    path = jnp.arange(paths)[:, None]
    block = square[path[..., None], places.name[:, :, None], places.name[:, None, :]]
    block = block * places.factor[:, :, None] * places.factor[:, None, :]
    # what only fills a path up stands past the end, and is dropped
    gradient = (-z).at[places.effect].add(places.factor * pull[path, places.name], mode="drop")
    where = places.effect[:, :, None], places.effect[:, None, :]
    return jnp.eye(z.shape[0]).at[where].add(block, mode="drop"), gradient
