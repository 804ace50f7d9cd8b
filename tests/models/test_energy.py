"""Power, joules per token and money; the paper's Table 6; the split of least watts against every other split."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dmodels.core.flags import Flag
from dmodels.core.hardware import SLO
from dmodels.models import energy as en
from dmodels.models.energy_split import Load, best_split, split_metrics

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


LOAD = Load(rate_rps=10.0, prefill_s=0.1, prefill_scv=0.5, output_tokens=200.0, base_s=0.02, per_sequence_s=0.4e-3)
POWERS = (en.Power(55.0, 300.0), en.Power(55.0, 200.0))


@pytest.mark.parametrize("slo", [SLO(0.4, 0.05), SLO(0.25, 0.03), SLO(1.0, 0.2)])
def test_best_split_against_all_splits(slo):
    clocks = (0.5, 0.75, 1.0)
    got = best_split(LOAD, POWERS, slo, 9, clocks)
    least = np.inf
    for p, d, f, g in itertools.product(range(1, 9), range(1, 9), clocks, clocks):
        m = split_metrics(LOAD, p, d, f, g, POWERS)
        if p + d <= 9 and m["ttft_s"] <= slo.ttft_s and m["tpot_s"] <= slo.tpot_s:
            least = min(least, m["watts_w"])
    assert got.value["watts_w"] == pytest.approx(least, rel=1e-12)
    assert got.value["ttft_s"] <= slo.ttft_s and got.value["tpot_s"] <= slo.tpot_s


def test_without_clocks_the_smallest_fleet_that_meets_the_slo_is_best():
    got = best_split(LOAD, POWERS, SLO(0.4, 0.05), 16, (1.0,)).value
    for p, d in ((got["prefill_gpus"] - 1, got["decode_gpus"]), (got["prefill_gpus"], got["decode_gpus"] - 1)):
        fails = min(p, d) < 1
        if not fails:
            m = split_metrics(LOAD, p, d, 1.0, 1.0, POWERS)
            fails = m["ttft_s"] > 0.4 or m["tpot_s"] > 0.05
        assert fails
    assert best_split(LOAD, POWERS, SLO(0.01, 0.05), 16).flags == Flag.INFEASIBLE


def test_clocks_save_energy_on_a_fleet_that_is_there_anyway():
    fixed = best_split(LOAD, POWERS, SLO(0.4, 0.05), 12, (1.0,), workers=8).value
    slower = best_split(LOAD, POWERS, SLO(0.4, 0.05), 12, (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), workers=8).value
    assert slower["watts_w"] < 0.9 * fixed["watts_w"] and slower["ttft_s"] <= 0.4
