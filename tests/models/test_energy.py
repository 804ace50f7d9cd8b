"""Power, joules per token and money; the paper's Table 6."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dmodels.models import energy as en
from dmodels.models.energy import Power, decode_joules_per_token, step_s

V100 = en.Power(55.0, 300.0)


def test_table_6():
    """Printed 0.243, 0.201 and 0.175 J/token; 28.0 % is from the rounded values, 27.8 % from the watts."""
    joules = np.asarray(en.joules_per_token(jnp.array([1315.0, 1410.0, 1720.0]), jnp.array([5422.0, 7009.0, 9820.0])))
    np.testing.assert_array_equal(joules.round(3), [0.243, 0.201, 0.175])
    assert round(100 * float(en.saved_frac(0.175, 0.243)), 1) == 28.0
    assert round(100 * float(en.saved_frac(joules[2], joules[0])), 1) == 27.8
    assert round(100 * (1720 / 1315 - 1)) == 31


def test_power_and_money_by_hand():
    assert float(en.power_w(V100, 0.0)) == 55.0 and float(en.power_w(V100, 1.0, 0.5)) == 55 + 245 / 8
    assert float(en.joules_per_token(100.0, 0.0)) == np.inf
    assert float(en.energy_usd_per_hour(1000.0, 0.10)) == pytest.approx(0.12)
    rent_only = float(en.usd_per_mtoken_with_energy(16.0, 1720.0, 9820.0, 0.0))
    assert rent_only == pytest.approx(16 / 3600 / 9820 * 1e6)
    both = float(en.usd_per_mtoken_with_energy(16.0, 1720.0, 9820.0, 0.10))
    assert both - rent_only == pytest.approx(0.175153 / 3.6e6 * 0.10 * 1.2 * 1e6, rel=1e-5)


def test_a_larger_batch_never_costs_more_energy():
    n = jnp.arange(1.0, 257.0)
    joules = np.asarray(en.decode_joules_per_token(V100, n, 8e-3, 0.65e-3))
    assert (np.diff(joules) < 0).all() and joules[-1] > 300 * 0.65e-3


@settings(max_examples=40)
@given(idle=st.floats(5, 200), extra=st.floats(50, 600), compute=st.floats(0.05, 1.0), e=st.floats(2, 3))
def test_best_clock_against_scipy(idle, extra, compute, e):
    power = en.Power(idle, idle + extra, e)
    energy = lambda f: (idle + extra * f**e) * (1 - compute + compute / f)
    found = float(en.best_clock_frac(power, compute, 0.05, 1.0))
    other = minimize_scalar(energy, bounds=(0.05, 1.0), method="bounded", options={"xatol": 1e-9})
    assert energy(found) <= other.fun * (1 + 1e-9)


POWER = Power(40.0, 100.0)


def test_half_the_clock_doubles_the_part_that_scales_with_it():
    """0.01 s of memory and 0.02 s of compute; 40 W idle and 60 W more at the full clock, an eighth of it at half."""
    assert float(step_s(0.01, 0.02, 0.5)) == pytest.approx(0.05)
    joules = decode_joules_per_token(POWER, 4.0, 0.008, 0.001, 0.5, 0.25)
    assert float(joules) == pytest.approx((40 + 60 / 8) * (0.75 * 0.012 + 2 * 0.25 * 0.012) / 4)
