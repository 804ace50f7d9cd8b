r"""Linear-quadratic games in large batches: F(x) = M x + q, A x <= b, bounds; solved exactly on the active set.

Principal pivoting (Judice and Pires, Computers and Operations Research 21, 1994): guess which bounds and constraints
hold with equality, solve the linear system, flip every index whose sign is wrong; when that does not shrink the number
of wrong signs for a few rounds, flip only the last one (Murty's rule, finite for P-matrices). A few small linear
systems per game in compiled code. Games on which it does not end go to `variational_equilibrium`.
"""

from __future__ import annotations

import math
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

from .certificate import EPS, STRICT, Certificate
from .solve import Equilibrium, variational_equilibrium

#: Tried from the left: the first that the symmetric part, its diagonal scaled to 1, exceeds bounds its eigenvalues.
MODULI = np.array([0.3, 0.1, 1e-2, 1e-4, 1e-6, STRICT])
TOLERANCE = 1e-10


@float64
def affine_equilibria(matrix: Any, offset: Any, constraints: Any = None, bounds: Any = (-np.inf, np.inf)) -> Solution:
    """Variational equilibria of a batch of affine games: find x in [l, u], A x <= b with F(x) = M x + q normal to them.

    matrix (k, n, n) or (n, n), offset (k, n) or (n,), constraints (A, b) of shapes (k, m, n) or (m, n) and (k, m) or
    (m,), bounds (l, u), numbers or (k, n) or (n,): what has no batch axis is shared. Value and flags as of
    `variational_equilibrium`; certificate: "kkt_residual" (natural, in the game's units), "relative_residual" (what the
    flags judge: each row relative to its terms), "strictly_monotone" where M + M' has a Cholesky factor (then the
    equilibrium is unique; elsewhere the flag NOT_UNIQUE), and "distance_bound" (k, n), inf where it has none.

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
    r, worst, relative, rounding = _judge(m, q, a, b, low, high, x, lam)
    modulus = np.broadcast_to(_moduli(m[:1] if np.ndim(matrix) == 2 else m), k)
    strict = modulus > 0
    failed = np.flatnonzero(~(relative <= TOLERANCE))
    flags = np.where(strict, 0, int(Flag.NOT_UNIQUE)).astype(np.int32)
    low_z, high_z = np.where(x <= low, np.maximum(r, 0), 0), np.where(x >= high, np.maximum(-r, 0), 0)
    bound = _distance_bound(m, r - low_z + high_z, rounding, modulus, lam, b - np.einsum("kij,kj->ki", a, x))
    if len(failed):
        rest = _interior(*(v[failed] for v in (m, q, a, b, low, high)))
        x[failed], lam[failed] = rest.value.x, rest.value.multipliers
        low_z[failed], high_z[failed] = rest.value.lower_multipliers, rest.value.upper_multipliers
        worst[failed], relative[failed] = rest.certificate["kkt_residual"], rest.certificate["relative_residual"]
        bound[failed] = rest.certificate["distance_bound"]
        flags[failed] |= np.asarray(rest.flags) & ~np.int32(Flag.NOT_UNIQUE)
    value = Equilibrium(x, lam, np.zeros((k, 0)), low_z, high_z)
    certificate = Certificate(
        kkt_residual=worst, relative_residual=relative, strictly_monotone=strict, distance_bound=bound
    )
    out = Solution(value, certificate, flags, rounds)
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
        # y = x / unit and rows / height, powers of two that make the diagonal and the rows of A of the order of 1
        unit, height = np.empty(n), np.empty(rows)
        for i in range(n):
            size = abs(m[k, i, i])
            if size == 0.0:
                for c in range(n):
                    size = max(size, abs(m[k, i, c]))
            unit[i] = _power(1.0 / math.sqrt(size)) if size > 0.0 else 1.0
        for j in range(rows):
            size = 0.0
            for i in range(n):
                size = max(size, abs(a[k, j, i]) * unit[i])
            height[j] = _power(size) if size > 0.0 else 1.0
        mk, ak = np.empty((n, n)), np.empty((rows, n))
        for i in range(n):
            for c in range(n):
                mk[i, c] = unit[i] * m[k, i, c] * unit[c]
            for j in range(rows):
                ak[j, i] = a[k, j, i] * unit[i] / height[j]
        bounds = low[k] / unit, high[k] / unit
        rounds[k] = _pivot_one(mk, unit * q[k], ak, b[k] / height, bounds[0], bounds[1], x[k], lam[k], most)
        x[k] *= unit
        lam[k] /= height
    return x, lam, rounds


@kernel
def _power(value):
    return math.ldexp(1.0, math.frexp(value)[1])


@kernel(parallel=True)
def _judge(m, q, a, b, low, high, x, lam):
    """M x + q + A' lam, the natural residual, the residual relative to the terms of each row, and rounding in it."""
    count, n = q.shape
    rows = b.shape[1]
    out, rounding = np.empty((count, n)), np.empty((count, n))
    worst, relative = np.zeros(count), np.zeros(count)
    for k in prange(count):
        sound = True
        for i in range(n):
            r, terms = q[k, i], abs(q[k, i])
            for c in range(n):
                r += m[k, i, c] * x[k, c]
                terms += abs(m[k, i, c] * x[k, c])
            for j in range(rows):
                r += a[k, j, i] * lam[k, j]
                terms += abs(a[k, j, i] * lam[k, j])
            out[k, i], rounding[k, i] = r, 4.0 * EPS * terms
            rest = x[k, i] - min(max(x[k, i] - r, low[k, i]), high[k, i])
            sound &= np.isfinite(rest)
            worst[k] = max(worst[k], abs(rest))
            outside = max(low[k, i] - x[k, i], x[k, i] - high[k, i], 0.0)
            if outside > 0.0:
                relative[k] = max(relative[k], outside / max(abs(x[k, i]), outside))
            if (r > 0.0 and x[k, i] <= low[k, i]) or (r < 0.0 and x[k, i] >= high[k, i]) or low[k, i] == high[k, i]:
                continue
            if r != 0.0:
                relative[k] = max(relative[k], abs(r) / terms)
        for j in range(rows):
            slack, terms = b[k, j], abs(b[k, j])
            for c in range(n):
                slack -= a[k, j, c] * x[k, c]
                terms += abs(a[k, j, c] * x[k, c])
            sound &= np.isfinite(slack)
            worst[k] = max(worst[k], abs(min(lam[k, j], slack)))
            if lam[k, j] < 0.0:
                relative[k] = np.inf
            if slack < 0.0 or lam[k, j] > 0.0:
                relative[k] = max(relative[k], abs(slack) / terms if terms > 0.0 else 0.0)
        if not sound:
            worst[k], relative[k] = np.inf, np.inf
    return out, worst, relative, rounding


def _distance_bound(m, rest, rounding, modulus, lam, slack):
    """See `certificate`: (k, n), in the norm that gives M + M' a diagonal of 2."""
    diagonal = np.diagonal(m, axis1=1, axis2=2)
    root = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, np.inf))
    size = np.sqrt((((np.abs(rest) + rounding) * root) ** 2).sum(axis=1))
    gap = np.abs(lam * slack).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        length = (size + np.sqrt(size**2 + 4.0 * modulus * gap)) / (2.0 * modulus)
    return np.where((modulus > 0)[:, None], root * np.where(modulus > 0, length, 0.0)[:, None], np.inf)


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
def _moduli(m):
    """A lower bound on the eigenvalues of (M + M') / 2 with its diagonal scaled to 1: the first of `MODULI` by which it
    can be lowered and keep a Cholesky factor; 0 where there is none."""
    count, n, _ = m.shape
    out = np.zeros(count)
    for k in prange(count):
        factor, root = np.empty((n, n)), np.empty(n)
        sound = True
        for i in range(n):
            sound &= m[k, i, i] > 0.0
            root[i] = 1.0 / math.sqrt(m[k, i, i]) if m[k, i, i] > 0.0 else 0.0
        for modulus in MODULI:
            if not sound:
                break
            whole = True
            for i in range(n):
                for j in range(i + 1):
                    total = 0.5 * (m[k, i, j] + m[k, j, i]) * root[i] * root[j]
                    for c in range(j):
                        total -= factor[i, c] * factor[j, c]
                    if i > j:
                        factor[i, j] = total / factor[j, j]
                    elif total > modulus:
                        factor[i, i] = math.sqrt(total - modulus)
                    else:
                        whole = False
                        break
                if not whole:
                    break
            if whole:
                out[k] = modulus
                break
    return out
