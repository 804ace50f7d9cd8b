"""Compiled loops that judge answers of affine games: residuals, strong monotonicity, distance, and deviations."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel, of_batch
from dmodels.core.records import Real

from ._pivot import REORDERED, Games, fast, one_of
from .certificate import EPS, STRICT

#: Tried from the left: the first that the symmetric part, its diagonal scaled to 1, exceeds bounds its eigenvalues. (Of
#: 50 players a trial takes a third as long as pivoting; larger ones would make bounds of the size of rounding tighter.)
MODULI = np.array([1e-2, 1e-4, 1e-6, STRICT])


class Answers(NamedTuple):
    """What is known of each game's answer: (k, n) but for lam (k, m) and the residuals (k,)."""

    x: Real
    lam: Real
    low_multipliers: Real
    high_multipliers: Real
    distance: Real
    worst: Real  # largest component of the natural residual, in the game's units
    relative: Real  # the same, each row relative to the sum of its terms


@kernel(tiered=True)
def moduli(first: int, last: int, matrices: Real, out: Real) -> None:
    """A lower bound on the eigenvalues of (M + M') / 2 with its diagonal scaled to 1: the first of `MODULI` by which it
    can be lowered and keep a Cholesky factor; 0 where there is none."""
    n = matrices.shape[1]
    scaled, factor, column, root = np.empty((n, n)), np.empty((n, n)), np.empty(n), np.empty(n)
    for k in range(first, last):
        m = matrices[k]
        sound = True
        out[k] = 0.0
        for i in range(n):
            sound &= m[i, i] > 0.0
            root[i] = 1.0 / math.sqrt(m[i, i]) if m[i, i] > 0.0 else 0.0
        for i in range(n):
            for j in range(i + 1):
                scaled[i, j] = 0.5 * (m[i, j] + m[j, i]) * root[i] * root[j]
        for modulus in MODULI:
            if sound and _has_factor(scaled, modulus, factor, column):
                out[k] = modulus
                break


@fast
def _has_factor(scaled: Real, shift: float, factor: Real, column: Real) -> bool:
    """Whether scaled (its lower half) less shift has a Cholesky factor, found column by column in place."""
    n = scaled.shape[0]
    for i in range(n):
        for j in range(i + 1):
            factor[i, j] = scaled[i, j]
    for k in range(n):
        if not factor[k, k] > shift:
            return False
        pivot = 1.0 / math.sqrt(factor[k, k] - shift)
        for i in range(n - k - 1):
            column[k + 1 + i] = factor[k + 1 + i, k] * pivot
        for i in range(k + 1, n):
            share = column[i]
            for j in range(i - k):
                factor[i, k + 1 + j] -= share * column[k + 1 + j]
    return True


@kernel(tiered=True, fastmath=REORDERED)
def judge(games: Games, answers: Answers, moduli: Real, first: int, last: int) -> None:
    """Write all of `answers` but x and lam. The distance is bounded as in `certificate._distance_bound`, in the norm
    that gives M + M' a diagonal of 2; inf where there is no modulus."""
    n, rows = answers.x.shape[1], answers.lam.shape[1]
    for k in range(first, last):
        m, q, a, b, low, high = one_of(games, k)
        x, lam, modulus = answers.x[k], answers.lam[k], of_batch(moduli, k)
        sound, worst, relative, size, gap = True, 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            r, terms = q[i], abs(q[i])
            for c in range(n):
                r += m[i, c] * x[c]
                terms += abs(m[i, c] * x[c])
            for j in range(rows):
                r += a[j, i] * lam[j]
                terms += abs(a[j, i] * lam[j])
            at_low, at_high = x[i] <= low[i], x[i] >= high[i]
            answers.low_multipliers[k, i] = max(r, 0.0) if at_low else 0.0
            answers.high_multipliers[k, i] = max(-r, 0.0) if at_high else 0.0
            taken = (r > 0.0 and at_low) or (r < 0.0 and at_high)  # the bound takes the force
            if m[i, i] > 0.0:
                size += ((0.0 if taken else abs(r)) + 4.0 * EPS * terms) ** 2 / m[i, i]
            rest = x[i] - min(max(x[i] - r, low[i]), high[i])
            sound &= np.isfinite(rest)
            worst = max(worst, abs(rest))
            outside = max(low[i] - x[i], x[i] - high[i], 0.0)
            if outside > 0.0:
                relative = max(relative, outside / max(abs(x[i]), outside))
            if not (taken or low[i] == high[i]) and r != 0.0:
                relative = max(relative, abs(r) / terms)
        for j in range(rows):
            slack, terms = b[j], abs(b[j])
            for c in range(n):
                slack -= a[j, c] * x[c]
                terms += abs(a[j, c] * x[c])
            sound &= np.isfinite(slack)
            worst = max(worst, abs(min(lam[j], slack)))
            gap += abs(lam[j] * slack)
            if lam[j] < 0.0:
                relative = np.inf
            if slack < 0.0 or lam[j] > 0.0:
                relative = max(relative, abs(slack) / terms if terms > 0.0 else 0.0)
        answers.worst[k], answers.relative[k] = (worst, relative) if sound else (np.inf, np.inf)
        length = (math.sqrt(size) + math.sqrt(size + 4.0 * modulus * gap)) / (2.0 * modulus) if modulus > 0.0 else 0.0
        for i in range(n):
            answers.distance[k, i] = length / math.sqrt(m[i, i]) if modulus > 0.0 else np.inf


@kernel(tiered=True)
def deviations(games: Games, x: Real, first: int, last: int, gain: Real, pays: Real) -> None:
    """The most that the owner of one variable gains by moving it alone within bounds and constraints, exactly (its cost
    is a parabola), and whether that is more than rounding."""
    n = x.shape[1]
    for k in range(first, last):
        m, q, a, b, low, high = one_of(games, k)
        gain[k], pays[k] = 0.0, False
        for i in range(n):
            if not m[i, i] < 0.0:
                continue  # convex: the first-order conditions are enough
            down, up, f = low[i] - x[k, i], high[i] - x[k, i], q[i]
            for c in range(n):
                f += m[i, c] * x[k, c]
            for j in range(b.shape[0]):
                slack = b[j]
                for c in range(n):
                    slack -= a[j, c] * x[k, c]
                if a[j, i] > 0.0:
                    up = min(up, max(slack, 0.0) / a[j, i])
                elif a[j, i] < 0.0:
                    down = max(down, max(slack, 0.0) / a[j, i])
            for step in (min(down, 0.0), max(up, 0.0)):
                bend = -0.5 * m[i, i] * step * step
                saved = bend - f * step if np.isfinite(step) else np.inf
                if saved > 1e-9 * (bend + abs(f * step)) or saved == np.inf:
                    gain[k], pays[k] = max(gain[k], saved), True
