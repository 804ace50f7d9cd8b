"""Moves of caches, pools and stale readings: where nothing is moved, read or asked for, and in other units."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.workload import Workload
from dmodels.models import migration, pooling, transfer
from dmodels.models.memory import sequences_that_fit
from dmodels.models.queueing import stalled_tpot_s
from dmodels.models.transfer import staleness

pytestmark = pytest.mark.usefixtures("op_by_op")


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_rounds_of_a_move_do_not_depend_on_the_unit_of_bytes(unit):
    """1 GB over 0.5 GB/s, dirtied at 0.05 GB/s, down to 1 MB: 1, 0.1, 0.01 and 0.001 of it in 2.222 s."""
    moved = migration.precopy(1e9 * unit, 5e8 * unit, 5e7 * unit, 1e6 * unit)
    assert [float(moved.rounds_count), int(moved.flags)] == [3.0, 0]
    assert [float(moved.total_s), float(moved.downtime_s)] == pytest.approx([2.222, 0.002])
    assert float(moved.sent_bytes) == pytest.approx(1.111e9 * unit)


def test_a_cache_below_the_threshold_is_sent_at_once():
    moved = migration.precopy(1e3, 1e9, 5e8, 1e6)
    assert [float(x) for x in moved[:4]] == pytest.approx([0.0, 1e-6, 1e-6, 1e3])


def test_two_fixed_rounds_and_the_hand_over():
    """1, 0.1 and 0.01 GB over 10 GB/s."""
    moved = migration.precopy_rounds(1e9, 1e10, 1e9, 2.0)
    assert [float(x) for x in moved[:4]] == pytest.approx([2.0, 0.111, 0.001, 1.11e9])


def test_room_for_three_sequences_holds_three():
    """In GB: 3, 2.999 and 0.9 of them, and less than nothing."""
    asked = ((3.0, 1.0), (2.999, 1.0), (0.9, 1.0), (-0.5, 0.01))
    assert [float(sequences_that_fit(budget, one)) for budget, one in asked] == [3.0, 2.0, 0.0, 0.0]


def test_no_requests_save_nothing():
    s = pooling.savings(0.5, 1.0, 2.0, 1.0, 0.0)
    assert float(s.realized_frac) == 0.0


def test_a_context_that_no_instance_holds_is_told_what_one_holds():
    short = Workload(np.array([10.0]), np.array([5.0]), np.array([1.0]))
    with pytest.raises(InputError, match="at most 1600,"):
        pooling.best_thresholds(short, 1, 1601.0, pooling.SlotEngine(blocks_count=100.0))


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


def test_one_congestion_turns_two_costs_round():
    """1/(1 - c) + 3 s against 0.4/(1 - c) + 4 s tie at c = 0.4, whoever is named first; equal ones never do."""
    at = lambda *asked: float(staleness.same_tier_tolerance(*asked))
    assert [at(1.0, 0.4, 0.2, 3.0, 4.0), at(0.4, 1.0, 0.2, 4.0, 3.0)] == pytest.approx([0.2, 0.2])
    assert [at(1.0, 1.0, 0.2, 3.0, 4.0), at(1.0, 0.4, 0.2, 3.0, 3.0)] == [math.inf, math.inf]


def test_what_readings_can_cost_on_a_full_link():
    """Nothing to send is not slandered: 0.6/(0.5 x 1.1) of flattery. Without an error nothing is lost, link or none."""
    bound = lambda *asked: float(staleness.stale_regret_bound_s(*asked))
    assert bound(0.0, 1.0, 0.5, 0.5, 0.6) == pytest.approx(0.6 / 0.55)
    assert bound(1.0, 1.0, 1.0, 0.5, 0.0) == 0.0 == bound(1.0, 1.0, 0.5, 0.5, 0.0)


def test_a_full_link_does_not_slander_who_sends_nothing():
    """0.5 s to wait, whatever is read, keeps 1/1.3 s at best out."""
    regret = staleness.worst_stale_regret_s(np.array([1.0, 0.0]), np.array([0.0, 0.8]), np.array([0.0, 0.5]), 0.3)
    assert float(regret) == 0.0


def test_a_constant_signal_stays_for_ever():
    assert float(staleness.correlation_time_s(np.ones(5), 1.0)) == math.inf


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e6])
def test_without_stalls_a_token_takes_its_step_in_any_unit(unit):
    got = stalled_tpot_s(0.99, 0.02 * unit, jnp.zeros(1), jnp.zeros(1), jnp.array([100.0]), jnp.ones(1))
    assert float(got) / unit == pytest.approx(0.02, rel=1e-8)


@pytest.mark.parametrize("q", [0.9, 0.999, 0.9999])
def test_a_rare_stall_of_one_class_by_cardano(q):
    """The logistic of 1.5976 z + 0.07056 z^3 at its q, and Wilson and Hilferty's cube of a normal."""
    z = max(np.roots([0.07056, 0.0, 1.5976, -math.log(q / (1 - q))]), key=lambda r: -abs(r.imag)).real
    expected = 0.02 + 0.1 * (1 - 1 / 72 + z / (3 * math.sqrt(8))) ** 3
    got = stalled_tpot_s(q, 0.02, jnp.array([1.0]), jnp.array([1 / 8]), jnp.array([10.0]), jnp.ones(1))
    assert float(got) == pytest.approx(expected, rel=1e-6)
