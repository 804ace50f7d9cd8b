r"""Linear-quadratic games in large batches: F(x) = M x + q, A x <= b, bounds; solved exactly on the active set.

Principal pivoting (Judice and Pires, Computers and Operations Research 21, 1994): guess which bounds and constraints
hold with equality, solve the linear system, flip every index whose sign is wrong; when that does not shrink the number
of wrong signs for a few rounds, flip only the last one (Murty's rule, finite for P-matrices). A few small linear
systems per game in compiled code. Games on which it does not end go to `variational_equilibrium`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numba import prange

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import float64
from dmodels.solvers.solution import Solution

from .certificate import STRICT, Certificate
from .solve import Equilibrium, variational_equilibrium


@float64
def affine_equilibria(matrix: Any, offset: Any, constraints: Any = None, bounds: Any = (-np.inf, np.inf)) -> Solution:
    """Variational equilibria of a batch of affine games: find x in [l, u], A x <= b with F(x) = M x + q normal to them.

    matrix (k, n, n) or (n, n), offset (k, n) or (n,), constraints (A, b) of shapes (k, m, n) or (m, n) and (k, m) or
    (m,), bounds (l, u), numbers or (k, n) or (n,): what has no batch axis is shared. Value and flags as of
    `variational_equilibrium`; certificate: "kkt_residual", and "strictly_monotone" where M + M' has a Cholesky factor
    (then the equilibrium is unique; elsewhere the flag NOT_UNIQUE).

    >>> found = affine_equilibria([[2, 8 / 3], [5 / 4, 2]], [[-34, -24.25]], ([[1, 1]], [15]), (0, 10))
    >>> found.value.x.round(9).tolist()
    [[5.0, 9.0]]
    """
    m, q = np.asarray(matrix, float), np.asarray(offset, float)
    n = q.shape[-1]
    a, b = (np.zeros((0, n)), np.zeros(0)) if constraints is None else (np.asarray(c, float) for c in constraints)
    low, high = (np.asarray(v, float) for v in bounds)
    low, high = (v if v.ndim else np.full(n, v) for v in (low, high))
    if m.shape[-2:] != (n, n) or a.shape[-1:] != (n,) or a.shape[-2] != b.shape[-1]:
        raise InputError(f"M {m.shape}, q {q.shape}, A {a.shape}, b {b.shape} do not fit each other")
    count = np.broadcast_shapes(m.shape[:-2], q.shape[:-1], a.shape[:-2], b.shape[:-1], low.shape[:-1], high.shape[:-1])
    k = int(np.prod(count))
    ranks = ((m, 2), (q, 1), (a, 2), (b, 1), (low, 1), (high, 1))
    spread = [np.broadcast_to(v, (*count, *v.shape[-r:])) for v, r in ranks]
    # one memory layout: compiled once
    m, q, a, b, low, high = (np.ascontiguousarray(v.reshape((k, *v.shape[len(count) :]))) for v in spread)
    x, lam, rounds = _pivot(m, q, a, b, low, high, 20 * (n + a.shape[1]) + 50)
    r = np.einsum("kij,kj->ki", m, x) + q + np.einsum("kji,kj->ki", a, lam)
    slack = b - np.einsum("kij,kj->ki", a, x)
    worst = np.abs(x - np.clip(x - r, low, high)).max(axis=1, initial=0.0)
    worst = np.maximum(worst, np.abs(np.minimum(lam, slack)).max(axis=1, initial=0.0))
    scale = 1.0 + np.abs(q).max(axis=1)
    failed = np.flatnonzero(~(worst <= 1e-10 * scale))
    flags = np.zeros(k, np.int32)
    if len(failed):
        rest = _interior(*(v[failed] for v in (m, q, a, b, low, high)))
        x[failed], lam[failed] = rest.value.x, rest.value.multipliers
        worst[failed], flags[failed] = rest.certificate["kkt_residual"], rest.flags
        r[failed] = np.einsum("kij,kj->ki", m[failed], x[failed]) + q[failed]
        r[failed] += np.einsum("kji,kj->ki", a[failed], lam[failed])
    strict = np.broadcast_to(_positive_definite(m[:1] if np.ndim(matrix) == 2 else m), k).copy()
    flags = (flags & ~np.int32(Flag.NOT_UNIQUE)) | np.where(strict, 0, int(Flag.NOT_UNIQUE)).astype(np.int32)
    value = Equilibrium(
        x, lam, np.zeros((k, 0)), np.where(x <= low, np.maximum(r, 0), 0), np.where(x >= high, np.maximum(-r, 0), 0)
    )
    out = Solution(value, Certificate(kkt_residual=worst, strictly_monotone=strict), flags, rounds)
    return jax.tree.map(lambda leaf: leaf.reshape((*count, *leaf.shape[1:])), out)


@jax.jit
def _interior(m, q, a, b, low, high):
    def one(m, q, a, b, low, high):
        return variational_equilibrium((m, q), (a, b) if a.shape[0] else None, (low, high), samples=0)

    return jax.lax.map(lambda game: one(*game), tuple(map(jnp.asarray, (m, q, a, b, low, high))))


@kernel(parallel=True)
def _pivot(m, q, a, b, low, high, most):
    """x, lam, rounds of every game."""
    count, n = q.shape
    rows = b.shape[1]
    x, lam, rounds = np.zeros((count, n)), np.zeros((count, rows)), np.zeros(count, np.int32)
    for k in prange(count):
        rounds[k] = _pivot_one(m[k], q[k], a[k], b[k], low[k], high[k], x[k], lam[k], most)
    return x, lam, rounds


@kernel
def _pivot_one(m, q, a, b, low, high, x, lam, most):
    """One game; writes x and lam. State of a variable: 0 inside, -1 at its lower bound, 1 at its upper."""
    n, rows = q.shape[0], b.shape[0]
    state, tight = np.zeros(n, np.int8), np.zeros(rows, np.bool_)
    for i in range(n):  # start from the bounds, and free what wants to leave them: small systems from the first round
        x[i] = low[i] if np.isfinite(low[i]) else (high[i] if np.isfinite(high[i]) else 0.0)
    for i in range(n):
        r = q[i]
        for c in range(n):
            r += m[i, c] * x[c]
        if low[i] == high[i] or (np.isfinite(low[i]) and r >= 0.0):
            state[i] = -1
        elif not np.isfinite(low[i]) and np.isfinite(high[i]) and r <= 0.0:
            state[i] = 1
    index = np.empty(n + rows, np.int64)
    system, right = np.empty((n + rows, n + rows)), np.empty(n + rows)
    fewest, patience = n + rows + 1, 5
    for step in range(most):
        size = 0
        for i in range(n):
            if state[i] == 0:
                index[size] = i
                size += 1
            else:
                x[i] = low[i] if state[i] < 0 else high[i]
        inside = size
        for j in range(rows):
            lam[j] = 0.0
            if tight[j]:
                index[size] = j
                size += 1
        for r in range(inside):
            i = index[r]
            total = -q[i]
            for c in range(n):
                if state[c] != 0:
                    total -= m[i, c] * x[c]
            right[r] = total
            for c in range(inside):
                system[r, c] = m[i, index[c]]
            for c in range(inside, size):
                system[r, c] = a[index[c], i]
        for r in range(inside, size):
            j = index[r]
            total = b[j]
            for c in range(n):
                if state[c] != 0:
                    total -= a[j, c] * x[c]
            right[r] = total
            for c in range(inside):
                system[r, c] = a[j, index[c]]
            for c in range(inside, size):
                system[r, c] = 0.0
        if not _eliminate(system, right, size):
            return step + 1
        for r in range(inside):
            x[index[r]] = right[r]
        for r in range(inside, size):
            lam[index[r]] = right[r]
        wrong, last = 0, -1
        bulk = patience > 0
        for i in range(n):
            change = np.int8(-2)
            if state[i] == 0:
                if x[i] < low[i]:
                    change = np.int8(-1)
                elif x[i] > high[i]:
                    change = np.int8(1)
            elif low[i] < high[i]:
                r = q[i]
                for c in range(n):
                    r += m[i, c] * x[c]
                for j in range(rows):
                    r += a[j, i] * lam[j]
                if (state[i] < 0 and r < 0.0) or (state[i] > 0 and r > 0.0):
                    change = np.int8(0)
            if change != -2:
                wrong += 1
                last = i
                right[i] = change  # remembered until all signs are known
            else:
                right[i] = -2.0
        for j in range(rows):
            if tight[j]:
                bad = lam[j] < 0.0
            else:
                total = -b[j]
                for c in range(n):
                    total += a[j, c] * x[c]
                bad = total > 0.0
            right[n + j] = 1.0 if bad else 0.0
            if bad:
                wrong += 1
                last = n + j
        if wrong == 0:
            return step + 1
        if wrong < fewest:
            fewest, patience = wrong, 5
            bulk = True
        else:
            patience -= 1
        for i in range(n):
            if right[i] != -2.0 and (bulk or i == last):
                state[i] = np.int8(right[i])
        for j in range(rows):
            if right[n + j] == 1.0 and (bulk or n + j == last):
                tight[j] = not tight[j]
    return most


@kernel
def _eliminate(system, right, size):
    """Solve in place by Gaussian elimination with row pivoting; False if singular."""
    for k in range(size):
        best, row = abs(system[k, k]), k
        for i in range(k + 1, size):
            if abs(system[i, k]) > best:
                best, row = abs(system[i, k]), i
        if not best > 1e-14:
            return False
        if row != k:
            for j in range(k, size):
                system[k, j], system[row, j] = system[row, j], system[k, j]
            right[k], right[row] = right[row], right[k]
        pivot = 1.0 / system[k, k]
        for i in range(k + 1, size):
            factor = system[i, k] * pivot
            if factor != 0.0:
                for j in range(k + 1, size):
                    system[i, j] -= factor * system[k, j]
                right[i] -= factor * right[k]
    for k in range(size - 1, -1, -1):
        total = right[k]
        for j in range(k + 1, size):
            total -= system[k, j] * right[j]
        right[k] = total / system[k, k]
    return True


@kernel(parallel=True)
def _positive_definite(m):
    """Whether M + M' less a margin for rounding has a Cholesky factor, for each M."""
    count, n, _ = m.shape
    out = np.ones(count, np.bool_)
    for k in prange(count):
        factor = np.empty((n, n))
        margin = STRICT * np.abs(m[k]).max()
        for i in range(n):
            for j in range(i + 1):
                total = 0.5 * (m[k, i, j] + m[k, j, i])
                for c in range(j):
                    total -= factor[i, c] * factor[j, c]
                if i > j:
                    factor[i, j] = total / factor[j, j]
                elif total - margin > 0.0:
                    factor[i, i] = np.sqrt(total - margin)
                else:
                    out[k] = False
                    break
            if not out[k]:
                break
    return out
