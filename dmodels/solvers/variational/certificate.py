"""Evidence for an equilibrium: KKT residuals, monotonicity at and around it, and deviations that were tried."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import Flag, flag_nonfinite, flag_where

from .newton import evaluate, norm, residual

#: A least eigenvalue above this share of the largest entry of the jacobian counts as positive.
STRICT = 1e-9


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


def certify(problem, x, lam, nu, samples: int) -> Certificate:
    """The evidence at (x, lam, nu), from the problem's own functions only.

    kkt_residual            largest component of x - clip(x - r), min(lam, -g), h
    stationarity            its part in x; complementarity: max |lam g|; feasibility: largest violation of g <= 0, h = 0
    least_eigenvalue        of the symmetrised jacobian of F at x; least_eigenvalue_sampled: also at `samples` points
    profitable_deviation    most that a player gains, alone and within the constraints, among `samples` deviations (and
                            their shortened copies); for a game given as a map, the linearised gain F(x)_i (x_i - y_i)
    """
    s = evaluate(problem, x, lam, nu, derivatives=False)
    z = residual(problem, s, x, lam)
    n = x.shape[0]
    box = jnp.concatenate([problem.lower - x, x - problem.upper])
    at_x, around = _least_eigenvalues(problem, x, samples)
    return Certificate(
        kkt_residual=norm(z),
        stationarity=norm(z[:n]),
        complementarity=norm(lam * s.g),
        feasibility=jnp.maximum(jnp.max(jnp.concatenate([s.g, box]), initial=0.0), norm(s.e)),
        least_eigenvalue=at_x,
        least_eigenvalue_sampled=around,
        profitable_deviation=_deviation(problem, x, samples),
    )


def flags(problem, certificate: Certificate, x, violation, tolerance):
    """The mask that the certificate supports."""
    scale = 1.0 + norm(jnp.where(jnp.isfinite(x), problem.pseudogradient(x), 0.0))
    failed = ~(certificate.kkt_residual <= tolerance * scale)
    crossed = jnp.any(problem.lower > problem.upper)
    empty = crossed | (failed & (violation > 1e-7))
    unique = (certificate.least_eigenvalue_sampled > 0.0) & problem.shared
    gain = certificate.profitable_deviation > 1e-6 * (1.0 + scale)
    return (
        flag_where(failed, Flag.NOT_CONVERGED)
        | flag_where(empty, Flag.INFEASIBLE)
        | flag_where(~unique, Flag.NOT_UNIQUE)
        | flag_where(gain & ~failed, Flag.OUT_OF_DOMAIN)
        | flag_nonfinite(certificate.kkt_residual, jnp.sum(x))
    )


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


def _least_eigenvalues(problem, x, samples: int):
    """(at x, least of x and the samples), with values that round to zero reported as 0."""

    def least(jacobian):
        symmetric = 0.5 * (jacobian + jacobian.T)
        value = _least_eigenvalue(symmetric)
        return jnp.where(jnp.abs(value) <= STRICT * jnp.max(jnp.abs(symmetric)), 0.0, value)

    if problem.matrix is not None:
        value = least(problem.matrix * problem.weights[:, None])
        return value, value
    jacobian = jax.jacfwd(problem.pseudogradient)
    here = least(jacobian(x))
    if not samples:
        return here, here
    values = jax.vmap(lambda y: least(jacobian(y)))(around(problem, x, samples))
    values = jnp.where(jnp.isfinite(values), values, jnp.inf)  # a sample outside the map's domain says nothing
    return here, jnp.minimum(here, jnp.min(values))


def _least_eigenvalue(symmetric):
    n = symmetric.shape[0]
    if n == 1:
        return symmetric[0, 0]
    if n == 2:
        middle, half = 0.5 * (symmetric[0, 0] + symmetric[1, 1]), 0.5 * (symmetric[0, 0] - symmetric[1, 1])
        return middle - jnp.sqrt(half**2 + symmetric[0, 1] ** 2)
    finite = jnp.isfinite(jnp.sum(symmetric))
    value = jnp.linalg.eigvalsh(jnp.where(finite, symmetric, jnp.eye(n)))[0]
    return jnp.where(finite, value, jnp.nan)


def _deviation(problem, x, samples: int):
    """Largest gain of one player over its sampled feasible deviations; at least 0 (staying)."""
    if not samples:
        return jnp.zeros(())
    targets = around(problem, x, samples)
    shares = jnp.asarray(2.0 ** -np.arange(0, 12, 2))  # the feasible set is convex: shorten until inside
    tries = x[None, None] + shares[:, None, None] * (targets - x[None])[None]
    tries = jnp.reshape(tries, (-1, x.shape[0]))
    masks = np.stack([problem.own(i) for i in range(len(problem.blocks))])
    faces, faces_e = (
        np.any(problem.owners(pieces)[None] & masks[:, None], axis=2)
        for pieces in (problem.inequalities, problem.equalities)
    )
    here = problem.pseudogradient(x)
    base = problem.cost_values(x) if problem.costs is not None else None

    def gain(y, mask, faced, faced_e):
        moved = jnp.where(mask, y, x)
        g = problem.constraints(moved, problem.inequalities)[0]
        e = problem.constraints(moved, problem.equalities)[0]
        allowed = jnp.all(jnp.where(faced, g, 0.0) <= 1e-9) & jnp.all(jnp.abs(jnp.where(faced_e, e, 0.0)) <= 1e-9)
        linear = jnp.sum(jnp.where(mask, here * (x - moved), 0.0))
        gains = linear[None] if base is None else base - problem.cost_values(moved)
        return jnp.where(allowed & jnp.isfinite(gains), gains, 0.0)

    over_players = jax.vmap(gain, in_axes=(None, 0, 0, 0))
    gains = jax.vmap(lambda y: over_players(y, masks, faces, faces_e))(tries)  # (tries, mover, whose cost)
    if base is not None:
        gains = jnp.diagonal(gains, axis1=1, axis2=2)  # one code path for all movers; only the mover's own gain counts
    return jnp.max(gains, initial=0.0)
