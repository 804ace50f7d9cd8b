"""Whether any player gains by moving anywhere: proved or refuted by interval arithmetic over boxes, or undecided.

Rivals stay where they are. A player's box is halved until each part is shown to lie outside the constraints, or to hold
no cost that is lower by more than the tolerance, by the enclosure of the cost and by its value in the middle with the
enclosure of its slopes. (E. R. Hansen, Global Optimization Using Interval Analysis, 1992.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.flags import WARNINGS, Flag
from dmodels.solvers.interval import Unsupported
from dmodels.solvers.interval_boxes import BoxBounds, box_enclosure
from dmodels.solvers.solution import Solution

from .certificate import Certificate
from .problem import Problem

#: Gains up to this share of the player's cost, or of how much it varies, count as none.
GAIN_RTOL = 1e-6

#: Boxes looked at for one player before nothing is said, and how many at once.
MOST_BOXES, AT_ONCE = 400_000, 60_000

PROVED, UNDECIDED, REFUTED = 1, 0, -1


class Verdict(NamedTuple):
    """What one player can gain by moving: at most `bound` (proved), at least `gain` (attained at `move`)."""

    outcome: int
    bound: float
    gain: float
    move: np.ndarray


class _Own(NamedTuple):
    """A player's problem while its rivals stay: bounds on its cost, its slopes and its constraints over boxes."""

    cost: BoxBounds
    slopes: tuple[BoxBounds, ...]
    limits: tuple[BoxBounds, ...]
    equal: tuple[BoxBounds, ...]


def judged(problem: Problem, found: Solution) -> Solution:
    """`found` with what is proved of its players' deviations: in the certificate, `deviation_bound` (players,), and the
    attained gain in `profitable_deviation`; in the flags, FIRST_ORDER_ONLY where something is left undecided, and
    OUT_OF_DOMAIN where a player gains."""
    flags = int(found.flags)
    if flags & ~int(WARNINGS | Flag.OUT_OF_DOMAIN):
        return found
    verdicts = [_verdict(problem, found.value.x, player) for player in range(len(problem.blocks))]
    outcomes = [v.outcome for v in verdicts]
    if min(outcomes) == REFUTED:
        flags = (flags | int(Flag.OUT_OF_DOMAIN)) & ~int(Flag.FIRST_ORDER_ONLY)
    elif all(outcomes):
        flags &= ~int(Flag.FIRST_ORDER_ONLY)
    gain = max(float(found.certificate["profitable_deviation"]), *(v.gain for v in verdicts))
    more = {"deviation_bound": np.array([v.bound for v in verdicts]), "profitable_deviation": np.float64(gain)}
    return Solution(found.value, Certificate(found.certificate | more), np.int32(flags), found.steps)


def _verdict(problem: Problem, x: np.ndarray, player: int) -> Verdict:
    block = list(problem.blocks[player])
    low, high = (np.asarray(side, float)[block][:, None] for side in (problem.lower, problem.upper))
    here = np.asarray(x, float)[block]
    if not (np.isfinite(low) & np.isfinite(high)).all():
        return Verdict(UNDECIDED, np.inf, 0.0, here)
    try:
        return _search(_own(problem, x, player), low, high, here)
    except Unsupported:
        return Verdict(UNDECIDED, np.inf, 0.0, here)


def _own(problem: Problem, x: np.ndarray, player: int) -> _Own:
    block = problem.blocks[player]
    place = {j: k for k, j in enumerate(block)}

    def over(function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` of all variables as one of the player's own."""
        return lambda t: problem.call(function, jnp.stack([t[place[j]] if j in place else x[j] for j in range(len(x))]))

    def bounds(pieces: Any) -> tuple[BoxBounds, ...]:
        mine = [p for p in pieces if p.players is None or player in p.players]
        return tuple(box_enclosure(_rows(p, over), len(block)) for p in mine)

    assert problem.costs is not None
    cost = over(problem.costs[player])
    single = lambda t: jnp.reshape(cost(t), ())
    units = np.eye(len(block))
    slopes = tuple(box_enclosure(lambda t, e=e: jax.jvp(single, (t,), (jnp.asarray(e),))[1], len(block)) for e in units)
    return _Own(box_enclosure(single, len(block)), slopes, bounds(problem.inequalities), bounds(problem.equalities))


def _rows(piece: Any, over: Callable[..., Any]) -> Any:
    if piece.function is not None:
        return over(piece.function)
    matrix, right = np.asarray(piece.matrix), np.asarray(piece.right)
    # `over` calls with the parameters of the game, where there are any: a matrix needs none
    return over(lambda y, *_: jnp.asarray(matrix) @ y - jnp.asarray(right))


def _possible(own: _Own, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Boxes that are not shown to break a constraint."""
    keep = np.ones(a.shape[1], bool)
    for limit in own.limits:
        keep &= ~(np.atleast_2d(limit(a, b)[0]) > 0).any(0)
    for equal in own.equal:
        least, most = (np.atleast_2d(side) for side in equal(a, b))
        keep &= ~((least > 0) | (most < 0)).any(0)
    return keep


def _allowed(own: _Own, points: np.ndarray) -> np.ndarray:
    """Points that are shown to keep every constraint (never one with an equation, which rounding would break)."""
    keep = np.full(points.shape[1], not own.equal)
    for limit in own.limits:
        keep &= (np.atleast_2d(limit(points, points)[1]) <= 0).all(0)
    return keep


def _search(own: _Own, low: np.ndarray, high: np.ndarray, here: np.ndarray) -> Verdict:
    d = len(here)
    at = here[:, None]
    known = float(own.cost(at, at)[0][0])
    if not np.isfinite(known):
        return Verdict(UNDECIDED, np.inf, 0.0, here)
    parts = max(2, int(64 ** (1 / d)))
    edges = np.stack(np.meshgrid(*[np.arange(parts)] * d, indexing="ij")).reshape(d, -1)
    a, b = low + (high - low) * edges / parts, low + (high - low) * (edges + 1) / parts
    seen, tolerance = 0, -1.0
    while True:
        middle = 0.5 * (a + b)
        f_low, f_high = own.cost(middle, middle)
        if tolerance < 0:
            usual = f_high[np.isfinite(f_high)]
            tolerance = GAIN_RTOL * max(abs(known), np.ptp(usual) if len(usual) else 0.0, 1e-300)
        reach = [np.maximum(-lo, hi) * 0.5 * (b[k] - a[k]) for k, (lo, hi) in enumerate(s(a, b) for s in own.slopes)]
        with np.errstate(invalid="ignore"):
            least = np.fmax(own.cost(a, b)[0], f_low - np.sum(reach, axis=0))
        keep = (least < known - tolerance) & _possible(own, a, b)
        bound = max(tolerance, known - float(least[keep].min(initial=np.inf)))
        good = _allowed(own, middle) & (f_high < known - tolerance)
        if good.any():
            best = np.flatnonzero(good)[np.argmin(f_high[good])]
            return Verdict(REFUTED, bound, known - float(f_high[best]), middle[:, best])
        seen += a.shape[1]
        left = int(keep.sum())
        if not left:
            return Verdict(PROVED, tolerance, 0.0, here)
        widths = (b - a) / np.maximum(high - low, 1e-300)
        if seen > MOST_BOXES or left > AT_ONCE or float(widths[:, keep].max()) < 1e-14:
            return Verdict(UNDECIDED, bound, 0.0, here)
        a, b, middle = a[:, keep], b[:, keep], middle[:, keep]
        smear = np.where(np.isfinite(np.array(reach)[:, keep]), np.array(reach)[:, keep], widths[:, keep])
        along = np.argmax(np.maximum(smear, 0.0) + 1e-300 * widths[:, keep], axis=0)
        column = np.arange(left)
        upper, lower = a.copy(), b.copy()
        upper[along, column] = lower[along, column] = middle[along, column]
        a, b = np.concatenate([a, upper], axis=1), np.concatenate([lower, b], axis=1)
