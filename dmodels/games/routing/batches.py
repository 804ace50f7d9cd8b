"""Batches of routing games on a device, by the programs of `programs`; and logit equilibria of batches anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import Real
from dmodels.solvers.device import Program, batched, in_chunks
from dmodels.solvers.solution import Solution

from .game import RoutingArrays, RoutingGame
from .programs import best_response, greedy, logit


def game_bytes(a: RoutingArrays) -> float:
    """What one game takes on a device, with room for what a step makes of it."""
    workers, loads, groups = int(a.f.shape[1]), int(a.f.shape[2]), int(a.cost.shape[1])
    return 8.0 * workers * (2 * loads + groups * (workers + 6))


def spread_out(a: RoutingArrays) -> list[np.ndarray]:
    """f, cost and counts, each with one entry per game."""
    return [np.broadcast_to(array, (a.size, *array.shape[1:])) for array in a[:3]]


def _from_start(f: Array, c: Array, q: Array, x: Array, most: int) -> tuple[Array, ...]:
    return best_response(f, c, q, x, most)


def _from_greedy(f: Array, c: Array, q: Array, most: int) -> tuple[Array, ...]:
    return best_response(f, c, q, greedy(f, c, q), most)


def response_program(max_steps: int) -> Program:
    """Best responses from greedy arrival, of batches f, c and q."""
    return batched(_from_greedy, most=max_steps)


def logit_program(tolerance: float, max_steps: int, damping: float) -> Program:
    """Logit equilibria of batches f, c, q and tau."""
    return batched(logit, tolerance_p=tolerance, most=max_steps, damping=damping)


def responses_on_device(
    a: RoutingArrays, start: np.ndarray | None, max_steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(flows (B, G, m), moves (B,), done (B,)) from flows `start`, or from greedy arrival."""
    arrays = spread_out(a)
    if start is None:
        x, steps, done = in_chunks(response_program(max_steps), arrays, game_bytes(a))
    else:
        x, steps, done = in_chunks(batched(_from_start, most=max_steps), [*arrays, start], game_bytes(a))
    return np.array(x), np.array(steps), np.array(done)


def logit_equilibria(
    game: RoutingGame, tau: Real, tolerance: float = 1e-10, max_steps: int = 20_000, damping: float = 0.2
) -> Solution:
    """`logit_equilibrium` of every game in a batch, at temperatures `tau` that broadcast with it, on JAX's devices.

    `value` has `probability` (..., G, m) and `mean_cost_s` (...,), the certificate `residual` (...,).
    """
    a = game.arrays()
    given = np.asarray(tau, np.float64)
    if not (given > 0).all():
        raise InputError(f"tau = {tau}; accepted are positive numbers of seconds (0: use best_response)")
    if (a.counts.sum(-1) != a.counts.sum(-1)[0]).any() or (a.counts < 1).any():
        raise InputError("counts differ in their sum, or are 0; accepted are batches of equal numbers, each from 1")
    try:
        each = np.broadcast_to(given, a.batch).reshape(a.size)
    except ValueError:
        raise InputError(f"tau has shape {given.shape}; accepted broadcasts with the games, {a.batch}") from None
    size, groups = a.f.shape[-1], a.cost.shape[1]
    program = logit_program(tolerance, max_steps, damping)
    bytes_ = game_bytes(a) + 16.0 * groups * a.f.shape[1] * size * (groups + size)
    p, mean, residual, steps = (np.array(v) for v in in_chunks(program, [*spread_out(a), each], bytes_))
    flags = np.where(residual <= tolerance, 0, int(Flag.NOT_CONVERGED)).astype(np.int32)
    shaped: Any = lambda v: v.reshape((*a.batch, *v.shape[1:]))[()]
    value = {"probability": shaped(p), "mean_cost_s": shaped(mean)}
    return Solution(value, {"residual": shaped(residual)}, shaped(flags), shaped(steps))
