"""Functions are told apart by what they do, not by which object they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.kept import _name
from dmodels.core.programs import program
from dmodels.core.records import float64
from dmodels.solvers import variational_equilibrium
from dmodels.solvers.formulas import Formula, formula

X = np.zeros(2)


def cost(c, power=2):
    return lambda v: v[0] ** power + c * v[0] * v[1]


@float64
def test_functions_with_the_same_operations_and_numbers_are_equal():
    one, again = formula(cost(8 / 3), X), formula(cost(8 / 3), X)
    assert isinstance(one, Formula) and one == again and hash(one) == hash(again)
    others = [cost(np.nextafter(8 / 3, 3)), cost(8 / 3, 3), lambda v: v[1] ** 2 + 8 / 3 * v[0] * v[1]]
    assert all(one != formula(other, X) for other in others)
    assert one != formula(cost(8 / 3), np.zeros(3))
    assert formula(lambda v, p: p * v[0], X, 1.0) != formula(lambda v, p: p["a"] * v[0], X, {"a": 1.0})
    assert one != "another kind of thing"


@float64
def test_a_formula_has_the_values_and_derivatives_of_its_function():
    function = lambda v, p: jnp.exp(p["a"] * v[0]) / (1.0 + v[1] ** 2) + jnp.sum(jnp.where(v > 0.3, v, 0.0))
    told = formula(function, X, {"a": 0.0})
    assert isinstance(told, Formula)
    of = lambda f: jax.jit(lambda *given: (f(*given), jax.grad(f)(*given), jax.hessian(f)(*given)))
    ours, theirs = of(told), of(function)
    for x in np.random.default_rng(0).normal(size=(5, 2)):
        for one, other in zip(ours(x, {"a": 0.7}), theirs(x, {"a": 0.7}), strict=True):
            np.testing.assert_array_equal(one, other)


@float64
@pytest.mark.parametrize(
    "function",
    [
        lambda v: jax.nn.relu(v[0]),  # its derivative at 0 is its own
        lambda v: jax.lax.cond(v[0] > 0, lambda: jax.nn.softplus(v[1]), lambda: v[1]),
        lambda v: jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), v.dtype), v[0]),
        lambda v: (jax.debug.print("{}", v[0]), v[0])[1],
        lambda v: jnp.sum(v[0] * np.arange(40_000.0)),
    ],
)
def test_a_function_that_its_operations_do_not_tell_is_left_as_it_is(function):
    assert formula(function, X) is function


@float64
def test_a_function_of_a_traced_number_is_left_as_it_is():
    @jax.jit
    def of(number):
        function = cost(number)
        assert formula(function, X) is function
        return number

    of(1.0)


def test_a_formula_may_take_part_in_what_is_kept_for_other_processes():
    """A caller's own function may not: another process may know it by the same name and another meaning."""
    kept = lambda function: _name(program, (function,))
    with jax.enable_x64(True):
        names = [kept(formula(cost(c), X)) for c in (1.5, 1.5, 2.5)]
    assert names[0] == names[1] != names[2] and None not in names
    assert kept(cost(1.5)) is None


def test_a_game_of_known_formulas_is_not_traced_again():
    asked = []

    def game():
        def first(v):
            asked.append(1)
            return v[0] ** 2 + 8 / 3 * v[0] * v[1] - 34 * v[0]

        return [first, lambda v: v[1] ** 2 + 5 / 4 * v[0] * v[1] - 24.25 * v[1]]

    found = [variational_equilibrium(game(), ([[1, 1]], [15]), (0, 10)).value.x]
    asked.clear()
    found.append(variational_equilibrium(game(), ([[1, 1]], [15]), (0, 10)).value.x)
    assert len(asked) == 2  # what it returns, and its operations
    np.testing.assert_allclose(found, [[5.0, 9.0]] * 2, atol=1e-9)
