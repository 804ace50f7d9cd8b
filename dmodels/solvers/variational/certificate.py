"""Evidence for an equilibrium: KKT residuals, monotonicity at and around it, and deviations that were tried."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.records import Real
from dmodels.solvers.variational.scaling import scale_at

from .newton import fixed, norm, residual
from .problem import Problem

#: A least eigenvalue above this share of the largest entry of the jacobian counts as positive.
STRICT = 1e-9
EPS = 2.0**-52
#: Order of matrices up to which `_bisected` is written out.
MOST_BISECTED = 64
#: What a deviation may exceed a scaled constraint by: rounding, whose price is below any gain that counts.
ROOM = 1e-12


@jax.tree_util.register_pytree_with_keys_class
class Certificate(dict):
    """A mapping whose entries can also be read as attributes: certificate.kkt_residual."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def tree_flatten_with_keys(self):
        names = sorted(self)
        return [(jax.tree_util.DictKey(name), self[name]) for name in names], tuple(names)

    @classmethod
    def tree_unflatten(cls, names, values):
        return cls(zip(names, values, strict=True))


def certify(problem, units, s, at, samples: int) -> tuple[Certificate, jax.Array]:
    """The evidence at (y, lam, nu) = `at` of the scaled `problem`, whose KKT functions there are `s`, and each player's
    gain (`_deviations`).

    In the units of the game as it was given:

    kkt_residual            largest component of x - clip(x - r), min(lam, -g), h, with r = F + J_g' lam + J_h' nu
    stationarity            its part in x; complementarity: max |lam g|; feasibility: largest violation of g <= 0, h = 0
    least_eigenvalue        of the symmetrised jacobian of F at x; least_eigenvalue_sampled: and at the one of `samples`
                            points that looks least definite
    profitable_deviation    most that a player gains, alone and within the constraints, among `samples` deviations (and
                            their shortened copies); for a game given as a map, the linearised gain F(x)_i (x_i - y_i)

    Independent of units:

    relative_residual       the same residual with x in units of the room that it has, r divided by the sum of its terms
                            (`scaling.scale_at`), lam by its price: what the flags judge
    unit                    (n,): the unit of each variable
    strictly_monotone       the symmetrised jacobian is positive definite at x and at the samples, whatever its scaling
    convex                  each player's cost is known to be convex in its own variables: F is affine (or the gradient
                            of costs that are quadratic) and the player's own block of its jacobian is definite
    distance_bound          (n,): each variable is at most this far from the equilibrium (`_distance_bound`); inf where
                            strong monotonicity was not shown. Proved for affine maps; for others it supposes that F is
                            monotone and that its jacobian changes by less than half within the bound
    """
    y, lam, nu = at
    judged = residual(problem, s, y, lam, scale_at(s, y, lam, nu, fine=True))
    # units are powers of two: these are the game's own numbers to the last digit
    x, r, g, e = units.unit * y, s.r / units.unit, units.rows * s.g, units.equal_rows * s.e
    lower, upper, price = units.unit * problem.lower, units.unit * problem.upper, lam / units.rows
    rest = jnp.where(fixed(problem), x - lower, x - jnp.clip(x - r, lower, upper))
    box = jnp.concatenate([lower - x, x - upper])
    at_x, around, strict, convex, shape = _monotonicity(problem, s, units.unit, y, samples)
    gains = _deviations(problem, y, samples)
    return Certificate(
        kkt_residual=norm(jnp.concatenate([rest, jnp.minimum(price, -g), e])),
        stationarity=norm(rest),
        complementarity=norm(price * g),
        feasibility=jnp.maximum(jnp.max(jnp.concatenate([g, box]), initial=0.0), norm(e)),
        least_eigenvalue=at_x,
        least_eigenvalue_sampled=around,
        profitable_deviation=jnp.max(gains, initial=0.0),
        relative_residual=norm(judged),
        unit=units.unit,
        strictly_monotone=strict,
        convex=convex,
        distance_bound=units.unit * _distance_bound(problem, s, shape, y, lam, nu),
    ), gains


def flags(problem, certificate: Certificate, s, gains, at, *, violation, tolerance):
    """The mask that the certificate supports. `violation` is the least one found, in units of the scaled problem."""
    y, lam, nu = at
    failed = ~(certificate.relative_residual <= tolerance)
    crossed = jnp.any(problem.lower > problem.upper)
    empty = crossed | (failed & (violation > 1e-7))
    unique = certificate.strictly_monotone & problem.shared
    costs = jnp.zeros(0) if problem.costs is None else problem.cost_values(y)
    force = scale_at(s, y, lam, nu).force / problem.weights
    worth = jnp.stack([jnp.max(jnp.where(problem.own(i), force, 0.0)) for i in range(len(problem.blocks))])
    rounding = 64 * EPS * jnp.abs(costs) if problem.costs is not None else 0.0
    gain = jnp.any(gains > 1e-6 * worth + rounding)
    return (
        flag_where(failed, Flag.NOT_CONVERGED)
        | flag_where(empty, Flag.INFEASIBLE)
        | flag_where(~unique, Flag.NOT_UNIQUE)
        | flag_where(gain & ~failed, Flag.OUT_OF_DOMAIN)
        | flag_where(~certificate.convex & ~failed, Flag.FIRST_ORDER_ONLY)
        | flag_nonfinite(certificate.kkt_residual, certificate.relative_residual, jnp.sum(y), jnp.sum(costs))
    )


def violation(problem: Problem, x: Real) -> Real:
    """Norm of (max(g, 0), h) at x."""
    g, e = (problem.constraints(x, pieces)[0] for pieces in (problem.inequalities, problem.equalities))
    return jnp.linalg.norm(jnp.concatenate([jnp.maximum(g, 0.0), e]))


def explain(solution) -> list[str]:
    """One sentence for each thing that the flags of one solution say; empty for a certified unique equilibrium."""
    mask, c = int(solution.flags), solution.certificate
    said = []
    if mask & Flag.INFEASIBLE:
        least = float(c["least_violation"])
        said.append(f"The constraints cannot be met: the least violation found over the bounds is {least:.3g}.")
    if mask & (Flag.NOT_CONVERGED | Flag.NONFINITE) and not mask & Flag.INFEASIBLE:
        said.append(f"No equilibrium was found: the best point has a KKT residual of {float(c['kkt_residual']):.3g}.")
    if mask & Flag.OUT_OF_DOMAIN:
        gain = float(c["profitable_deviation"])
        said.append(
            f"The point satisfies the first-order conditions, but a player gains {gain:.3g} by moving alone: "
            "its cost is not convex in its own variables, so the point is no equilibrium."
        )
    if mask & Flag.FIRST_ORDER_ONLY and not mask & Flag.OUT_OF_DOMAIN:
        said.append(
            "First-order only: the costs are not known to be convex, so a deviation that no sample met may still pay."
        )
    if mask & Flag.NOT_UNIQUE:
        least = float(c["least_eigenvalue_sampled"])
        if np.isfinite(least) and least < 0:
            said.append(
                f"The map is not monotone (least eigenvalue {least:.3g} of its symmetrised Jacobian among the points "
                "tried): there may be other equilibria."
            )
        else:
            said.append(
                "Strict monotonicity could not be shown (or a constraint is private to some players): "
                "there may be other equilibria."
            )
    return said


def spread(count: int, dimension: int) -> np.ndarray:
    """`count` points that fill [0, 1]^dimension evenly: multiples of the generalised golden ratio, modulo 1."""
    ratio = 2.0
    for _ in range(40):
        ratio = (1.0 + ratio) ** (1.0 / (dimension + 1))
    return np.mod(0.5 + np.outer(np.arange(1, count + 1), ratio ** -np.arange(1.0, dimension + 1)), 1.0)


def around(problem, x, samples: int):
    """Points of the box; where it has no end, within max(1, |x|) of x. Shape (samples, n)."""
    reach = jnp.maximum(1.0, jnp.abs(x))
    low = jnp.where(jnp.isfinite(problem.lower), problem.lower, x - reach)
    high = jnp.where(jnp.isfinite(problem.upper), problem.upper, jnp.maximum(x, low) + reach)
    return low[None] + (high - low)[None] * jnp.asarray(spread(samples, x.shape[0]))


class _Shape(NamedTuple):
    """Of the symmetrised jacobian S at a point: the least eigenvalue of E S E with a unit diagonal, and E (n,)."""

    modulus: Real
    root: Real


def _monotonicity(problem, s, unit, y, samples: int):
    """(least eigenvalue at y, the least found at y and the samples, whether all are definite, whether costs are known
    to be convex, the `_Shape` at y).

    Eigenvalues are those of the game as given, with values that round to zero reported as 0. Definiteness does not
    depend on units, so it is tested with the diagonal scaled to 1. Of the samples all are tested, by a Cholesky factor,
    but one has its eigenvalue worked out: the one that the eigenvector at y says is least, of those not definite where
    there are any.
    """

    def symmetric_part(jacobian):
        raw = jacobian / (unit[:, None] * unit[None])
        return 0.5 * (raw + raw.T)

    def rounded(value, symmetric):
        return jnp.where(jnp.abs(value) <= STRICT * jnp.max(jnp.abs(symmetric)), 0.0, value)

    derivative = jax.jacfwd(problem.pseudogradient)
    bent = any(piece.function is not None for piece in problem.inequalities + problem.equalities)
    jacobian = derivative(y) if bent else s.h  # without curved constraints
    symmetric = symmetric_part(jacobian)
    scaled, root, positive = _unit_diagonal(jacobian)
    values = least_eigenvalues([symmetric, scaled, *_own_parts(problem, jacobian)], problem.unroll)
    shape = _Shape(jnp.where(positive, jnp.maximum(values[1], 0.0), 0.0), root)
    strict, here = shape.modulus > STRICT, rounded(values[0], symmetric)
    convex = _known_convex(problem, jacobian, strict, values[2:])
    if problem.matrix is not None or not samples:
        return here, here, strict, convex, shape
    # each call of LAPACK waits for the one before (`core.schedule`): on values that are NaN where there are none
    _, vectors = jnp.linalg.eigh(jnp.where(jnp.isfinite(values[0]), symmetric, jnp.eye(problem.n)))
    jacobians = jax.vmap(derivative)(around(problem, y, samples))
    jacobians = jnp.where(jnp.isfinite(vectors[0, 0]), jacobians, jnp.nan)
    said = jnp.isfinite(jnp.sum(jacobians, axis=(1, 2)))  # a sample outside the map's domain says nothing
    definite = jax.vmap(_is_definite)(jacobians)
    parts = jax.vmap(symmetric_part)(jnp.where(said[:, None, None], jacobians, jnp.eye(problem.n)))
    bends = jnp.einsum("i,kij,j->k", vectors[:, 0], parts, vectors[:, 0])
    suspect = said & (~definite | jnp.all(definite | ~said))
    least = parts[jnp.argmin(jnp.where(suspect, bends, jnp.inf))]
    there = jnp.where(jnp.any(said), rounded(least_eigenvalues([least], problem.unroll)[0], least), jnp.inf)
    return here, jnp.minimum(here, there), strict & jnp.all(definite | ~said), convex, shape


def _is_definite(jacobian):
    """Whether the symmetric part, its diagonal scaled to 1, has eigenvalues above `STRICT`."""
    unit, _, positive = _unit_diagonal(jacobian)
    factor = jnp.linalg.cholesky(unit - STRICT * jnp.eye(len(unit)))
    return positive & jnp.isfinite(factor[-1, -1])


def _own_parts(problem, jacobian):
    """The players' own blocks of the symmetrised jacobian of an affine map, where they are more than its diagonal.

    Whatever the units: with a diagonal of 1, and where it is 0 the largest entry of the row.
    """
    if problem.matrix is None or all(len(block) == 1 for block in problem.blocks):
        return []
    own = np.zeros((problem.n, problem.n), bool)
    for block in problem.blocks:
        own[np.ix_(block, block)] = True
    symmetric = jnp.where(own, 0.5 * (jacobian + jacobian.T), 0.0)
    diagonal = jnp.diagonal(symmetric)
    size = jnp.where(diagonal > 0, diagonal, jnp.max(jnp.abs(symmetric), axis=1))
    root = jnp.where(size > 0, 1.0 / jnp.sqrt(jnp.where(size > 0, size, 1.0)), 1.0)
    return [symmetric * root[:, None] * root[None]]


def _known_convex(problem, jacobian, strict, least):
    """`least`: the eigenvalue of `_own_parts`."""
    if problem.matrix is None:
        return jnp.zeros((), bool)
    return strict | (least[0] >= -STRICT if len(least) else jnp.all(jnp.diagonal(jacobian) >= 0.0))


def _unit_diagonal(jacobian):
    """(T, E, whether S has a positive diagonal), where T = E S E has a unit diagonal, S the symmetric part; else I."""
    symmetric = 0.5 * (jacobian + jacobian.T)
    diagonal = jnp.diagonal(symmetric)
    positive = jnp.all(diagonal > 0) & jnp.isfinite(jnp.sum(symmetric))
    root = jnp.where(positive, 1.0 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0)
    return jnp.where(positive, symmetric * root[:, None] * root[None], jnp.eye(len(symmetric))), root, positive


def _distance_bound(problem, s, shape, y, lam, nu):
    r"""(n,): how far y can be from the solution y* of the variational inequality, if F is strongly monotone.

    With bound multipliers z that leave the residual rho = r - z_l + z_u, and gap = sum of all complementarity products,
    $\mu |y - y^*|^2 \le \langle F(y) - F(y^*), y - y^* \rangle \le |\rho| |y - y^*| + gap$ for convex constraints (to
    first order in the violation of them). Here in the norm that gives the symmetrised jacobian a unit diagonal.
    """
    root, proved = shape.root, problem.matrix is not None
    modulus = shape.modulus - 1e-14 * problem.n  # rounding of eigenvalues of a matrix whose entries are at most 1
    modulus = modulus if proved else 0.5 * modulus
    low = jnp.where(jnp.isfinite(problem.lower) & (s.r > 0), y - problem.lower, jnp.inf)
    high = jnp.where(jnp.isfinite(problem.upper) & (s.r < 0), problem.upper - y, jnp.inf)
    room = jnp.minimum(low, high)
    force = jnp.abs(s.f) + jnp.abs(s.jg_own).T @ lam + jnp.abs(s.je_own).T @ jnp.abs(nu) + jnp.abs(s.h) @ jnp.abs(y)
    push = jnp.where(fixed(problem), 0.0, jnp.abs(s.r))
    taken = room <= 1e-9  # the bound takes the force: it counts as complementarity, not as a residual
    rho = jnp.where(taken, 0.0, push) + 8 * EPS * jnp.where(fixed(problem), 0.0, force)
    gap = jnp.sum(jnp.where(taken, push * room, 0.0)) + jnp.sum(lam * jnp.abs(s.g)) + jnp.sum(jnp.abs(nu * s.e))
    size = jnp.linalg.norm(root * rho)
    shown = (modulus > STRICT) & problem.shared
    safe = jnp.where(shown, modulus, 1.0)
    length = (size + jnp.sqrt(size**2 + 4.0 * safe * gap)) / (2.0 * safe)
    return jnp.where(shown & jnp.isfinite(length), root * length, jnp.inf)


def least_eigenvalues(matrices, batched: bool):
    """The least eigenvalue of each symmetric matrix (n, n), NaN where it has an entry that is no number."""
    stack = jnp.stack(matrices)
    n = stack.shape[-1]
    if n == 1:
        return stack[:, 0, 0]
    if n == 2:
        middle, half = 0.5 * (stack[:, 0, 0] + stack[:, 1, 1]), 0.5 * (stack[:, 0, 0] - stack[:, 1, 1])
        return middle - jnp.sqrt(half**2 + stack[:, 0, 1] ** 2)
    finite = jnp.isfinite(jnp.sum(stack, axis=(1, 2)))
    stack = jnp.where(finite[:, None, None], stack, jnp.eye(n))
    by_lapack = lambda stack: jnp.linalg.eigvalsh(stack)[:, 0]
    if batched and n <= MOST_BISECTED:
        value = jax.lax.platform_dependent(stack, cpu=_bisected, default=by_lapack)
    else:
        value = by_lapack(stack)
    return jnp.where(finite, value, jnp.nan)


def _bisected(stack):
    """Least eigenvalues from below, to rounding, by the signs of Sturm's sequence of the tridiagonal form.

    A fifth of the time of `eigvalsh` in batches, and one call of LAPACK: two at once share a batch out over the same
    few threads, block them all and wait for ever (jaxlib 0.10.2 on two cores).
    """
    n = stack.shape[-1]
    size = jnp.max(jnp.abs(stack), axis=(1, 2))
    size = jnp.where(size > 0, size, 1.0)
    _, diagonal, off, _ = jax.lax.linalg.tridiagonal(stack / size[:, None, None])
    squared, reach = off**2, jnp.pad(jnp.abs(off), ((0, 0), (0, 1))) + jnp.pad(jnp.abs(off), ((0, 0), (1, 0)))

    def halved(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        pivot = diagonal[:, 0] - middle
        above = pivot > 0
        for i in range(1, n):
            pivot = diagonal[:, i] - middle - squared[:, i - 1] / pivot
            above &= pivot > 0
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    ends = jnp.min(diagonal - reach, axis=1), jnp.min(diagonal, axis=1)
    return size * jax.lax.fori_loop(0, 54, halved, ends)[0]


def _deviations(problem, x, samples: int):
    """(players,): the largest gain of each over its sampled feasible deviations; at least 0 (staying)."""
    if not samples:
        return jnp.zeros(len(problem.blocks))
    targets = around(problem, x, samples)
    shares = jnp.asarray(2.0 ** -np.arange(0, 12, 2))  # the feasible set is convex: shorten until inside
    tries = x[None, None] + shares[:, None, None] * (targets - x[None])[None]
    tries = jnp.reshape(tries, (-1, x.shape[0]))
    masks = np.stack([problem.own(i) for i in range(len(problem.blocks))])
    faces, faces_e = (
        np.any(problem.owners(pieces)[None] & masks[:, None], axis=2)
        for pieces in (problem.inequalities, problem.equalities)
    )
    here = problem.pseudogradient(x)  # of a game given as a map; a cost's gains carry no weight
    here = here if problem.costs is None else here / problem.weights
    bent = problem.costs is not None and problem.matrix is None
    bend = None  # of quadratic costs, in their owners' variables
    if problem.costs is not None and not bent:
        bend = jnp.where(masks.T.astype(float) @ masks > 0, 0.5 * problem.matrix, 0.0)

    def gains(y):
        if bent:
            return problem.cost_values(x) - problem.cost_values(x, y)
        step = y - x
        slope = here if bend is None else here + bend @ step
        return masks.astype(float) @ (-slope * step)

    def allowed(y, mask, faced, faced_e):
        moved = jnp.where(mask, y, x)
        g = problem.constraints(moved, problem.inequalities)[0]
        e = problem.constraints(moved, problem.equalities)[0]
        return jnp.all(jnp.where(faced, g, 0.0) <= ROOM) & jnp.all(jnp.abs(jnp.where(faced_e, e, 0.0)) <= ROOM)

    def tried(y):
        found = gains(y)
        is_allowed = jax.vmap(allowed, in_axes=(None, 0, 0, 0))(y, masks, faces, faces_e)
        return jnp.where(is_allowed & jnp.isfinite(found), found, 0.0)

    return jnp.max(jax.vmap(tried)(tries), axis=0, initial=0.0)
