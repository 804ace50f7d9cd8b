"""How many sequences fit, from numbers made by hand."""

from __future__ import annotations

import math

import pytest

from dmodels.core.flags import Flag
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.models.concurrency import (
    Footprint,
    concurrent_sequences,
    occupancy_bytes,
    out_of_domain,
    sequences_by_bernstein,
)

pytestmark = pytest.mark.usefixtures("op_by_op")

MODEL = Model(10, 8, 64, n_q_heads=8)
GPU_80 = GPU(8e10, 2e12, 3e14)


@pytest.mark.parametrize("degree", ["tp", "pp", "dp", "ep"])
def test_each_degree_is_whole_and_at_least_one(degree):
    for value, bad in ((1.0, False), (0.0, True), (0.5, True), (-1.0, True), (1.5, True)):
        layout = Parallel(**({"tp": 1.0, "pp": 1.0, "dp": 1.0, "ep": 1.0} | {degree: value}))
        assert bool(out_of_domain(MODEL, layout)) == bad


def test_layouts_that_no_engine_runs():
    asked = lambda *degrees: bool(out_of_domain(MODEL, Parallel(*degrees)))
    assert not asked(8.0, 10.0, 1.0, 8.0) and not asked(2.0, 1.0, 4.0, 8.0)
    assert asked(3.0) and asked(1.0, 11.0) and asked(2.0, 1.0, 2.0, 5.0)  # 8 heads over 3; 11 stages; 5 experts' GPUs


def test_a_context_longer_than_the_configs_is_extrapolated():
    flags = lambda most, context: int(
        concurrent_sequences(MODEL.replace(max_context_tokens=most), GPU_80, context).flags
    )
    assert [flags(1.0, 2.0), flags(2.0, 2.0), flags(0.0, 2.0)] == [int(Flag.EXTRAPOLATED), 0, 0]


def test_a_skewed_footprint_needs_a_sixth_of_its_skewness_more():
    """At two deviations (97.7 %): n m + 2 s sqrt(n) + (4 - 1)/6 skewness s."""
    p = 0.5 * (1 + math.erf(2 / math.sqrt(2)))
    assert float(occupancy_bytes(9.0, Footprint(10.0, 2.0, 40.0, 0.5), p)) == pytest.approx(90 + 12 + 0.5)


@pytest.mark.parametrize("sd", [0.5, 2.0])
@pytest.mark.parametrize("budget", [80.0, 500.0])
def test_bernsteins_count_is_the_largest_that_passes(sd, budget):
    one, p = Footprint(10.0, sd, 14.0), 0.99
    tail = -math.log(1 - p)
    c = (14.0 - 10.0) * tail / 3
    most = lambda n: n * 10.0 + c + math.sqrt(c**2 + 2 * n * sd**2 * tail)
    n = float(sequences_by_bernstein(budget, one, p))
    assert most(n) <= budget < most(n + 1)


def test_a_budget_that_no_deviation_fits_holds_nobody():
    assert float(sequences_by_bernstein(1.0, Footprint(10.0, 2.0, 14.0), 0.99)) == 0.0
