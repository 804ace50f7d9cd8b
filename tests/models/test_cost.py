"""Dollars: GPUs and instances apart, and prices that earn what the fleet costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models import cost
from dmodels.models.cost import fleet_cost, token_prices, usd_per_mtoken

positive = st.floats(1e-3, 1e4)


def test_sixty_instances_of_two_gpus_are_120_gpus():
    cost = fleet_cost(np.array([60.0, 102.0]), 2.0, 2.21)
    assert cost.fleet_gpus.tolist() == [120.0, 204.0]
    np.testing.assert_allclose(cost.usd_per_year / 1e6, [2.323, 3.949], atol=5e-4)


def test_an_h100_at_2000_tokens_a_second():
    assert float(usd_per_mtoken(3.9, 2000.0)) == pytest.approx(3.9 / 3600 / 2000 * 1e6)
    assert float(usd_per_mtoken(3.9, 0.0)) == np.inf


@given(positive, positive, positive, positive, positive, positive)
def test_prices_earn_what_the_fleet_costs(hourly, rate, inputs, outputs, prefill, decode):
    p = token_prices(hourly, rate, inputs, outputs, prefill, decode)
    earned_per_s = rate * (inputs * p.input_usd_per_mtoken + outputs * p.output_usd_per_mtoken) / 1e6
    assert float(earned_per_s * 3600) == pytest.approx(hourly, rel=1e-9)
    same = rate * (inputs + outputs) * p.blended_usd_per_mtoken / 1e6 * 3600
    assert float(same) == pytest.approx(hourly, rel=1e-9)


def test_all_prefix_hits_make_input_free():
    p = token_prices(3.6, 1.0, 1000.0, 10.0, 0.0, 0.5)
    assert float(p.input_usd_per_mtoken) == 0 and float(p.output_usd_per_mtoken) == pytest.approx(100.0)


def test_gradients_agree_with_finite_differences():
    def price(x):
        return token_prices(*x).output_usd_per_mtoken

    x = jnp.array([12.0, 3.0, 900.0, 150.0, 0.3, 0.9])
    steps = 1e-6 * np.diag(np.asarray(x))
    differences = [(price(x + h) - price(x - h)) / (2 * h.max()) for h in jnp.asarray(steps)]
    np.testing.assert_allclose(jax.grad(price)(x), differences, rtol=1e-6, atol=1e-9)


def test_work_of_no_length_is_no_share_of_the_bill():
    assert float(cost.token_prices(3.6, 1.0, 1000.0, 1000.0, 0.0, 0.0).prefill_frac) == 0.0
