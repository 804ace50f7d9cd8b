r"""Linear-quadratic games in large batches: F(x) = M x + q, A x <= b, bounds; solved exactly on the active set.

Principal pivoting (Judice and Pires, Computers and Operations Research 21, 1994): guess which bounds and constraints
hold with equality, solve the linear system, flip every index whose sign is wrong, of the rows that are exceeded only
the one that is most; when that does not shrink the number of wrong signs for a few rounds, flip only the last one, with
rows that give way a little (Murty's rule, finite for P-matrices). A few small linear systems per game in compiled code.
Games on which it does not end (no solution, no monotone map) go to `variational_equilibrium`.
"""

from __future__ import annotations

import math
from functools import cache
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import float64
from dmodels.core.threads import share
from dmodels.solvers.solution import Solution

from .certificate import Certificate
from .pivoting import in_one_layout, pivoted
from .solve import Equilibrium, variational_equilibrium

TOLERANCE = 1e-10


@float64
def affine_equilibria(matrix: Any, offset: Any, constraints: Any = None, bounds: Any = (-np.inf, np.inf)) -> Solution:
    """Variational equilibria of a batch of affine games: find x in [l, u], A x <= b with F(x) = M x + q normal to them.

    matrix (k, n, n) or (n, n), offset (k, n) or (n,), constraints (A, b) of shapes (k, m, n) or (m, n) and (k, m) or
    (m,), bounds (l, u), numbers or (k, n) or (n,): what has no batch axis is shared. Value and flags as of
    `variational_equilibrium`; certificate: "kkt_residual" (natural, in the game's units), "relative_residual" (what the
    flags judge: each row relative to its terms), "strictly_monotone" where M + M' has a Cholesky factor (then the
    equilibrium is unique; elsewhere the flag NOT_UNIQUE), "distance_bound" (k, n), inf where it has none, and
    "profitable_deviation", what the owner of one variable gains at most by moving it alone (exact; above 0 only where a
    cost is concave, with the flag OUT_OF_DOMAIN).

    >>> found = affine_equilibria([[2, 8 / 3], [5 / 4, 2]], [[-34, -24.25]], ([[1, 1]], [15]), (0, 10))
    >>> found.value.x.round(9).tolist()
    [[5.0, 9.0]]
    """
    games, count = read_games(matrix, offset, constraints, bounds)
    k, n, rows = math.prod(count), games.offset.shape[-1], games.right.shape[-1]
    work_s = k * 1e-9 * (n + rows) ** 3
    x, lam, rounds = pivoted(games, k, 20 * (n + rows) + 50)
    modulus = np.zeros(len(games.matrix))
    share(lambda i, j: _evidence().moduli(i, j, games.matrix, modulus), len(modulus), work_s)
    spare = [np.zeros((k, n)) for _ in range(3)]
    answers = _evidence().Answers(x, lam, *spare, np.zeros(k), np.zeros(k))
    share(lambda i, j: _evidence().judge(games, answers, modulus, i, j), k, work_s)
    strict = np.broadcast_to(modulus > 0, k)
    flags = np.where(strict, 0, int(Flag.NOT_UNIQUE)).astype(np.int32)
    failed = np.flatnonzero(~(answers.relative <= TOLERANCE))
    if len(failed):
        flags[failed] |= _solve_again(games, answers, failed)
    gain, pays = np.zeros(k), np.zeros(k, bool)
    share(lambda i, j: _evidence().deviations(games, x, i, j, gain, pays), k, work_s)
    flags |= np.where(pays & (flags & int(Flag.NOT_CONVERGED) == 0), int(Flag.OUT_OF_DOMAIN), 0).astype(np.int32)
    value = Equilibrium(x, lam, np.zeros((k, 0)), answers.low_multipliers, answers.high_multipliers)
    certificate = Certificate(
        kkt_residual=answers.worst,
        relative_residual=answers.relative,
        strictly_monotone=strict,
        distance_bound=answers.distance,
        profitable_deviation=gain,
    )
    out = Solution(value, certificate, flags, rounds)
    shaped: Solution = jax.tree.map(lambda leaf: leaf.reshape((*count, *leaf.shape[1:])), out)
    return shaped


def read_games(matrix: Any, offset: Any, constraints: Any, bounds: Any) -> tuple[Any, tuple[int, ...]]:
    """(`Games`, the batch's shape)."""
    m, q = _numbers("matrix", matrix), _numbers("offset", offset)
    n = q.shape[-1] if q.ndim else 0
    if constraints is None:
        constraints = np.zeros((0, n)), np.zeros(0)
    if not isinstance(constraints, list | tuple) or len(constraints) != 2:
        raise InputError("constraints: expected a pair (A, b) for A x <= b, or None")
    a, b = _numbers("constraints", constraints[0]), _numbers("constraints", constraints[1])
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        raise InputError("bounds: expected a pair (lower, upper)")
    low, high = (v if v.ndim else np.full(n, v) for v in (_numbers("bounds", bound) for bound in bounds))
    if not q.ndim or m.shape[-2:] != (n, n) or a.shape[-1:] != (n,) or a.shape[-2:-1] != b.shape[-1:]:
        raise InputError(
            f"matrix {m.shape}, offset {q.shape}, constraints {a.shape} and {b.shape} do not fit each other"
        )
    for side in (low, high):
        if side.shape[-1] != n:
            raise InputError(f"bounds: a side of shape {side.shape} does not fit {n} variables")
        if np.isnan(side).any():
            raise InputError("bounds: a bound is NaN; accepted are numbers, -inf and inf")
    given = ((m, 2), (q, 1), (a, 2), (b, 1), (low, 1), (high, 1))
    try:
        count = np.broadcast_shapes(*(v.shape[: v.ndim - r] for v, r in given))
    except ValueError:
        shapes = ", ".join(str(v.shape) for v, _ in given)
        raise InputError(
            f"matrix, offset, A, b, lower and upper of shapes {shapes} are batches that do not fit"
        ) from None
    parts = []
    for v, r in given:
        own, shape = v.shape[: v.ndim - r], v.shape[v.ndim - r :]
        if math.prod(own) == 1:
            v = v.reshape((1, *shape))
        else:
            v = np.broadcast_to(v, (*count, *shape)).reshape((math.prod(count), *shape))
        parts.append(v)
    return in_one_layout(parts), count


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected an array of numbers") from None


@cache
def _evidence() -> ModuleType:
    """Imported when first needed, as numba takes half a second."""
    from . import _affine_evidence as kernels

    return kernels


def _solve_again(games: Any, answers: Any, failed: np.ndarray) -> np.ndarray:
    """Solve the games numbered `failed` by `variational_equilibrium`, into `answers`; the flags that it raises."""
    few = [jnp.asarray(part[failed] if len(part) > 1 else np.repeat(part, len(failed), 0)) for part in games]
    found = jax.tree.map(np.asarray, _interior(*few))
    v, c = found.value, found.certificate
    given = (v.x, v.multipliers, v.lower_multipliers, v.upper_multipliers, c["distance_bound"])
    for ours, better in zip(answers, (*given, c["kkt_residual"], c["relative_residual"]), strict=True):
        ours[failed] = better
    raised: np.ndarray = found.flags & ~np.int32(Flag.NOT_UNIQUE)
    return raised


@jax.jit
def _interior(m: Any, q: Any, a: Any, b: Any, low: Any, high: Any) -> Solution:
    def one(game: Any) -> Solution:
        m, q, a, b, low, high = game
        return variational_equilibrium((m, q), (a, b) if a.shape[0] else None, (low, high), samples=0)

    found: Solution = jax.lax.map(one, (m, q, a, b, low, high))
    return found
