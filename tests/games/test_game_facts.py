"""Values of the violation rates and of the balance of a split, each known without them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmodels.games.placement_networks import levels
from dmodels.games.resource_game import Game, balance_of
from dmodels.games.violation import Alone, Exponential, Logistic, Multiplied, Power, Starved


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
        1000.0, -1000.0, 0.0, 1000.0, -1000.0,
    ]  # fmt: skip


def test_the_tree_of_one_and_of_two_workers():
    alone, pair = levels([[0.0]]), levels([[0.0, 3.0], [3.0, 0.0]])
    assert alone.hop_s.tolist() == [0.0] and alone.group.tolist() == [[0]]
    assert pair.hop_s.tolist() == [3.0] and pair.group.tolist() == [[0, 0]]
    assert levels([[0.0, 3.0], [2.0, 0.0]]) is None  # no one distance
    assert levels(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])) is None  # a line
