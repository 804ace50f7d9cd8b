"""Dollars: GPUs and instances apart, and prices that earn what the fleet costs."""

import numpy as np
import pytest

from dmodels.models.cost import fleet_cost, usd_per_mtoken


def test_sixty_instances_of_two_gpus_are_120_gpus():
    cost = fleet_cost(np.array([60.0, 102.0]), 2.0, 2.21)
    assert cost.fleet_gpus.tolist() == [120.0, 204.0]
    np.testing.assert_allclose(cost.usd_per_year / 1e6, [2.323, 3.949], atol=5e-4)


def test_an_h100_at_2000_tokens_a_second():
    assert float(usd_per_mtoken(3.9, 2000.0)) == pytest.approx(3.9 / 3600 / 2000 * 1e6)
    assert float(usd_per_mtoken(3.9, 0.0)) == np.inf
