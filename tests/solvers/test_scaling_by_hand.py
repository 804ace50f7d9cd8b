"""Units of a game follow the game: a variable, a constraint or a cost in other units has the same solver under it."""

from __future__ import annotations

from types import SimpleNamespace as Record

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.solvers.variational.problem import Piece, Problem
from dmodels.solvers.variational.scaling import frame, power_of_two, scale_at, scaled

INF = np.inf
#: F(x) = A x + b over 0 <= x, x_1 <= 6, -9 <= x_2 <= -1; G x <= r.
A = np.array([[2.0, 0.5, 0.0], [0.25, 3.0, 1.0], [0.0, -1.0, 5.0]])
B = np.array([-7.0, 40.0, 3.0])
LOW, HIGH = np.array([0.0, 0.0, -9.0]), np.array([INF, 6.0, -1.0])
G, R = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, -1.0]]), np.array([11.0, 50.0])


def game(units=(1.0, 1.0, 1.0), rows=(1.0, 1.0), cost=1.0, curved=False):
    """The game in z = x / units, constraints and costs multiplied; `curved`: by functions in place of tables."""
    d, c = np.array(units), np.array(rows)
    matrix, offset = cost * d[:, None] * A * d[None], cost * d * B
    table, right = c[:, None] * G * d[None], c * R
    made = lambda f: f if curved else None
    piece = Piece(jnp.array(table), jnp.array(right), made(lambda x: table @ x - right), None, 2)
    return Problem(
        None if curved else jnp.array(matrix),
        None if curved else jnp.array(offset),
        jnp.ones(3),
        jnp.array(LOW / d),
        jnp.array(HIGH / d),
        None,
        (piece,),
        (),
        None,
        made(lambda x: matrix @ x + offset),
        ((0,), (1,), (2,)),
        False,
    )


def test_units_are_the_room_that_each_variable_has():
    """From the corner (0, 0, -9), where F is (-7, 31, -42): x_0 is held at 11 and at 41/3 and wants to go to 3.5, x_1
    at 5.5, within a box of 6, x_2 has a box of 8 and wants to go 8.4; next powers of two above."""
    told = frame(game(), None)
    assert told.unit.tolist() == [4.0, 8.0, 16.0] and told.start is None
    assert told.rows.tolist() == [32.0, 32.0]  # of gradients (4, 16, 0) and (12, 0, 16)
    assert frame(game(), jnp.array([100.0, 1.0, -2.0])).start.tolist() == [1.0, 1 / 8, -2 / 16]  # within its room


@pytest.mark.parametrize(
    "more",
    [
        {"units": (0.25, 1.0, 64.0)},
        {"units": (2.0**40, 2.0**-30, 1.0), "rows": (2.0**9, 2.0**-50)},
        {"cost": 2.0**33},
        {"units": (8.0, 0.5, 1.0), "cost": 2.0**-21, "rows": (1.0, 4.0)},
    ],
)
def test_other_units_are_the_same_game_to_the_solver(more):
    d, c, cost = np.array(more.get("units", (1.0,) * 3)), np.array(more.get("rows", (1.0,) * 2)), more.get("cost", 1.0)
    plain, other = game(), game(**more)
    one, two = frame(plain, None), frame(other, None)
    np.testing.assert_array_equal(two.unit, one.unit / d)
    np.testing.assert_array_equal(two.rows, one.rows * c)
    a, b = scaled(plain, one), scaled(other, two)
    np.testing.assert_array_equal(b.matrix, cost * a.matrix)
    np.testing.assert_array_equal(b.offset, cost * a.offset)
    for name in ("lower", "upper"):
        np.testing.assert_array_equal(getattr(b, name), getattr(a, name))
    for name in ("matrix", "right"):
        np.testing.assert_array_equal(getattr(b.inequalities[0], name), getattr(a.inequalities[0], name))


@pytest.mark.parametrize("curved", [False, True])
def test_what_is_solved_is_the_game_in_units(curved):
    """Forces times their units, constraints over their rows, at unit times y; functions have the room of tables."""
    made = game(curved=curved)
    units = frame(made, None)
    # a function is not known to be a table, nor where it wants to go: x_0 has the room of 11 alone
    assert units.unit.tolist() == ([16.0, 8.0, 16.0] if curved else [4.0, 8.0, 16.0])
    small, y = scaled(made, units), np.array([0.5, 0.25, -0.375])
    x = np.asarray(units.unit) * y
    np.testing.assert_allclose(small.pseudogradient(jnp.array(y)), units.unit * (A @ x + B), rtol=1e-14)
    values, jacobian, _ = small.constraints(jnp.array(y), small.inequalities)
    np.testing.assert_allclose(values, (G @ x - R) / units.rows, rtol=1e-14)
    np.testing.assert_allclose(jacobian, G * units.unit[None] / units.rows[:, None], rtol=1e-14)


def test_a_row_weighs_as_much_as_its_terms():
    """|F| + |J' lam| + |H' nu| + |curvature|; one without any as much as the largest, or 1 where none has any."""
    system = Record(
        f=jnp.array([-3.0, 0.0, 5.0]),
        h=jnp.diag(jnp.array([2.0, 0.0, -7.0])),
        **dict.fromkeys(("jg", "jg_own"), jnp.array([[4.0, 0.0, -1.0]])),
        **dict.fromkeys(("je", "je_own"), jnp.array([[0.0, 0.0, 10.0]])),
    )
    told = scale_at(system, jnp.zeros(3), jnp.array([0.5]), jnp.array([-0.25]))
    assert told.force.tolist() == [3 + 2 + 2, 15, 5 + 0.5 + 2.5 + 7]
    assert told.price.tolist() == pytest.approx([1 / (16 / 7 + 1 / 15)])  # over the sum of squares by weight
    assert told.equal_price.tolist() == pytest.approx([15 / 100])
    none = Record(**vars(system) | {"f": jnp.zeros(3), "h": jnp.zeros((3, 3))})
    assert scale_at(none, jnp.zeros(3), jnp.zeros(1), jnp.zeros(1)).force.tolist() == [1, 1, 1]
    fine = scale_at(system, jnp.array([1e3, 1.0, 0.25]), jnp.zeros(1), jnp.zeros(1), fine=True).force
    assert fine.tolist() == pytest.approx([3 + 2, 5 + 7 * 0.25, 5 + 7 * 0.25], rel=0.05)  # curvature times y, at most 1


def test_next_powers_of_two():
    """No further than where squares are numbers; 1 for what is no size."""
    values = [3.0, 4.0, 0.3, 1e-300, 1e300, 0.0, -2.0, INF]
    above = [4.0, 8.0, 0.5, 2.0**-300, 2.0**300, 1.0, 1.0, 1.0]
    assert power_of_two(jnp.array(values)).tolist() == above
