"""Levenberg-Marquardt in NumPy, as plainly as it goes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def damped(
    at: Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]], z: np.ndarray, max_steps: int, enough: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """(z, matrix, steps) from where `at(z)` is (loss, matrix and right side of the normal equations).

    It ends where a step gains less than the share `enough` of the loss. Where steps were refused, the
    matrices there hold the next ones, a quarter as much after each that was taken.
    """
    damping, steps, beyond = 1e-3, 0, 0.0
    loss, matrix, pull = at(z)
    while steps < max_steps and damping < 1e6:
        held = matrix + beyond + damping * np.diag(np.diag(matrix))
        trial = z + np.clip(np.linalg.solve(held, pull), -1, 1)
        ahead = at(trial)
        if not ahead[0] < loss:
            damping, beyond = 8 * max(damping, 1e-3), beyond + ahead[1]
            continue
        gained = loss - ahead[0]
        z, (loss, matrix, pull), damping, beyond, steps = trial, ahead, damping / 4, beyond / 4, steps + 1
        if gained < enough * loss:
            break
    return z, matrix, steps
