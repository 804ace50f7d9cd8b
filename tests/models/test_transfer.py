"""KV transfer: the paper's worked example and propositions to the printed digit, and limits that need no paper."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.flags import Flag
from dmodels.core.model import Model
from dmodels.models import transfer
from dmodels.models import transfer as tr
from dmodels.models.latency import BatchingCurve
from dmodels.models.transfer import choice as network_choice
from dmodels.models.transfer import paths as transfer_paths

LLAMA_70B = Model(80, 8, 128)
GBIT = 1e9 / 8


def test_llama_70b_keeps_320_kib_per_token_and_80_kib_per_shard():
    assert float(tr.kv_cache_bytes(LLAMA_70B, 1.0)) == 320 * 1024
    assert float(tr.kv_cache_bytes(LLAMA_70B, 1.0, 4.0)) == 80 * 1024
    assert float(tr.kv_cache_bytes(LLAMA_70B, 131072.0)) == 40 * 2**30
    assert float(tr.kv_cache_bytes(LLAMA_70B, 131072.0, 4.0, kv_dtype_bytes=1.0)) == 5 * 2**30


def test_ten_gigabytes_take_3_2_s_at_25_gbit():
    assert float(tr.transfer_time_s(10e9, 25 * GBIT)) == pytest.approx(3.2, rel=1e-15)
    assert float(tr.transfer_time_s(10 * 2**30, 25 * GBIT)) == pytest.approx(3.436, abs=5e-4)  # ten gibibytes


def worked_example(cross_pod_congestion):
    """Section III-D: 2.5 GB per shard; tier 2 at 25 Gbit/s with half a hit and one flow, tier 3 at 12.5, 90 % hit."""
    sizes = tr.effective_bytes(2.5e9, 32768.0, 32768.0 * np.array([0.5, 0.9]), 1e-9)
    congestion = np.array([0.2, cross_pod_congestion])
    rates = tr.effective_bandwidth_bytes_per_s(np.array([25.0, 12.5]) * GBIT, congestion, np.array([1.0, 0.0]))
    return np.asarray(tr.transfer_time_s(sizes, rates))


def test_worked_example_prints_1_0_against_0_2_seconds():
    np.testing.assert_allclose(worked_example(0.2), [1.0, 0.2], rtol=1e-9)


def test_congestion_alone_flips_the_worked_example_only_above_0_84():
    near, far = worked_example(0.8)
    np.testing.assert_allclose([near, far], [1.0, 0.8], rtol=1e-9)
    assert worked_example(0.839)[1] < 1.0 < worked_example(0.841)[1]


def test_hits_count_in_whole_blocks_and_never_exceed_the_prompt():
    hits = np.array([0.0, 15.0, 16.0, 100.0, 500.0, -3.0])
    moved = np.asarray(tr.effective_bytes(1000.0, 100.0, hits))
    np.testing.assert_allclose(moved, [1000, 1000, 840, 40, 40, 1000])


def test_no_bandwidth_is_an_infinite_time_with_a_flag_and_no_bytes_need_none():
    full = tr.post_prefill_latency(1e9, tr.effective_bandwidth_bytes_per_s(1e9, np.array([1.0, 1.3, 0.5])))
    assert np.isinf(full.total_s).tolist() == [True, True, False]
    assert [bool(f & int(Flag.INFEASIBLE)) for f in np.asarray(full.flags)] == [True, True, False]
    assert int(tr.post_prefill_latency(0.0, 0.0).flags) == 0
    assert int(tr.post_prefill_latency(-1.0, 1.0).flags) & Flag.OUT_OF_DOMAIN
    assert int(tr.post_prefill_latency(jnp.nan, 1.0).flags) & Flag.NONFINITE
    assert int(tr.post_prefill_latency(5.0, 1.0, free_bytes=6.0, reserve_bytes=2.0).flags) & Flag.NO_FIT


def test_gradient_at_zero_bandwidth_is_finite():
    slope = jax.grad(lambda c: tr.transfer_time_s(1e9, tr.effective_bandwidth_bytes_per_s(1e9, c)))
    assert np.isfinite(float(slope(1.0))) and np.isfinite(float(slope(0.3)))


def test_the_destination_term_sees_what_equation_4_does_not():
    alone = tr.effective_bandwidth_bytes_per_s(25 * GBIT)
    incast = tr.effective_bandwidth_bytes_per_s(25 * GBIT, destination_bytes_per_s=25 * GBIT, destination_in_flight=3.0)
    assert float(alone / incast) == 4.0


def test_the_counter_stops_at_sixteen():
    rate = np.asarray(tr.effective_bandwidth_bytes_per_s(34.0, 0.0, np.array([15.0, 16.0, 33.0])))
    np.testing.assert_allclose(rate, [34 / 16, 2.0, 2.0])


def test_proposition_1_doubles_the_transfer_time_at_ratio_4():
    loss = tr.oblivious_loss(10e9, 0.0, 0.5, 4.0, 1.0)
    assert bool(loss.loses) and float(loss.ratio) == 2.0 and float(loss.ratio_limit) == 2.0


positive = st.floats(1e-3, 1e3)
frac = st.floats(0.0, 0.99)


@given(s=positive, h_i=frac, h_j=frac, b_i=positive, b_j=positive, f_i=st.floats(0, 10), f_j=st.floats(0, 10))
def test_equation_8_is_the_order_of_the_two_latencies(s, h_i, h_j, b_i, b_j, f_i, f_j):
    loss = tr.oblivious_loss(s, h_i, h_j, b_i, b_j, f_i, f_j)
    lhs, rhs = (1 - h_i) / (b_i / b_j), (1 - h_j) + b_j / s * (f_j - f_i)
    if abs(lhs - rhs) > 1e-9 * (1 + abs(lhs) + abs(rhs)):
        assert bool(loss.loses) == (lhs < rhs)
    near = tr.transfer_time_s(tr.effective_bytes(s, 1.0, h_i, 1e-12), b_i) + f_i
    far = tr.transfer_time_s(tr.effective_bytes(s, 1.0, h_j, 1e-12), b_j) + f_j
    assert float(loss.gap_s) == pytest.approx(float(far - near), rel=1e-6, abs=1e-6 * float(near + far))


@given(h_i=frac, h_j=frac, b_i=positive, b_j=positive, f_i=st.floats(1e-3, 10), f_j=st.floats(1e-3, 10))
def test_the_ratio_is_monotone_in_context_and_bounded_by_its_limit(h_i, h_j, b_i, b_j, f_i, f_j):
    s = np.geomspace(1e-9, 1e9, 40)
    loss = tr.oblivious_loss(s, h_i, h_j, b_i, b_j, f_i, f_j)
    ratio = np.asarray(loss.ratio)
    steps = np.diff(ratio)
    slack = 1e-9 * (1 + ratio.max())
    assert (steps >= -slack).all() or (steps <= slack).all()
    between = sorted([f_j / f_i, float(loss.ratio_limit)])
    assert between[0] - slack <= ratio.min() and ratio.max() <= between[1] + slack


def test_crossover_is_where_the_gap_changes_sign():
    loss = tr.oblivious_loss(1.0, 0.0, 0.5, 4.0, 1.0, near_fixed_s=2.0)
    at = tr.oblivious_loss(loss.crossover_bytes, 0.0, 0.5, 4.0, 1.0, near_fixed_s=2.0)
    assert float(at.gap_s) == pytest.approx(0.0, abs=1e-12)
    assert np.isinf(tr.oblivious_loss(1.0, 0.0, 0.9, 4.0, 1.0, near_fixed_s=2.0).crossover_bytes)


def test_slot_wait_is_exact_for_memoryless_outputs():
    """A batch that never empties, each request ending an iteration with probability 1/L: the k+1-st departure."""
    slots, mean_tokens, ahead = 8, 20.0, 5
    rng = np.random.default_rng(0)
    runs = np.zeros(20_000)
    departed = np.zeros_like(runs)
    while (waiting := departed <= ahead).any():
        runs[waiting] += 1
        departed[waiting] += rng.binomial(slots, 1 / mean_tokens, waiting.sum())
    curve = BatchingCurve(1.0, 0.0, float(slots))
    exact = float(tr.slot_wait_s(float(ahead), float(slots), mean_tokens, curve))
    # several may leave in one iteration, which rounds the wait up by less than one iteration
    assert exact - 4 * runs.std() / 141 < runs.mean() < exact + 1 + 4 * runs.std() / 141
    assert float(tr.queue_delay_s(float(ahead), float(slots), curve)) == 5.0  # Eq. (6)


def test_a_free_slot_is_no_wait_in_either_queue_law():
    curve = BatchingCurve()
    assert float(tr.queue_delay_s(0.0, 63.0, curve)) == float(tr.slot_wait_s(0.0, 63.0, 256.0, curve)) == 0.0
    assert float(tr.first_step_s(63.0, curve)) == pytest.approx(12.48e-3 + 64 * 0.115e-3)


@given(s=positive, rate=positive, prefill=st.floats(0, 100), layers=st.integers(1, 100))
def test_pipelining_hides_at_most_the_prefill_and_matches_a_layer_loop(s, rate, prefill, layers):
    visible = float(tr.pipelined_transfer_s(s, rate, prefill, float(layers)))
    free = 0.0
    for layer in range(1, layers + 1):
        free = max(free, layer * prefill / layers) + s / layers / rate
    assert visible == pytest.approx(free - prefill, rel=1e-9, abs=1e-9 * (prefill + s / rate))
    assert s / rate - prefill <= visible + 1e-9 * (prefill + s / rate) <= s / rate * (1 + 2e-9) + 2e-9 * prefill


def test_fan_out_by_gpu_nics_is_four_times_faster_than_one_shared_nic():
    args = (40e9, 1e15, 25 * GBIT, 25 * GBIT, 4.0, 4.0, 8.0)
    own, shared = tr.fan_out_time_s(*args), tr.fan_out_time_s(*args, shared_nic=True)
    assert float(own) == pytest.approx(3.2) and float(shared / own) == pytest.approx(4.0)
    replicated = tr.fan_out_time_s(40e9, 1e15, 25 * GBIT, 25 * GBIT, 4.0, 16.0, 8.0)
    assert float(replicated) == pytest.approx(2 * 40e9 / 4 / (25 * GBIT))  # two copies of every head leave four senders


def test_staging_in_chunks_tends_to_the_slowest_hop():
    rates = np.array([50e9, 6e9, 25e9])
    whole = float(tr.staged_transfer_s(12e9, rates, 1e-3))
    assert whole == pytest.approx(12 / 50 + 12 / 6 + 12 / 25 + 3e-3)
    fine = float(tr.staged_transfer_s(12e9, rates, 1e-3, 1e3))
    assert 2.003 <= fine < 2.0031
    assert np.isinf(tr.staged_transfer_s(1.0, np.array([1.0, 0.0]), 0.0))


@given(st.lists(positive, min_size=1, max_size=6), positive, positive)
def test_shared_transfer_is_processor_sharing(others, s, rate):
    left, clock, mine = sorted(others), 0.0, s
    while mine > 0:  # fluid: everyone gets rate / n until someone ends
        n = len(left) + 1
        step = min(mine, left[0] if left else mine)
        clock += step * n / rate
        mine -= step
        left = [x - step for x in left if x - step > 1e-15]
    assert float(tr.shared_transfer_s(s, np.array(others), rate)) == pytest.approx(clock, rel=1e-6)


def test_from_which_size_a_slow_far_tier_loses():
    """The far tier is four times as slow. With 1 s of queue near by, 0.75 ns a byte repay it after 4/3 GB."""
    at = lambda near_s, far_s: float(
        network_choice.oblivious_loss(1e9, 0.0, 0.0, 4e9, 1e9, near_fixed_s=near_s, far_fixed_s=far_s).crossover_bytes
    )
    assert at(1.0, 0.0) == pytest.approx(4e9 / 3)
    assert at(0.0, 1.0) == 0.0 == at(0.0, 0.0)  # no debt: from the first byte
    faster = network_choice.oblivious_loss(1e9, 0.0, 0.0, 1e9, 4e9, near_fixed_s=1.0)
    assert math.isinf(float(faster.crossover_bytes)) and not bool(faster.loses)


def test_at_equal_rates_the_fixed_times_decide_for_every_size():
    """Both send a byte in the same time: one second more of queue is never made up; a tie is no win."""
    equal = lambda near_s, far_s: network_choice.oblivious_loss(
        np.array([0.0, 1e9, 1e15]), 0.5, 0.75, 4e9, 2e9, near_fixed_s=near_s, far_fixed_s=far_s
    )
    for near_s, far_s, wins, crossover in (
        (0.0, 1.0, True, 0.0),
        (1.0, 0.0, False, math.inf),
        (1.0, 1.0, False, math.inf),
    ):
        loss = equal(near_s, far_s)
        assert (np.asarray(loss.loses) == wins).all() and float(loss.crossover_bytes) == crossover


def test_a_head_start_on_a_slower_link_is_lost_for_good():
    """A head start of 1 s lasts 4/3 GB where the near link is four times as slow: no size above which near wins."""
    loss = network_choice.oblivious_loss(np.array([1e9, 2e9]), 0.0, 0.0, 1e9, 4e9, far_fixed_s=1.0)
    assert np.asarray(loss.loses).tolist() == [True, False] and math.isinf(float(loss.crossover_bytes))


def test_one_nic_for_all_is_one_sender():
    """10 GB from four GPUs with a NIC each of 1 GB/s: 2.5 s; over one NIC 10 s, whoever sends or receives."""
    each = transfer_paths.fan_out_time_s(1e10, 1e12, 1e9, 1e12, 4.0, 4.0, 8.0)
    sender = transfer_paths.fan_out_time_s(1e10, 1e12, 1e9, 1e12, 4.0, 4.0, 8.0, shared_nic=True)
    receiver = transfer_paths.fan_out_time_s(1e10, 1e12, 1e12, 1e9, 4.0, 4.0, 8.0, shared_nic=True)
    assert (float(each), float(sender), float(receiver)) == (2.5, 10.0, 10.0)
    replicas = transfer_paths.fan_out_time_s(1e10, 1e12, 1e12, 1e9, 4.0, 16.0, 8.0)  # 16 ranks for 8 heads: twice it
    assert float(replicas) == pytest.approx(2e10 / 16e9)


def test_a_dead_hop_passes_nothing_on():
    rates = jnp.array([10.0, 0.0])
    assert [float(transfer_paths.staged_transfer_s(100.0, rates, 0.0, c)) for c in (math.inf, 10.0)] == [math.inf] * 2


def test_nothing_to_send_needs_no_link_and_a_slow_link_is_one():
    """In GB: half of one a second."""
    assert [int(transfer.post_prefill_latency(*asked).flags) for asked in ((0.0, 0.0), (1.0, 0.5))] == [0, 0]


def test_a_transfer_in_gigabytes_and_one_of_nothing():
    """1 GB at half of one a second; what moves without tokens is not in any cache."""
    assert [float(transfer.transfer_time_s(sent, 0.5, 0.25)) for sent in (1.0, 0.0)] == [2.25, 0.25]
    assert float(transfer.effective_bytes(1000.0, 0.0, 0.0)) == 1000.0


def test_a_payload_that_fills_the_free_memory_fits():
    flags = [
        int(transfer.post_prefill_latency(1.0, 1.0, free_bytes=free, reserve_bytes=0.5).flags) for free in (1.5, 1.499)
    ]
    assert flags == [0, Flag.NO_FIT]
