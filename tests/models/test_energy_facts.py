"""A split of one prefill and one decode worker at two clocks, by hand."""

from __future__ import annotations

import inspect
import math

import pytest

from dmodels.core.hardware import SLO
from dmodels.models.energy import Power, decode_joules_per_token, step_s
from dmodels.models.energy_split import Load, best_split, split_metrics

pytestmark = pytest.mark.usefixtures("op_by_op")

LOAD = Load(2.0, 0.2, 1.0, 10.0, 0.02, 0.001, decode_compute_frac=0.5)
POWER = Power(40.0, 100.0)


def test_mm1_prefill_and_fluid_decode_at_slower_clocks():
    """0.2 s at half the clock: an M/M/1 of 0.4 s at 80 % answers in 0.4/0.2 = 2 s. Decode: 20 tokens/s, steps of
    (20 + n) 1.125 ms, n = 20 t. Watts: 40 + 60 x 0.5^3 x 0.8 and 40 + 60 x 0.8^3 x n."""
    found = split_metrics(LOAD, 1, 1, 0.5, 0.8, (POWER, POWER))
    step = 0.0225 / (1 - 0.0225)
    assert found["ttft_s"] == pytest.approx(2.0) and found["tpot_s"] == pytest.approx(step)
    assert found["batch_count"] == pytest.approx(20 * step) and found["prefill_busy_frac"] == pytest.approx(0.8)
    watts = 40 + 60 * 0.125 * 0.8 + 40 + 60 * 0.512 * 20 * step
    assert found["watts_w"] == pytest.approx(watts) and found["j_per_token"] == pytest.approx(watts / 20)


def test_variable_prompts_wait_longer_and_full_slots_are_enough():
    """Pollaczek-Khinchine at 40 %: 0.2 + (0.4 / 0.6) 0.2 (1 + 3)/2."""
    assert split_metrics(LOAD._replace(prefill_scv=3.0), 1, 1, 1.0, 1.0, (POWER, POWER))["ttft_s"] == pytest.approx(
        0.2 + 0.4 / 0.6 * 0.2 * 2
    )
    batch = split_metrics(LOAD, 1, 1, 1.0, 1.0, (POWER, POWER))["batch_count"]
    at = lambda slots: split_metrics(LOAD._replace(slots_count=slots), 1, 1, 1.0, 1.0, (POWER, POWER))["tpot_s"]
    assert math.isfinite(at(batch)) and math.isinf(at(batch * 0.999))


def test_a_decode_worker_with_sequences_is_always_busy():
    """500 tokens/s at 20 ms + 1 ms a sequence: 20 in flight. Both full prefill workers: 2 x 100 W."""
    busy = LOAD._replace(rate_rps=50.0, decode_compute_frac=0.0)
    found = split_metrics(busy, 2, 1, 1.0, 1.0, (POWER, POWER))
    assert found["batch_count"] == pytest.approx(20.0) and found["watts_w"] == pytest.approx(300.0)
    assert math.isinf(found["ttft_s"])


def test_one_worker_of_each_kind_is_enough_for_little_and_the_parts_add_up():
    little = LOAD._replace(rate_rps=0.01)
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
