"""How many sequences fit, from numbers made by hand."""

from __future__ import annotations

import math

import pytest

from dmodels.core.flags import Flag
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.models.memory import (
    Footprint,
    activation_bytes,
    concurrent_sequences,
    footprint,
    occupancy_bytes,
    out_of_domain,
    sequences_by_bernstein,
    sequences_by_normal,
    sequences_that_fit,
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


@pytest.mark.parametrize("count", [sequences_by_bernstein, sequences_by_normal])
def test_counts_have_no_unit(count):
    """The same bytes in units of 10^9 of them; and no budget holds nobody."""
    one = lambda unit: Footprint(10.0 * unit, 2.0 * unit, 14.0 * unit, 0.5)
    at = lambda unit: [float(count(budget * unit, one(unit), 0.99)) for budget in (0.0, 1.0, 85.0, 505.0)]
    assert at(1.0) == at(1e-9) and at(1.0)[0] == 0.0


def test_a_long_tail_of_footprints_is_counted_at_its_third():
    """Bernstein at c = 190: c l/3 of room is lost twice over."""
    one, tail = Footprint(10.0, 2.0, 200.0), -math.log(0.01)
    c = 190 * tail / 3
    most = lambda n: n * 10.0 + c + math.sqrt(c**2 + 2 * n * 4.0 * tail)
    n = float(sequences_by_bernstein(5e3, one, 0.99))
    assert most(n) <= 5e3 < most(n + 1)


def test_one_token_is_a_context_and_half_a_token_is_none():
    flags = [int(concurrent_sequences(MODEL, GPU_80, tokens).flags) for tokens in (1.0, 0.5)]
    assert flags == [0, Flag.OUT_OF_DOMAIN]


def test_what_is_left_of_the_budget():
    found = concurrent_sequences(MODEL, GPU_80, 1000.0, dp=2)
    left = float(found.budget_bytes - found.slots_count / 2 * found.sequence_bytes)
    assert float(found.free_bytes) == pytest.approx(left) and 0 <= left < float(found.sequence_bytes)


def test_sequences_of_no_bytes_are_not_counted():
    assert float(sequences_that_fit(1e9, 0.0)) == 0.0


def test_one_head_stays_whole_and_one_gpu_holds_any_number():
    asked = lambda heads, tp: bool(out_of_domain(MODEL.replace(n_q_heads=heads), Parallel(tp)))
    assert [asked(1.0, 2.0), asked(7.0, 1.0), asked(0.0, 2.0)] == [True, False, False]


def test_sequences_within_one_block_are_all_alike():
    """Blocks of 4,096 tokens: 10 layers of 2 x 8 x 64 in 2 bytes."""
    one = footprint(MODEL, [10.0, 900.0], [100.0, 700.0], block_tokens=4096)
    block = 4096 * 10 * 2 * 8 * 64 * 2
    found = [float(v) for v in (one.mean_bytes, one.sd_bytes, one.max_bytes, one.skewness)]
    assert found == pytest.approx([block, 0.0, block, 0.0], abs=1.0) and found[3] == 0.0


def test_the_largest_is_one_that_is_seen():
    """100,000 tokens that are never asked for do not count."""
    at = lambda inputs, outputs, weights: float(footprint(MODEL, inputs, outputs, weights, block_tokens=1).max_bytes)
    assert at([10.0, 1e5], [100.0, 100.0], [1.0, 0.0]) == at([10.0], [100.0], [1.0]) == 110 * 10 * 2 * 8 * 64 * 2


def test_the_widest_row_of_a_step():
    """100 tokens in 2 bytes: three rows of 1,000, and 8 heads of 288 with a latent of 512; or 4 heads with K and V."""
    latent = Model(
        1,
        n_mla_layers=1,
        n_q_heads=16,
        hidden_size=1000,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=96,
    )
    assert float(activation_bytes(latent, 2.0, 100.0, 0.0)) == 200 * (3000 + 8 * 288 + 512)
    plain = Model(1, 4, 64, n_q_heads=16, hidden_size=1000)
    assert float(activation_bytes(plain, 4.0, 100.0, 0.0)) == 200 * (3000 + (4 + 2) * 64)
