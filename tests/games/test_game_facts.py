"""Values of the violation rates and of the balance of a split, each known without them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmodels.games.anarchy import pole_limit, pole_price, polynomial_weighted, singleton_price
from dmodels.games.placement import levels
from dmodels.games.resource import Alone, Exponential, Game, Logistic, Multiplied, Power, Starved, balance_of

pytestmark = pytest.mark.usefixtures("op_by_op")


def test_a_logistic_rate_is_half_its_scale_in_the_middle():
    rate = Logistic(middle_gpus=8.0, width_gpus=2.0, scale_frac=0.6)
    assert float(rate(8.0)) == pytest.approx(0.3)
    assert float(rate(10.0)) == pytest.approx(0.6 / (1 + math.e))
    assert float(rate(-1e3)) == pytest.approx(0.6) and float(rate(1e3)) == pytest.approx(0.0)


def test_a_power_rate_halves_at_its_knee():
    assert [float(Power(4.0, order, 0.5)(4.0)) for order in (1.0, 2.0)] == pytest.approx([0.25, 0.125])


def test_starvation_adds_or_multiplies():
    """Own 1/e at one GPU and 1 at none, starvation 1/e^2 at two."""
    own, hungry = Exponential(1.0), Exponential(1.0)
    assert float(Alone(own)(1.0, 5.0)) == pytest.approx(math.exp(-1))
    assert float(Starved(own, hungry)(1.0, 2.0)) == pytest.approx(math.exp(-1) + math.exp(-2))
    assert float(Multiplied(own, hungry)(1.0, 2.0)) == pytest.approx(math.exp(-3))


def test_uniqueness_needs_both_rates_convex():
    convex, other = Exponential(1.0), Logistic(8.0, 2.0)
    known = lambda prefill, decode: Game(prefill, Alone(decode), 8.0).convex
    assert known(convex, convex) and not known(convex, other) and not known(other, convex)


def test_the_balance_is_the_log_of_a_ratio_or_its_sign():
    assert float(balance_of(2.0, 3.0)) == pytest.approx(math.log(1.5))
    assert float(balance_of(1e-200, 1e200)) == pytest.approx(400 * math.log(10))
    assert [float(balance_of(*pair)) for pair in ((-0.1, 0.1), (1.0, -1.0), (0.0, 0.0), (0.0, 2.0), (2.0, 0.0))] == [
        1000.0,
        -1000.0,
        0.0,
        1000.0,
        -1000.0,
    ]
    assert [float(balance_of(*pair)) for pair in ((1e200, -1e-200), (-1e-200, 1e200))] == [-1000.0, 1000.0]
    assert [float(balance_of(*pair)) for pair in ((-2.0, -6.0), (-6.0, -2.0))] == pytest.approx([-500.0, 500.0])


def test_the_tree_of_one_and_of_two_workers():
    alone, pair = levels([[0.0]]), levels([[0.0, 3.0], [3.0, 0.0]])
    assert alone.hop_s.tolist() == [0.0] and alone.group.tolist() == [[0]]
    assert pair.hop_s.tolist() == [3.0] and pair.group.tolist() == [[0, 0]]
    assert levels([[0.0, 3.0], [2.0, 0.0]]) is None  # no one distance
    assert levels(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])) is None  # a line


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_the_weighted_price_solves_its_equation(degree):
    """Phi^(d+1) = (Phi + 1)^d."""
    price = polynomial_weighted(degree)
    assert (price ** (1 / (degree + 1)) + 1) ** degree == pytest.approx(price, rel=1e-9)


def test_three_poles_of_order_two():
    assert pole_price(3.0, 2.0) == 9.0


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_poles_in_proportion_cost_no_anarchy(beta):
    """c proportional to d^(1/beta), whatever the constants."""
    d = np.array([1.0, 4.0, 9.0])
    assert float(pole_limit(5.0 * d ** (1 / beta), d, beta)) == pytest.approx(1.0)


def test_a_worker_without_a_pole_fills_first():
    """Near capacity 1 + 4 every request of an equilibrium waits as long as at the pole, d/(c - x) of the first worker;
    the optimum makes only the first worker's own wait: five times less. The limit of ever smaller d."""
    c = np.array([1.0, 4.0])
    assert float(pole_limit(c, np.array([1.0, 0.0]), 1.0)) == pytest.approx(5.0)
    assert float(pole_limit(c, np.array([1.0, 1e-16]), 1.0)) == pytest.approx(5.0, rel=1e-7)


def test_one_table_that_falls_once_is_enough_for_no_bound():
    rising = [1.0, 2.0, 3.0]
    for falling in ([1.0, 3.0, 2.0], [3.0, 2.0, 2.0]):
        assert np.isinf(singleton_price([rising, falling])) and np.isinf(singleton_price([falling, rising]))
    assert singleton_price([[rising, rising], [rising, falling]]).tolist() == [pytest.approx(4 / 3), np.inf]


def test_the_singleton_price_has_no_unit_and_no_pole():
    table = np.array([[1.0, 2.0, 3.0, 4.0]])
    assert [float(singleton_price(scale * table)) for scale in (1.0, 1e-3, 1e3)] == pytest.approx([4 / 3] * 3)
    assert np.isinf(singleton_price([[1.0, 2.0, np.inf]])) and np.isinf(singleton_price([[2.0, 1.0]]))
    assert np.isinf(singleton_price([[np.inf, 1.0]]))
    assert float(singleton_price([[0.0, 0.0, 0.0]])) == 1.0
