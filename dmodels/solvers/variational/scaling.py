"""Units for a game: variables measured by the room they have, constraints by their gradients, costs row by row.

A game keeps its equilibria when a cost, a variable or a constraint is multiplied by a positive number, so the solver
and its judgement must not depend on it either. The solver works with y = x / unit and g / rows, where units are powers
of two (exact), and weighs each row of the KKT system by the terms that it is made of.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.records import Real

if TYPE_CHECKING:
    from .problem import Piece, Problem

#: A slack below this share of its own terms is rounding and says nothing about the room.
ROUNDING = 1e-9
#: Beside a tolerance of 1e-10, this allows a residual of 14 units in the last place of the terms of F.
ROUNDED = 3e-5


class Frame(NamedTuple):
    """x = unit y; g(x) = rows g_y; h(x) = equal_rows h_y. A multiplier of g is that of g_y divided by rows. `start` is
    the user's, in y, kept within the room that a lone bound and the constraints leave."""

    unit: Real  # (n,)
    rows: Real  # (m,)
    equal_rows: Real  # (p,)
    start: Real | None


def frame(problem: Problem, x0: Real | None) -> Frame:
    """Units from bounds, constraints, the start that the user gave, and for affine maps from the map itself."""
    low, high = problem.lower, problem.upper
    corner = jnp.where(jnp.isfinite(low), low, jnp.where(jnp.isfinite(high), high, 0.0))
    away = jnp.where(jnp.isfinite(low), 1.0, -1.0)  # the direction that leads off the corner
    boxed = jnp.isfinite(high - low) & (high > low)
    unit = jnp.where(boxed, jnp.where(boxed, high - low, 1.0), jnp.inf)
    point = x0 if x0 is not None else jnp.where(boxed, corner + 0.5 * unit, corner + away)
    for piece in problem.inequalities + problem.equalities:
        unit = jnp.minimum(unit, _room(problem, piece, corner, away, point))
    if problem.matrix is not None:
        unit = jnp.minimum(unit, _reach(problem.matrix, problem.matrix @ corner + problem.offset))
    known = jnp.isfinite(unit)
    if x0 is not None:
        start = jnp.abs(x0 - corner)
        unit = jnp.where(known | (start == 0), unit, start)
    unit = power_of_two(unit)
    if x0 is not None:
        lone = known & (jnp.isfinite(low) ^ jnp.isfinite(high))
        x0 = jnp.where(lone, jnp.clip(x0, corner - unit, corner + unit), x0) / unit

    def heights(pieces: tuple[Piece, ...]) -> Real:
        jacobian = problem.constraints(point, pieces)[1]
        return power_of_two(jnp.max(jnp.abs(jacobian) * unit[None], axis=1, initial=0.0))

    return Frame(unit, heights(problem.inequalities), heights(problem.equalities), x0)


def _room(problem: Problem, piece: Piece, corner: Real, away: Real, point: Real) -> Real:
    """How far each variable can move alone from the corner until the piece stops it; inf where it says nothing."""
    if piece.function is None:
        jacobian, at = piece.matrix, piece.matrix @ corner - piece.right
        terms = jnp.abs(piece.matrix) @ jnp.abs(corner) + jnp.abs(piece.right)
    else:
        jacobian, at = piece.jacobian(problem.call, corner), piece.value(problem.call, corner)
        sound = jnp.isfinite(at) & jnp.isfinite(jnp.sum(jacobian, axis=1))  # else the corner is a pole
        jacobian = jnp.where(sound[:, None], jacobian, piece.jacobian(problem.call, point))
        at = jnp.where(sound, at, piece.value(problem.call, point))
        terms = jnp.abs(at)
    told = (jnp.abs(at) > ROUNDING * terms)[:, None] & (jacobian != 0.0) & jnp.isfinite(at)[:, None]
    steps = jnp.abs(at)[:, None] / jnp.where(told, jnp.abs(jacobian), 1.0)
    stops = told & (jacobian * away[None] > 0)  # it holds back who leaves the corner
    least = jnp.min(jnp.where(stops, steps, jnp.inf), axis=0, initial=jnp.inf)
    most = jnp.max(jnp.where(told, steps, 0.0), axis=0, initial=0.0)
    return jnp.where(jnp.isfinite(least), least, jnp.where(most > 0, most, jnp.inf))


def _reach(matrix: Real, force: Real) -> Real:
    """How far each row of an affine map wants to move from the corner; inf where nothing does."""
    diagonal = jnp.abs(jnp.diagonal(matrix))
    curve = jnp.where(diagonal > 0, diagonal, jnp.max(jnp.abs(matrix), axis=1))
    root = jnp.where(curve > 0, 1.0 / jnp.sqrt(jnp.where(curve > 0, curve, 1.0)), 0.0)
    common = root * jnp.max(jnp.abs(force) * root)
    alone = jnp.where(diagonal > 0, jnp.abs(force) / jnp.where(diagonal > 0, diagonal, 1.0), 0.0)
    reach = jnp.where(alone > 1e-6 * common, alone, common)
    return jnp.where((reach > 0) & jnp.isfinite(reach), reach, jnp.inf)


def power_of_two(value: Real) -> Real:
    """The power of two next above `value`; 1 where it is zero or not finite."""
    sound = (value > 0) & jnp.isfinite(value)
    below = jnp.where(sound, jnp.clip(value, 2.0**-301, 2.0**299), 0.5).astype(jnp.float64)
    exponent = jax.lax.bitcast_convert_type(below, jnp.int64) & (0x7FF << 52)
    return 2.0 * jax.lax.bitcast_convert_type(exponent, jnp.float64)


def scaled(problem: Problem, units: Frame) -> Problem:
    """The same game in y, with `problem`'s numbers live."""
    unit = units.unit

    def pieces(group: tuple[Piece, ...], heights: Real) -> tuple[Piece, ...]:
        out, first = [], 0
        for piece in group:
            height = heights[first : first + piece.rows]
            first += piece.rows
            if piece.function is None:
                piece = replace(piece, matrix=piece.matrix * unit[None] / height[:, None], right=piece.right / height)
            else:
                piece = replace(piece, height=height)
            out.append(piece)
        return tuple(out)

    if problem.matrix is not None:
        problem = replace(problem, matrix=unit[:, None] * problem.matrix * unit[None], offset=unit * problem.offset)
    return replace(
        problem,
        lower=problem.lower / unit,
        upper=problem.upper / unit,
        inequalities=pieces(problem.inequalities, units.rows),
        equalities=pieces(problem.equalities, units.equal_rows),
        unit=unit,
    )


class Scale(NamedTuple):
    """What one unit of y is worth in each row: force (n,) in the stationarity conditions, price (m,) of a multiplier.

    force is the sum of a row's terms, |F| + |J_g' lam| + |J_h' nu| + |H| size; a residual of `tolerance` x force is a
    Newton step of about `tolerance` x size. price is the multiplier that moves y by one unit.
    """

    force: Real
    price: Real
    equal_price: Real


def scale_at(s: Any, y: Real, lam: Real, nu: Real, fine: bool = False) -> Scale:
    """The scale of the KKT functions `s` (a `System`) at y; size is a unit, or with `fine`, to judge by, that of y."""
    size = jnp.minimum(jnp.abs(y), 1.0) + ROUNDED * (1.0 + jnp.abs(y)) if fine else jnp.ones_like(y)
    force = jnp.abs(s.f) + jnp.abs(s.jg_own).T @ lam + jnp.abs(s.je_own).T @ jnp.abs(nu) + jnp.abs(s.h) @ size
    top = jnp.max(jnp.where(jnp.isfinite(force), force, 0.0), initial=0.0)
    force = jnp.where((force > 0) & jnp.isfinite(force), force, jnp.where(top > 0, top, 1.0))
    return Scale(force, _price(s.jg, force), _price(s.je, force))


def _price(jacobian: Real, force: Real) -> Real:
    soft = (jacobian**2) @ (1.0 / force)
    return 1.0 / jnp.where((soft > 0) & jnp.isfinite(soft), soft, 1.0)
