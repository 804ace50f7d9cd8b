"""Power, joules per token and money; the paper's Table 6; the split of least watts against every other split."""

from __future__ import annotations

import inspect
import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.hardware import SLO
from dmodels.models import energy as en
from dmodels.models.energy import Power, decode_joules_per_token, step_s
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


PAIR = Load(2.0, 0.2, 1.0, 10.0, 0.02, 0.001, decode_compute_frac=0.5)


POWER = Power(40.0, 100.0)


def test_mm1_prefill_and_fluid_decode_at_slower_clocks():
    """0.2 s at half the clock: an M/M/1 of 0.4 s at 80 % answers in 0.4/0.2 = 2 s. Decode: 20 tokens/s, steps of
    (20 + n) 1.125 ms, n = 20 t. Watts: 40 + 60 x 0.5^3 x 0.8 and 40 + 60 x 0.8^3 x n."""
    found = split_metrics(PAIR, 1, 1, 0.5, 0.8, (POWER, POWER))
    step = 0.0225 / (1 - 0.0225)
    assert found["ttft_s"] == pytest.approx(2.0) and found["tpot_s"] == pytest.approx(step)
    assert found["batch_count"] == pytest.approx(20 * step) and found["prefill_busy_frac"] == pytest.approx(0.8)
    watts = 40 + 60 * 0.125 * 0.8 + 40 + 60 * 0.512 * 20 * step
    assert found["watts_w"] == pytest.approx(watts) and found["j_per_token"] == pytest.approx(watts / 20)


def test_variable_prompts_wait_longer_and_full_slots_are_enough():
    """Pollaczek-Khinchine at 40 %: 0.2 + (0.4 / 0.6) 0.2 (1 + 3)/2."""
    assert split_metrics(PAIR._replace(prefill_scv=3.0), 1, 1, 1.0, 1.0, (POWER, POWER))["ttft_s"] == pytest.approx(
        0.2 + 0.4 / 0.6 * 0.2 * 2
    )
    batch = split_metrics(PAIR, 1, 1, 1.0, 1.0, (POWER, POWER))["batch_count"]
    at = lambda slots: split_metrics(PAIR._replace(slots_count=slots), 1, 1, 1.0, 1.0, (POWER, POWER))["tpot_s"]
    assert math.isfinite(at(batch)) and math.isinf(at(batch * 0.999))


def test_a_decode_worker_with_sequences_is_always_busy():
    """500 tokens/s at 20 ms + 1 ms a sequence: 20 in flight. Both full prefill workers: 2 x 100 W."""
    busy = PAIR._replace(rate_rps=50.0, decode_compute_frac=0.0)
    found = split_metrics(busy, 2, 1, 1.0, 1.0, (POWER, POWER))
    assert found["batch_count"] == pytest.approx(20.0) and found["watts_w"] == pytest.approx(300.0)
    assert math.isinf(found["ttft_s"])


def test_one_worker_of_each_kind_is_enough_for_little_and_the_parts_add_up():
    little = PAIR._replace(rate_rps=0.01)
    found = best_split(little, (POWER, POWER), SLO(10.0, 1.0), 4)
    assert (found.value["prefill_gpus"], found.value["decode_gpus"]) == (1, 1)
    parts = found.certificate["prefill_w"][1] + found.certificate["decode_w"][1]
    assert float(parts) == pytest.approx(found.value["watts_w"])
    assert inspect.signature(best_split).parameters["clocks"].default == (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def test_half_the_clock_doubles_the_part_that_scales_with_it():
    """0.01 s of memory and 0.02 s of compute; 40 W idle and 60 W more at the full clock, an eighth of it at half."""
    assert float(step_s(0.01, 0.02, 0.5)) == pytest.approx(0.05)
    joules = decode_joules_per_token(POWER, 4.0, 0.008, 0.001, 0.5, 0.25)
    assert float(joules) == pytest.approx((40 + 60 / 8) * (0.75 * 0.012 + 2 * 0.25 * 0.012) / 4)


#: Two prompts a second of 0.25 s, answered by one token each in steps of (1 + n)/4 s: all numbers of few binary digits.
EVEN = Load(2.0, 0.25, 1.0, 1.0, 0.25, 0.25, decode_compute_frac=0.0)


SIMPLE = (Power(40.0, 100.0), Power(20.0, 50.0))


def test_promises_kept_to_the_digit_by_every_gpu_there_is():
    """Half busy, a prompt of 0.25 s waits as long; one sequence at a time, steps of half a second."""
    best = lambda slo, most=2: best_split(EVEN, SIMPLE, slo, most, (1.0,))
    found = best(SLO(0.5, 0.5))
    assert found.flags == 0 and (found.value["prefill_gpus"], found.value["decode_gpus"]) == (1, 1)
    assert found.certificate["prefill_w"][1] == 40 + 60 / 2 and found.certificate["decode_w"][1] == 50
    for slo in (SLO(0.499, 0.5), SLO(0.5, 0.499)):
        assert best(slo).flags == Flag.INFEASIBLE and best(slo, 3).flags == 0


def test_at_capacity_to_the_digit_no_steps_are_steady():
    """Four tokens a second, each of which makes steps a quarter of a second longer; and four prompts of 0.25 s."""
    full = split_metrics(EVEN._replace(rate_rps=4.0), 1, 1, 1.0, 1.0, SIMPLE)
    assert math.isinf(full["tpot_s"]) and math.isinf(full["ttft_s"])
    assert best_split(EVEN._replace(rate_rps=4.0), SIMPLE, SLO(), 2, (1.0,)).flags == Flag.INFEASIBLE


def test_of_clocks_that_draw_the_same_the_first_is_taken():
    """GPUs that draw no more when busy."""
    flat = Power(40.0, 40.0), Power(20.0, 20.0)
    for clocks in ((0.75, 1.0), (1.0, 0.75)):
        value = best_split(EVEN, flat, SLO(), 2, clocks).value
        assert (value["prefill_clock_frac"], value["decode_clock_frac"], value["watts_w"]) == (clocks[0],) * 2 + (60.0,)


def test_more_workers_than_gpus_are_refused():
    with pytest.raises(InputError, match=r"workers 9.*at most most_gpus = 8"):
        best_split(EVEN, SIMPLE, SLO(), 8, workers=9)
