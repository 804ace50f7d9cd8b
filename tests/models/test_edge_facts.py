"""Values at the edges of the formulas, each known without them: zero payloads, ties, whole blocks, what is left out."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.core.model import Model
from dmodels.models import freeness, migration, pooling
from dmodels.models.memory import kv
from dmodels.models.multiplexing import servers_count
from dmodels.models.router import choice_probabilities, choose
from dmodels.models.transfer import choice as network_choice
from dmodels.models.transfer import paths as transfer_paths
from dmodels.models.transfer import staleness

pytestmark = pytest.mark.usefixtures("op_by_op")


def test_a_token_every_50_ms_writes_its_cache_twenty_times_a_second():
    assert float(migration.dirty_bytes_per_s(57_344.0, 0.05)) == pytest.approx(57_344 * 20)


def test_the_hand_over_adds_to_the_downtime_and_to_the_whole():
    plain, slow = (migration.precopy(1e9, 1e10, 1e9, 1e6, handover_s=s) for s in (0.0, 0.5))
    assert float(slow.downtime_s - plain.downtime_s) == pytest.approx(0.5)
    assert float(slow.total_s - plain.total_s) == pytest.approx(0.5)
    assert float(slow.sent_bytes) == float(plain.sent_bytes)


def test_ten_gigabytes_at_ten_gigabytes_a_second_stop_for_a_second():
    assert float(migration.stop_and_copy_s(1e10, 1e10)) == 1.0
    assert float(migration.stop_and_copy_s(1e9, 1e10)) == pytest.approx(0.1)


def test_a_link_slower_than_one_writer_carries_no_migration():
    assert float(migration.most_concurrent(1e9, 2e9)) == 0.0 == float(migration.most_concurrent(1e9, 1e9))


def test_one_migration_doubles_the_time_of_a_transfer():
    assert [float(migration.serving_slowdown(k)) for k in (0.0, 1.0, 2.0)] == [1.0, 2.0, 3.0]


def test_fixed_rounds_that_never_shrink_are_flagged():
    at = lambda q: int(migration.precopy_rounds(1e9, 1e9, q * 1e9, 3.0).flags)
    assert at(0.5) == 0 and at(1.0) == int(Flag.OVERLOAD) == at(1.5)
    same = migration.precopy_rounds(1e9, 1e9, 1e9, 3.0)  # q = 1: four copies of the whole
    assert float(same.sent_bytes) == pytest.approx(4e9) and float(same.rounds_count) == 3
    assert float(migration.precopy_rounds(1e9, 1e10, 1e9, 1.0).sent_bytes) == pytest.approx(1.1e9)


@pytest.mark.parametrize(
    "link, beta, alpha, base, fixed, tokens",
    [
        (1.0, 3.0, 0.0, 0.0, 1.0, 1.0),  # 1 + 2 l against 3 l
        (1.0, 2.0, 1.0, 0.0, 1.0, 1.0),  # 1 + 2 l against 2 l + l^2
        (2.0, 2.0, 1.0, 0.0, 2.0, 1.0),  # 2 + l against 2 l + l^2
        (0.5, 2.0, 1.0, 1.0, 0.0, 1.0),  # 4 l against 1 + 2 l + l^2: they touch
        (1.0, 1.0, 1.0, 5.0, 0.0, 0.0),  # 2 l against 5 + l + l^2: moving always wins
        (2.0, 2.0, 1.0, 1.0, 0.9, 0.0),  # moving wins from the first token
        (2.0, 1.0, 0.0, 1.0, 0.0, 0.0),  # same slope, recomputing starts dearer
        (2.0, 1.0, 0.0, 0.0, 1.0, math.inf),  # same slope, moving starts dearer
        (2.0, 1.0, 0.0, 1.0, 1.0, math.inf),  # the same at every length: never quicker
        (1.0, 1.0, 0.0, 0.0, 0.0, math.inf),  # moving is twice as slow per token
        (1.0, 3.0, 0.0, 1.0, 0.0, 0.0),  # recomputing dearer from the start
    ],
)
def test_break_even_of_moving_and_computing_two_bytes_a_token(link, beta, alpha, base, fixed, tokens):
    got = migration.break_even_tokens(2.0, link, beta, alpha, base, fixed)
    assert float(got) == pytest.approx(tokens)


def test_states_of_layers_without_heads_are_split_evenly():
    """Ten layers with 8 bytes of state each: 80 bytes on one GPU, 20 on each of four."""
    model = Model(10, 8, 64, n_linear_layers=10, linear_state_bytes=8.0)
    assert [float(kv.state_bytes(model, tp)) for tp in (1.0, 4.0)] == [80.0, 20.0]


def test_states_with_heads_are_split_by_whole_heads():
    """Six heads on four GPUs: the fullest holds two of them, a third of the state."""
    model = Model(10, 8, 64, n_linear_layers=10, linear_state_bytes=8.0, n_linear_heads=6.0)
    assert float(kv.state_bytes(model, 4.0)) == pytest.approx(80 / 3)


def test_heads_per_gpu():
    assert [float(kv.heads_per_gpu(h, tp)) for h, tp in ((0.0, 8.0), (8.0, 16.0), (8.0, 3.0))] == [0.0, 1.0, 3.0]


def test_one_stage_is_the_model_and_two_keep_the_fuller_end():
    model = Model(10, 8, 64, weight_bytes=100.0, embedding_params=7.0, head_params=5.0)
    one, two = kv.stage(model, 1.0), kv.stage(model, 2.0)
    assert (float(one.embedding_params), float(one.head_params), float(one.weight_bytes)) == (7.0, 5.0, 100.0)
    assert (float(two.embedding_params), float(two.head_params), float(two.weight_bytes)) == (0.0, 7.0, 50.0)


def test_a_context_that_ends_inside_a_block_takes_the_whole_block():
    """8,200 tokens are 513 blocks of 16: 127 fit in 65,536, not 128."""
    assert float(pooling.slots_count(8200.0, pooling.SlotEngine())) == 127.0


def test_no_arrivals_need_no_instances_and_are_no_mistake():
    s = pooling.savings(0.5, 1.0, 2.0, 1.0, 0.0)
    assert int(s.flags) == 0 and float(s.homo_instances_count) == 0.0 == float(s.dual_instances_count)
    assert int(pooling.savings(0.5, 1.0, 2.0, 1.0, -1.0).flags) != 0


def test_whole_instances_are_safe_from_one_saved_instance_on():
    assert [bool(pooling.ceiling_is_safe(0.2, x)) for x in (4.9, 5.0, 50.0)] == [False, True, True]


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


def test_who_sends_nothing_errs_with_the_other_alone():
    """A hit of everything and a delay of 2 s against 1 s of transfer at half congestion, 2 s: a tie already."""
    tolerance = lambda delay: float(staleness.cost_staleness_tolerance(0.0, 1.0, 0.5, 0.5, delay, 0.0))
    assert tolerance(2.0) == pytest.approx(0.0)
    assert tolerance(1.0) == math.inf or tolerance(1.0) == pytest.approx(0.5)  # 1/(1 - c) = 1 at c = 0
    assert tolerance(0.0) == math.inf  # nothing to send, nothing to wait for: always first


def test_worst_regret_of_a_batch_is_that_of_each():
    idle = np.array([[1.0, 1.6, 0.0], [0.5, 0.6, 0.7]])  # the first row: who sends nothing, 1.1 s, keeps 1.6 s out
    congestion, fixed = np.array([[0.0, 0.0, 0.3], [0.1, 0.2, 0.6]]), np.array([[0.0, 0.0, 1.1], [0.3, 0.1, 0.0]])
    both = np.asarray(staleness.worst_stale_regret_s(idle, congestion, fixed, 0.3))
    for k in range(2):
        cost = idle[k] / (1 - congestion[k]) + fixed[k]
        low = idle[k] / (1.3 - congestion[k]) + fixed[k]
        high = np.where(idle[k] > 0, idle[k] / (0.7 - congestion[k]), 0.0) + fixed[k]
        can = [low[i] <= min(high[m] for m in range(3) if m != i) for i in range(3)]
        assert both[k] == pytest.approx(max(c for c, ok in zip(cost, can, strict=True) if ok) - cost.min())
        alone = staleness.worst_stale_regret_s(idle[k], congestion[k], fixed[k], 0.3)
        assert float(alone) == pytest.approx(both[k])


def test_readings_that_never_drift_too_far_need_no_refresh():
    """Unrelated readings differ by sqrt(2) std; with k deviations a tolerance above k sqrt(2) std holds for ever."""
    edge = math.sqrt(2) * 2.0
    assert math.isinf(float(staleness.refresh_interval_s(edge * 1.001, 1.0, 60.0, 2.0)))
    assert math.isfinite(float(staleness.refresh_interval_s(edge * 0.999, 1.0, 60.0, 2.0)))


def test_one_nic_for_all_is_one_sender():
    """10 GB from four GPUs with a NIC each of 1 GB/s: 2.5 s; over one NIC 10 s, whoever sends or receives."""
    each = transfer_paths.fan_out_time_s(1e10, 1e12, 1e9, 1e12, 4.0, 4.0, 8.0)
    sender = transfer_paths.fan_out_time_s(1e10, 1e12, 1e9, 1e12, 4.0, 4.0, 8.0, shared_nic=True)
    receiver = transfer_paths.fan_out_time_s(1e10, 1e12, 1e12, 1e9, 4.0, 4.0, 8.0, shared_nic=True)
    assert (float(each), float(sender), float(receiver)) == (2.5, 10.0, 10.0)
    replicas = transfer_paths.fan_out_time_s(1e10, 1e12, 1e12, 1e9, 4.0, 16.0, 8.0)  # 16 ranks for 8 heads: twice it
    assert float(replicas) == pytest.approx(2e10 / 16e9)


def test_one_server_is_enough_for_a_twentieth_of_its_load():
    """M/M/1: an arrival waits with the probability that the server is busy, so one is enough up to the allowance."""
    assert [float(servers_count(load, 0.1)) for load in (0.0, 0.05, 0.0999, 0.11)] == [0.0, 1.0, 1.0, 2.0]


def test_draws_follow_the_levels_of_the_probabilities():
    costs = jnp.array([0.0, math.log(2.0), math.log(4.0)])  # 4/7, 2/7, 1/7 at tau = 1
    np.testing.assert_allclose(choice_probabilities(costs, 1.0), [4 / 7, 2 / 7, 1 / 7])
    for u, worker in ((0.0, 0), (0.57, 0), (0.58, 1), (0.85, 1), (0.86, 2), (0.999999, 2)):
        assert int(choose(costs, 1.0, u)) == worker
    spread = choice_probabilities(costs, 1.0, normalized=True)  # 0, 1/2, 1 of the range
    np.testing.assert_allclose(spread[0] / spread[1], math.exp(0.5))


def test_slower_prefill_starves_decode_in_proportion():
    """Four workers, 256 tokens at 50 ms: 16 sequences are left once a prefill takes 3.2 s."""
    assert float(freeness.starvation_service_s(16.0, 0.05, 256.0, 4.0)) == pytest.approx(3.2)
